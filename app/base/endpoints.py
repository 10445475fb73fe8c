"""What an address is asked with, whoever asks: authentication, certificates, time-outs, and headers (RFC 9110)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """`Authorization: Bearer TOKEN` (RFC 6750)."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key in a header or in a query parameter: exactly one of the two is named. `prefix` stands before the key."""

    key: str = field(repr=False)
    header: str | None = None
    query: str | None = None
    prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basic:
    """A user and a password (RFC 7617); for SQL those of the database."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM texts: the client's certificate with its key (mTLS), and an authority to trust in place of the system's."""

    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    authority: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2:
    """Client credentials (RFC 6749, section 4.4): a token is fetched and kept while it is valid."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    audience: str | None = None
    tls: Tls | None = None
    """Of the token endpoint; that of the endpoint itself does not hold for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigV4:
    """AWS Signature Version 4."""

    region: str
    service: str
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


Auth = Bearer | ApiKey | Basic | OAuth2 | SigV4


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An HTTP service beside the retriever: an embedder or a reranker."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secret, as those of a retriever."""
    auth: Auth | None = None
    tls: Tls | None = None
    timeout_seconds: float = 10.0


Reserve = Callable[[int, float], float]
"""Reserves so many requests at this interval in seconds, and gives the seconds until the first of them."""


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
