"""One HTTP request through libcurl: a reusable easy handle, its options, and what its failures mean."""

import math
import os
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pycurl

from app.adapters.wire import NO_HEADERS, NOBODY, Failure, Identity, Request, Response, header_fields
from app.domain.addresses import AddressPolicy

CONNECT_SECONDS = 5.0
"""A connection that takes longer than this will not come; short of it the request's own time-out rules."""


class Transfer:
    """A reusable easy handle and what is known of the request it carries; options are set only where they change."""

    __slots__ = (
        "_chunks",
        "_identity",
        "_lines",
        "_oversize",
        "_permitted",
        "_policy",
        "_refused",
        "_size",
        "curl",
        "request",
        "retries",
    )

    def __init__(self, policy: AddressPolicy, proxy: str, identity: Identity = NOBODY) -> None:
        self._policy = policy
        self._identity = identity
        self._chunks: list[bytes] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._oversize = self._permitted = False
        self._refused: str | None = None
        self.request = _NOTHING
        self.retries = 0
        self.curl = pycurl.Curl()
        for option, value in _OPTIONS:
            self.curl.setopt(option, value)
        self.curl.setopt(pycurl.PROXY, proxy)
        self.curl.setopt(pycurl.WRITEFUNCTION, self._write)
        if not proxy:
            self.curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)

    def prepare(self, request: Request, retries: int) -> None:
        """Load the next request; `retries` is how often it may still be tried again after this."""
        curl, before = self.curl, self.request
        self.request, self.retries = request, retries
        self._chunks, self._size, self._refused = [], 0, None
        self._oversize = self._permitted = False
        if request.url != before.url:
            curl.setopt(pycurl.URL, request.url.encode())
        if request.method != before.method or (request.body is None) != (before.body is None) or before is _NOTHING:
            curl.setopt(pycurl.HTTPGET, 1)  # forgets a body set before
            curl.setopt(pycurl.CUSTOMREQUEST, request.method)
        if request.body is not None:
            curl.setopt(pycurl.POSTFIELDS, request.body)
        if request.headers != before.headers:
            curl.setopt(pycurl.HTTPHEADER, request.headers)
        if request.timeout_seconds != before.timeout_seconds:
            curl.setopt(pycurl.TIMEOUT_MS, _milliseconds(request.timeout_seconds))
            curl.setopt(pycurl.CONNECTTIMEOUT_MS, _milliseconds(min(request.timeout_seconds, CONNECT_SECONDS)))
        if request.max_body_bytes != before.max_body_bytes:
            curl.setopt(pycurl.MAXFILESIZE_LARGE, request.max_body_bytes)
        if request.wants_headers:
            self._lines = []
            if not before.wants_headers:
                curl.setopt(pycurl.HEADERFUNCTION, self._header)
        elif before.wants_headers:
            curl.unsetopt(pycurl.HEADERFUNCTION)

    def response(self, code: int) -> Response:
        """Read what came of the request; `code` is libcurl's, 0 for a complete answer."""
        status = self.curl.getinfo(pycurl.RESPONSE_CODE) or None
        seconds = self.curl.getinfo(pycurl.TOTAL_TIME)
        headers = header_fields(self._lines) if self.request.wants_headers else NO_HEADERS
        chunks, self._chunks = self._chunks, []
        if code == 0 and status is not None:
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            return Response(status=status, body=body, headers=headers, latency_seconds=seconds)
        failure, detail = self._diagnose(code)
        return Response(status=status, headers=headers, latency_seconds=seconds, failure=failure, detail=detail)

    def _diagnose(self, code: int) -> tuple[Failure, str]:
        request = self.request
        if self._refused is not None and not self._permitted:  # of several addresses a permitted one decides
            return Failure.BLOCKED, blocked(self._refused)
        if self._oversize or code == pycurl.E_FILESIZE_EXCEEDED:
            return Failure.OVERSIZE, f"the answer is larger than {request.max_body_bytes:,} bytes"
        failure, detail = _FAILURES.get(code, (Failure.UNREACHABLE, f"the exchange failed (libcurl error {code})"))
        if code == pycurl.E_OPERATION_TIMEDOUT:
            connecting = self.curl.getinfo(pycurl.REQUEST_SIZE) == 0  # nothing could be sent
            seconds = min(request.timeout_seconds, CONNECT_SECONDS) if connecting else request.timeout_seconds
            detail = f"no {'connection' if connecting else 'complete answer'} within {seconds:g} s"
        elif code == pycurl.E_COULDNT_CONNECT and (number := self.curl.getinfo(pycurl.OS_ERRNO)):
            detail = f"{detail}: {os.strerror(number)}"
        elif code == pycurl.E_PEER_FAILED_VERIFICATION:
            detail = f"TLS: {self.curl.errstr()[:200]}"  # the verifier's reason; holds nothing the peer could choose
        return failure, detail

    def _write(self, chunk: bytes) -> int | None:
        self._size += len(chunk)
        if self._size > self.request.max_body_bytes:
            self._oversize = True
            self._chunks = []
            return -1
        self._chunks.append(chunk)
        return None

    def _header(self, line: bytes) -> None:
        if line.startswith(b"HTTP/"):
            self._lines.clear()  # an interim answer (1xx) or a proxy's came before this one
        self._lines.append(line)

    def _open_socket(self, _purpose: int, place: Any) -> Any:
        """Judge the resolved address libcurl is about to connect to: here no name and no spelling can deceive."""
        reason = self._policy.check(place.addr[0], host_of(self.request.url))
        if reason is not None:
            self._refused = reason
            return pycurl.SOCKET_BAD
        self._permitted = True
        try:
            return _Socket(place.family, place.socktype, place.protocol)
        except OSError:
            return pycurl.SOCKET_BAD


class _Socket(socket.socket):
    """A socket whose descriptor libcurl duplicates, after which it is let go without a warning."""

    def __del__(self) -> None:
        self.close()


def host_of(url: str) -> str:
    """Return the host name of a URL, "" if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def blocked(reason: str) -> str:
    """Say in a sentence that the address policy refused, and why."""
    return f"not allowed to connect: {reason}"


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))  # to libcurl 0 means for ever


def _trust() -> list[tuple[int, Any]]:
    """Say where the system's certificate authorities are: the wheel's libcurl does not know."""
    paths = ssl.get_default_verify_paths()  # honours SSL_CERT_FILE and SSL_CERT_DIR
    if paths.cafile:
        return [(pycurl.CAINFO, paths.cafile)]
    if paths.capath:
        return [(pycurl.CAPATH, paths.capath)]
    return [(pycurl.SSL_OPTIONS, pycurl.SSLOPT_NATIVE_CA)]


_NOTHING = Request(url="", timeout_seconds=0.0, max_body_bytes=-1)
_TOO_LARGE = 100  # CURLE_TOO_LARGE, which pycurl does not name

_OPTIONS: tuple[tuple[int, Any], ...] = (
    (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),  # file:// would never meet the open-socket hook
    (pycurl.REDIR_PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
    (pycurl.FOLLOWLOCATION, 0),
    (pycurl.NOSIGNAL, 1),
    (pycurl.TCP_NODELAY, 1),
    (pycurl.PATH_AS_IS, 1),
    (pycurl.ACCEPT_ENCODING, ""),  # whatever libcurl can unpack; the size cap counts unpacked bytes
    (pycurl.BUFFERSIZE, 65_536),
    *_trust(),
)

# libcurl's own messages quote the peer or name durations that differ each time: hence sentences of our own.
_FAILURES: Mapping[int, tuple[Failure, str]] = {
    0: (Failure.GARBLED, "the answer has no HTTP status"),
    pycurl.E_UNSUPPORTED_PROTOCOL: (Failure.GARBLED, "the answer is not HTTP"),
    pycurl.E_URL_MALFORMAT: (Failure.UNREACHABLE, "the URL is malformed"),
    pycurl.E_COULDNT_RESOLVE_PROXY: (Failure.UNREACHABLE, "the proxy's host name does not resolve"),
    pycurl.E_COULDNT_RESOLVE_HOST: (Failure.UNREACHABLE, "the host name does not resolve"),
    pycurl.E_FTP_WEIRD_SERVER_REPLY: (Failure.GARBLED, "the answer is not HTTP"),
    pycurl.E_COULDNT_CONNECT: (Failure.UNREACHABLE, "connection failed"),
    pycurl.E_OPERATION_TIMEDOUT: (Failure.TIMEOUT, "no complete answer in time"),
    pycurl.E_PARTIAL_FILE: (Failure.UNREACHABLE, "the connection was closed in the middle of the answer"),
    pycurl.E_WRITE_ERROR: (Failure.GARBLED, "the answer's content encoding is broken"),
    pycurl.E_SSL_CONNECT_ERROR: (Failure.UNREACHABLE, "the TLS handshake failed"),
    pycurl.E_GOT_NOTHING: (Failure.UNREACHABLE, "the connection was closed without an answer"),
    pycurl.E_SEND_ERROR: (Failure.UNREACHABLE, "the connection broke while sending"),
    pycurl.E_RECV_ERROR: (Failure.UNREACHABLE, "the connection broke while receiving"),
    pycurl.E_BAD_CONTENT_ENCODING: (Failure.GARBLED, "the answer's content encoding is broken"),
    _TOO_LARGE: (Failure.GARBLED, "the answer's headers are too large"),
}
