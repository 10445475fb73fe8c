"""One HTTP request through libcurl: a reusable easy handle, its options, and the meaning of its failures."""

import errno
import math
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import pycurl

from app.base.addresses import AddressPolicy, Proxy
from app.base.http_headers import cache_sign
from app.base.net.file_descriptors import LOCAL_ERRORS, are_exhausted
from app.base.net.wire import (
    NO_AUTH,
    NO_HEADERS,
    Failure,
    Request,
    RequestAuth,
    Response,
    header_fields,
    header_line,
    http_date,
    retry_after_seconds,
)

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
