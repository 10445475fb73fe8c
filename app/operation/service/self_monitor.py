"""Issues of this process itself, never alerts of a check: for readiness, metrics, pages, log.

The clock that a worker runs by, which reports here when it was set, is in `worker_clock`.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from threading import Lock
from typing import Final

from app.base.db.engine import Store
from app.base.db.files import find_schema_error
from app.base.errors import StoreUnavailableError
from app.base.texts import counted
from app.reports.service.metrics_snapshot import State

logger = logging.getLogger("coalmine.self")

KEPT_SECONDS: Final = 120.0
"""How long an issue lasts after its last report."""


class Issue(StrEnum):
    """Kind of an issue; also the label of its metric."""

    CLOCK = "clock"
    """The wall clock was set; instants that it wrote before may be wrong."""
    DELIVERIES = "deliveries"
    """A hook does not take what it is sent: three attempts failed, or more."""
    HEARTBEAT = "heartbeat"
    """The database got no sign of life: other replicas may take over what this process is at."""
    OVERLOAD = "overload"
    """Runs are due that no worker has begun."""
    RESOURCES = "resources"
    """This process or machine is out of file descriptors or memory."""
    STORE_READ = "store_read"
    """The database answers, but its tables are damaged, missing or of an older release."""
    STORE_WRITE = "store_write"
    """The database can be read but not written."""


class SelfMonitor:
    """The issues of this process, each with a sentence. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without an issue; `clock` counts seconds and cannot be set."""
        self._clock = clock
        self._lock = Lock()
        self._issues: dict[Issue, tuple[str, float]] = {}
        """Sentence and expiry by issue."""

    def report(self, issue: Issue, detail: str, *, seconds: float = KEPT_SECONDS) -> None:
        """Set an issue for `seconds`; logged when it is new."""
        with self._lock:
            now = self._clock()
            before = self._issues.get(issue)
            self._issues[issue] = detail, now + seconds
        if before is None or before[1] <= now:
            logger.error("self_issue", extra={"issue": str(issue), "detail": detail})

    def clear(self, issue: Issue) -> None:
        """End an issue; logged if it was set."""
        with self._lock:
            before = self._issues.pop(issue, None)
        if before is not None:
            logger.info("self_issue_over", extra={"issue": str(issue)})

    @property
    def issues(self) -> Mapping[Issue, str]:
        """The present issues, each with its sentence."""
        with self._lock:
            now = self._clock()
            return {issue: detail for issue, (detail, until) in self._issues.items() if until > now}

    def has(self, issue: Issue) -> bool:
        """Whether an issue is set."""
        return issue in self.issues


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


OVERLOAD_SECONDS: Final = 60.0
"""Waiting time from which a due run counts as overload."""
_NAMED: Final = 5
"""Hooks named at most."""


def report_overload(monitor: SelfMonitor, state: State | None) -> None:
    """Report or end the issue by the newest state; None = the store cannot be read, and nothing changes."""
    if state is None:
        return
    oldest = state.runs_waiting_oldest_seconds
    if oldest <= OVERLOAD_SECONDS:
        monitor.clear(Issue.OVERLOAD)
        return
    waiting = f"{counted(state.runs_waiting, 'run')} {'is' if state.runs_waiting == 1 else 'are'} due and not started"
    detail = f"{waiting}, the oldest for {oldest:,.0f} s: there are more runs than the workers can do"
    monitor.report(Issue.OVERLOAD, detail)


def report_deliveries(monitor: SelfMonitor, state: State | None) -> None:
    """Report or end the issue of hooks that refuse by the newest state; None = nothing changes."""
    if state is None:
        return
    refusing = [hook for hook in state.hooks if hook.retrying]
    if not refusing:
        monitor.clear(Issue.DELIVERIES)
        return
    names = ", ".join(hook.slug for hook in refusing[:_NAMED])
    others = len(refusing) - _NAMED
    more = f" and {counted(others, 'other')}" if others > 0 else ""
    waiting = sum(hook.retrying for hook in refusing)
    are = "was" if waiting == 1 else "were"
    detail = f"{counted(waiting, 'notification')} {are} tried three times or more and not taken, by "
    monitor.report(Issue.DELIVERIES, f"{detail}{'hook' if len(refusing) == 1 else 'hooks'} {names}{more}")
