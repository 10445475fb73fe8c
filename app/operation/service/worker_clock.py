"""The clock of a worker: that of the database, so that replicas whose own clocks differ agree on due times.

It is read every few seconds and counted on by the monotonic clock in between. SQLite has the clock of this machine.
Every reading finds out whether a clock was set since the last one.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from app.base.clock_steps import ClockSteps
from app.base.db.engine import Store
from app.operation.service.self_monitor import Issue, SelfMonitor

_ISSUE_SECONDS = 3600.0
_LONGEST_READING_SECONDS = 1.0
"""Nobody knows when within it the clock was read: after a database that stood still times would be as far off."""


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
