"""Judges rankings: matches, measures, reasons and results of many canaries at once; timings; and the tally of a run.

`rankings` and `measures` do the parts; a verdict is in `verdicts`, a whole run in `run_outcomes`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from app.base.values import ROUNDING, Aggregates, Canary, Outcome, Ranking, Reason, Value
from app.retrievers.domain.retrievers import Scorer, ScorerKind, measures_relevance, score_relevance
from app.scoring.measures import Batch, Measure, compute, mean_name
from app.scoring.rankings import Match, match, prepare
from app.scoring.run_inputs import Panel, Yardstick
from app.scoring.verdicts import aggregate


class Result(Value):
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
    canary, forbidden = panel.canaries[position], panel.forbidden[position]
    top = top_score(yardstick.scorer, ranking, matched.grade, panel.best_grade[position])
    reasons = judge_canary(
        canary,
        top_score=top,
        found_in_k=matched.first_relevant is not None and matched.first_relevant <= yardstick.k,
        forbidden_returned=forbidden is not None and match(forbidden, ranking).first_relevant is not None,
        scores=_scores_by_name(yardstick.measures, vector) if canary.floors else {},
        first_is_allowed=matched.first_relevant == 1,
        empty=not ranking,
        scorer_measures_relevance=measures_relevance(yardstick.scorer),
    )
    return Result(match=matched, vector=vector, top_score=top, reasons=reasons)


def is_relevance_judged(canary: Canary, *, scorer_measures_relevance: bool) -> bool:
    """Whether the relevance of the first hit can degrade this canary: its minimum, of a negative one its maximum."""
    return scorer_measures_relevance and not canary.expect_empty


def judge_canary(
    canary: Canary,
    *,
    top_score: float | None,
    found_in_k: bool,
    forbidden_returned: bool,
    scores: Mapping[str, float | None],
    first_is_allowed: bool,
    empty: bool,
    scorer_measures_relevance: bool,
) -> tuple[Reason, ...]:
    """Return why the ranking of a measured canary degrades it, in the order of `Reason`; () = it does not.

    `forbidden_returned`: one of its forbidden chunks is in the ranking. With `expect_empty` every hit is forbidden,
    however relevant. `scores` holds the canary's measures by name; an undefined or absent one breaks no floor. A
    negative canary is `answered` unless its top score stays below its maximum, the answer is empty, or the one exact
    match it allows is first. Without a scorer that measures relevance (`judged`) no canary is `low_relevance` or
    `answered`. `stale` and `slow` come from `judge_timing`; `regressed` needs several runs and comes from detection.
    """
    judged = is_relevance_judged(canary, scorer_measures_relevance=scorer_measures_relevance)
    relevance = top_score if judged else None
    too_low = not canary.negative and relevance is not None and relevance < canary.min_relevance_score
    confident = canary.negative and relevance is not None and relevance >= canary.max_relevance_score
    wrong = {
        Reason.LOW_RELEVANCE: too_low,
        Reason.MISSING: canary.expects and not found_in_k,
        Reason.BELOW_FLOOR: any(_is_below(scores.get(name), floor) for name, floor in canary.floors.items()),
        Reason.FORBIDDEN: forbidden_returned or (canary.expect_empty and not empty),
        Reason.ANSWERED: confident and not empty and not first_is_allowed,
    }
    return tuple(reason for reason, holds in wrong.items() if holds)


class Timing(Value):
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


def judge_timing(
    canary: Canary, *, age_seconds: float | None, latency_seconds: float | None, empty: bool = False
) -> tuple[Reason, ...]:
    """Return why the timing of an answer degrades its canary, whatever its ranking: `stale`, `slow`; () = it does not.

    `age_seconds` is the age of the newest of the top k hits; None = no hit has a date, and the canary is not stale.
    An `empty` answer is stale, except for a negative canary. Latencies are compared in the precision of stored runs,
    half a thousandth, so that the stored latency of a slow canary is above its maximum.
    """
    nothing_new = empty and canary.max_age_seconds is not None and not canary.negative
    wrong = {
        Reason.STALE: nothing_new or _is_above(age_seconds, canary.max_age_seconds),
        Reason.SLOW: _is_above(_stored_latency(latency_seconds), _stored_latency(canary.max_latency_seconds)),
    }
    return tuple(reason for reason, holds in wrong.items() if holds)


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
    matched = match(prepare(canary.forbidden, verbatim=True), ranking)
    return [rank for rank, is_match in enumerate(matched.relevant, start=1) if is_match]


def _stored_latency(latency: float | None) -> float | None:
    return None if latency is None else float(np.float16(latency))


def _is_above(value: float | None, most: float | None) -> bool:
    return value is not None and most is not None and value > most + ROUNDING


def _is_below(score: float | None, floor: float) -> bool:
    return score is not None and score < floor - ROUNDING


def _scores_by_name(measures: Sequence[Measure], vector: NDArray[np.float64]) -> dict[str, float | None]:
    return {
        str(measure): None if value != value else value  # noqa: PLR0124 - NaN: undefined
        for measure, value in zip(measures, vector.tolist(), strict=True)
    }


REASONS = tuple(Reason)
"""A reason's bit in stored states is its place here."""


class StoredResult(Protocol):
    """A stored result: the vector's bytes, reasons as bits."""

    @property
    def vector(self) -> bytes: ...  # noqa: D102 - said above
    @property
    def top_score(self) -> float | None: ...  # noqa: D102 - said above
    @property
    def reasons(self) -> int: ...  # noqa: D102 - said above


class Tally:
    """Results by position of the panel, added in any order; a position without a result is undefined."""

    def __init__(self, yardstick: Yardstick, panel: Panel) -> None:
        self._yardstick = yardstick
        self._panel = panel
        self._vectors = np.full((len(panel), len(yardstick.measures)), np.nan)
        self._top_scores = np.full(len(panel), np.nan)
        self.reasons: NDArray[np.int64] = np.zeros(len(panel), dtype=np.int64)
        """Bits by position, see `pack_reasons`; 0 = healthy or not measured."""
        self._aggregated: tuple[Sequence[Outcome], Aggregates] | None = None
        """Cached aggregates with the outcomes they were computed for."""

    def add(self, results: Mapping[int, Result]) -> None:
        """Add results that were just judged."""
        self._aggregated = None if results else self._aggregated
        for position, result in results.items():
            self._vectors[position] = result.vector
            self._top_scores[position] = np.nan if result.top_score is None else result.top_score
            self.reasons[position] = pack_reasons(result.reasons)

    def add_stored(self, states: Mapping[int, StoredResult]) -> None:
        """Add stored results; a vector of other measures leaves its row undefined."""
        if not states:
            return
        self._aggregated = None
        places = list(states)
        blank = np.full(self._vectors.shape[1], np.nan).tobytes()
        vectors = [state.vector if len(state.vector) == len(blank) else blank for state in states.values()]
        self._vectors[places] = np.frombuffer(b"".join(vectors)).reshape(len(places), -1)
        self._top_scores[places] = [np.nan if state.top_score is None else state.top_score for state in states.values()]
        self.reasons[places] = [state.reasons for state in states.values()]

    def add_timings(self, timings: Mapping[int, Timing]) -> None:
        """Replace the reasons about timing, which for stored results are those of an earlier run."""
        for position, timing in timings.items():
            before = int(self.reasons[position])
            now = before & ~TIMED | pack_reasons(timing.reasons)
            if now != before:
                self.reasons[position], self._aggregated = now, None

    def with_regressed(self, positions: NDArray[np.intp]) -> "Tally":
        """Return a tally with exactly these canaries regressed."""
        reasons = self.reasons & ~REGRESSED
        reasons[positions] |= REGRESSED
        if np.array_equal(reasons, self.reasons):
            return self  # with the aggregates it has
        return self._with(reasons, self._top_scores)

    def add_lost_texts(self, positions: Collection[int]) -> None:
        """Let canaries be `missing` whose expected chunks are in the top k without what they expect."""
        if positions:
            self.reasons[list(positions)] |= MISSING
            self._aggregated = None

    @property
    def lost_texts(self) -> NDArray[np.bool_]:
        """Which canaries find expected chunks by name, and none with its text."""
        lost: NDArray[np.bool_] = self._hits & ((self.reasons & MISSING) != 0)
        return lost

    @property
    def _hits(self) -> NDArray[np.bool_]:
        column = self._yardstick.measures.index(Measure("Hit", self._yardstick.k))
        found: NDArray[np.bool_] = self._vectors[:, column] > 0
        return found

    def vector(self, position: int) -> NDArray[np.float64]:
        """Return the measures of one canary in the yardstick's order; NaN = undefined, or not measured."""
        row: NDArray[np.float64] = self._vectors[position]
        return row

    def top_score(self, position: int) -> float | None:
        """Return the relevance of the first hit of one canary."""
        top = float(self._top_scores[position])
        return None if np.isnan(top) else top

    def scores(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return these measures of every canary, (Q, M); NaN = undefined, or not measured."""
        places = [str(measure) for measure in self._yardstick.measures]
        columns: NDArray[np.float64] = self._vectors[:, [places.index(name) for name in names]]
        return columns

    def without_relevance(self, positions: Collection[int]) -> "Tally":
        """Return a tally without top score and relevance reasons at these positions: they are of an earlier run."""
        if not positions:
            return self
        top_scores, reasons = self._top_scores.copy(), self.reasons.copy()
        top_scores[list(positions)] = np.nan
        reasons[list(positions)] &= ~RELEVANCE
        return self._with(reasons, top_scores)

    def _with(self, reasons: NDArray[np.int64], top_scores: NDArray[np.float64]) -> "Tally":
        tally = copy(self)
        tally.reasons, tally._top_scores, tally._aggregated = reasons, top_scores, None  # noqa: SLF001 - its own kind
        return tally

    def aggregates(self, outcomes: Sequence[Outcome]) -> Aggregates:
        """Return the run's aggregates for these probe outcomes; rows of unmeasured canaries are ignored.

        A negative canary with `expect_empty` counts as answered if it got any hit, though its reason is `forbidden`.
        The last result is cached, since most runs of a history equal the one before.
        """
        if self._aggregated is None or self._aggregated[0] != outcomes:
            self._aggregated = outcomes, self._aggregate(outcomes)
        return self._aggregated[1]

    def _aggregate(self, outcomes: Sequence[Outcome]) -> Aggregates:
        yardstick, panel = self._yardstick, self._panel
        leaked = panel.expect_empty & panel.negative & ((self.reasons & FORBIDDEN) != 0)
        return aggregate(
            outcomes=outcomes,
            expects=panel.expects,
            negative=panel.negative,
            degraded=self.reasons != 0,
            answered=((self.reasons & _ANSWERED) != 0) | leaked,
            top_scores=self._top_scores,
            found=self._hits & ~self.lost_texts,
            scores=self._vectors,
            measures=[mean_name(measure) for measure in yardstick.measures],
            categories=panel.categories,
            tags=panel.tags,
            measures_relevance=measures_relevance(yardstick.scorer),
        )


def pack_reasons(reasons: Sequence[Reason]) -> int:
    """Return reasons as bits, 0 = healthy."""
    return sum(1 << REASONS.index(reason) for reason in reasons)


@lru_cache(maxsize=1 << len(REASONS))
def unpack_reasons(bits: int) -> tuple[Reason, ...]:
    """Return the reasons of bits made by `pack_reasons`."""
    return tuple(reason for place, reason in enumerate(REASONS) if bits >> place & 1)


def known_reasons(bits: int, *, unscored: bool) -> tuple[Reason, ...] | None:
    """Return why a measured canary is degraded; None where that depends on a relevance that was not measured."""
    if not unscored:
        return unpack_reasons(bits)
    return unpack_reasons(bits & ~RELEVANCE) or None


TIMED = pack_reasons([Reason.STALE, Reason.SLOW])
"""The bits that depend on the time of a run and not on its rankings; see `judge_timings`."""
MISSING = pack_reasons([Reason.MISSING])
"""The bit of a canary without an expected chunk in its top k, or without its text there (`text_changes`)."""
REGRESSED = pack_reasons([Reason.REGRESSED])
"""The bit that the detector sets from several runs."""
RELEVANCE = pack_reasons([Reason.LOW_RELEVANCE, Reason.ANSWERED])
"""The bits that depend on relevance."""
FORBIDDEN = pack_reasons([Reason.FORBIDDEN])
"""The bit of a canary that got a chunk it forbids, or any where it expects none."""
_ANSWERED = pack_reasons([Reason.ANSWERED])


class NamedBy(StrEnum):
    """How the chunks that a canary expects are named, held against the hits of an answer."""

    RIGHT_FIELD = "right_field"
    """As far as the answer shows."""
    ID_FOR_DOCUMENT = "id_for_document"
    """By ids that no hit has, and that are documents of hits."""
    DOCUMENT_FOR_ID = "document_for_id"
    """By documents that no hit has, and that are ids of hits."""


def named_by(canary: Canary, ranking: Ranking) -> NamedBy | None:
    """Return how a canary names what it expects, by an answer; None = it expects neither ids nor documents."""
    expected = ((judgment.id, judgment.document) for judgment in canary.judgments if judgment.grade >= 1)
    return compare_names(expected, ranking.ids, ranking.documents)


def compare_names(
    expected: Iterable[tuple[str | None, str | None]], hit_ids: Collection[str], hit_documents: Collection[str | None]
) -> NamedBy | None:
    """Return how expected chunks, each (id, document), are named; None = by neither."""
    chunks = list(expected)
    ids = {chunk for chunk, _ in chunks if chunk is not None}
    documents = {document for chunk, document in chunks if chunk is None and document is not None}
    if ids and not ids.isdisjoint(hit_documents) and ids.isdisjoint(hit_ids):
        return NamedBy.ID_FOR_DOCUMENT
    if documents and not documents.isdisjoint(hit_ids) and documents.isdisjoint(hit_documents):
        return NamedBy.DOCUMENT_FOR_ID
    return NamedBy.RIGHT_FIELD if ids or documents else None


def wrong_fields_remark(coverage: float | None, canaries: Iterable[NamedBy | None]) -> str | None:
    """Say that expected chunks are named by the wrong field, where no canary finds any and a tenth show it.

    `canaries`: `named_by` of each that expects something.
    """
    if coverage is None or coverage > 0:
        return None
    counts = Counter(one for one in canaries if one is not None)
    total = counts.total()
    found = max((NamedBy.ID_FOR_DOCUMENT, NamedBy.DOCUMENT_FOR_ID), key=lambda one: counts[one])
    if not counts[found] or counts[found] < _SHARE * total:
        return None
    of_canaries = f"for {counts[found]} of {total} canaries"
    if found is NamedBy.ID_FOR_DOCUMENT:
        return (
            f"the expected ids are documents of the hits {of_canaries}, not ids of hits: import with --as-documents, "
            "or expect documents"
        )
    return (
        f"the expected documents are ids of the hits {of_canaries}, not documents of hits: import that column as id, "
        "or expect ids"
    )


WRONG_FIELDS: Final[Mapping[NamedBy | None, str]] = MappingProxyType(
    {
        NamedBy.ID_FOR_DOCUMENT: "What the canary expects as a chunk id is no id of a hit but the document of one",
        NamedBy.DOCUMENT_FOR_ID: "What the canary expects as a document is no document of a hit but the id of one",
    }
)
"""Of a single canary, a sentence without its full stop."""
_SHARE: Final = 0.1
"""Of the canaries that expect ids or documents; where retrieval works at all, some are among the hits."""


def top_score(scorer: Scorer, ranking: Ranking, grades: Sequence[int], best_grade: int) -> float | None:
    """Relevance of the first hit in [0, 1]; an answered, empty ranking scores 0.

    `grades` holds the grade per position, `best_grade` the highest among the canary's judgments.
    None = unknown: the first hit has no score, the external scorer could not measure it or, judged, nothing is
    expected. Raises ValueError for a score outside its scale, which should have made the probe malformed.
    """
    if not ranking:
        return 0.0
    match scorer.kind:
        case ScorerKind.JUDGED:
            return judged_relevance(grades, best_grade)
        case ScorerKind.SCORE:
            return score_relevance(scorer, ranking.scores[0])
        case ScorerKind.EMBEDDING | ScorerKind.RERANK:
            return ranking.relevance


def judged_relevance(grades: Sequence[int], best_grade: int) -> float | None:
    """Relevance of the first hit by its grade alone; 0 without hits, None where nothing is expected."""
    if not grades:
        return 0.0
    return grades[0] / best_grade if best_grade > 0 else None
