"""Issues of this process itself, never alerts of a check: for readiness, metrics, pages, log.

The clock that a worker runs by, which reports here when it was set, stands at the end.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
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
    hooks = f"{'hook' if len(refusing) == 1 else 'hooks'} {names}{more}"
    monitor.report(Issue.DELIVERIES, f"{counted(waiting, 'notification')} to {hooks} failed three times or more")


class WorkerClock:
    """The time by the database, with a report to the monitor when a clock was set."""

    def __init__(
        self, read: Callable[[], datetime], monitor: SelfMonitor, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with the clock of this machine, which `read` reads, never set; `monotonic` counts seconds."""
        self._read = read
        self._monitor = monitor
        self._monotonic = monotonic
        self._steps = ClockSteps()
        self._database_steps = ClockSteps()
        self._database: tuple[datetime, float] | None = None
        """The last reading of the database's clock, and when that was by the monotonic clock."""
        self._steady_since = monotonic()
        self.times_set = 0
        """How often the clock was set."""

    def __call__(self) -> datetime:
        """Time by the database's clock, in UTC."""
        own = self._read()
        self._note(self._steps.observe(own, self._monotonic()), own, "system clock")
        if self._database is None:
            return own
        at, monotonic = self._database
        return at + timedelta(seconds=self._monotonic() - monotonic)

    def follow(self, store: Store) -> None:
        """Read the clock of the database, where it has one; the last reading stands where that takes long.

        Raises StoreUnavailableError: it stands then too.
        """
        before = self._monotonic()
        now = store.read_clock()
        after = self._monotonic()
        takes_long = after - before > _LONGEST_READING_SECONDS and self._database is not None
        if now is not None and not takes_long:
            self._note(self._database_steps.observe(now, after), now, "database's clock")
            self._database = now, (before + after) / 2

    def _note(self, step: timedelta | None, now: datetime, clock: str) -> None:
        """Report that a clock was set, where it was."""
        if step is None:
            return
        self.times_set += 1
        self._steady_since = self._monotonic()
        way = "back" if step < timedelta() else "forward"
        seconds = f"{abs(step.total_seconds()):,.0f} s"
        detail = f"the {clock} was set {way} by {seconds}, to {now:%Y-%m-%d %H:%M:%S} UTC"
        self._monitor.report(
            Issue.CLOCK, f"{detail}; instants recorded in the future are ignored", seconds=_ISSUE_SECONDS
        )

    @property
    def steady_for(self) -> timedelta:
        """How long the worker has run since its clock was set last, or since its start."""
        return timedelta(seconds=self._monotonic() - self._steady_since)


_ISSUE_SECONDS = 3600.0
_LONGEST_READING_SECONDS = 1.0
"""Nobody knows when within it the clock was read: after a database that stood still times would be as far off."""
LEAST_STEP: Final = timedelta(seconds=10)
"""Smaller differences come from NTP slewing, or from a busy machine between two readings."""


@dataclass(slots=True)
class ClockSteps:
    """Compares readings of the wall clock with a monotonic clock; several threads may call it."""

    _offset: timedelta | None = None
    """The wall clock's lead over the monotonic clock at the last reading, as time since an arbitrary origin."""
    _origin: datetime | None = None
    _lock: Lock = field(default_factory=Lock)

    def observe(self, wall: datetime, monotonic: float) -> timedelta | None:
        """Return by how much the wall clock was set since the last reading, negative = back; None = it was not.

        `monotonic` is in seconds and must be read after `wall`. A machine that slept counts as set forward.
        """
        with self._lock:
            if self._origin is None or self._offset is None:
                self._origin, self._offset = wall, timedelta(seconds=-monotonic)
                return None
            offset = wall - self._origin - timedelta(seconds=monotonic)
            step = offset - self._offset
            if abs(step) < LEAST_STEP:
                return None  # small drifts add up until they are reported as one step
            self._offset = offset
            return step
