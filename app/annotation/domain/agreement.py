"""Agreement of annotators beyond chance, and the consensus on an item.

Every statistic of agreement is a function of sums over items, so a resample of items is one product of a matrix of
counts with the contributions of the items. Sources: Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011);
Cohen, "A coefficient of agreement for nominal scales" (1960) and "Weighted kappa" (1968).
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.base.statistics import CONFIDENCE, hash_share
from app.base.values import Value

Floats = NDArray[np.float64]

DRAWS: Final = 2_000
FEWEST_ITEMS: Final = 10
"""With fewer items of two or more grades an interval is not computed."""
_RESAMPLES_BLOCK: Final = 250
"""Resamples computed at once: 250 x 10,000 counts are 20 MB."""
_UNDEFINED_DRAWS: Final = 0.05
"""An interval of which more resamples than this share are undefined is none."""


class Level(StrEnum):
    """Level of measurement: which differences between two grades count, and how much."""

    NOMINAL = "nominal"
    """All alike."""
    ORDINAL = "ordinal"
    """By how many grades of the sample lie between."""
    INTERVAL = "interval"
    """By the square of the difference."""


class Coefficient(Value):
    """A coefficient with its 95 % interval.

    `value` is None where it is undefined, the ends where there are too few items or they vary too little.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


class PairAgreement(Value):
    """Agreement of two annotators over the items that both graded."""

    a: str
    b: str
    items: int
    raw: Coefficient
    """Share of equal grades."""
    kappa: Coefficient
    """Cohen's kappa of relevant (grade of at least 1) against not relevant."""
    weighted_kappa: Coefficient
    """Cohen's kappa of the grades with quadratic weights."""


class Agreement(Value):
    """Agreement of all annotators; `items` counts those with two grades or more."""

    items: int
    annotators: tuple[str, ...]
    raw: Coefficient
    """Share of equal grades among all pairs of grades of one item."""
    alpha: dict[Level, Coefficient]
    """Krippendorff's alpha."""
    pairs: tuple[PairAgreement, ...]


def measure_agreement(annotators: Sequence[str], grades: ArrayLike, *, seed: int = 0) -> Agreement:
    """Agreement of annotators from their grades, one row an item, one column an annotator; NaN = not graded.

    Intervals are the percentiles of `DRAWS` resamples of items: the same for the same grades and seed. Raises
    ValueError unless the columns are as many as the annotators.
    """
    table = _table(grades)
    if table.shape[1] != len(annotators):
        raise ValueError(f"{len(annotators)} annotators need as many columns, not {table.shape[1]}")
    shared = table[np.count_nonzero(~np.isnan(table), axis=1) > 1]
    pairs = []
    for (name_a, column_a), (name_b, column_b) in combinations(zip(annotators, table.T, strict=True), 2):
        a, b = _columns(column_a, column_b)
        pairs.append(
            PairAgreement(
                a=name_a,
                b=name_b,
                items=len(a),
                raw=_with_interval(np.column_stack([a == b, np.ones(len(a))]).astype(np.float64), _ratio, seed),
                kappa=kappa_interval(a >= 1, b >= 1, seed=seed),
                weighted_kappa=kappa_interval(a, b, quadratic=True, seed=seed),
            )
        )
    return Agreement(
        items=len(shared),
        annotators=tuple(annotators),
        raw=_with_interval(_equal_pairs(shared), _ratio, seed),
        alpha={level: alpha_interval(shared, level, seed=seed) for level in Level},
        pairs=tuple(pair for pair in pairs if pair.items),
    )


def alpha_interval(grades: ArrayLike, level: Level, *, seed: int = 0) -> Coefficient:
    """Krippendorff's alpha of a table with one row an item, one column an annotator; NaN = not graded.

    Undefined where no item has two grades, or all grades are the same.
    """
    values, contributions = _coincidences(_table(grades))
    return _with_interval(contributions, _alpha(values, level), seed)


def kappa_interval(a: ArrayLike, b: ArrayLike, *, quadratic: bool = False, seed: int = 0) -> Coefficient:
    """Cohen's kappa of two columns of grades; items that have a NaN in either are left out.

    `quadratic` weighs a disagreement by the square of the difference; otherwise all weigh the same. Undefined where no
    item has both grades, or both annotators gave the same single grade throughout. Raises ValueError for columns of
    different lengths.
    """
    values, contributions = _confusions(*_columns(a, b))
    return _with_interval(contributions, _kappa(values, quadratic=quadratic), seed)


def _table(grades: ArrayLike) -> Floats:
    table = np.asarray(grades, dtype=np.float64)
    if table.ndim != 2:  # noqa: PLR2004 - rows and columns
        raise ValueError(f"grades are a table of items by annotators, not of {table.ndim} dimensions")
    return table


def _columns(a: ArrayLike, b: ArrayLike) -> tuple[Floats, Floats]:
    one, other = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(f"there must be two columns of one length, not {one.shape} and {other.shape}")
    both = ~(np.isnan(one) | np.isnan(other))
    return one[both], other[both]


def _indicators(values: Floats, column: Floats) -> Floats:
    """Return one row an item with a 1 at its grade, all 0 where it has none."""
    same: Floats = (column[:, None] == values[None, :]).astype(np.float64)
    return same


def _coincidences(table: Floats) -> tuple[Floats, Floats]:
    """Return the grades that occur, and of each item its coincidences: pairs of grades, divided by grades less one."""
    table = table[np.count_nonzero(~np.isnan(table), axis=1) > 1]
    values = np.unique(table[~np.isnan(table)])
    counts = np.zeros((len(table), len(values)))
    for column in table.T:
        counts += _indicators(values, column)
    pairs = counts[:, :, None] * counts[:, None, :]
    diagonal = np.arange(len(values))
    pairs[:, diagonal, diagonal] -= counts
    pairs /= np.maximum(counts.sum(axis=1) - 1, 1)[:, None, None]
    return values, pairs.reshape(len(table), len(values) ** 2)


def _confusions(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the grades that occur, and of each item its cell of the confusion matrix."""
    values = np.unique(np.concatenate([a, b]))
    cells = _indicators(values, a)[:, :, None] * _indicators(values, b)[:, None, :]
    return values, cells.reshape(len(a), len(values) ** 2)


def _equal_pairs(table: Floats) -> Floats:
    """Return of each item the number of its pairs of equal grades and of its pairs."""
    equal, pairs = np.zeros(len(table)), np.zeros(len(table))
    for a, b in combinations(table.T, 2):
        equal += a == b
        pairs += ~(np.isnan(a) | np.isnan(b))
    return np.column_stack([equal, pairs])


def _ratio(sums: Floats) -> Floats:
    return _divide(sums[:, 0], sums[:, 1])


def _alpha(values: Floats, level: Level) -> Callable[[Floats], Floats]:
    """Return the function from sums of coincidences, one row a sample, to alpha; NaN = undefined."""
    count = len(values)

    def alpha(sums: Floats) -> Floats:
        observed = sums.reshape(len(sums), count, count)
        marginals = observed.sum(axis=2)
        total = marginals.sum(axis=1)
        expected = marginals[:, :, None] * marginals[:, None, :]
        if level is Level.ORDINAL:
            # The grades between two grades, each of the two by half.
            middle = np.cumsum(marginals, axis=1) - marginals / 2
            distance = (middle[:, :, None] - middle[:, None, :]) ** 2
        elif level is Level.INTERVAL:
            distance = ((values[:, None] - values[None, :]) ** 2)[None]
        else:
            distance = 1.0 - np.eye(count)[None]
        seen = (observed * distance).sum(axis=(1, 2)) * (total - 1)
        return 1 - _divide(seen, (expected * distance).sum(axis=(1, 2)))

    return alpha


def _kappa(values: Floats, *, quadratic: bool) -> Callable[[Floats], Floats]:
    """Return the function from sums of confusion matrices, one row a sample, to kappa; NaN = undefined."""
    count = len(values)
    apart = (values[:, None] - values[None, :]) ** 2
    weights = apart if quadratic else (apart > 0).astype(np.float64)

    def kappa(sums: Floats) -> Floats:
        seen = sums.reshape(len(sums), count, count)
        expected = seen.sum(axis=2)[:, :, None] * seen.sum(axis=1)[:, None, :]
        total = seen.sum(axis=(1, 2))
        return 1 - _divide((seen * weights).sum(axis=(1, 2)) * total, (expected * weights).sum(axis=(1, 2)))

    return kappa


def _divide(numerator: Floats, denominator: Floats) -> Floats:
    result = np.full(len(numerator), np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def _with_interval(contributions: Floats, statistic: Callable[[Floats], Floats], seed: int) -> Coefficient:
    value = _defined(statistic(contributions.sum(axis=0)[None])[0])
    items = len(contributions)
    if value is None or items < FEWEST_ITEMS:
        return Coefficient(value=value)
    # Items that contribute the same are one kind: drawn by its share, a resample is the same and far cheaper.
    kinds, sizes = np.unique(contributions, axis=0, return_counts=True)
    random, found = np.random.default_rng(seed), []
    for start in range(0, DRAWS, _RESAMPLES_BLOCK):
        rows = min(_RESAMPLES_BLOCK, DRAWS - start)
        counts = random.multinomial(items, sizes / items, size=rows).astype(np.float64)
        found.append(statistic(counts @ kinds))
    draws = np.concatenate(found)
    draws = draws[~np.isnan(draws)]
    if len(draws) < (1 - _UNDEFINED_DRAWS) * DRAWS:
        return Coefficient(value=value)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail]).tolist()
    return Coefficient(value=value, low=low, high=high)


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


_APART: Final = 2
"""Grades this far apart are a disagreement, whatever the median says."""
LEFT: Final = 0
"""Grades of two answers side by side: which of them is better, or neither."""
ALIKE: Final = 1
RIGHT: Final = 2


class ConsensusState(StrEnum):
    """State of an item: `open` has no grade, `disputed` waits for a decision, `adjudicated` has one.

    `agreed` has two grades or more: one person alone agrees with nobody.
    """

    OPEN = "open"
    GRADED_ONCE = "graded_once"
    AGREED = "agreed"
    DISPUTED = "disputed"
    ADJUDICATED = "adjudicated"


class Consensus(Value):
    """Grade of an item; None while it is open or disputed."""

    state: ConsensusState
    grade: int | None = None


def reach_consensus(grades: Sequence[int], *, adjudicated: int | None = None) -> Consensus:
    """Consensus of the grades of an item, one per annotator, skips left out.

    It is their median, halves rounded down: two annotators who say 1 and 2 agree on at least 1. Grades on both sides of
    0/1, or two or more apart, are disputed. An adjudication decides in any case.
    """
    if adjudicated is not None:
        return Consensus(state=ConsensusState.ADJUDICATED, grade=adjudicated)
    if not grades:
        return Consensus(state=ConsensusState.OPEN)
    if is_disputed(grades):
        return Consensus(state=ConsensusState.DISPUTED)
    ordered, middle = sorted(grades), len(grades) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2
    return Consensus(state=_state_of(grades), grade=median)


def is_disputed(grades: Sequence[int]) -> bool:
    """Whether grades of an item disagree on relevance, or by two grades or more."""
    if not grades:
        return False
    lowest, highest = min(grades), max(grades)
    return lowest == 0 < highest or highest - lowest >= _APART


def reach_preference(grades: Sequence[int], *, adjudicated: int | None = None) -> Consensus:
    """Consensus on two answers side by side: the side that somebody prefers where nobody prefers the other.

    Who sees no difference does not overrule who sees one. An adjudication decides in any case.
    """
    if adjudicated is not None:
        return Consensus(state=ConsensusState.ADJUDICATED, grade=adjudicated)
    if not grades:
        return Consensus(state=ConsensusState.OPEN)
    if are_sides_disputed(grades):
        return Consensus(state=ConsensusState.DISPUTED)
    preferred = [grade for grade in grades if grade != ALIKE]
    return Consensus(state=_state_of(grades), grade=preferred[0] if preferred else ALIKE)


def _state_of(grades: Sequence[int]) -> ConsensusState:
    """Return the state of an item whose grades are not disputed."""
    return ConsensusState.AGREED if len(grades) > 1 else ConsensusState.GRADED_ONCE


def are_sides_disputed(grades: Sequence[int]) -> bool:
    """Whether both sides are preferred by somebody."""
    return LEFT in grades and RIGHT in grades


def is_overlap(item: str, *, share: float, seed: int) -> bool:
    """Whether an item is for every annotator; the others are done once one annotator has graded them.

    Decided by a hash of its identity, so that the choice depends on neither rank nor time nor the other items.
    """
    return hash_share(f"overlap:{seed}:{item}") < share
