"""The wall clock as a worker reads it: every reading finds out whether it was set since the last one."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from app.domain.clock_steps import ClockSteps
from app.services.self_monitor import Issue, SelfMonitor

SETTLED_SECONDS: Final = 15.0
"""After the clock was set: by then live workers have renewed their leases by the clock as it is now."""
_ISSUE_SECONDS = 3600.0


class WorkerClock:
    """Reads the wall clock and reports to the monitor when it was set."""

    def __init__(
        self, read: Callable[[], datetime], monitor: SelfMonitor, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with a clock that was never set; `monotonic` counts seconds."""
        self._read = read
        self._monitor = monitor
        self._monotonic = monotonic
        self._steps = ClockSteps()
        self._steady_since = monotonic()
        self.times_set = 0
        """How often the clock was set."""

    def __call__(self) -> datetime:
        """Read the clock."""
        now = self._read()
        step = self._steps.observe(now, self._monotonic())
        if step is not None:
            self.times_set += 1
            self._steady_since = self._monotonic()
            way = "back" if step < timedelta() else "forward"
            seconds = f"{abs(step.total_seconds()):,.0f} s"
            detail = f"the system clock was set {way} by {seconds}, to {now:%Y-%m-%d %H:%M:%S} UTC"
            self._monitor.report(
                Issue.CLOCK, f"{detail}; instants recorded in the future are ignored", seconds=_ISSUE_SECONDS
            )
        return now

    @property
    def steady_for(self) -> timedelta:
        """How long the worker has run since its clock was set last, or since its start."""
        return timedelta(seconds=self._monotonic() - self._steady_since)

    @property
    def is_settled(self) -> bool:
        """Whether leases can be judged by the clock: it was not set a moment ago."""
        return self.times_set == 0 or self.steady_for.total_seconds() > SETTLED_SECONDS
