"""Inputs and sections of a quality report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final

from app.base.values import Canary, Judgment, Ranking
from app.scoring.matching import Match

EXAMPLES: Final = 5
"""Examples per fault."""
_EXPECTED = 20
SHOWN: Final = 160
"""Characters of a text that an example shows."""


class Mark(StrEnum):
    """Verdict of a section."""

    GOOD = "good"
    REVIEW = "look_at_this"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A distinct retrieved chunk."""

    id: str
    document: str | None
    text: str | None
    """None = answers are mapped without texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A canary with its last answer."""

    canary: Canary
    ranking: Ranking
    match: Match

    @property
    def expected(self) -> list[tuple[int, Judgment]]:
        """Judgments of grade 1 or better with their places; of very many the first 20."""
        relevant = ((place, one) for place, one in enumerate(self.canary.judgments) if one.grade >= 1)
        return list(islice(relevant, _EXPECTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example; canary and chunk are untrusted texts."""

    note: str
    """Never holds retrieved text."""
    canary: str | None = None
    chunk: str | None = None
    text: str | None = None
    """The beginning of the chunk's text, at most 160 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of each kind between two edges, the last edge included."""

    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]
    """By kind, one fewer than edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One point of the checklist."""

    name: str
    mark: Mark
    reason: str
    """Reason of the mark: a sentence without its full stop and without retrieved text."""
    numbers: Mapping[str, float | int | None] = field(default_factory=dict)
    """None = not measured."""
    groups: Mapping[str, Mapping[str, float | int | None]] = field(default_factory=dict)
    """The same by category, where there are any."""
    examples: Sequence[Example] = field(default=())
    """The worst ones."""
    advice: str | None = None
    """What to do about it in a sentence; None where there is nothing to do."""
    histogram: Histogram | None = None
    """Distribution of its values, where there is a chart of it."""


def unknown(name: str, reason: str, **numbers: float | None) -> Section:
    """Section of a point that is not measured, with the reason."""
    return Section(name=name, mark=Mark.UNKNOWN, reason=reason, numbers=numbers)


def share(part: int, whole: int) -> float | None:
    """Share in [0, 1]; None where the whole is 0."""
    return part / whole if whole else None


def chunks_of(answered: Sequence[Answered]) -> list[Chunk]:
    """List the distinct retrieved chunks, in order of first retrieval."""
    chunks: dict[tuple[str, str | None, str | None], Chunk] = {}
    for one in answered:
        ranking = one.ranking
        for chunk in zip(ranking.ids, ranking.documents, ranking.texts, strict=True):
            if chunk not in chunks:
                chunks[chunk] = Chunk(id=chunk[0], document=chunk[1], text=chunk[2])
    return list(chunks.values())


def spread_over(count: int, most: int) -> list[int]:
    """At most `most` places evenly spaced over `count`, always the same ones."""
    if count <= most:
        return list(range(count))
    return [place * count // most for place in range(most)]
