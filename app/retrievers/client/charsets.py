"""Bodies of responses as UTF-8, decoded by the charset that their Content-Type declares."""

import codecs
import json
import re
from dataclasses import replace

from app.base.net.wire import Failure, Response


def with_utf8_body(response: Response) -> Response:
    """Return a response whose body is UTF-8, or one that failed as malformed and says why; status and body stay."""
    body = response.body
    if not body or response.failure is not None:
        return response
    name = _declared(response.content_type)
    if name is None and body[0] in b"{[" and b"\0" not in body[:4] and body.isascii():
        return response  # as nearly all are
    charset = json.detect_encoding(body) if name is None else _codec(name)
    if name is not None and charset == "utf-16" and body[:2] not in _MARKS:
        charset = "utf-16-be" if body[:1] == b"\0" else "utf-16-le"
    if charset in _UTF8 and body.isascii():
        return response
    try:
        if charset is not None and charset not in _UTF8:
            return replace(response, body=body.decode(charset).removeprefix("\ufeff").encode())
    except (UnicodeError, ValueError):
        pass
    try:
        body.decode()
    except UnicodeDecodeError:
        return replace(response, failure=Failure.MALFORMED, detail=_problem(name, charset))
    return response


def _declared(content_type: str) -> str | None:
    found = _CHARSET.search(content_type)
    return found[1].lower() if found else None


def _codec(name: str) -> str | None:
    """Return Python's name of a charset; None for what is unknown, or no charset though Python has it as a codec."""
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    return info.name if info._is_text_encoding and info.name not in _NO_CHARSETS else None  # noqa: SLF001 - nothing public says it


def _problem(name: str | None, charset: str | None) -> str:
    if name is None:
        return "the answer is not UTF-8, and its Content-Type declares no other charset"
    if charset is None:
        return f"the answer's Content-Type declares the charset {name}, which is unknown, and it is not UTF-8"
    return f"the answer cannot be decoded as {name}, the charset that its Content-Type declares"


_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:+-]{1,40})", re.IGNORECASE | re.ASCII)
_UTF8 = frozenset({"utf-8", "utf-8-sig", "ascii"})
_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "raw_unicode_escape", "undefined"}) | {
    *("unicode-escape", "unicode_escape", "utf-7", "mbcs", "oem", "palmos")
}
