"""Assigns derived keys to canaries without one, for REST, forms and inline checks alike."""

from collections.abc import Collection, Sequence
from typing import Any

from app.base.db.engine import Store
from app.catalog.documents.canary_keys import assign_keys, is_key, lacks_key, possible_keys
from app.catalog.store import definitions, suites


def assign_suite_keys(store: Store, suite: str, canaries: Sequence[Any]) -> list[Any]:
    """Return canaries of a suite with derived keys where they have none; the same query keeps its key."""
    candidates = {key for one in canaries if lacks_key(one) for key in possible_keys(one["query"])}
    valid_keys = [key for key in candidates if is_key(key)]  # an invalid query is refused later
    return assign_keys(canaries, _queries_by_key(store, suite, valid_keys) if valid_keys else {})


def _queries_by_key(store: Store, suite: str, keys: Collection[str]) -> dict[str, str]:
    """Return the queries of these keys in a suite, also of archived canaries, whose history stays."""
    with store.read() as connection:
        owner = definitions.find_definition(connection, "suite", suite)
        rows = [] if owner is None else suites.list_canaries(connection, owner.id, archived=True, keys=keys)
    return {row.key: str(row.body["query"]) for row in rows}
