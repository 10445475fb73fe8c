"""Mapped fields that no hit has: a path with a mistake in it reads as a field that every hit lacks.

A missing id or score ends a probe; the fields here may be missing, so that nobody else would notice.
"""

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final

from app.base.values import Ranking
from app.retrievers.domain.retrievers import ResponseMapping

HITS: Final = "hits"
_FIELDS: Final = {"text": "texts", "document": "documents", "updated": "updated"}
_SHOWN = 100


def present_fields(rankings: Iterable[Ranking]) -> frozenset[str]:
    """Fields, of `text`, `document` and `updated`, that at least one hit has; `hits` where there is a hit."""
    with_hits = [ranking for ranking in rankings if len(ranking)]
    if not with_hits:
        return frozenset()
    return frozenset({HITS, *(field for field, column in _FIELDS.items() if _is_present(with_hits, column))})


def _is_present(rankings: Iterable[Ranking], column: str) -> bool:
    """Whether any hit has a value there. A field that is not mapped has none in any answer, so all are looked at."""
    values = map(attrgetter(column), rankings)
    return any(each is not None and each.count(None) < len(each) for each in values)


def missing_fields(mapping: ResponseMapping, fields: Collection[str]) -> tuple[str, ...]:
    """Return the mapped fields not `present_fields`, as mapped (`text: body`); () without a hit."""
    if HITS not in fields:
        return ()
    paths = {field: getattr(mapping, field) for field in _FIELDS if field not in fields}
    return tuple(f"{field}: {_shortened(path)}" for field, path in paths.items() if path is not None)


def _shortened(path: str) -> str:
    line = " ".join(path.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
