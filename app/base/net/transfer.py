"""One HTTP request through libcurl: a reusable easy handle, its options and bytes, and the meaning of its failures.

Beside it what the headers of a response say (`cache_sign`, `retry_after_seconds`), and the limits of this process that
a failure may come from: open files and memory.
"""

import ctypes
import errno
import math
import os
import re
import resource
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from hashlib import sha256
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlencode

import pycurl

from app.base.addresses import HEADER_CHARSET, HEADER_NAME, HEADER_VALUE, AddressPolicy, Proxy, SigV4, Tls
from app.base.limits import LARGEST_ANSWER_BYTES, is_refusal
from app.base.values import Confidential, Outcome, Slowing, Value, field

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Failure(StrEnum):
    """Why there is no response to read."""

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
        self, outcome: Outcome, detail: str, http_status: int | None = None, *, retry_after_seconds: float | None = None
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


class RequestAuth(Confidential):
    """Authentication of one exchange, for every request and connection. Made by credentials."""

    hidden: ClassVar = ("headers", "query", "secrets")

    headers: tuple[bytes, ...] = ()
    query: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    tls: Tls | None = None
    sigv4: SigV4 | None = None
    secrets: tuple[str, ...] = ()
    """Values that must be masked wherever an exchange is shown."""


NO_AUTH = RequestAuth()


class Request(Confidential):
    """One HTTP request. `headers` are whole lines from `header_line`; `body` None sends none.

    `max_body_bytes` caps the body after decompression. `retries` is for time-outs and unreachable peers only.
    """

    hidden: ClassVar = ("headers",)

    tag: int = 0
    url: str
    method: str = "POST"
    headers: tuple[bytes, ...] = ()
    body: bytes | None = None
    timeout_seconds: float = 10.0
    max_body_bytes: int = LARGEST_ANSWER_BYTES
    retries: int = 0
    wants_headers: bool = False


class Response(Value):
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
        """Whether the peer may accept the same request later."""
        return is_refusal(self.status, self.retry_after_seconds)


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
CONNECT_SECONDS = 5.0
"""A connection that takes longer than this will not come; short of it the request's own time-out rules."""


Options = tuple[tuple[int, Any], ...]
"""Of libcurl, with their values."""


class Transfer:
    """A reusable easy handle and its request; options are set only where they change."""

    __slots__ = (
        "_added",
        "_auth",
        "_chunks",
        "_lines",
        "_local_error",
        "_oversize",
        "_permitted",
        "_policy",
        "_proxy",
        "_query",
        "_refusal",
        "_size",
        "_wants_certificate",
        "_watches_handshake",
        "curl",
        "request",
    )

    def __init__(self, policy: AddressPolicy, auth: RequestAuth = NO_AUTH, options: Options | None = None) -> None:
        """Prepare a handle; `options` are those of `options_of` the authentication, where they are at hand."""
        self._policy = policy
        self._proxy: Proxy | None = None
        self._auth = auth
        self._chunks: list[bytes] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._oversize = self._permitted = False
        self._refusal: str | None = None
        self._watches_handshake = True
        self._wants_certificate = False
        self._added = (*auth.headers, *_session_token(auth))
        self._query = urlencode(auth.query, quote_via=quote)
        self.request = _NOTHING
        self.curl = pycurl.Curl()
        for option, value in options_of(auth) if options is None else options:
            self.curl.setopt(option, value)
        self.curl.setopt(pycurl.HTTPHEADER, self._added)
        self.curl.setopt(pycurl.WRITEFUNCTION, self._write)
        self.curl.setopt(pycurl.HEADERFUNCTION, self._lines.append)  # called for each line of each response
        self.curl.setopt(pycurl.DEBUGFUNCTION, self._on_debug)
        self.curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        if policy.proxy is not None and policy.proxy.url.startswith("https:"):
            for option, value in _trust_options():
                self.curl.setopt(_PROXY_TRUST[option], value)

    def prepare(self, request: Request) -> None:
        """Load the next request."""
        curl, before = self.curl, self.request
        self.request = request
        self._chunks, self._size, self._refusal = [], 0, None
        self._local_error = 0
        self._oversize = self._permitted = False
        if request.url != before.url:
            curl.setopt(pycurl.URL, self._with_query(request.url))
            self._proxy = self._policy.proxy_of(parse_host(request.url))
            curl.setopt(pycurl.PROXY, "" if self._proxy is None else self._proxy.url)
        if request.method != before.method or (request.body is None) != (before.body is None) or before is _NOTHING:
            curl.setopt(pycurl.HTTPGET, 1)  # forgets a body set before
            curl.setopt(pycurl.CUSTOMREQUEST, request.method)
        if request.body is not None:
            curl.setopt(pycurl.POSTFIELDS, request.body)
        if request.headers != before.headers or self._auth.sigv4 is not None:
            curl.setopt(pycurl.HTTPHEADER, (*request.headers, *self._added, *self._digest_header(request)))
        if request.timeout_seconds != before.timeout_seconds:
            curl.setopt(pycurl.TIMEOUT_MS, _milliseconds(request.timeout_seconds))
            curl.setopt(pycurl.CONNECTTIMEOUT_MS, _milliseconds(min(request.timeout_seconds, CONNECT_SECONDS)))
        if request.max_body_bytes != before.max_body_bytes:
            curl.setopt(pycurl.MAXFILESIZE_LARGE, request.max_body_bytes)
        self._lines.clear()
        if self._watches_handshake:
            self._wants_certificate = False
            curl.setopt(pycurl.VERBOSE, request.url[:6].lower() == "https:")

    def response(self, code: int) -> Response:
        """Return the response; `code` is libcurl's, 0 for a complete one."""
        status = self.curl.getinfo(pycurl.RESPONSE_CODE) or None
        seconds = self.curl.getinfo(pycurl.TOTAL_TIME)
        lines = self._response_lines()
        headers = header_fields(lines) if self.request.wants_headers else NO_HEADERS
        chunks, self._chunks = self._chunks, []
        if self._watches_handshake:
            self.stop_watching()
        self._watches_handshake = status is None
        wait = _asked_wait(header_fields(lines)) if status in _RETRY_AFTER_STATUSES else None
        if code == 0 and status is not None:
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            return Response(
                status=status,
                body=body,
                headers=headers,
                latency_seconds=seconds,
                retry_after_seconds=wait,
                content_type=self.curl.getinfo(pycurl.CONTENT_TYPE) or "",
                cache_sign=cache_sign(lines),
                redirect_url=(self.curl.getinfo(pycurl.REDIRECT_URL) or None) if status in _REDIRECTS else None,
            )
        failure, detail = self._failure(code)
        return Response(
            status=status,
            headers=headers,
            latency_seconds=seconds,
            failure=failure,
            detail=detail,
            retry_after_seconds=wait,
        )

    def local_error(self, code: int) -> str | None:
        """Return what this process ran out of, if the request failed for that; `code` is libcurl's."""
        number = self._local_error
        if code in {pycurl.E_COULDNT_CONNECT, pycurl.E_SEND_ERROR, pycurl.E_RECV_ERROR}:
            number = number or self.curl.getinfo(pycurl.OS_ERRNO)
        if number in LOCAL_ERRORS:
            return os.strerror(number)
        if code in {pycurl.E_OUT_OF_MEMORY, pycurl.E_FAILED_INIT}:
            return "out of memory or file descriptors"
        if code in {pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_CONNECT} and are_exhausted():
            return os.strerror(errno.EMFILE)
        return None

    def stop_watching(self) -> None:
        """Stop reading handshakes; to be called before the handle is released."""
        self.curl.setopt(pycurl.VERBOSE, 0)

    def _with_query(self, url: str) -> bytes:
        if self._query:
            place, mark, fragment = url.partition("#")
            url = f"{place}{'&' if '?' in place else '?'}{self._query}{mark}{fragment}"
        return url.encode()

    def _digest_header(self, request: Request) -> tuple[bytes, ...]:
        """Return the header with the body's digest, which some AWS services require besides the signature."""
        if self._auth.sigv4 is None:
            return ()
        return (f"x-amz-content-sha256: {sha256(request.body or b'').hexdigest()}".encode(),)

    def _failure(self, code: int) -> tuple[Failure, str]:
        request = self.request
        if self._refusal is not None and not self._permitted:  # of several addresses a permitted one decides
            return Failure.BLOCKED, blocked_text(self._refusal)
        if self._oversize or code == pycurl.E_FILESIZE_EXCEEDED:
            return Failure.OVERSIZE, f"the answer is larger than {request.max_body_bytes:,} bytes"
        failure, detail = _FAILURES.get(code, (Failure.UNREACHABLE, f"the exchange failed (libcurl error {code})"))
        tunnel = self.curl.getinfo(pycurl.HTTP_CONNECTCODE)
        if code and tunnel >= HTTPStatus.MULTIPLE_CHOICES:
            return Failure.UNREACHABLE, f"the proxy answered {tunnel} and did not connect"
        if code == pycurl.E_OPERATION_TIMEDOUT:
            connecting = self.curl.getinfo(pycurl.REQUEST_SIZE) == 0  # nothing could be sent
            seconds = min(request.timeout_seconds, CONNECT_SECONDS) if connecting else request.timeout_seconds
            detail = f"no {'connection' if connecting else 'complete answer'} within {seconds:g} s"
        elif code == pycurl.E_COULDNT_CONNECT and (number := self.curl.getinfo(pycurl.OS_ERRNO)):
            detail = f"{'' if self._proxy is None else 'the proxy: '}{detail}: {os.strerror(number)}"
        elif code in {pycurl.E_BAD_CONTENT_ENCODING, pycurl.E_WRITE_ERROR} and "nrecognized" in self.curl.errstr():
            named = _TOKENS.fullmatch(header_fields(self._response_lines()).get("content-encoding", ""))
            detail = f"the answer's content encoding {named[0] if named else ''} is unknown".replace("  ", " ")
        elif code == pycurl.E_PEER_FAILED_VERIFICATION:
            detail = f"TLS: {self.curl.errstr()[:200]}"  # the verifier's reason; holds nothing the peer could choose
        elif code == pycurl.E_SSL_CONNECT_ERROR and (reason := _TLS_REASON.search(self.curl.errstr())):
            detail = f"{detail}: {reason[1]}"
        if self._wants_certificate and code in _AFTER_HANDSHAKE:
            certificate = "may not be accepted" if self._auth.tls and self._auth.tls.certificate else "is missing"
            detail = f"{detail}; the server had asked for a client certificate: ours {certificate}"
        return failure, detail

    def _on_debug(self, kind: int, data: bytes) -> None:
        """Notice in the handshake that the server asks for a certificate, which libcurl reports in no other way.

        Costs too much for every request, so it stops with the first answer. In TLS 1.3 the alert that names the reason
        is usually lost in the reset of the connection; in TLS 1.2 it is the same for a dozen reasons.
        """
        if kind == pycurl.INFOTYPE_SSL_DATA_IN and data[:1] == _CERTIFICATE_REQUEST:
            self._wants_certificate |= (
                int.from_bytes(data[1:4]) == len(data) - 4
            )  # a handshake message, not a piece of a record

    def _write(self, chunk: bytes) -> int | None:
        self._size += len(chunk)
        if self._size > self.request.max_body_bytes:
            self._oversize = True
            self._chunks = []
            return -1
        self._chunks.append(chunk)
        return None

    def _response_lines(self) -> list[bytes]:
        """Return the header lines of the response; an interim one (1xx) or a proxy's may have come before it."""
        starts = [place for place, line in enumerate(self._lines) if line.startswith(b"HTTP/")]
        return self._lines[starts[-1] :] if len(starts) > 1 else self._lines

    def _open_socket(self, _purpose: int, place: Any) -> Any:
        """Check the resolved address libcurl is about to connect to: no name or spelling can deceive here."""
        proxy = self._proxy
        host = parse_host(self.request.url if proxy is None else proxy.url)
        reason = self._policy.check(place.addr[0], host) if proxy is None or proxy.judged else None
        if reason is not None:
            self._refusal = reason
            return pycurl.SOCKET_BAD
        self._permitted = True
        try:
            return _Socket(place.family, place.socktype, place.protocol)
        except OSError as error:
            self._local_error = error.errno or 0
            return pycurl.SOCKET_BAD


class _Socket(socket.socket):
    """A socket whose descriptor libcurl duplicates, so that it is closed without a warning."""

    def __del__(self) -> None:
        self.close()


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of Retry-After; libcurl's own reading is six hours at most.

    A date counts from the server's own clock where it says what that is.
    """
    now = datetime.now(UTC)
    with suppress(ValueError, TypeError):
        now = http_date(headers.get("date", ""))
    return retry_after_seconds(headers.get("retry-after"), now)


def parse_host(url: str) -> str:
    """Return the host of a URL, "" where it is not written so plainly that everybody reads the same one."""
    authority = _AUTHORITY.match(url)
    return "" if authority is None else authority[1].lower()


def blocked_text(reason: str) -> str:
    """Return the sentence for an address that the policy refused."""
    return f"not allowed to connect: {reason}"


def options_of(auth: RequestAuth) -> Options:
    """Return libcurl's options that are the same for all requests of one authentication."""
    return (*_OPTIONS, *_auth_options(auth))


def _auth_options(auth: RequestAuth) -> Iterator[tuple[int, Any]]:
    tls, sigv4 = auth.tls, auth.sigv4
    if tls is not None and tls.certificate:
        yield pycurl.SSLCERT_BLOB, tls.certificate.encode()
        if tls.key:
            yield pycurl.SSLKEY_BLOB, tls.key.encode()
    if tls is not None and tls.authority:
        yield pycurl.CAINFO_BLOB, tls.authority.encode()
    else:
        yield from _trust_options()
    if sigv4 is not None:
        yield pycurl.PATH_AS_IS, 0  # libcurl only signs a path it has normalised, as AWS does
        yield pycurl.AWS_SIGV4, f"aws:amz:{sigv4.region}:{sigv4.service}"
        yield pycurl.USERNAME, sigv4.access_key
        yield pycurl.PASSWORD, sigv4.secret_key


def _session_token(auth: RequestAuth) -> tuple[bytes, ...]:
    token = auth.sigv4.session_token if auth.sigv4 is not None else None
    return () if token is None else (header_line("x-amz-security-token", token),)


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))  # to libcurl 0 means for ever


def _trust_options() -> list[tuple[int, Any]]:
    """Return the options of the system's certificate authorities: the wheel's libcurl does not know them."""
    paths = ssl.get_default_verify_paths()  # honours SSL_CERT_FILE and SSL_CERT_DIR
    if paths.cafile:
        return [(pycurl.CAINFO, paths.cafile)]
    if paths.capath:
        return [(pycurl.CAPATH, paths.capath)]
    return [(pycurl.SSL_OPTIONS, pycurl.SSLOPT_NATIVE_CA)]


_NOTHING = Request(url="", timeout_seconds=0.0, max_body_bytes=-1)
_TOO_LARGE = 100  # CURLE_TOO_LARGE, which pycurl does not name
_PROXY_TRUST = {
    pycurl.CAINFO: pycurl.PROXY_CAINFO,
    pycurl.CAPATH: pycurl.PROXY_CAPATH,
    pycurl.SSL_OPTIONS: pycurl.PROXY_SSL_OPTIONS,
}
_AUTHORITY = re.compile(
    r"https?://(?:[^\s/?#@\\]*@)?(\[[0-9a-f:.%]+\]|[a-z0-9._-]+)(?::[0-9]*)?(?:[/?#]|\Z)", re.ASCII | re.IGNORECASE
)
_RETRY_AFTER_STATUSES = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_REDIRECTS = range(HTTPStatus.MULTIPLE_CHOICES, HTTPStatus.BAD_REQUEST)
_TOKENS = re.compile(r"[\w.+-]{1,40}(?:, ?[\w.+-]{1,40}){0,3}", re.ASCII)
_CERTIFICATE_REQUEST = b"\x0d"  # RFC 8446, section 4: the type of a handshake message, then its length in 3 bytes
_AFTER_HANDSHAKE = frozenset(
    {pycurl.E_SSL_CONNECT_ERROR, pycurl.E_GOT_NOTHING, pycurl.E_SEND_ERROR, pycurl.E_RECV_ERROR}
)
_TLS_REASON = re.compile(r"::([a-z0-9/ ]+)$")  # OpenSSL's name of the reason, behind numbers and "SSL routines"
_BAD_KEY = 43  # CURLE_BAD_FUNCTION_ARGUMENT, which pycurl does not name

_OPTIONS: Options = (
    (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),  # file:// would never meet the open-socket hook
    (pycurl.REDIR_PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
    (pycurl.FOLLOWLOCATION, 0),
    (pycurl.NOPROXY, ""),  # else libcurl reads that of the environment
    (pycurl.NOSIGNAL, 1),
    (pycurl.TCP_NODELAY, 1),
    (pycurl.PATH_AS_IS, 1),
    (pycurl.ACCEPT_ENCODING, ""),  # whatever libcurl can unpack; the size cap counts unpacked bytes
    (pycurl.BUFFERSIZE, 65_536),
)

# libcurl's own messages quote the peer or name durations that differ each time: hence sentences of our own.
_FAILURES: Mapping[int, tuple[Failure, str]] = {
    0: (Failure.MALFORMED, "the answer has no HTTP status"),
    pycurl.E_UNSUPPORTED_PROTOCOL: (Failure.MALFORMED, "the answer is not HTTP"),
    pycurl.E_URL_MALFORMAT: (Failure.UNREACHABLE, "the URL is malformed"),
    pycurl.E_COULDNT_RESOLVE_PROXY: (Failure.UNREACHABLE, "the proxy's host name does not resolve"),
    pycurl.E_COULDNT_RESOLVE_HOST: (Failure.UNREACHABLE, "the host name does not resolve"),
    pycurl.E_FTP_WEIRD_SERVER_REPLY: (Failure.MALFORMED, "the answer is not HTTP"),
    pycurl.E_COULDNT_CONNECT: (Failure.UNREACHABLE, "connection failed"),
    pycurl.E_OPERATION_TIMEDOUT: (Failure.TIMEOUT, "no complete answer in time"),
    pycurl.E_PARTIAL_FILE: (Failure.UNREACHABLE, "the connection was closed in the middle of the answer"),
    pycurl.E_WRITE_ERROR: (Failure.MALFORMED, "the answer's content encoding is broken"),
    pycurl.E_SSL_CONNECT_ERROR: (Failure.UNREACHABLE, "the TLS handshake failed"),
    pycurl.E_SSL_CERTPROBLEM: (Failure.UNREACHABLE, "the client certificate cannot be read as PEM"),
    pycurl.E_SSL_CACERT_BADFILE: (Failure.UNREACHABLE, "the certificate of the authority cannot be read as PEM"),
    _BAD_KEY: (Failure.UNREACHABLE, "the key is not PEM without a passphrase or does not fit the client certificate"),
    pycurl.E_GOT_NOTHING: (Failure.UNREACHABLE, "the connection was closed without an answer"),
    pycurl.E_SEND_ERROR: (Failure.UNREACHABLE, "the connection broke while sending"),
    pycurl.E_RECV_ERROR: (Failure.UNREACHABLE, "the connection broke while receiving"),
    pycurl.E_BAD_CONTENT_ENCODING: (Failure.MALFORMED, "the answer's content encoding is broken"),
    _TOO_LARGE: (Failure.MALFORMED, "the answer's headers are too large"),
}


LOCAL_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Errors of this process or machine: they say nothing about the peer."""
_TARGET = 65_536
_ARENAS: Final = ("MALLOC_ARENA_MAX", -8, 2)
_TRIM: Final = ("MALLOC_TRIM_THRESHOLD_", -1, 131_072)
"""Options of glibc's allocator: variable of the environment, number for `mallopt` (malloc.h), value."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files as far as the hard one allows; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _TARGET if hard == resource.RLIM_INFINITY else min(hard, _TARGET)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return _TARGET if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return target


def return_freed_memory(environment: Mapping[str, str]) -> bool:
    """Let glibc give freed memory back to the system, not keep it for each thread; to be called before threads begin.

    What the environment sets stays. Returns whether anything was set: other C libraries have no such options.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    taken = [mallopt(option, value) for name, option, value in (_ARENAS, _TRIM) if name not in environment]
    return any(taken)


def return_free_pages() -> None:
    """Give back the pages of the heaps on which nothing is left; glibc itself does so only at the end of a heap."""
    with suppress(AttributeError, OSError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)


def are_exhausted() -> bool:
    """Whether no file can be opened just now, where a library does not say why it failed."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in LOCAL_ERRORS
    return False
