"""Whether the database takes writes: a full disk can be read for ever, and nothing that happens is kept."""

from contextlib import suppress

from app.domain.errors import StoreUnavailableError
from app.services.self_monitor import Issue, SelfMonitor
from app.store.engine import Store


def report_store(monitor: SelfMonitor, store: Store) -> None:
    """Report or end the issue; where writes failed lately, try one."""
    if store.write_failure is not None:
        with suppress(StoreUnavailableError):  # the failure then stands on
            store.try_write()
    failure = store.write_failure
    if failure is None:
        monitor.clear(Issue.STORE_WRITE)
    else:
        monitor.report(Issue.STORE_WRITE, failure)
