"""Names that are taken: the refusal of a new definition or canary, with a free name like the one that was wanted."""

from typing import Final

from app.domain.errors import ConflictError
from app.store.catalog import definitions, suites
from app.store.engine import Connection

_LONGEST_SLUG, _LONGEST_KEY = 64, 128
_NUMBERS: Final = range(2, 10)


def taken(connection: Connection, kind: str, slug: str) -> ConflictError:
    """Return the error that says that a slug is taken, and which one beside it never was."""
    names = _numbered(slug, _LONGEST_SLUG)
    free = next((name for name in names if definitions.find_definition(connection, kind, name) is None), "")
    return _error(kind, slug, free)


def taken_canary(connection: Connection, suite_id: int, key: str) -> ConflictError:
    """Return the error that says that a key is taken in a suite, and which one beside it is free."""
    names = _numbered(key, _LONGEST_KEY)
    held = {row.key for row in suites.list_canaries(connection, suite_id, keys=names, archived=True)}
    return _error("canary", key, next((name for name in names if name not in held), ""))


def _error(kind: str, name: str, free: str) -> ConflictError:
    other = f"another name, such as '{free}'," if free else "another name,"
    return ConflictError(f"there is a {kind} '{name}' already; choose {other} or change that one")


def _numbered(name: str, longest: int) -> list[str]:
    """List the name with numbers behind it, `docs-2` and so on, each no longer than a name may be."""
    return [f"{name[: longest - 2].rstrip('-')}-{number}" for number in _NUMBERS]
