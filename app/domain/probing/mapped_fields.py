"""Mapped fields that no hit has: a path with a mistake in it reads as a field that every hit lacks.

A missing id or score ends a probe; the fields here may be missing, so that nobody else would notice.
"""

from collections.abc import Collection, Iterable
from typing import Final

from app.domain.model import Ranking
from app.domain.probing.retrievers import ResponseMapping

HITS: Final = "hits"
_FIELDS: Final = {"text": "texts", "document": "documents", "updated": "updated"}
_SHOWN = 100


def present_fields(rankings: Iterable[Ranking]) -> frozenset[str]:
    """Fields, of `text`, `document` and `updated`, that at least one hit has; `hits` where there is a hit."""
    fields: set[str] = set()
    for ranking in rankings:
        if not len(ranking):
            continue
        fields.add(HITS)
        fields.update(
            field
            for field, column in _FIELDS.items()
            if field not in fields and any(value is not None for value in getattr(ranking, column) or ())
        )
        if len(fields) > len(_FIELDS):
            break
    return frozenset(fields)


def missing_fields(mapping: ResponseMapping, fields: Collection[str]) -> tuple[str, ...]:
    """Return the mapped fields not `present_fields`, as mapped (`text: body`); () without a hit."""
    if HITS not in fields:
        return ()
    paths = {field: getattr(mapping, field) for field in _FIELDS if field not in fields}
    return tuple(f"{field}: {_shortened(path)}" for field, path in paths.items() if path is not None)


def _shortened(path: str) -> str:
    line = " ".join(path.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
