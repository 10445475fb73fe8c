"""Issues of the store: it can be read but not written, as on a full disk, or a part of it cannot be read."""

from contextlib import suppress

from app.base.db.engine import Store
from app.base.db.migrate import find_schema_error
from app.base.errors import StoreUnavailableError
from app.operation.service.self_monitor import Issue, SelfMonitor

_DAMAGED = "a part of the database is damaged: restore a backup or repair it, then restart"


def report_store(monitor: SelfMonitor, store: Store) -> None:
    """Report or end the issues; after a failed write, try one first."""
    if store.write_failure is not None:
        with suppress(StoreUnavailableError):  # then `write_failure` stays
            store.try_write()
    failure = store.write_failure
    if failure is None:
        monitor.clear(Issue.STORE_WRITE)
    else:
        monitor.report(Issue.STORE_WRITE, failure)
    try:
        reason = find_read_error(store)
    except StoreUnavailableError:  # it does not even answer: the snapshot of the metrics ends, which says so
        return
    if reason is None:
        monitor.clear(Issue.STORE_READ)
    else:
        monitor.report(Issue.STORE_READ, reason)


def find_read_error(store: Store) -> str | None:
    """Why the database cannot be used although it answers; None = it can. Raises StoreUnavailableError.

    The sentence names no host, path or user: anybody may read it.
    """
    try:
        reason = find_schema_error(store)
    except StoreUnavailableError:
        if store.damage is None:
            raise
        return _DAMAGED
    return reason or (_DAMAGED if store.damage is not None else None)
