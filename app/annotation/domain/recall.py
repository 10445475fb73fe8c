"""Recall beyond the pool, estimated from the grades of a sample."""

from collections.abc import Sequence
from dataclasses import dataclass

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
