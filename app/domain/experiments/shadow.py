"""Shadow: how far a candidate's answers differ from those that users get.

Nobody sees a shadow's answers, so it measures no satisfaction; it tells how much there is to judge, and what fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.runs.rankings import rbo

DEPTH: Final = 10
"""Hits that Jaccard's index is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOverlap:
    """How alike two rankings of one query are: 1 = the same."""

    rbo: float
    """Rank-biased overlap with p = .9."""
    jaccard: float
    """Share of the chunks among the first ten of either that both have."""


def compare_pair(a: Sequence[str], b: Sequence[str]) -> PairOverlap:
    """Compare two rankings of distinct ids; two empty ones are the same."""
    first, second = set(a[:DEPTH]), set(b[:DEPTH])
    union = first | second
    return PairOverlap(rbo=rbo(a, b), jaccard=len(first & second) / len(union) if union else 1.0)
