"""Error messages of servers, taken out of response bodies: one line, without control characters, of at most 300."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from html import unescape
from typing import Any

import msgspec

from app.base.json_size import excess_of_answer
from app.retrievers.client.masking import masked

MAX_LENGTH = 300
_MOST_BYTES = 200_000
_MOST_LEVELS = 6


def message_of_body(body: bytes) -> str | None:
    """Return the message in a body of any type: JSON, HTML, XML or plain text; None where it says nothing."""
    part = body[:_MOST_BYTES]
    if not part.strip():
        return None
    if part is body or len(part) == len(body):
        try:
            if excess_of_answer(part) is None:
                return message_of(msgspec.json.decode(part))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    text = part.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if text.startswith("<"):
        title = _TITLE.search(text[:20_000])
        text = unescape(title[2]) if title else ""
    elif text[:1] in "{[\x00":
        return None
    return clean_message(text)


def message_of(value: Any) -> str | None:
    """Return the message in parsed JSON of an error response; None where none of the usual fields is there."""
    text = _find(value, _MOST_LEVELS)
    return None if text is None else clean_message(text)


def clean_message(text: str) -> str | None:
    """Return a text as one line of at most 300 characters that can be shown; None where nothing is left."""
    head = text[: 20 * MAX_LENGTH]
    shown = "".join(" " if unicodedata.category(one)[0] in "CZ" else one for one in head)
    line = " ".join(shown.replace("\ufffd", "?").split())
    if not line:
        return None
    return line if len(line) <= MAX_LENGTH else f"{line[: MAX_LENGTH - 1]}\u2026"


def quoted(message: str | None) -> str:
    """Return a message as the end of a sentence: `: “index not loaded”`; empty where there is none."""
    return "" if message is None else f": \u201c{message}\u201d"


def without_secrets(detail: str, secrets: Iterable[str]) -> str:
    """Return a sentence that may quote a server, without secrets."""
    return masked(detail, secrets)


def _find(value: Any, levels: int) -> str | None:
    if isinstance(value, str):
        return value if value.strip() else None
    if levels and isinstance(value, list):
        return next((found for one in value[:20] if (found := _find(one, levels - 1)) is not None), None)
    return _find_in_object(value, levels) if levels and isinstance(value, Mapping) else None


def _find_in_object(value: Mapping[str, Any], levels: int) -> str | None:
    for name in _NAMES:
        found = _find(value.get(name), levels - 1)
        if found is None:
            continue
        more = next((one for key in _MORE if key != name and isinstance(one := value.get(key), str) and one), None)
        is_label = name in {"error", "title", "code"} and isinstance(value[name], str)
        if is_label and more is not None and more != found:
            return f"{found}: {more}"
        return found if name != "msg" else _placed(value, found)
    return None


def _placed(value: Mapping[str, Any], message: str) -> str:
    """Return the message of a refused field with its place, as FastAPI gives them."""
    place = value.get("loc")
    return f"{'.'.join(map(str, place[:8]))}: {message}" if isinstance(place, list) and place else message


_NAMES = (
    *("error", "errors", "failures", "error_message", "errorMessage", "reason", "message", "detail", "details", "msg"),
    *("error_description", "summary", "title", "description", "type", "root", "_shards", "status"),
)
_MORE = ("message", "detail", "error_description", "reason", "msg")
_TITLE = re.compile(r"<(title|message|h1)[^>]*>([^<]*)</", re.IGNORECASE)
