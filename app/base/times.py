"""Times of others: timestamps of retriever responses, and the steps in which the wall clock was set."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final


def parse_timestamp(value: str | float) -> float | None:
    """Return a time as seconds since 1970 in UTC: from ISO 8601 text, unix seconds or milliseconds; None = neither.

    A date is its beginning, a text without a zone is UTC. Numbers from 1e11 on are milliseconds: as seconds they would
    lie beyond the year 5000, as milliseconds after 1973.
    """
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _LENGTH or not text:
            return None
        if not _NUMBER.fullmatch(text):
            try:
                read = datetime.fromisoformat(text.upper())
            except ValueError:
                return None
            return _within_calendar((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
        value = float(text)
    return _within_calendar(value / 1000 if abs(value) >= _MILLISECONDS else value)


def _within_calendar(seconds: float) -> float | None:
    return seconds + 0.0 if _FIRST_SECOND <= seconds <= _LAST_SECOND else None


_LENGTH = 64
_NUMBER = re.compile(r"-?\d{9,14}(\.\d{1,9})?", re.ASCII)
"""Unix time written as text; shorter rows of digits are dates such as 20260131."""
_MILLISECONDS = 1e11
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800.0, 253_402_300_799.0  # of the years 1 and 9999, the range of datetime


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
