"""Shadow: how far a candidate's answers differ from those that users get.

Nobody sees a shadow's answers, so it measures no satisfaction; it tells how much there is to judge, and what fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.annotation.domain.consensus import hash_share
from app.scoring.rankings import rbo

DEPTH: Final = 10
"""Hits that Jaccard's index is of."""
SHOWN: Final = 5
"""Hits of each side that people compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowHit:
    """A hit of a pair: its id and, where it is known, its text."""

    id: str
    text: str | None = None


Hits = Sequence[ShadowHit]


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


def is_asked(slug: str, query: str, *, share: float) -> bool:
    """Whether the candidate of a shadow is asked a query: decided by its hash, so a query is always asked or never."""
    return hash_share(f"shadow:{slug}:{query}") < share


def cut_to(b: Hits, a: Hits) -> Hits:
    """Cut the candidate's ranking to the length of what users got, so that depth alone makes no difference."""
    return b[: len(a)] if a else b


def shown_texts(hits: Hits) -> tuple[str, ...] | None:
    """Return the texts that people see of a ranking; None where one is not known."""
    texts = [one.text for one in hits[:SHOWN]]
    known = tuple(text for text in texts if text)
    return known if len(known) == len(texts) else None
