"""What a quality report that another service tells of is made of: `msgspec.convert` holds it to this.

Whoever answers at an address need not be Coalmine, or mean well.
"""

from typing import TypedDict


class Example(TypedDict):
    """A case in point."""

    canary: str | None
    chunk: str | None
    told: str
    text: str | None


class Section(TypedDict):
    """One point of the checklist."""

    name: str
    verdict: str
    reason: str
    numbers: dict[str, int | float | None]
    groups: dict[str, dict[str, int | float | None]]
    examples: list[Example]
    advice: str | None


class Looked(TypedDict):
    """How many were looked at."""

    looked_at: int


class QualityReport(TypedDict):
    """A report."""

    check: str
    run: str
    at: str | None
    canaries: Looked
    chunks: Looked
    notes: list[str]
    sections: list[Section]
