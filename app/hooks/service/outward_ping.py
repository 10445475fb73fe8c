"""Dead man's switch: an outside monitor is pinged while this worker works, and alerts when the pings stop."""

import logging
from collections.abc import Callable

from app.base.db.engine import Store
from app.base.errors import LocalResourceError, StoreUnavailableError
from app.operation.service.self_monitor import Issue, SelfMonitor

logger = logging.getLogger("coalmine.ping")

Ping = Callable[[], str | None]
"""Pings once; None = success, else a sentence why not."""

STALE_SECONDS = 60.0
"""Longest time since the last turn of the scheduler of a working worker."""
_WITHHOLDING = (Issue.STORE_READ, Issue.STORE_WRITE, Issue.RESOURCES, Issue.OVERLOAD, Issue.HEARTBEAT)


def ping_if_working(ping: Ping, store: Store, monitor: SelfMonitor, *, alive: bool, synced_ago: float) -> bool:
    """Ping if the worker works; True on success. `synced_ago`: seconds since the last turn of the scheduler."""
    reason = _idle_reason(store, monitor, alive=alive, synced_ago=synced_ago)
    if reason is not None:
        logger.warning("ping_withheld", extra={"detail": reason})
        return False
    try:
        error = ping()
    except LocalResourceError as local:
        monitor.report(Issue.RESOURCES, str(local))
        error = str(local)
    if error is not None:
        logger.warning("ping_failed", extra={"detail": error})
    return error is None


def _idle_reason(store: Store, monitor: SelfMonitor, *, alive: bool, synced_ago: float) -> str | None:
    """Why the worker does not work; None = it does."""
    if not alive:
        return "a thread of the worker has ended"
    if synced_ago > STALE_SECONDS:
        return f"the scheduler has not turned for {synced_ago:.0f} s"
    for issue, detail in monitor.issues.items():
        if issue in _WITHHOLDING:
            return detail
    try:
        store.try_write()
    except StoreUnavailableError as error:
        return str(error)
    return None
