"""Bodies of requests and responses laid out for people: JSON with line breaks, vectors shortened."""

import json
import re

_NUMBER = r"-?\d++(?:\.\d++)?+(?:[eE][+-]?\d++)?+"
_TOKENS = re.compile(
    rf'"(?:[^"\\]++|\\.)*+"?|\[\s*+(?P<numbers>{_NUMBER}(?:\s*+,\s*+{_NUMBER})*+)\s*+(?P<end>\]|[,\s.eE+\-\d]*+\Z)',
    re.DOTALL,
)
"""Texts, which are left alone, and lists of numbers. Possessive throughout: whoever answers chooses the text."""
_LONGEST_LIST = 16
"""Longer lists of numbers are vectors."""


def shown_json(body: str) -> str:
    """Lay out a body for people: whole JSON with line breaks, its vectors as `[0.12, -0.03, ... 384 numbers]`.

    A vector that was cut off at the end has `more than` so many.
    """
    try:
        text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = body
    return _TOKENS.sub(_shortened, text)


def _shortened(found: re.Match[str]) -> str:
    numbers = found["numbers"]
    count = 0 if numbers is None else numbers.count(",") + 1
    if count <= _LONGEST_LIST:
        return found[0]
    first, second, _ = numbers.split(",", 2)
    text = f"{'' if found['end'] == ']' else 'more than '}{count:,} numbers"
    return f"[{float(first):.3g}, {float(second):.3g}, ... {text}]"
