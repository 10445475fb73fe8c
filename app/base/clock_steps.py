"""Detects steps of the wall clock by comparing it with the monotonic clock."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

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
