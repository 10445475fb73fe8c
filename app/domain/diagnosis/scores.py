"""Whether the same chunks have other scores than before, and whether a chunk that is gone should not be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from app.domain.model import Ranking
from app.domain.retrievers import Scale

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
    """How far the scores of chunks moved that were there before and are now."""

    median: float
    """Of |now - before| / |before|."""
    chunks: int
    in_order: float
    """The share of pairs of chunks that kept their order, in [0, 1]; 1 where there is no pair."""


def change_of(before: Ranking, today: Sequence[Ranking]) -> Change | None:
    """Compare the scores of the chunks found then and now; None = there is none with both."""
    now = scores_of(*today)
    pairs = [(was, now[chunk]) for chunk, was in scores_of(before).items() if chunk in now]
    if not pairs:
        return None
    moved = median(_relative(was, is_) for was, is_ in pairs)
    kept = [(a - b) * (c - d) >= 0 for (a, c), (b, d) in combinations(pairs[:_MOST_COMPARED], 2)]
    return Change(moved, len(pairs), sum(kept) / len(kept) if kept else 1.0)


def scores_of(*rankings: Ranking) -> Mapping[str, float]:
    """Map chunks to their scores; where several rankings have one, the first counts."""
    found: dict[str, float] = {}
    for ranking in rankings:
        for chunk, score in zip(ranking.ids, ranking.scores, strict=True):
            if score is not None:
                found.setdefault(chunk, score)
    return found


def limit_of(scale: Scale | None) -> float:
    """Give the median change up to which scores count as the same."""
    return LIMIT_LEXICAL if scale is Scale.UNBOUNDED else LIMIT


def by_content(scale: Scale | None, change: Change) -> bool:
    """Whether scores may have moved only because other documents came or went: each a bit, and the order stayed."""
    return scale not in _OF_THE_PAIR_ALONE and change.in_order >= IN_ORDER


def beats(scale: Scale | None, score: float, other: float) -> bool:
    """Whether a score is the better one; distances are better the smaller they are."""
    return score < other if scale is Scale.DISTANCE else score > other


def _relative(was: float, is_: float) -> float:
    if was == is_:
        return 0.0
    return abs(is_ - was) / abs(was) if was else 1.0


_MOST_COMPARED = 100
