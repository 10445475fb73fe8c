"""The clock that a worker runs by: the database's time, and a report to the monitor when a clock was set."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from app.base.db.engine import Store
from app.operation.service.self_monitor import Issue, SelfMonitor


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
