"""Score drift of a run against the baseline of its check, from stored rankings. Information only; nothing is written.

What counts as drift is decided in the domain.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from app.base.db.engine import Connection
from app.detection.domain.drift import OVERLAP_DEPTH, score_drift, top_overlap
from app.detection.domain.views import DriftKind, StoredDrift
from app.detection.store import ranking_heads
from app.detection.store.ranking_heads import Head, Span
from app.scoring.run_inputs import RunInputs

_SAMPLE: Final = 200
"""Canaries compared: a median of more would cost more and say the same."""
_RUNS: Final = 50
"""Of a baseline's runs, the newest ones that mean and deviation are taken of."""


def drift_of(
    connection: Connection,
    check_id: int,
    inputs: RunInputs,
    rankings: Sequence[int | None],
    held_since: Callable[[int], int | None],
    *,
    first_run: int,
    last_run: int,
) -> StoredDrift | None:
    """Say how far a run's top scores are from those of the baseline of runs `first_run` to `last_run`.

    `rankings` are the run's ranking ids by position, None = not measured; `held_since` gives the run with which that
    of a position came, None = with this one. None = there is nothing to say: scores are where they were, or are not
    known. Where half of the canaries still have the very rankings with which the baseline ended their median distance
    is none: for rankings that have held since, that needs no query. Of many canaries 200 are compared, evenly spaced
    over the suite; canaries that have changed since are left out.
    """
    places = _sampled_places(rankings)
    steady = sum((since := held_since(place)) is not None and since <= last_run for place in places)
    if 2 * steady > len(places):
        return None
    now = {
        inputs.canary_ids[place]: (inputs.version_ids[place], ranking_id)
        for place in places
        if (ranking_id := rankings[place]) is not None
    }
    ended = ranking_heads.spans(connection, check_id, sorted(now), last_run, last_run)
    ended = [span for span in ended if span.canary_version_id == now[span.canary_id][0]]
    last = {span.canary_id: span.ranking_id for span in ended}
    same = sum(now[canary][1] == ranking_id for canary, ranking_id in last.items())
    if not last or 2 * same > len(last):
        return None
    runs = ranking_heads.measured_runs(connection, check_id, first_run, last_run, limit=_RUNS)
    if not runs:
        return None
    held = ranking_heads.spans(connection, check_id, sorted(last), runs[0], runs[-1])
    held = [span for span in held if span.canary_version_id == now[span.canary_id][0]]
    ranking_ids = {*last.values(), *(span.ranking_id for span in held), *(now[canary][1] for canary in last)}
    heads = ranking_heads.heads(connection, sorted(ranking_ids), OVERLAP_DEPTH)
    before = _before(held, runs, heads)
    canaries_in_both = [canary for canary in last if canary in before]
    drift = score_drift(
        [before[canary][0] for canary in canaries_in_both],
        [before[canary][1] for canary in canaries_in_both],
        [_score(heads[now[canary][1]]) for canary in canaries_in_both],
        [top_overlap(heads[last[canary]].ids, heads[now[canary][1]].ids) for canary in canaries_in_both],
    )
    return drift.body() if drift.kind in {DriftKind.SCORES, DriftKind.RANKINGS} else None


def _sampled_places(rankings: Sequence[int | None]) -> Sequence[int]:
    """Give the positions of measured canaries, evenly spaced over the suite."""
    measured = [position for position, ranking_id in enumerate(rankings) if ranking_id is not None]
    return measured[:: max(1, -(-len(measured) // _SAMPLE))]


def _before(held: Sequence[Span], runs: Sequence[int], heads: Mapping[int, Head]) -> dict[int, tuple[float, float]]:
    """Give mean and standard deviation of the top score by canary id, each run counting once."""
    scores: dict[int, list[tuple[float, int]]] = {}
    for span in held:
        end = len(runs) if span.last_run is None else bisect_right(runs, span.last_run)
        count = end - bisect_left(runs, span.first_run)
        score = heads[span.ranking_id].score
        if count > 0 and score is not None:
            scores.setdefault(span.canary_id, []).append((score, count))
    spreads: dict[int, tuple[float, float]] = {}
    for canary, weighted in scores.items():
        values, counts = np.array(weighted).T
        mean = float(np.average(values, weights=counts))
        spreads[canary] = mean, float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
    return spreads


def _score(head: Head) -> float:
    return np.nan if head.score is None else head.score
