"""Errors for slugs and keys that are already in use, with a free one as a suggestion."""

from typing import Final

from app.base.db.engine import Connection
from app.base.errors import ConflictError
from app.catalog.store import definitions, suites

_LONGEST_SLUG, _LONGEST_KEY = 64, 128
_NUMBERS: Final = range(2, 10)


def slug_taken_error(connection: Connection, kind: str, slug: str) -> ConflictError:
    """Return the error of a slug in use, with a similar one that was never used."""
    names = _numbered(slug, _LONGEST_SLUG)
    free = next((name for name in names if definitions.find_definition(connection, kind, name) is None), "")
    return _error(kind, slug, free)


def key_taken_error(connection: Connection, suite_id: int, key: str) -> ConflictError:
    """Return the error of a key in use, with a similar free one."""
    names = _numbered(key, _LONGEST_KEY)
    taken_keys = {row.key for row in suites.list_canaries(connection, suite_id, keys=names, archived=True)}
    return _error("canary", key, next((name for name in names if name not in taken_keys), ""))


def _error(kind: str, name: str, free: str) -> ConflictError:
    other = f"another name, such as '{free}'," if free else "another name,"
    return ConflictError(f"there is a {kind} '{name}' already; choose {other} or change that one")


def _numbered(name: str, longest: int) -> list[str]:
    """Return the name with numbers appended (`docs-2`), each of at most `longest` characters."""
    return [f"{name[: longest - 2].rstrip('-')}-{number}" for number in _NUMBERS]
