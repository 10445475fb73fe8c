"""Requests and responses of HTTP as values; how they travel is left to the transport."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from types import MappingProxyType

from app.base.http_headers import HEADER_CHARSET, HEADER_NAME, HEADER_VALUE
from app.base.values import Outcome, Slowing
from app.retrievers.domain.retrievers import SigV4, Tls

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Failure(StrEnum):
    """Why there is no response to read. Only the first two may differ at a second attempt."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    BLOCKED = "blocked"
    OVERSIZE = "oversize"
    MALFORMED = "malformed"


OUTCOMES: Mapping[Failure, Outcome] = MappingProxyType(
    {
        Failure.TIMEOUT: Outcome.TIMEOUT,
        Failure.UNREACHABLE: Outcome.UNREACHABLE,
        Failure.BLOCKED: Outcome.BLOCKED,
        Failure.OVERSIZE: Outcome.OVERSIZE,
        Failure.MALFORMED: Outcome.MALFORMED,
    }
)
"""Outcome of a probe with this failure."""


class NoAnswerError(Exception):
    """No answer to read: the outcome of the probe instead, and one sentence for people, without secrets."""

    def __init__(
        self,
        outcome: Outcome,
        detail: str,
        http_status: int | None = None,
        *,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.http_status = http_status
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_refused(self) -> bool:
        """As of a `Response`."""
        return is_refusal(self.http_status, self.retry_after_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAuth:
    """Authentication of one exchange, for every request and connection. Made by credentials."""

    headers: tuple[bytes, ...] = field(default=(), repr=False)
    query: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, repr=False)
    tls: Tls | None = None
    sigv4: SigV4 | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that must be masked wherever an exchange is shown."""


NO_AUTH = RequestAuth()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request. `headers` are whole lines from `header_line`; `body` None sends none.

    `max_body_bytes` caps the body after decompression. `retries` is for time-outs and unreachable peers only.
    """

    tag: int = 0
    url: str
    method: str = "POST"
    headers: tuple[bytes, ...] = field(default=(), repr=False)
    body: bytes | None = None
    timeout_seconds: float = 10.0
    max_body_bytes: int = 5_000_000
    retries: int = 0
    wants_headers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Result of a request. `status` may be set beside a failure, when the peer failed after its status line.

    `headers` have lower-case names and are empty unless the request wanted them.
    `detail` is one sentence for people, without secrets.
    """

    status: int | None = None
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    latency_seconds: float = 0.0
    failure: Failure | None = None
    detail: str | None = None
    content_type: str = ""
    redirect_url: str | None = None
    """Absolute target of a redirect."""
    cache_sign: str | None = None
    """The header line that says that a cache answered; None where none does."""
    retry_after_seconds: float | None = None
    """What the peer asked for by `Retry-After`, in seconds from then, where it answered 429 or 503."""
    refused_seconds: float | None = None
    """For how long the peer had accepted nothing, where whoever asked did not wait longer."""
    slowing: Slowing | None = None
    """By how much the peer slowed this request; `refusals` are its own."""

    @property
    def is_refused(self) -> bool:
        """Whether the peer may accept the same request later: 429, and 503 that says when."""
        return is_refusal(self.status, self.retry_after_seconds)


def is_refusal(status: int | None, retry_after_seconds: float | None) -> bool:
    """Whether a response asks to send the request again later."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    return status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after_seconds is not None


def header_line(name: str, value: str) -> bytes:
    """Return one header line; raises ValueError, without the value, for what cannot be a header."""
    if not HEADER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a header name")
    if not HEADER_VALUE.fullmatch(value):
        raise ValueError(f"the value of header {name!r} is not one line of Latin-1 characters")
    # libcurl reads "name:" as "do not send"; "name;" sends it empty.
    return (f"{name}: {value}" if value.strip(" \t") else f"{name};").encode(HEADER_CHARSET)


def header_fields(lines: Sequence[bytes]) -> Mapping[str, str]:
    """Return the fields of a response's lines, status line first; repeated ones joined by commas (RFC 9110, 5.3)."""
    fields: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.decode(HEADER_CHARSET).partition(":")
        if colon:
            name, value = name.strip().lower(), value.strip()
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """Return the seconds a Retry-After header asks for, from seconds or an HTTP date (RFC 9110, 10.2.3).

    None = it is absent or means nothing. Never negative, and at most ten years.
    """
    if not value:
        return None
    try:
        seconds = float(value) if value.isascii() and value.isdigit() else (http_date(value) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds), _LONGEST_WAIT_SECONDS)


def http_date(value: str) -> datetime:
    """Return the moment of an HTTP date. Raises ValueError."""
    moment = parsedate_to_datetime(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_LONGEST_WAIT_SECONDS = 10 * 365 * 86_400.0
