"""Recall beyond the pool, estimated from the grades of a sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.annotation.domain.agreement import DRAWS
from app.base.statistics import CONFIDENCE

Floats = NDArray[np.float64]


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
    rest_share: float | None = None
    """Share of `relevant` that texts which no retriever ranked stand for; None = unknown."""


def estimate_recall(queries: Sequence[QueryGrades], *, has_rest: bool = False, seed: int = 0) -> PooledRecall:
    """Estimate recall of a retriever whose hits were pooled, from the grades of its queries, each taken as right.

    With `has_rest` the last stratum is of texts that no retriever ranked.

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
    rest = [query.strata[-1] for query in queries] if has_rest else []
    return PooledRecall(
        queries=len(queries),
        found=found,
        relevant=relevant,
        value=found / relevant,
        low=low,
        high=high,
        rest_share=sum(one.size * one.relevant / one.graded for one in rest if one.graded) / relevant,
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
        """Draw the relevant share of each stratum."""
        hits = np.broadcast_to(self.shares * self.grades, (DRAWS, len(self.shares)))
        return draw_share(random, hits, self.grades)


def draw_share(random: np.random.Generator, hits: Floats, count: Floats | float) -> Floats:
    """Draw a share given so many hits of `count`, for each of `hits`: of the two beta distributions of exact limits.

    Beta(r, n - r + 1) and Beta(r + 1, n - r) give the lower and the upper limit of Clopper and Pearson; each draw takes
    one of them at random (Stevens, "Fiducial limits of the parameter of a discontinuous distribution", Biometrika
    1950). So finding none relevant still leaves room, and finding the only one of a large rest still covers. Jeffreys'
    Beta(r + 1/2, n - r + 1/2) does not there: .92 in place of .98 on chunkeval.
    """
    misses, tiny = np.maximum(count - hits, 0), 1e-9
    lower = np.where(hits > 0, random.beta(np.maximum(hits, tiny), misses + 1), 0)
    upper = np.where(misses > 0, random.beta(hits + 1, np.maximum(misses, tiny)), 1)
    drawn: Floats = np.where(random.random(hits.shape) < 0.5, lower, upper)  # noqa: PLR2004 - either
    return drawn


def recall_frame(retrievers: Sequence[str], depth: int, corpus: str | None, *, sampled: bool = True) -> str:
    """Return in words what the estimate is a share of; `sampled`: deeper ranks than the pool were drawn from.

    Of one retriever without a sample it is self-judged: what lies deeper, or elsewhere, was never judged.
    """
    if corpus is not None:
        return f"of all relevant texts of the corpus {corpus}"
    own = ", its own first hits alone: self-judged" if len(retrievers) == 1 and not sampled else ""
    return f"of the relevant texts among the top {depth} of {', '.join(retrievers)}{own}"


Said = tuple[int, int]
"""How many people said something of an item, and how many of them that it is relevant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidOfQuery:
    """What people said of the items of one query: of the pool, and of the sample of each stratum, with its size."""

    pool: tuple[Said, ...]
    strata: tuple[tuple[int, tuple[Said, ...]], ...] = ()


CHAINS: Final = 500
"""Draws of what annotators may have got wrong."""
_ROUNDS: Final = 100
"""Rounds that each draw takes to forget where it began."""
_RANKED, _REST, _RELEVANT = range(3)
"""Kinds of items with errors of their own: irrelevant ones that a retriever ranked, other irrelevant ones, relevant."""
_OBVIOUS: Final = (0.5, 24.5)
"""Beta prior of the share of wrong grades of an obvious item: .02, worth 25 grades."""
_DIFFICULT: Final = (4.0, 6.0)
"""The same of a difficult item, on which people nearly guess: .4, worth ten grades."""
_DIFFICULT_SHARE: Final = (1.0, 6.0)
"""The same of the share of items that are difficult."""
_TINY: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """Items of one stratum: each thing that was said, how often over all queries, and how often in each query."""

    people: Floats
    relevant: Floats
    counts: NDArray[np.int64]
    by_query: Floats

    @classmethod
    def of(cls, queries: Sequence[Sequence[Said]]) -> "_Cell":
        kinds = sorted({said for query in queries for said in query})
        by_query = np.array([[query.count(kind) for kind in kinds] for query in queries], dtype=np.float64)
        by_query = by_query.reshape(len(queries), len(kinds))
        table = np.array(kinds, dtype=np.float64).reshape(-1, 2)
        return cls(
            people=table[:, 0], relevant=table[:, 1], counts=by_query.sum(axis=0).astype(np.int64), by_query=by_query
        )


class _Errors:
    """Draws of how often annotators err, by kind of item: obvious and difficult ones, and the share of the latter."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self.rates = np.tile([0.02, 0.4], (CHAINS, 3, 1))
        self.difficult = np.full((CHAINS, 3), 0.1)
        self._forget()

    def likelihood(self, kind: int, wrong: Floats, right: Floats) -> Floats:
        """Logarithm of the probability of so many wrong and right grades, by chain."""
        return np.logaddexp(*self._by_difficulty(kind, wrong, right))

    def count(self, kind: int, items: NDArray[np.int64], wrong: Floats, right: Floats) -> None:
        """Take in items of a kind, by chain, each with so many wrong and right grades, as obvious or difficult ones."""
        obvious, difficult = self._by_difficulty(kind, wrong, right)
        hard = self._random.binomial(items, _share(difficult, obvious))
        for place, number in enumerate((items - hard, hard)):
            self._wrong[:, kind, place] += number @ wrong
            self._right[:, kind, place] += number @ right
            self._items[:, kind, place] += number.sum(axis=1)

    def draw(self) -> None:
        """Draw the rates anew from what was taken in, and forget that."""
        for place, (wrong, right) in enumerate((_OBVIOUS, _DIFFICULT)):
            self.rates[:, :, place] = self._random.beta(
                wrong + self._wrong[:, :, place], right + self._right[:, :, place]
            )
        some, most = _DIFFICULT_SHARE
        self.difficult = self._random.beta(some + self._items[:, :, 1], most + self._items[:, :, 0])
        self._forget()

    def _by_difficulty(self, kind: int, wrong: Floats, right: Floats) -> tuple[Floats, Floats]:
        shares = (1 - self.difficult[:, kind], self.difficult[:, kind])
        rates = np.clip(self.rates[:, kind], _TINY, 1 - 1e-9)
        obvious, difficult = (
            np.log(np.maximum(shares[place], _TINY))[:, None]
            + np.log(rates[:, place])[:, None] * wrong
            + np.log1p(-rates[:, place])[:, None] * right
            for place in (0, 1)
        )
        return obvious, difficult

    def _forget(self) -> None:
        self._wrong, self._right, self._items = (np.zeros((CHAINS, 3, 2)) for _ in range(3))


class GradedTask:
    """What the grades of a task say of its items, where annotators may err.

    A latent class model: an item is relevant or not, and obvious or difficult, and given that its grades are
    independent of each other (Dawid and Skene, "Maximum likelihood estimation of observer error-rates", Applied
    Statistics 1979). Items of several grades, with the decisions on disputes among them, tell how often people err;
    prevalences that differ by stratum tell it too (Hui and Walter, "Estimating the error rates of diagnostic tests",
    Biometrics 1980). Drawn by Gibbs sampling (Joseph, Gyorkos, Coupal, American Journal of Epidemiology 1995), `CHAINS`
    chains at once, each of which ends in one draw. The same for the same grades and seed.
    """

    def __init__(self, queries: Sequence[SaidOfQuery], *, has_rest: bool, seed: int) -> None:
        """Learn from the grades; with `has_rest` the last stratum is of texts that no retriever ranked."""
        self._queries = queries
        self._seed = seed
        self._random = np.random.default_rng(seed)
        strata = len(queries[0].strata)
        self._cells = [_Cell.of([query.strata[place][1] for query in queries]) for place in range(strata)]
        kinds = [_REST if has_rest and place == strata - 1 else _RANKED for place in range(strata)]
        pool = _Cell.of([query.pool for query in queries])
        self._errors = _Errors(self._random)
        prevalences = [_begin(cell) for cell in (pool, *self._cells)]
        for _ in range(_ROUNDS):
            for place, (cell, kind) in enumerate(zip((pool, *self._cells), (_RANKED, *kinds), strict=True)):
                prevalences[place], _ = self._draw_relevant(cell, kind, prevalences[place], learn=True)
            self._errors.draw()
        self._weights = self._random.multinomial(
            len(queries), np.full(len(queries), 1 / len(queries)), size=CHAINS
        ).astype(np.float64)
        beyond = [
            self._beyond(place, self._draw_relevant(cell, kind, prevalence, learn=False)[1])
            for place, (cell, kind, prevalence) in enumerate(zip(self._cells, kinds, prevalences[1:], strict=True))
        ]
        self._below = np.sum(beyond, axis=0) if beyond else np.zeros(CHAINS)
        self._rest = beyond[-1] if has_rest and beyond else np.zeros(CHAINS)

    def recall(self, found: Sequence[Sequence[bool]]) -> PooledRecall:
        """Estimate the recall of a retriever that found these items of the pool of each query."""
        self._random = np.random.default_rng([self._seed, 1])  # the same whatever was asked before
        sides = []
        for is_found in (True, False):
            said = [
                [one for one, here in zip(query.pool, flags, strict=True) if bool(here) is is_found]
                for query, flags in zip(self._queries, found, strict=True)
            ]
            cell, share = _Cell.of(said), np.zeros((CHAINS, 0))
            prevalence = _begin(cell)
            for _ in range(_ROUNDS // 10):  # the errors are known: only the prevalence has to be forgotten
                prevalence, share = self._draw_relevant(cell, _RANKED, prevalence, learn=False)
            sides.append(((self._weights @ cell.by_query) * share).sum(axis=1))
        hits, missed = sides
        relevant = hits + missed + self._below
        shares = hits[relevant > 0] / relevant[relevant > 0]
        typical = float(np.median(relevant))
        if not len(shares) or not typical:
            return PooledRecall(queries=len(self._queries), found=0, relevant=0.0, value=None)
        tail = (1 - CONFIDENCE) / 2
        low, value, high = np.quantile(shares, [tail, 0.5, 1 - tail]).tolist()
        return PooledRecall(
            queries=len(self._queries),
            found=round(float(np.median(hits))),
            relevant=typical,
            value=value,
            low=low,
            high=high,
            rest_share=float(np.median(self._rest / np.maximum(relevant, _TINY))),
        )

    def wrong_shares(self) -> tuple[float, float]:
        """Median shares of grades that call relevant what is not, and irrelevant what is, as far as they are known."""
        shares = 1 - self._errors.difficult, self._errors.difficult
        rates = sum(share * self._errors.rates[:, :, place] for place, share in enumerate(shares))
        irrelevant = rates[:, [_RANKED, _REST]].mean(axis=1)
        return float(np.median(irrelevant)), float(np.median(rates[:, _RELEVANT]))

    def _draw_relevant(self, cell: _Cell, kind: int, prevalence: Floats, *, learn: bool) -> tuple[Floats, Floats]:
        """Draw how many items of a cell are relevant: the prevalence that follows, and the share of each thing said."""
        right, wrong = cell.relevant, cell.people - cell.relevant
        yes = np.log(np.maximum(prevalence, _TINY))[:, None] + self._errors.likelihood(_RELEVANT, wrong, right)
        no = np.log1p(-np.minimum(prevalence, 1 - _TINY))[:, None] + self._errors.likelihood(kind, right, wrong)
        counts = np.broadcast_to(cell.counts, yes.shape)
        relevant = self._random.binomial(counts, _share(yes, no))
        if learn:
            self._errors.count(_RELEVANT, relevant, wrong, right)
            self._errors.count(kind, counts - relevant, right, wrong)
        total = relevant.sum(axis=1).astype(np.float64)
        share = relevant / np.maximum(counts, 1)
        return draw_share(self._random, total, float(cell.counts.sum())), share

    def _beyond(self, place: int, share: Floats) -> Floats:
        """Draw the number of relevant items of a stratum, over the queries that each draw takes."""
        cell = self._cells[place]
        sizes = np.array([query.strata[place][0] for query in self._queries], dtype=np.float64)
        graded = cell.by_query.sum(axis=1)
        whole = graded == sizes
        counted: Floats = ((self._weights @ (cell.by_query * whole[:, None])) * share).sum(axis=1)
        sizes = np.where(whole, 0.0, sizes)
        if not sizes.sum():
            return counted
        each = sizes / np.maximum(graded, 1)
        weights = each @ cell.by_query
        worth = sizes.sum() ** 2 / (sizes * each).sum()
        drawn = draw_share(self._random, (share @ weights) / sizes.sum() * worth, worth)
        sampled: Floats = counted + (self._weights @ sizes) * drawn
        return sampled


def _begin(cell: _Cell) -> Floats:
    """Return the prevalence to begin with: half of what was said, so that no chain begins without a relevant item."""
    said = float((cell.relevant / np.maximum(cell.people, 1)) @ cell.counts)
    return np.full(CHAINS, min(max(said / max(float(cell.counts.sum()), 1.0) / 2, 0.001), 0.9))


def _share(one: Floats, other: Floats) -> Floats:
    """Return the share of the first of two logarithms of probabilities in their sum."""
    shares: Floats = 1 / (1 + np.exp(np.clip(other - one, -700, 700)))
    return shares
