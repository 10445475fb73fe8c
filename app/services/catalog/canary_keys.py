"""Keys of canaries that name none: made of their queries, the same over REST, in the form and in inline checks."""

from collections.abc import Collection, Sequence
from typing import Any

from app.formats.catalog.canary_keys import assign_keys, is_key, lacks_key, possible_keys
from app.store.catalog import definitions, suites
from app.store.engine import Store


def give_keys(store: Store, suite: str, canaries: Sequence[Any]) -> list[Any]:
    """Canaries of a suite, each that names no key with one made of its query; the same query has the same key."""
    made = {key for one in canaries if lacks_key(one) for key in possible_keys(one["query"])}
    wanted = [key for key in made if is_key(key)]  # a query may be what no database takes: it is refused later
    return assign_keys(canaries, _queries_by_key(store, suite, wanted) if wanted else {})


def _queries_by_key(store: Store, suite: str, keys: Collection[str]) -> dict[str, str]:
    """Map those of these keys that a suite has to queries; those of archived canaries too, whose history stays."""
    with store.read() as connection:
        owner = definitions.find_definition(connection, "suite", suite)
        rows = [] if owner is None else suites.list_canaries(connection, owner.id, archived=True, keys=keys)
    return {row.key: str(row.body["query"]) for row in rows}
