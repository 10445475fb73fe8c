"""Writes database rows as one JSON list, bounded in bytes and rows, to be read like any response."""

import json
from collections.abc import AsyncIterator, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any

from app.base.net.wire import NoAnswerError
from app.base.values import Outcome

MAX_ROWS = 10_000


async def rows_json(rows: AsyncIterator[Mapping[str, Any]], limit: int) -> bytes:
    """Return the rows as JSON. Raises NoAnswerError for too much, and errors of values that cannot be written."""
    rows_written: list[bytes] = []
    size = 2
    async for row in rows:
        rows_written.append(json.dumps(row, default=_json_value, ensure_ascii=False).encode())
        size += len(rows_written[-1]) + 1
        if size > limit:
            raise too_large(limit)
        if len(rows_written) > MAX_ROWS:
            raise NoAnswerError(Outcome.OVERSIZE, f"the answer has more than {MAX_ROWS:,} rows; {_LIMIT}")
    return b"[" + b",".join(rows_written) + b"]"


def too_large(limit: int) -> NoAnswerError:
    """Return the error for a response of more than `limit` bytes."""
    return NoAnswerError(Outcome.OVERSIZE, f"the answer is larger than {limit:,} bytes; {_LIMIT}")


def _json_value(value: Any) -> Any:
    """Return a value that JSON has no type for as a number, an ISO 8601 time or a text."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else str(value)


_LIMIT = "has the statement a LIMIT :k?"
