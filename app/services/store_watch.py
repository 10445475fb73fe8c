"""Reports an issue while the database can be read but not written, as on a full disk."""

from contextlib import suppress

from app.domain.errors import StoreUnavailableError
from app.services.self_monitor import Issue, SelfMonitor
from app.store.engine import Store


def report_store(monitor: SelfMonitor, store: Store) -> None:
    """Report or end the issue; after a failed write, try one first."""
    if store.write_failure is not None:
        with suppress(StoreUnavailableError):  # then `write_failure` stays
            store.try_write()
    failure = store.write_failure
    if failure is None:
        monitor.clear(Issue.STORE_WRITE)
    else:
        monitor.report(Issue.STORE_WRITE, failure)
