"""Keys of canaries that name none: made of their queries, the same over REST, in the form and in inline checks."""

from collections.abc import Sequence
from typing import Any

from app.formats.catalog.canary_documents import lacks_key, with_keys
from app.store.catalog import definitions, suites
from app.store.engine import Store


def give_keys(store: Store, suite: str, canaries: Sequence[Any]) -> list[Any]:
    """Canaries of a suite, each that names no key with one made of its query; the same query has the same key."""
    held = _queries_by_key(store, suite) if any(lacks_key(one) for one in canaries) else {}
    return with_keys(canaries, held)


def _queries_by_key(store: Store, suite: str) -> dict[str, str]:
    """Map the keys of a suite to queries; archived canaries among them, whose history stays under their key."""
    with store.read() as connection:
        owner = definitions.find_definition(connection, "suite", suite)
        rows = [] if owner is None else suites.list_canaries(connection, owner.id, archived=True)
    return {row.key: str(row.body["query"]) for row in rows}
