"""Evaluates rankings: matches, measures and judges those of many canaries at once.

`matching`, `measure_arrays`, `relevance` and `verdicts` do the parts; `run_outcomes` calls this for whole runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.base.values import Canary, Ranking, Reason, Rule
from app.retrievers.domain.relevance import measures_relevance, top_score
from app.retrievers.domain.retrievers import Scorer
from app.scoring.matching import Match, Prepared, match, prepare
from app.scoring.measure_arrays import Batch, compute
from app.scoring.measures import Measure, measures_for
from app.scoring.verdicts import judge_canary, judge_timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """How the answers of a check are judged."""

    k: int
    fetch_k: int
    measures: tuple[Measure, ...]
    scorer: Scorer
    rules: tuple[Rule, ...]

    @classmethod
    def of(
        cls, *, k: int, fetch_k: int, cutoffs: Sequence[int], scorer: Scorer, rules: tuple[Rule, ...]
    ) -> "Yardstick":
        """Return the yardstick with the measures at the check's cut-offs and at its own k."""
        return cls(k=k, fetch_k=fetch_k, measures=measures_for({*cutoffs, k}), scorer=scorer, rules=rules)

    def reorder_vector(self, names: Sequence[str], vector: bytes) -> bytes:
        """Return a stored vector, whose numbers have these names, in the order of `measures`; NaN = it has none."""
        numbers = dict(zip(names, np.frombuffer(vector).tolist(), strict=True))
        return np.array([numbers.get(str(measure), np.nan) for measure in self.measures]).tobytes()

    def __str__(self) -> str:
        """Return what a stored result depends on besides the measures."""
        scorer = self.scorer
        text = f"k={self.k} fetch_k={self.fetch_k} scorer={scorer.kind} scale={scorer.scale} anchor={scorer.anchor}"
        model = scorer.embedder.model if scorer.embedder is not None else scorer.model
        return text if model is None else f"{text} model={model}"


class Panel:
    """The canaries of a suite version, prepared once for many runs; immutable."""

    def __init__(self, canaries: Sequence[Canary]) -> None:
        self.canaries = tuple(canaries)
        prepared = ((place, prepare(canary.judgments)) for place, canary in enumerate(canaries))
        self._prepared = {place: one for place, one in prepared if one.passages}
        self.forbidden = tuple([_forbidden(canary) if canary.forbidden else None for canary in canaries])
        self.best_grade = tuple(
            [max((judgment.grade for judgment in canary.judgments), default=0) for canary in canaries]
        )
        self.expects = np.array([canary.expects for canary in canaries], dtype=np.bool_)
        self.negative = np.array([canary.negative for canary in canaries], dtype=np.bool_)
        self.expect_empty = np.array([canary.expect_empty for canary in canaries], dtype=np.bool_)
        self.watched = np.flatnonzero(self.expects)
        """Positions of the canaries that expect something: those a detector watches."""
        self.timed = tuple([place for place, canary in enumerate(canaries) if _is_timed(canary)])
        """Positions of the canaries with a maximum age or latency."""

    def __len__(self) -> int:
        return len(self.canaries)

    def prepared(self, position: int) -> Prepared:
        """Return the judgments of a canary arranged for `match`.

        Kept where they have a text. Those of ids alone are arranged in microseconds, and of a large suite most of the
        memory would be theirs.
        """
        kept = self._prepared.get(position)
        return prepare(self.canaries[position].judgments) if kept is None else kept

    @cached_property
    def categories(self) -> dict[str, NDArray[np.intp]]:
        """Positions of the canaries by category."""
        return _groups([(str(canary.category),) for canary in self.canaries])

    @cached_property
    def documents(self) -> dict[str, NDArray[np.intp]]:
        """Positions of the canaries by expected document."""
        relevant = [[one.document for one in canary.judgments if one.grade >= 1] for canary in self.canaries]
        return _groups([sorted({name for name in names if name is not None}) for names in relevant])

    @cached_property
    def tags(self) -> dict[str, NDArray[np.intp]]:
        """Positions of the canaries by tag."""
        return _groups([canary.tags for canary in self.canaries])


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Evaluation of one ranking. `vector` holds the measures in the yardstick's order, NaN = undefined."""

    match: Match
    vector: NDArray[np.float64]
    top_score: float | None
    reasons: tuple[Reason, ...]


def judge(yardstick: Yardstick, panel: Panel, rankings: Mapping[int, Ranking]) -> dict[int, Result]:
    """Return the results of rankings, by position of the panel."""
    if not rankings:
        return {}
    positions = list(rankings)
    prepared = [panel.prepared(position) for position in positions]
    matches = [match(one, rankings[position]) for one, position in zip(prepared, positions, strict=True)]
    vectors = compute(
        Batch.of(matches, prepared, [rankings[position].returned for position in positions]),
        yardstick.measures,
        yardstick.fetch_k,
    )
    vectors[~panel.expects[positions]] = np.nan  # a negative canary's allowed match is no expectation
    return {
        position: _result(yardstick, panel, position, rankings[position], matched, vector)
        for position, matched, vector in zip(positions, matches, vectors, strict=True)
    }


def _result(
    yardstick: Yardstick, panel: Panel, position: int, ranking: Ranking, matched: Match, vector: NDArray[np.float64]
) -> Result:
    canary = panel.canaries[position]
    top = top_score(yardstick.scorer, ranking, matched.grade, panel.best_grade[position])
    reasons = judge_canary(
        canary,
        top_score=top,
        found_in_k=matched.first_relevant is not None and matched.first_relevant <= yardstick.k,
        forbidden_returned=_returns_forbidden(panel.forbidden[position], ranking),
        scores=_scores_by_name(yardstick.measures, vector) if canary.floors else {},
        first_is_allowed=matched.first_relevant == 1,
        empty=not ranking,
        scorer_measures_relevance=measures_relevance(yardstick.scorer),
    )
    return Result(match=matched, vector=vector, top_score=top, reasons=reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Evaluation of the age and latency of an answer, which change between runs while the ranking stays the same."""

    reasons: tuple[Reason, ...]
    undated: bool
    """Whether the canary sets a maximum age and none of its top hits has a date."""


def judge_timings(
    yardstick: Yardstick,
    panel: Panel,
    latencies: Mapping[int, float],
    rankings: Mapping[int, Ranking],
    asked_at: datetime,
) -> dict[int, Timing]:
    """Return the timings of answers, given their latencies in seconds by position of the panel.

    `rankings` has at least those of canaries with a maximum age. `asked_at` is when the run started.
    """
    timings: dict[int, Timing] = {}
    for position, latency in latencies.items():
        canary = panel.canaries[position]
        aged = canary.max_age_seconds is not None
        age = newest_age(rankings[position], yardstick.k, asked_at) if aged else None
        empty = aged and not rankings[position]
        reasons = judge_timing(canary, age_seconds=age, latency_seconds=latency, empty=empty)
        timings[position] = Timing(reasons=reasons, undated=aged and age is None and not empty)
    return timings


def newest_age(ranking: Ranking, k: int, at: datetime) -> float | None:
    """Return the age in seconds of the newest of the top k hits; None = none of them has a date.

    Below 0 where the retriever's clock is ahead of ours.
    """
    dates = [date for date in (ranking.updated or ())[:k] if date is not None]
    return at.timestamp() - max(dates) if dates else None


def forbidden_ranks(canary: Canary, ranking: Ranking) -> list[int]:
    """Return the ranks of the forbidden hits."""
    if canary.expect_empty:
        return list(range(1, len(ranking) + 1))
    return [rank for rank, is_match in enumerate(match(_forbidden(canary), ranking).relevant, start=1) if is_match]


def _is_timed(canary: Canary) -> bool:
    return canary.max_age_seconds is not None or canary.max_latency_seconds is not None


def _forbidden(canary: Canary) -> Prepared:
    return prepare(canary.forbidden, verbatim=True)


def _returns_forbidden(forbidden: Prepared | None, ranking: Ranking) -> bool:
    return forbidden is not None and match(forbidden, ranking).first_relevant is not None


def _scores_by_name(measures: Sequence[Measure], vector: NDArray[np.float64]) -> dict[str, float | None]:
    return {
        str(measure): None if value != value else value  # noqa: PLR0124 - NaN: undefined
        for measure, value in zip(measures, vector.tolist(), strict=True)
    }


def _groups(labels: Sequence[Sequence[str]]) -> dict[str, NDArray[np.intp]]:
    members: dict[str, list[int]] = {}
    for position, names in enumerate(labels):
        for name in names:
            members.setdefault(name, []).append(position)
    return {name: np.array(positions, dtype=np.intp) for name, positions in sorted(members.items())}
