"""Parses timestamps of retriever responses."""

import re
from datetime import UTC, datetime


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
