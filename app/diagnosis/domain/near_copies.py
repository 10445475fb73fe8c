"""Near copies among the hits of an answer that were not there before."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from app.base.values import Ranking
from app.diagnosis.domain.text_overlap import overlap

LIKE = 0.7
TOP = 5


@dataclass(frozen=True, slots=True)
class Pair:
    """Two hits with nearly the same text."""

    one: str
    other: str
    similarity: float


def near_copies(ranking: Ranking, before: Ranking | None) -> Sequence[Pair]:
    """List the pairs among the top 5 of which more than 0.7 of the shorter text's word 3-grams are in both.

    At least one of a pair is new: two overlapping neighbours that were always retrieved crowd out nothing.
    """
    old = frozenset(before.ids) if before is not None else frozenset()
    hits = [(chunk, text) for chunk, text in zip(ranking.ids[:TOP], ranking.texts[:TOP], strict=True) if text]
    pairs = [
        Pair(one, other, overlap(a, b))
        for (one, a), (other, b) in combinations(hits, 2)
        if not (one in old and other in old)
    ]
    return [pair for pair in pairs if pair.similarity > LIKE]
