"""Writes the rows of a database as one JSON list, which is then read like any answer; no more of them than may be."""

import json
from collections.abc import AsyncIterator, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any

from app.adapters.probing.async_lanes import NoAnswerError
from app.domain.model import Outcome

MAX_ROWS = 10_000


async def rows_json(rows: AsyncIterator[Mapping[str, Any]], limit: int) -> bytes:
    """Write rows as they come. Raises NoAnswerError for more than `limit` bytes or MAX_ROWS of them.

    Raises ValueError, ArithmeticError or RecursionError for a value that cannot be written.
    """
    written: list[bytes] = []
    size = 2
    async for row in rows:
        written.append(json.dumps(row, default=_plain, ensure_ascii=False).encode())
        size += len(written[-1]) + 1
        if size > limit:
            raise too_large(limit)
        if len(written) > MAX_ROWS:
            raise NoAnswerError(Outcome.OVERSIZE, f"the answer has more than {MAX_ROWS:,} rows; {_LIMIT}")
    return b"[" + b",".join(written) + b"]"


def too_large(limit: int) -> NoAnswerError:
    """Say that an answer has more than `limit` bytes."""
    return NoAnswerError(Outcome.OVERSIZE, f"the answer is larger than {limit:,} bytes; {_LIMIT}")


def _plain(value: Any) -> Any:
    """Write what JSON has no type for: numbers as numbers, times by ISO 8601, everything else as text."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else str(value)


_LIMIT = "has the statement a LIMIT :k?"
