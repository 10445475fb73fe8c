"""A canary as a form has it, and back: every field named by its path in the document, its chunks as numbered rows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.domain.model import DEFAULT_CATEGORY
from app.formats.fields import format_duration
from app.web.forms import Typed, lines, number, pairs

MOST_ROWS = 200
LABELS: Mapping[str, str] = {
    "query": "Query",
    "key": "Key",
    "category": "Category",
    "tags": "Tags",
    "retriever": "Find them with a retriever",
    "expected_chunks": "Expected chunk",
    "min_relevance_score": "Minimum relevance of the first hit",
    "max_relevance_score": "Maximum relevance of a negative canary",
    "max_latency": "Maximum latency",
    "max_age": "Maximum age of the newest hit",
    "floors": "Floors of measures",
    "expect_empty": "Nothing may be returned at all",
    "forbidden_chunks": "Forbidden chunk",
}
"""What people see the fields called."""
_CHUNK = ("id", "document", "text", "grade")


def texts_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Fill the fields of a form from a canary's body."""
    texts = {
        "key": str(body["key"]),
        "query": str(body["query"]),
        "category": str(body["category"]),
        "tags": ", ".join(body["tags"]),
        "min_relevance_score": f"{body['min_relevance_score']:g}",
        "max_relevance_score": f"{body['max_relevance_score']:g}",
        "floors": "\n".join(f"{name}: {value:g}" for name, value in body["floors"].items()),
        "expect_empty": "yes" if body["expect_empty"] else "",
    }
    for name in ("max_age", "max_latency"):
        texts[name] = "" if body[name] is None else str(format_duration(body[name]))
    for prefix in ("expected_chunks", "forbidden_chunks"):
        texts |= rows_texts(prefix, body[prefix])
    return texts


def rows_texts(prefix: str, chunks: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Write chunks into numbered rows."""
    return {
        f"{prefix}[{place}].{name}": str(chunk[name])
        for place, chunk in enumerate(chunks[:MOST_ROWS])
        for name in _CHUNK
        if chunk.get(name) is not None
    }


def rows_of(typed: Typed, prefix: str) -> list[dict[str, str]]:
    """Read the rows that say anything, in their order."""
    pattern = re.compile(re.escape(prefix) + r"\[([0-9]{1,4})\]\.(id|document|text)")
    found = {int(match[1]) for name in typed.texts if (match := pattern.fullmatch(name)) and typed.stripped(name)}
    return [
        {
            name: typed.stripped(f"{prefix}[{place}].{name}")
            for name in _CHUNK
            if typed.stripped(f"{prefix}[{place}].{name}")
        }
        for place in sorted(found)
    ]


def straightened(typed: Typed) -> Typed:
    """Give the form with its rows as the document has them: those that say something, numbered anew."""
    texts = {
        name: text
        for name, text in typed.texts.items()
        if not name.startswith(("expected_chunks[", "forbidden_chunks["))
    }
    for prefix in ("expected_chunks", "forbidden_chunks"):
        texts |= rows_texts(prefix, rows_of(typed, prefix))
    return Typed(texts=texts, many=typed.many)


def with_chunks(typed: Typed, chunks: Iterable[Mapping[str, Any]]) -> Typed:
    """Add chunks to those expected, but for those that are there already."""
    rows = rows_of(typed, "expected_chunks")
    known = {tuple(row.get(name) for name in _CHUNK[:3]) for row in rows}
    ids = {row.get("id") for row in rows}
    added = [
        {name: str(value) for name, value in chunk.items()}
        for chunk in chunks
        if tuple(chunk.get(name) for name in _CHUNK[:3]) not in known and chunk.get("id") not in ids
    ]
    return Typed(texts={**typed.texts, **rows_texts("expected_chunks", [*rows, *added])}, many=typed.many)


def body_of(typed: Typed) -> dict[str, Any]:
    """Make the body of a canary of what was typed. Raises InvalidInputError for floors that are no pairs."""
    body: dict[str, Any] = {
        "key": typed.stripped("key"),
        "query": typed.stripped("query"),
        "category": typed.stripped("category") or str(DEFAULT_CATEGORY),
        "tags": lines(typed.get("tags")),
        "expect_empty": bool(typed.get("expect_empty")),
        "expected_chunks": [_chunk(row) for row in rows_of(typed, "expected_chunks")],
        "forbidden_chunks": [
            {name: value for name, value in row.items() if name != "grade"}
            for row in rows_of(typed, "forbidden_chunks")
        ],
        "floors": {name: number(value) for name, value in pairs("floors", typed.get("floors")).items()},
    }
    for name in ("min_relevance_score", "max_relevance_score"):
        if typed.stripped(name):
            body[name] = number(typed.get(name))
    for name in ("max_age", "max_latency"):
        if typed.stripped(name):
            body[name] = number(typed.get(name))
    return body


def _chunk(row: Mapping[str, str]) -> dict[str, Any]:
    return {**row, **({"grade": number(row["grade"])} if "grade" in row else {})}
