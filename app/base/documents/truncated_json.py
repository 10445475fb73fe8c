"""JSON that was cut off somewhere: what of it came whole."""

import json
from typing import Any, TypeAlias

_CLOSING = {"{": "}", "[": "]"}
_LEVELS = 200

_Open: TypeAlias = "tuple[str, _Open] | None"
"""What closes what is open, from the inside out: linked, so that a place is remembered without copying the stack."""


def parse_cut(text: str) -> Any:  # noqa: C901 - a scanner, one branch for each kind of character
    """Parse the beginning of a JSON document up to the last whole object of a list; None where nothing came whole.

    Where there is no such object, up to the last whole value: objects then lack their last keys. What is nested more
    than 200 levels deep counts as cut off there.
    """
    open_: _Open = None
    levels = 0
    whole: tuple[int, _Open] | None = None
    open_list: tuple[int, _Open] | None = None
    quoted = escaped = False
    for place, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "{[":
            if levels == _LEVELS:
                break  # what came whole before is still of use
            open_, levels = (_CLOSING[character], open_), levels + 1
        elif character in "}]" and open_:
            open_, levels = open_[1], levels - 1
            whole = (place + 1, open_)
            if character == "}" and open_ and open_[0] == "]":
                open_list = whole
        elif character == "," and open_:
            whole = (place, open_)
    if whole is None:
        return None
    end, left = open_list or whole
    closing = ""
    while left:
        closing, left = closing + left[0], left[1]
    try:
        return json.loads(text[:end] + closing)
    except (ValueError, RecursionError):
        return None
