"""Pooling: which chunks of one canary people grade, drawn from what several retrievers return and from a corpus.

Stratum 0, the pool, is the union of every retriever's first hits and is graded whole. Deeper strata hold what ranks
below it, by the best rank over retrievers, and the rest what no retriever returned; of them a sample is drawn without
replacement and its size is known, which is what an estimate of recall needs (`pooled_recall`).
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from app.base.values import Ranking
from app.scoring.passages import normalise

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
    document: str | None
    stratum: int
    ranks: Mapping[str, int]
    chunks: tuple[tuple[str, str], ...]

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
