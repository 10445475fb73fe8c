"""The newest runs that a promotion compares: which they are, and whether they are of what their checks ask by now."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.base.db.engine import Connection, Store
from app.base.texts import listed
from app.catalog import store as catalog
from app.catalog.service.references import find_check, find_run
from app.records.store.run_rows import RunRow

_OF_CHECK: Final = ("suite", "k", "fetch_k")
_NOT_MEASURED_BY: Final = frozenset(
    {"concurrency", "requests_per_second", "timeout", "retries", "breaker", "max_body_bytes", "tls"}
)
"""Fields of a retriever that say how it is asked, and not what it answers."""


def describe_outdated(store: Store, run_ids: Sequence[str]) -> tuple[str, ...]:
    """Say of each run that is not of what its check asks by now how it differs; the others are left out."""
    with store.read() as connection:
        found = [_describe(connection, find_run(connection, one)) for one in run_ids]
    return tuple(one for one in found if one)


def retriever_changes(connection: Connection, run: RunRow) -> str:
    """Say how the retriever that a check asks differs from the one that its run asked; empty where it does not."""
    assert run.check_version_id is not None  # noqa: S101 - it has results
    assert run.retriever_version_id is not None  # noqa: S101 - likewise
    then = catalog.version_body(connection, run.check_version_id).body["retriever"]
    now = find_check(connection, run.check).body["retriever"]
    if then != now:
        return f"asked retriever '{then}', and the check asks '{now}' by now"
    definition = catalog.find_definition(connection, "retriever", now)
    asked = catalog.version_body(connection, run.retriever_version_id).body
    changed = () if definition is None else _changed(asked, definition.body)
    return f"asked retriever '{now}' before its {listed(changed)} changed" if changed else ""


def _changed(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in catalog.fields_changed(then, now) if name not in _NOT_MEASURED_BY)


def _describe(connection: Connection, run: RunRow) -> str:
    assert run.check_version_id is not None  # noqa: S101 - it has results
    then = catalog.version_body(connection, run.check_version_id).body
    now = find_check(connection, run.check).body
    parts = [retriever_changes(connection, run)]
    parts += [
        f"was of {name} {then[name]}, which is {now[name]} by now"
        for name in _OF_CHECK
        if name in then and name in now and then[name] != now[name]
    ]
    told = listed([one for one in parts if one])
    return f"run {run.id} of check '{run.check}' {told}" if told else ""
