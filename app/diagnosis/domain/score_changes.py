"""Score changes: how far the scores of the same chunks moved, and what that may come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from statistics import median
from typing import TypeGuard

from app.base.values import Ranking
from app.retrievers.domain.retrievers import Scale

LIMIT = 0.03
LIMIT_LEXICAL = 0.10
"""Sums of word weights move a little with the collection, without anything being wrong."""
IN_ORDER = 2 / 3
MOVED_BY_CONTENT = 0.3
"""What weights of words move by when documents come and go: measured up to this in 19 of 20 cases, the order kept."""
_OF_THE_PAIR_ALONE = frozenset({Scale.COSINE, Scale.DISTANCE, Scale.LOGIT})
"""Scales of scores that depend on query and chunk alone; others may count words over the whole collection."""


@dataclass(frozen=True, slots=True)
class Change:
    """How far the scores of the same chunks moved."""

    median: float
    """Of |now - before| / |before|."""
    chunks: int
    in_order: float
    """The share of pairs of chunks that kept their order, in [0, 1]; 1 where there is no pair."""


def change_of(before: Ranking, today: Sequence[Ranking]) -> Change | None:
    """Compare the scores of the chunks found then and now; None = there is none with both."""
    texts = dict(zip(before.ids, before.texts, strict=True))
    now: dict[str, float] = {}
    for ranking in today:
        for chunk, text, score in zip(ranking.ids, ranking.texts, ranking.scores, strict=True):
            # An id that holds another text is another chunk. Where several answers have one, the first counts.
            if _is_number(score) and chunk in texts and (text == texts[chunk] or None in {text, texts[chunk]}):
                now.setdefault(chunk, score)
    then = zip(before.ids, before.scores, strict=True)
    pairs = [(was, now[chunk]) for chunk, was in then if _is_number(was) and chunk in now]
    if not pairs:
        return None
    moved = median(_relative(was, is_) for was, is_ in pairs)
    same_order = [(a - b) * (c - d) >= 0 for (a, c), (b, d) in combinations(pairs[:_MOST_COMPARED], 2)]
    return Change(moved, len(pairs), sum(same_order) / len(same_order) if same_order else 1.0)


def limit_of(scale: Scale | None) -> float:
    """Largest median change for which scores count as the same."""
    return LIMIT_LEXICAL if scale is Scale.UNBOUNDED else LIMIT


def by_content(scale: Scale | None, change: Change) -> bool:
    """Whether scores may have moved only because other documents came or went: each a bit, and the order stayed."""
    return scale not in _OF_THE_PAIR_ALONE and change.in_order >= IN_ORDER


def beats(scale: Scale | None, score: float, other: float) -> bool:
    """Whether a score is the better one of two numbers; distances are better the smaller they are."""
    if not (isfinite(score) and isfinite(other)):
        return False
    return score < other if scale is Scale.DISTANCE else score > other


def _is_number(score: float | None) -> TypeGuard[float]:
    return score is not None and isfinite(score)


def _relative(was: float, is_: float) -> float:
    if was == is_:
        return 0.0
    return min(abs(is_ - was) / abs(was), _MOST_MOVED) if was else 1.0


_MOST_COMPARED = 100
_MOST_MOVED = 1e6
"""Cap of relative changes; quotients of the smallest floats are infinite."""
