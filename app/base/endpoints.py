"""What an address is asked with: time-outs, sizes, authentication and certificates, whoever asks."""

from collections.abc import Callable, Mapping
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
