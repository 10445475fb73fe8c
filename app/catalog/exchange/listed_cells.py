"""Cells and fields whose text is a list, as pandas and spreadsheets write it: `["a", "b"]` or `['a', 'b']`."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from app.base.documents.json_texts import parse_json_text

_ITEM = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*,?""", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPES: Mapping[str, str] = MappingProxyType({"n": "\n", "t": "\t", "r": "\r", "'": "'", '"': '"', "\\": "\\"})
_LAST_CODE, _FIRST_HALF, _LAST_HALF = 0x10FFFF, 0xD800, 0xDFFF
_EXCEL_NUMBER = re.compile(r"\s*[0-9](?:[.,][0-9]+)?E\+[0-9]+\s*", re.IGNORECASE)


def list_of(text: str, *, numbers: bool = False) -> list[str] | None:
    """Return the items of a text that is a list of texts (or whole numbers) in JSON or Python, or None."""
    whole = text.strip()
    if not (whole.startswith("[") and whole.endswith("]")):
        return None
    try:
        items = parse_json_text(whole)
    except ValueError:
        items = _quoted_items(whole[1:-1])
    if not isinstance(items, list) or not items:
        return None
    if numbers:
        items = [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in items]
    return items if all(isinstance(item, str) and item.strip() for item in items) else None


def excel_number(text: str) -> str | None:
    """Return what is wrong with an id that a spreadsheet shortened, such as 1.23457E+15; None where nothing is."""
    if _EXCEL_NUMBER.fullmatch(text) is None:
        return None
    return (
        f"'{text.strip()[:40]}' is a number that a spreadsheet shortened, its digits are lost; format the column as "
        f'text and export it again, or write ["{text.strip()[:40]}"] if that is the id'
    )


def _quoted_items(inner: str) -> list[str] | None:
    """Return the quoted texts of a Python list, also without commas between them, as numpy writes them."""
    items, at = [], 0
    while at < len(inner.rstrip()):
        item = _ITEM.match(inner, at)
        if item is None:
            return None
        items.append(_ESCAPE.sub(_unescape, item[1][1:-1]))
        at = item.end()
    return items


def _unescape(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return _ESCAPES.get(escape[2], escape[0])
    code = int(escape[1][1:], 16)
    return chr(code) if code <= _LAST_CODE and not _FIRST_HALF <= code <= _LAST_HALF else escape[0]
