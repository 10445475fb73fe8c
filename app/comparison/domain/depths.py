"""Depth of a comparison: how many hits of both runs count, and the measures that follow from it.

A measure of the whole ranking grows with the number of hits that were asked for, so that the same retriever asked for
20 hits looks better than asked for 5. Both runs are therefore read to the depth that both have.
"""

from dataclasses import dataclass
from typing import Final

from app.catalog.domain.measure_guide import Use

_NDCG_DEPTH: Final = 10
"""Depth of NDCG where both runs are that deep."""
COVERAGE: Final = "coverage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """Number of hits that count in both runs."""

    k: int
    """For measures of a check's own k: the smaller of both."""
    m: int
    """For all others: the smaller number of hits that was asked for."""
    equal: bool
    """Whether both asked for as many, so that measures of whole rankings may be compared as they are."""

    @property
    def ndcg(self) -> int:
        """Depth of NDCG."""
        return min(_NDCG_DEPTH, self.m)


def common_depth(*, k: tuple[int, int], fetch_k: tuple[int, int]) -> Depth:
    """Return the depth that two runs have in common, given the k and the `fetch_k` of each."""
    m = min(fetch_k)
    return Depth(k=min(*k, m), m=m, equal=fetch_k[0] == fetch_k[1])


def primary_measures(depth: Depth, use: Use = Use.GENERAL) -> tuple[str, ...]:
    """Return the measures that a verdict is about, by the names of their means: at most five, and no two the same.

    That of the `use` of A's check comes first: sentences begin with it, and canaries are ordered by it.
    """
    k = depth.k
    ndcg, recall, precision, rank = f"NDCG@{depth.ndcg}", f"R@{k}", f"P@{k}", f"MRR@{depth.m}"
    if use is Use.GRADED:
        ndcg = f"NDCG@{k}"
    first = {Use.COMPLETENESS: recall, Use.PRECISION: precision, Use.SINGLE_ANSWER: rank}.get(use, ndcg)
    return tuple(dict.fromkeys([first, ndcg, recall, precision, rank, COVERAGE]))
