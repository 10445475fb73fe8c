"""What another service tells of proposed judgments, as far as it is shown: `msgspec.convert` holds it to this.

Whoever answers at an address need not be Coalmine, or mean well.
"""

from typing import TypedDict


class Chunk(TypedDict):
    """A judgment."""

    id: str | None
    document: str | None
    text: str | None
    grade: int


class Proposal(TypedDict):
    """What is proposed in the place of a judgment."""

    id: str
    key: str
    judgment: Chunk
    proposals: list[Chunk]
    similarity: float | None


class Told(TypedDict):
    """A proposal that was decided about."""

    id: str
    key: str
    state: str


class Patch(TypedDict):
    """What is to be committed for the canaries of one file."""

    file: str | None
    canaries: list[str]
    diff: str | None
    yaml: str


class Decision(TypedDict):
    """What became of the proposals somebody decided about."""

    accepted: list[Told]
    rejected: list[Told]
    outdated: list[Told]
    to_commit: list[Told]
    unchanged: list[Told]
    patches: list[Patch]


class Proposals(TypedDict):
    """A page of proposals."""

    items: list[Proposal]
    next: str | None
