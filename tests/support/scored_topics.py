"""Scores of topics, as the service computes them: matching first, then all measures over arrays."""

from collections.abc import Sequence

from app.scoring.measures import Batch, Floats, Measure, compute
from app.scoring.rankings import match, prepare
from tests.support.random_rankings import Topic


def scored(topics: Sequence[Topic], measures: Sequence[Measure], fetch_k: int = 100) -> Floats:
    """Return the scores of topics by measures, (topics, measures); NaN = undefined."""
    prepared = [prepare(judgments) for judgments, _ in topics]
    matches = [match(one, ranking) for one, (_, ranking) in zip(prepared, topics, strict=True)]
    batch = Batch.of(matches, prepared, [ranking.returned for _, ranking in topics])
    return compute(batch, measures, fetch_k)
