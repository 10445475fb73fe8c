"""What a quality report looks at, and what it says of each point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final

from app.domain.model import Canary, Judgment, Ranking
from app.domain.runs.matching import Match

EXAMPLES: Final = 5
"""So many are named of each thing that is wrong."""
_EXPECTED = 20
SHOWN: Final = 160
"""Characters of a text that an example shows."""


class Mark(StrEnum):
    """What a section comes to."""

    GOOD = "good"
    LOOK = "look_at_this"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A retrieved chunk, each once however often it was retrieved."""

    id: str
    document: str | None
    text: str | None
    """None = answers are mapped without texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A canary with what it last got."""

    canary: Canary
    ranking: Ranking
    match: Match

    @property
    def expected(self) -> list[tuple[int, Judgment]]:
        """What should be found, by place among the judgments; of very many the first 20."""
        relevant = ((place, one) for place, one in enumerate(self.canary.judgments) if one.grade >= 1)
        return list(islice(relevant, _EXPECTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A case in point; canary and chunk are for whoever shows it to escape."""

    told: str
    """Words of ours alone."""
    canary: str | None = None
    chunk: str | None = None
    text: str | None = None
    """The beginning of the chunk's text, at most 160 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How many of each kind fall between two edges and the next, the last edge included."""

    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]
    """By kind, one fewer than edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One point of the checklist."""

    name: str
    mark: Mark
    reason: str
    """Why the mark is what it is; a sentence without its full stop, of words of ours alone."""
    numbers: Mapping[str, float | int | None] = field(default_factory=dict)
    """None = not measured."""
    groups: Mapping[str, Mapping[str, float | int | None]] = field(default_factory=dict)
    """The same by category, where there are any."""
    examples: Sequence[Example] = field(default=())
    """The worst ones."""
    advice: str | None = None
    """What to do about it in a sentence; None where there is nothing to do."""
    histogram: Histogram | None = None
    """How the values lie that it is about, where a picture of them says more."""


def unknown(name: str, reason: str, **numbers: float | None) -> Section:
    """Say that nothing is known, and why."""
    return Section(name=name, mark=Mark.UNKNOWN, reason=reason, numbers=numbers)


def share(part: int, whole: int) -> float | None:
    """Give a share in [0, 1]; None of nothing."""
    return part / whole if whole else None


def chunks_of(answered: Sequence[Answered]) -> list[Chunk]:
    """List the distinct chunks that were retrieved, in the order in which they first were."""
    chunks: dict[tuple[str, str | None, str | None], Chunk] = {}
    for one in answered:
        ranking = one.ranking
        for chunk in zip(ranking.ids, ranking.documents, ranking.texts, strict=True):
            if chunk not in chunks:
                chunks[chunk] = Chunk(id=chunk[0], document=chunk[1], text=chunk[2])
    return list(chunks.values())


def spread_over(count: int, most: int) -> list[int]:
    """Give at most `most` places evenly spaced over `count`, always the same ones."""
    if count <= most:
        return list(range(count))
    return [place * count // most for place in range(most)]
