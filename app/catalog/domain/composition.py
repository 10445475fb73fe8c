"""Composition of a suite: its canaries by category and segment against targets, and unusual numbers of chunks.

A suite of easy questions alone says nothing of the hard ones. Notes are advice: nothing is refused for them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from app.base.counts import counted
from app.base.values import Category, Segment
from app.catalog.domain.suite_power import FEWEST_PER_TOPIC

SEGMENT_TARGETS: Final[Mapping[Segment, int]] = MappingProxyType(dict.fromkeys(Segment, FEWEST_PER_TOPIC))
"""Fewest canaries of each segment, over all categories: a single one may be unlucky, or wrong."""
USUAL_CHUNKS: Final[Mapping[Category, tuple[int, int]]] = MappingProxyType(
    {
        Category.SIMPLE_FACTUAL: (1, 2),
        Category.COMPLEX_FACTUAL: (3, 5),
        Category.PROCEDURAL: (5, 10),
        Category.ENTITY_CENTRIC: (3, 5),
        Category.COMPARATIVE: (2, 4),
        Category.NEGATIVE: (0, 0),
    }
)
"""Fewest and most expected chunks that questions of a category usually have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryKind:
    """What composition depends on: category, segment (None = not stated) and number of expected chunks."""

    category: Category
    segment: Segment | None
    chunks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """Number of canaries by category and segment (None = not stated), and notes without their full stops."""

    counts: Mapping[tuple[Category, Segment | None], int]
    notes: tuple[str, ...]

    def total(self, segment: Segment | None) -> int:
        """Return the number of canaries of a segment over all categories."""
        return sum(count for (_, one), count in self.counts.items() if one is segment)


def compose(canaries: Iterable[CanaryKind]) -> Composition:
    """Count canaries, and note segments below their targets and categories with unusual numbers of chunks.

    Segments are noted only where one is stated at all.
    """
    found = list(canaries)
    counts = Counter((one.category, one.segment) for one in found)
    segments = Counter(one.segment for one in found if one.segment is not None)
    notes = [
        f"{counted(segments[segment], 'canary')} of segment {segment}, {target} or more notice damage to it"
        for segment, target in SEGMENT_TARGETS.items()
        if segments and segments[segment] < target
    ]
    return Composition(counts=counts, notes=(*notes, *_chunk_notes(found)))


def _chunk_notes(canaries: Iterable[CanaryKind]) -> Iterable[str]:
    every: Counter[Category] = Counter()
    fewer: Counter[Category] = Counter()
    more: Counter[Category] = Counter()
    for one in canaries:
        least, most = USUAL_CHUNKS[one.category]
        every[one.category] += 1
        fewer[one.category] += one.chunks < least
        more[one.category] += one.chunks > most
    for category, (least, most) in USUAL_CHUNKS.items():
        usual = f"{least} to {most}" if most else "none"
        for unusual, word in ((fewer, "fewer"), (more, "more")):
            if unusual[category]:
                name, share = str(category).replace("_", " "), f"{unusual[category]} of {every[category]}"
                yield f"{name}: {share} with {word} expected chunks than usual ({usual})"
