"""The pool of texts that people grade, how it is drawn, and in which order and with which questions they see it.

Stratum 0, the pool, is the union of every retriever's first hits and is graded whole. Deeper strata hold what ranks
below it, by the best rank over retrievers, and the rest what no retriever returned. A sample is drawn from them without
replacement; its size is known, which an estimate of recall needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np

from app.base.statistics import hash_share
from app.base.values import Ranking, Value, field
from app.scoring.words import normalise

MOST_ANSWERS: Final = 1_000
"""Generated answers that a task may draw."""
DEFAULT_POOL: Final = 10
PLANTED: Final = -1
"""Stratum of planted texts, which enter no estimate of how many are relevant."""


class Stratum(Value):
    """Items whose best rank is at most `to` and beyond the stratum before; `sample` of them are drawn."""

    to: int
    sample: int


class PoolPlan(Value):
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


class PoolItem(Value):
    """One text to grade, whatever chunks hold it.

    `stratum` counts from 0, the pool; the rest has the number after the last, planted texts have `PLANTED`. `ranks` are
    its best ranks by retriever, `chunks` the ids of its chunks by retriever ("" for the corpus), the one to show first.
    """

    key: str
    """Identity of the text: equal for chunks of equal normalised text."""
    text: str
    document: str | None = None
    stratum: int = 0
    ranks: Mapping[str, int] = field(default_factory=dict)
    chunks: Sequence[tuple[str, str]]
    known_grade: int | None = None
    """Of a planted text; None = an item of the pool."""

    @property
    def chunk_ids(self) -> list[str]:
        """Ids of its chunks, each once."""
        return list(dict.fromkeys(chunk for _, chunk in self.chunks))


class CanaryPool(Value):
    """Items of one canary to grade, and the sizes of its strata, from 0; the last is the rest's, where there is one."""

    items: tuple[PoolItem, ...]
    sizes: tuple[int, ...]
    shared_ids: tuple[str, ...] = ()
    """Ids of chosen chunks that stand for another ranked text too, chosen or not."""


class Corpus(Value):
    """Identities of the distinct texts of a corpus, in its order, each with the place where it stands first."""

    keys: tuple[str, ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, keys: Iterable[str]) -> Corpus:
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


class KnownCanary(Value):
    """What planting needs of a canary: which texts it expects, as far as they are known, and which it is graded by."""

    id: int
    expected: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Text and grade of each relevant text, by its key."""
    documents: Collection[str] = ()
    """Documents, and ids, of what it expects."""
    shown: Collection[str] = ()
    """Keys of its items."""
    doubtful: Collection[str] = ()
    """Keys of expected texts that rest on one grade alone, or on the hits of a retriever."""


class Planting(Value):
    """Planted items, each with its canary, and why they are fewer than asked for; "" = they are not."""

    items: tuple[tuple[int, PoolItem], ...]
    reason: str = ""


def draw_planted(canaries: Sequence[KnownCanary], count: int, random: np.random.Generator) -> Planting:
    """Draw texts with a known grade: half of them a canary expects, and the others another canary does.

    None is an item of its canary already, which leaves what no retriever of the task brings up. There wrong judgments
    gather, so that a relevant one is none that rests on one grade alone. A text that another canary expects is not
    relevant to this one, unless this one expects it too, or something of the same document, or a text that has it
    within or is within it.
    """
    left_over = [(canary, key) for canary in canaries for key in sorted(canary.expected) if key not in canary.shown]
    good = [
        (canary.id, _planted(key, *canary.expected[key])) for canary, key in left_over if key not in canary.doubtful
    ]
    half = count // 2
    chosen = [good[int(place)] for place in sorted(random.permutation(len(good))[:half])]
    wrong: list[tuple[int, PoolItem]] = []
    texts = [(other, key) for other in canaries for key in sorted(other.expected)]
    used = {(canary_id, item.key) for canary_id, item in chosen}
    left = [canaries[int(place)] for place in random.permutation(len(canaries))]
    while left and len(wrong) < count - half:  # each canary once, in random order, then each once more
        canary = left.pop(0)
        drawn = (texts[int(one)] for one in random.permutation(len(texts)))
        other = next((one for one in drawn if (canary.id, one[1]) not in used and _is_foreign(canary, *one)), None)
        if other is not None:
            used.add((canary.id, other[1]))
            wrong.append((canary.id, _planted(other[1], other[0].expected[other[1]][0], 0)))
            left.append(canary)
    reasons = []
    if len(chosen) < half:
        doubtful = len(left_over) - len(good)
        rest = "rests" if doubtful == 1 else "rest"
        but = f" ({doubtful} more {rest} on one grade, or on the hits of a retriever)" if doubtful else ""
        reasons.append(f"only {len(chosen)} of {half} relevant texts are known that are not graded anyway{but}")
    if len(wrong) < count - half:
        reasons.append(f"only {len(wrong)} of {count - half} irrelevant texts are known")
    return Planting(items=(*chosen, *wrong), reason=", and ".join(reasons))


def _planted(key: str, text: str, grade: int) -> PoolItem:
    return PoolItem(key=key, text=text, stratum=PLANTED, chunks=(), known_grade=grade)


def _is_foreign(canary: KnownCanary, other: KnownCanary, key: str) -> bool:
    """Whether a text that another canary expects is irrelevant to this one, as far as is known, and no item of it."""
    if other.id == canary.id or key in canary.expected or key in canary.shown:
        return False
    if not set(other.documents).isdisjoint(canary.documents):
        return False
    body = normalise(other.expected[key][0])
    own = [normalise(text) for text, _ in canary.expected.values()]
    return not any(one in body or body in one for one in own)


def canary_random(seed: int, canary: str) -> np.random.Generator:
    """Random generator of one canary: the same draws whichever canaries are pooled before it, or again."""
    return np.random.default_rng([seed, *hashlib.sha256(canary.encode()).digest()])


LONGEST_SECONDS: Final = 300.0
"""An annotation that took longer was interrupted; it counts as this long."""
HELD_SECONDS: Final = 2 * LONGEST_SECONDS
"""How long what is in one's hand is held back from others: the item before it may take as long as itself."""
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


class LabelQuestion(Value):
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
