"""Tally of a run: results by position, added as they are judged or read back, and their aggregates."""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.base.aggregates import Aggregates
from app.base.values import Outcome, Reason
from app.retrievers.domain.relevance import measures_relevance
from app.scoring.evaluation import Panel, Result, Timing, Yardstick
from app.scoring.measures import Measure, mean_name
from app.scoring.verdicts import aggregate

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
        leaked = panel.expect_empty & panel.negative & ((self.reasons & _FORBIDDEN) != 0)
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
"""The bit of a canary without an expected chunk in its top k, or without its text there, see `text_changes`."""
REGRESSED = pack_reasons([Reason.REGRESSED])
"""The bit that the detector sets from several runs."""
RELEVANCE = pack_reasons([Reason.LOW_RELEVANCE, Reason.ANSWERED])
"""The bits that depend on relevance."""
_ANSWERED = pack_reasons([Reason.ANSWERED])
_FORBIDDEN = pack_reasons([Reason.FORBIDDEN])
