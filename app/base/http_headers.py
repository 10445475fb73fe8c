"""Names and values that can be a header of HTTP (RFC 9110), and what a response's say of caches before its origin."""

import re
from collections.abc import Sequence

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
"""A token (section 5.6.2)."""
HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*")
"""One line (section 5.5): nothing that could begin another header. Characters travel as `HEADER_CHARSET`."""
HEADER_CHARSET = "latin-1"
OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect"})
"""Names, in lower case, of what follows from the request itself: nobody else sets them."""


def cache_sign(lines: Sequence[bytes]) -> str | None:
    """Return the header line by which a response says that a cache answered, not its origin; None where none says so.

    `lines` are those of the response. An `Age` above 0 (RFC 9111, 5.1), a `hit` in `Cache-Status` (RFC 9211) or in the
    fields that content delivery networks and proxies set. What the cache asked the origin about first is no sign.
    """
    found = _CACHE_SIGN.search(b"\n".join(lines))
    return None if found is None else " ".join(found[0].decode(HEADER_CHARSET).split())[:_SIGN_LENGTH]


_CACHE_SIGN = re.compile(
    rb"^(?:age:[ \t]*0*[1-9][0-9]*"
    rb"|cache-status:[^\r\n]*;[ \t]*hit\b"
    rb"|(?:x-cache|x-cache-status|x-proxy-cache|x-vercel-cache|x-nginx-cache|cf-cache-status):[^\r\n]*?"
    rb"(?<![a-z])(?:hit|stale|updating)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_SIGN_LENGTH = 60
