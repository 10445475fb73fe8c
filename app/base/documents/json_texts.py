"""JSON within texts that people send: cells and lines of files, fields of forms."""

import json
from collections.abc import Callable
from typing import Any

from app.base.json_size import REQUEST_LIMITS, JsonLimits, excess_of


def parse_json_text(
    text: str, limits: JsonLimits | None = REQUEST_LIMITS, *, parse_constant: Callable[[str], Any] | None = None
) -> Any:
    """Return the JSON of a text. Raises ValueError where it is none, or holds more than the limits permit."""
    excess = None if limits is None else excess_of(text.encode(errors="replace"), limits)
    if excess is not None:
        raise ValueError(excess)
    try:
        return json.loads(text, parse_constant=parse_constant)
    except RecursionError:
        raise ValueError("is nested too deep") from None
