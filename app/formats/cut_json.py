"""JSON that was cut off somewhere: what of it came whole."""

import json
from typing import Any

_CLOSING = {"{": "}", "[": "]"}


def parse_cut(text: str) -> Any:
    """Parse the beginning of a JSON document up to the last whole object of a list; None where nothing came whole.

    Where there is no such object, up to the last whole value: objects then lack their last keys.
    """
    open_: list[str] = []
    whole: tuple[int, str] | None = None
    listed: tuple[int, str] | None = None
    quoted = escaped = False
    for place, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "{[":
            open_.append(_CLOSING[character])
        elif character in "}]" and open_:
            open_.pop()
            whole = (place + 1, "".join(reversed(open_)))
            if character == "}" and open_[-1:] == ["]"]:
                listed = whole
        elif character == "," and open_:
            whole = (place, "".join(reversed(open_)))
    if whole is None:
        return None
    end, closing = listed or whole
    try:
        return json.loads(text[:end] + closing)
    except (ValueError, RecursionError):
        return None
