"""Grades of people: their agreement beyond chance, the consensus, the pool of texts they grade, and recall from it.

Every statistic of agreement is a function of sums over items, so a resample of items is one product of a matrix of
counts with the contributions of the items. Sources: Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011);
Cohen, "A coefficient of agreement for nominal scales" (1960) and "Weighted kappa" (1968).

Stratum 0, the pool, is the union of every retriever's first hits and is graded whole. Deeper strata hold what ranks
below it, by the best rank over retrievers, and the rest what no retriever returned. A sample is drawn from them without
replacement; its size is known, which an estimate of recall needs. The order and pace of annotators and the questions
about labels stand at the end.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations, pairwise
from statistics import median
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.base.statistics import CONFIDENCE, hash_share
from app.base.values import Ranking
from app.scoring.words import normalise

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A coefficient with its 95 % interval.

    `value` is None where it is undefined, the ends where there are too few items or they vary too little.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAgreement:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus:
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


DEFAULT_POOL: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Items whose best rank is at most `to` and beyond the stratum before; `sample` of them are drawn."""

    to: int
    sample: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """Depth of the pool, the strata below it in order, and how many are drawn from the rest of the corpus."""

    pool: int = DEFAULT_POOL
    strata: tuple[Stratum, ...] = ()
    rest: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError unless depths grow and sizes make sense."""
        if self.pool < 1 or any(deeper <= depth for depth, deeper in pairwise(self.bounds)):
            raise ValueError("every stratum must end below the one before it")
        if self.rest < 0 or any(stratum.sample < 1 for stratum in self.strata):
            raise ValueError("a sample has at least one item")

    @property
    def bounds(self) -> tuple[int, ...]:
        """Best ranks at which the pool and each stratum below it end."""
        return (self.pool, *(stratum.to for stratum in self.strata))

    @property
    def depth(self) -> int:
        """Number of hits that every retriever is asked for."""
        return self.bounds[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolItem:
    """One text to grade, whatever chunks hold it.

    `stratum` counts from 0, the pool; the rest has the number after the last. `ranks` are its best ranks by retriever,
    `chunks` the ids of its chunks by retriever ("" for the corpus), the one to show first.
    """

    key: str
    """Identity of the text: equal for chunks of equal normalised text."""
    text: str
    document: str | None = None
    stratum: int = 0
    ranks: Mapping[str, int] = field(default_factory=dict)
    chunks: Sequence[tuple[str, str]]

    @property
    def chunk_ids(self) -> list[str]:
        """Ids of its chunks, each once."""
        return list(dict.fromkeys(chunk for _, chunk in self.chunks))


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPool:
    """Items of one canary to grade, and the sizes of its strata, from 0; the last is the rest's, where there is one."""

    items: tuple[PoolItem, ...]
    sizes: tuple[int, ...]
    shared_ids: tuple[str, ...] = ()
    """Ids of chosen chunks that stand for another ranked text too, chosen or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Identities of the distinct texts of a corpus, in its order, each with the place where it stands first."""

    keys: tuple[str, ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, keys: Iterable[str]) -> "Corpus":
        """Read the identities of all texts in order."""
        first: dict[str, int] = {}
        for place, key in enumerate(keys):
            first.setdefault(key, place)
        return cls(keys=tuple(first), places=tuple(first.values()))

    def draw(self, count: int, *, known: Collection[str], random: np.random.Generator) -> tuple[tuple[int, ...], int]:
        """Draw places of texts that are not `known`, without replacement, and count all such texts."""
        outside = [place for place, key in zip(self.places, self.keys, strict=True) if key not in known]
        drawn = random.choice(len(outside), size=min(count, len(outside)), replace=False) if outside else ()
        return tuple(outside[int(place)] for place in drawn), len(outside)


def draw_items(items: Sequence[PoolItem], plan: PoolPlan, random: np.random.Generator) -> CanaryPool:
    """Choose what is graded of the items of one canary, as `merge_rankings` returns them; the rest is of a corpus."""
    strata: list[list[PoolItem]] = [[] for _ in plan.bounds]
    for item in items:
        strata[item.stratum].append(item)
    chosen = list(strata[0])
    for stratum, deeper in zip(plan.strata, strata[1:], strict=True):
        drawn = random.choice(len(deeper), size=min(stratum.sample, len(deeper)), replace=False) if deeper else ()
        chosen += [deeper[int(place)] for place in sorted(drawn)]
    texts_by_id: dict[str, set[str]] = {}
    for item in items:
        for _, chunk in item.chunks:
            texts_by_id.setdefault(chunk, set()).add(item.key)
    used = {chunk for item in chosen for _, chunk in item.chunks}
    shared = sorted(chunk for chunk in used if len(texts_by_id[chunk]) > 1)
    return CanaryPool(items=tuple(chosen), sizes=tuple(map(len, strata)), shared_ids=tuple(shared))


def merge_rankings(rankings: Mapping[str, Ranking], bounds: Sequence[int]) -> tuple[PoolItem, ...]:
    """Items of several rankings, best rank first; each in the first stratum whose bound its best rank is within."""
    merged: dict[str, PoolItem] = {}
    for retriever in sorted(rankings):
        ranking = rankings[retriever]
        for place in range(min(len(ranking), bounds[-1])):
            text, chunk = ranking.texts[place], (retriever, ranking.ids[place])
            key = text_key(text, chunk=chunk[1])
            known = merged.get(key)
            ranks = {} if known is None else dict(known.ranks)
            ranks.setdefault(retriever, place + 1)
            merged[key] = PoolItem(
                key=key,
                text=(text or "") if known is None else known.text,
                document=ranking.documents[place] if known is None else known.document,
                stratum=next(number for number, bound in enumerate(bounds) if min(ranks.values()) <= bound),
                ranks=ranks,
                chunks=(chunk,) if known is None else (*known.chunks, chunk),
            )
    return tuple(sorted(merged.values(), key=lambda item: (min(item.ranks.values()), item.key)))


def text_key(text: str | None, *, chunk: str) -> str:
    """Identity of a chunk's text: that of its normalised text, or of its id where it has none to compare."""
    normalised = normalise(text) if text else ""
    prefix, value = ("text", normalised) if normalised else ("chunk", chunk)
    return hashlib.sha256(f"{prefix}:{value}".encode()).hexdigest()[:32]


def canary_random(seed: int, canary: str) -> np.random.Generator:
    """Random generator of one canary: the same draws whichever canaries are pooled before it, or again."""
    return np.random.default_rng([seed, *hashlib.sha256(canary.encode()).digest()])


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledStratum:
    """A stratum of one query: its size, how many of its items were graded (not skipped), how many are relevant."""

    size: int
    graded: int
    relevant: int

    def __post_init__(self) -> None:
        """Raise ValueError unless relevant <= graded <= size."""
        if not 0 <= self.relevant <= self.graded <= self.size:
            raise ValueError(f"{self.relevant} relevant of {self.graded} graded of {self.size} cannot be")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryGrades:
    """Grades of one query: relevant items of the pool, those of them found in the first k, and the strata below."""

    pool_relevant: int
    found: int
    strata: tuple[SampledStratum, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledRecall:
    """Pooled recall over `queries`, with its 95 % interval.

    `relevant` is the estimated number of relevant items; `value` and the interval are None where it is unknown (a
    stratum of a query has no grade) or 0.
    """

    queries: int
    found: int
    relevant: float | None
    value: float | None
    low: float | None = None
    high: float | None = None


def estimate_recall(queries: Sequence[QueryGrades], *, seed: int = 0) -> PooledRecall:
    """Estimate recall of a retriever whose hits were pooled, from the grades of its queries.

    Each of `DRAWS` draws resamples the queries and draws the share of relevant items of each stratum given all its
    grades; see `_Samples.draw_shares`. A stratum of a query that was graded whole is not drawn. The same for the same
    grades and seed. Raises ValueError where queries differ in the number of their strata.
    """
    found = sum(query.found for query in queries)
    unknown = any(one.size and not one.graded for query in queries for one in query.strata)
    if not queries or unknown:
        return PooledRecall(queries=len(queries), found=found, relevant=None, value=None)
    samples = _Samples.read(queries)
    relevant = float(samples.counted.sum() + (samples.sizes @ samples.shares if samples.sizes.size else 0.0))
    if not relevant:
        return PooledRecall(queries=len(queries), found=found, relevant=0.0, value=None)
    low, high = samples.interval(np.random.default_rng(seed))
    return PooledRecall(
        queries=len(queries), found=found, relevant=relevant, value=found / relevant, low=low, high=high
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """What draws need: of each query found and counted items and sizes by stratum; of each stratum share and grades."""

    found: Floats
    counted: Floats
    """Relevant items that are known: of the pool and of strata graded whole."""
    sizes_by_query: Floats
    """0 where a stratum was graded whole."""
    sizes: Floats
    shares: Floats
    """Of each stratum the share that is relevant, weighted by sizes."""
    grades: Floats
    """Of each stratum the number of grades it is worth, after Kish: equal weights give their number."""

    @classmethod
    def read(cls, queries: Sequence[QueryGrades]) -> "_Samples":
        strata = len(queries[0].strata)
        if any(len(query.strata) != strata for query in queries):
            raise ValueError("queries must have the same strata")
        columns = np.array(
            [[(one.size, one.graded, one.relevant) for one in query.strata] for query in queries], dtype=np.float64
        ).reshape(len(queries), strata, 3)
        sizes, graded, relevant = columns[:, :, 0], columns[:, :, 1], columns[:, :, 2]
        whole = graded == sizes
        counted = np.array([query.pool_relevant for query in queries]) + (relevant * whole).sum(axis=1)
        sizes = np.where(whole, 0.0, sizes)
        safe = np.maximum(graded, 1)
        totals = sizes.sum(axis=0)
        spread = (sizes**2 / safe).sum(axis=0)
        return cls(
            found=np.array([query.found for query in queries], dtype=np.float64),
            counted=counted,
            sizes_by_query=sizes,
            sizes=totals,
            shares=(sizes * relevant / safe).sum(axis=0) / np.maximum(totals, 1),
            grades=np.divide(totals**2, spread, out=np.zeros(strata), where=spread > 0),
        )

    def interval(self, random: np.random.Generator) -> tuple[float, float]:
        """Percentiles of found / relevant over the draws; a draw in which nothing is relevant tells nothing."""
        queries = len(self.found)
        counts = random.multinomial(queries, np.full(queries, 1 / queries), size=DRAWS).astype(np.float64)
        relevant = counts @ self.counted + ((counts @ self.sizes_by_query) * self.draw_shares(random)).sum(axis=1)
        found = counts @ self.found
        drawn = found[relevant > 0] / relevant[relevant > 0]
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(drawn, [tail, 1 - tail]).tolist()
        return low, high

    def draw_shares(self, random: np.random.Generator) -> Floats:
        """Draw the relevant share of each stratum: from either of the two beta distributions of exact limits.

        Beta(r, n - r + 1) and Beta(r + 1, n - r) give the lower and the upper limit of Clopper and Pearson; each draw
        takes one of them at random (Stevens, "Fiducial limits of the parameter of a discontinuous distribution",
        Biometrika 1950). So finding none relevant still leaves room, and finding the only one of a large rest still
        covers. Jeffreys' Beta(r + 1/2, n - r + 1/2) does not there: .92 in place of .98 on chunkeval.
        """
        hits = self.shares * self.grades
        misses = np.maximum(self.grades - hits, 0)
        size, tiny = (DRAWS, len(hits)), 1e-9
        lower = np.where(hits > 0, random.beta(np.maximum(hits, tiny), misses + 1, size=size), 0)
        upper = np.where(misses > 0, random.beta(hits + 1, np.maximum(misses, tiny), size=size), 1)
        drawn: Floats = np.where(random.random(size) < 0.5, lower, upper)  # noqa: PLR2004 - either
        return drawn


def recall_frame(retrievers: Sequence[str], depth: int, corpus: str | None, *, sampled: bool = True) -> str:
    """Return in words what the estimate is a share of; `sampled`: deeper ranks than the pool were drawn from.

    Of one retriever without a sample it is self-judged: what lies deeper, or elsewhere, was never judged.
    """
    if corpus is not None:
        return f"of all relevant texts of the corpus {corpus}"
    own = ", its own first hits alone: self-judged" if len(retrievers) == 1 and not sampled else ""
    return f"of the relevant texts among the top {depth} of {', '.join(retrievers)}{own}"


LONGEST_SECONDS: Final = 300.0
"""An annotation that took longer was interrupted; it counts as this long."""
PACE_OF: Final = 200
"""Number of newest annotations that the pace is the median of."""

KeyT = TypeVar("KeyT")


def next_of(keys: Iterable[KeyT], *, seed: int, annotator: str) -> KeyT | None:
    """First of these in the order of an annotator; None = there is none."""
    return min(keys, key=lambda key: hash_share(f"order:{seed}:{annotator}:{key}"), default=None)


def pace(seconds: Sequence[float]) -> float | None:
    """Median seconds of an annotation; None = none was timed."""
    return float(median(min(one, LONGEST_SECONDS) for one in seconds)) if seconds else None


def grade_limit(scale: str) -> int:
    """Highest grade of a scale such as `0-2`."""
    return int(scale.partition("-")[2])


LABELS: Final = ("No", "Yes")
"""Names of the grades 0 and 1 of an answer."""
PREFERENCES: Final = ("Left is better", "No difference", "Right is better")
"""Names of the grades 0 to 2 of a pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelQuestion:
    """A question to people, and what they see beside query and answer."""

    text: str
    contexts: bool = False
    expected: bool = False


_SUPPORTED: Final = LabelQuestion(text="Are all claims of the answer supported by the chunks?", contexts=True)
LABEL_QUESTIONS: Final = MappingProxyType(
    {
        "faithful": _SUPPORTED,
        "faithfulness": _SUPPORTED,
        "answer_relevance": LabelQuestion(text="Does everything in the answer help to answer the query?"),
        "correctness": LabelQuestion(
            text="Does the answer say everything that the expected answer says, and nothing against it?", expected=True
        ),
    }
)
