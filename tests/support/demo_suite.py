"""The shipped canaries as plain data, and what a list of hits is worth to one of them; a reading apart from ours."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from app.demo.corpus import Chunk

CANARIES = Path(__file__).parents[2] / "canaries" / "dataforge.yaml"
_VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One entry of the file, with the defaults of the contract filled in and every judgment in the long form."""

    key: str
    query: str
    category: str
    expected: tuple[dict[str, Any], ...]
    forbidden: tuple[dict[str, Any], ...]
    least: float
    most: float
    floors: dict[str, float]

    @property
    def negative(self) -> bool:
        """Whether no good answer exists."""
        return self.category == "negative"


def document() -> dict[str, Any]:
    """Return the whole file, variables replaced by their defaults."""
    loaded: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(r"\1", CANARIES.read_text(encoding="utf-8")))
    return loaded


def canaries() -> list[Canary]:
    """Return the canaries of the file."""
    return [
        Canary(
            key=entry["key"],
            query=entry["query"],
            category=entry["category"],
            expected=_judgments(entry.get("expected_chunks", [])),
            forbidden=_judgments(entry.get("forbidden_chunks", [])),
            least=entry.get("min_relevance_score", 0.5),
            most=entry.get("max_relevance_score", 0.5),
            floors=entry.get("floors", {}),
        )
        for entry in document()["canaries"]
    ]


def satisfies(chunk: Chunk, judgment: dict[str, Any]) -> bool:
    """Whether a chunk is what a judgment means: by id, by document, or by holding the passage."""
    if "id" in judgment:
        return bool(chunk.id == judgment["id"])
    if "document" in judgment:
        return bool(chunk.document == judgment["document"])
    return judgment["text"] in chunk.text


def found(chunks: Iterable[Chunk], canary: Canary) -> list[int | None]:
    """Return for each judgment the rank, from 1, of the first chunk that satisfies it."""
    ranked = list(enumerate(chunks, 1))
    return [next((rank for rank, chunk in ranked if satisfies(chunk, judgment)), None) for judgment in canary.expected]


def _judgments(entries: list[Any]) -> tuple[dict[str, Any], ...]:
    return tuple({"id": entry} if isinstance(entry, str) else entry for entry in entries)
