"""Pooling: which chunks of one canary people grade, drawn from what several retrievers return and from a corpus.

Stratum 0, the pool, is the union of every retriever's first hits and is graded whole. Deeper strata hold what ranks
below it, by the best rank over retrievers, and the rest what no retriever returned; of them a sample is drawn without
replacement and its size is known, which is what an estimate of recall needs (`pooled_recall`).
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.annotation.domain.agreement import hash_share
from app.base.values import Ranking
from app.scoring.texts import normalise

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
    def best_rank(self) -> int | None:
        """Best rank over retrievers; None = none returned it."""
        return min(self.ranks.values(), default=None)


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


def pool_canary(rankings: Mapping[str, Ranking], plan: PoolPlan, random: np.random.Generator) -> CanaryPool:
    """Choose what is graded of the answers of several retrievers to one canary; the rest is `add_rest`'s.

    Rankings are cut to the depth of the plan. Raises ValueError without a ranking.
    """
    if not rankings:
        raise ValueError("a pool needs the ranking of at least one retriever")
    return draw_items(merge_rankings(rankings, plan.bounds), plan, random)


def draw_items(items: Sequence[PoolItem], plan: PoolPlan, random: np.random.Generator) -> CanaryPool:
    """Choose what is graded of the items of one canary, as `merge_rankings` returns them."""
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


def add_rest(pool: CanaryPool, drawn: Sequence[PoolItem], size: int) -> CanaryPool:
    """Add random negatives of the corpus, of which there are `size`."""
    return replace(pool, items=(*pool.items, *drawn), sizes=(*pool.sizes, size))


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


Floats = NDArray[np.float64]

DRAWS: Final = 2_000
CONFIDENCE: Final = 0.95


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
