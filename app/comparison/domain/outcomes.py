"""Outcome of a comparison: which differences are claimed, and the verdict. Sentence, table and exit code read it alike.

Five measures tested at .05 each would find a difference between equals in far more than one comparison of twenty, so
their p values are corrected together: Holm, "A simple sequentially rejective multiple test procedure" (Scandinavian
Journal of Statistics 1979).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.catalog.domain.measure_guide import is_top_heavy
from app.comparison.domain.depths import Depth
from app.comparison.domain.estimates import Estimate, Floats, estimate_all
from app.comparison.domain.significance import FEWEST_PAIRS, is_significant

RECALL_LOSS: Final = -0.02
"""A recall that may have fallen by more than this is told beside the gain of a top-heavy measure."""


class Side(StrEnum):
    """One of the two things compared."""

    A = "a"
    B = "b"


class Claim(StrEnum):
    """What is said of the difference of a primary measure."""

    CLAIMED = "claimed"
    NOT_AFTER_CORRECTION = "not_claimed_after_correction"
    """Its interval does not include zero, but so it would by chance for one of several measures too often."""
    NOT_SHOWN = "not_shown"
    TOO_FEW = "too_few"


class ComparisonVerdict(StrEnum):
    """What a comparison says of B against A."""

    BETTER = "better"
    WORSE = "worse"
    TRADE = "trade"
    """One primary measure is claimed up and another one down."""
    NO_DIFFERENCE_SHOWN = "no_difference_shown"
    TOO_FEW = "too_few"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A primary measure: its estimate, and what is said of it."""

    estimate: Estimate
    corrected_p: float | None
    """Corrected by Holm over its family; None with too few pairs."""
    claim: Claim

    @property
    def winner(self) -> Side | None:
        """The side with the higher mean where that is claimed, as every primary measure grows with quality."""
        if self.claim is not Claim.CLAIMED or self.estimate.difference is None:
            return None
        return Side.B if self.estimate.difference > 0 else Side.A


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallCaution:
    """What recall may have lost beside the claimed gain of a top-heavy measure."""

    measure: str
    """The one that gained."""
    winner: Side
    recall: str
    loss: float
    """The largest loss of recall that the interval allows, above 0."""
    claimed: float | None = None
    """The loss itself where it is claimed, above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decisions about the primary measures, in their order, and what they amount to."""

    decisions: tuple[Decision, ...]

    @property
    def pairs(self) -> int:
        """Number of canaries that are compared."""
        return _pairs(self.decisions)

    @property
    def verdict(self) -> ComparisonVerdict:
        """Verdict over these canaries."""
        return _verdict(self.decisions)

    @property
    def winner(self) -> Side | None:
        """The better side; None where none is shown, or each is better in another measure."""
        return _WINNERS.get(self.verdict)

    def cautions(self, depth: Depth) -> tuple[RecallCaution, ...]:
        """Return what recall at k may have lost, for each claimed gain of a top-heavy measure."""
        name = f"R@{depth.k}"
        decision = next((one for one in self.decisions if one.estimate.measure == name), None)
        if decision is None or decision.estimate.lower is None or decision.estimate.upper is None:
            return ()
        least = {Side.B: decision.estimate.lower, Side.A: -decision.estimate.upper}
        return tuple(
            RecallCaution(
                measure=one.estimate.measure,
                winner=winner,
                recall=name,
                loss=-least[winner],
                claimed=_claimed_loss(decision, winner),
            )
            for one in self.decisions
            if (winner := one.winner) is not None
            and is_top_heavy(one.estimate.measure, depth.k)
            and least[winner] < RECALL_LOSS
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryOutcome(Decided):
    """The primary measures of one category, which decide nothing about the whole."""

    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOutcome(Decided):
    """Everything that is said of two runs."""

    categories: tuple[CategoryOutcome, ...]
    exploratory: tuple[Estimate, ...]
    """Of all other measures; nothing is claimed of them."""

    @property
    def claimed(self) -> tuple[Decision, ...]:
        """Decisions that claim a difference."""
        return tuple(one for one in self.decisions if one.claim is Claim.CLAIMED)

    @property
    def tests(self) -> int:
        """Number of tests that the p values of the primary measures are corrected for."""
        return len({one.estimate.pattern for one in self.decisions if one.estimate.p is not None})


def compare(
    a: Mapping[str, Floats],
    b: Mapping[str, Floats],
    *,
    primaries: Sequence[str],
    categories: Mapping[str, NDArray[np.intp]],
) -> ComparisonOutcome:
    """Compare two runs by columns of scores, a row for each pair of canaries; NaN = undefined.

    `categories` has the rows of each category. Measures beside the primary ones are exploratory.
    """
    whole = estimate_all([*primaries, *(name for name in a if name not in primaries)], a, b)
    parts = {
        category: estimate_all(
            primaries,
            {name: a[name][rows] for name in primaries if name in a},
            {name: b[name][rows] for name in primaries if name in b},
        )
        for category, rows in categories.items()
    }
    [decisions] = decide_family([[whole[name] for name in primaries if name in whole]])
    inner = decide_family([list(part.values()) for part in parts.values()])
    return ComparisonOutcome(
        decisions=decisions,
        categories=tuple(
            CategoryOutcome(category=category, decisions=found) for category, found in zip(parts, inner, strict=True)
        ),
        exploratory=tuple(one for name, one in whole.items() if name not in primaries),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p values of a family of tests: each may then be held against the level of the whole family."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def decide_family(family: Sequence[Sequence[Estimate]]) -> list[tuple[Decision, ...]]:
    """Decide a family of estimates, given by groups of canaries, each at the confidence of its interval.

    Of two runs that do not differ at all, in at most 1 - confidence of comparisons any difference is claimed.
    Estimates with too few pairs are not tested and correct no other. Measures of a group that differ in proportion on
    every pair, as R@5 and P@5 where each canary expects one chunk, are one test and count once: exchanging scores keeps
    them so, and the p values hold just as well given which measures are one.
    """
    tests = {(group, one.pattern): one.p for group, part in enumerate(family) for one in part if one.p is not None}
    corrected = dict(zip(tests, holm(list(tests.values())), strict=True))
    return [
        tuple(_decision(one, corrected.get((group, one.pattern))) for one in part) for group, part in enumerate(family)
    ]


def _claimed_loss(decision: Decision, winner: Side) -> float | None:
    """Return what the winner of another measure is claimed to lose by this one."""
    if decision.winner in {None, winner} or decision.estimate.difference is None:
        return None
    return abs(decision.estimate.difference)


def _decision(one: Estimate, corrected_p: float | None) -> Decision:
    return Decision(estimate=one, corrected_p=corrected_p, claim=_claim(one, corrected_p))


def _claim(one: Estimate, corrected_p: float | None) -> Claim:
    if corrected_p is None:
        return Claim.TOO_FEW
    if not one.excludes_zero:
        return Claim.NOT_SHOWN
    return Claim.CLAIMED if is_significant(corrected_p, one.confidence) else Claim.NOT_AFTER_CORRECTION


def _verdict(decisions: Sequence[Decision]) -> ComparisonVerdict:
    if _pairs(decisions) < FEWEST_PAIRS:
        return ComparisonVerdict.TOO_FEW
    return _VERDICTS[frozenset(winner for one in decisions if (winner := one.winner) is not None)]


def _pairs(decisions: Sequence[Decision]) -> int:
    return max((one.estimate.pairs for one in decisions), default=0)


_VERDICTS: Final[Mapping[frozenset[Side], ComparisonVerdict]] = {
    frozenset(): ComparisonVerdict.NO_DIFFERENCE_SHOWN,
    frozenset({Side.B}): ComparisonVerdict.BETTER,
    frozenset({Side.A}): ComparisonVerdict.WORSE,
    frozenset({Side.A, Side.B}): ComparisonVerdict.TRADE,
}
_WINNERS: Final = {ComparisonVerdict.BETTER: Side.B, ComparisonVerdict.WORSE: Side.A}
