"""What goes over the wire for each preset according to its vendor's reference, as values; written by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.base.values import EMPTY, Outcome

QUERY = 'How long are "logs" kept?'
K = 3
VECTOR = [0.25, -0.5]
EMBEDDING = {"url": "https://models.example.org/v1", "model": "small"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One line of the ranking an answer should become; `id` None = made of the text."""

    id: str | None
    text: str | None
    document: str | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """How the vendor says no, and what that is to a probe."""

    status: int
    body: Any
    outcome: Outcome = Outcome.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One question put by a preset, with the least a user can write, and its answer."""

    written: Mapping[str, Any]
    """The document, without its slug and preset."""
    url: str
    sent: Any
    """The body that goes out; the statement for SQL, the arguments for MCP."""
    answer: Any
    hits: tuple[Hit, ...]
    nothing: Any
    """An answer without hits."""
    refusal: Refusal | None
    """None = it does not come over HTTP."""
    secret: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """What a user writes under `auth`."""
    headers: tuple[str, ...] = ()
    """Lines that must go out, those of `secret` included."""
    looked_up: Mapping[str, str] = field(default_factory=lambda: EMPTY)
