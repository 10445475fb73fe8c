"""A process that serves: bound sockets, a clean end on signals, the demo retriever beside it, limits of connections.

What is served is made in `main`; flags and exit codes are the command line's.
"""

import asyncio
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Final, Literal, cast
from urllib.parse import urlsplit

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.base.addresses import AddressPolicy, parse_allow
from app.base.api.trusted_proxies import PeerAddress
from app.base.commands import Ending
from app.base.db import keys
from app.base.errors import ConfigurationError
from app.base.net.transfer import Request, raise_descriptor_limit
from app.base.net.transport import send_one
from app.base.values import Value
from app.main import Service
from app.runs.service.change_feed import Streams

LOOPBACK_HOST = "127.0.0.1"
LOOPBACK = "127.0.0.0/8,::1"
"""What hooks may reach besides public addresses when the demo is served."""
LAST_PORT = 65_535
STOPPING = "Stopping; Ctrl-C again to leave at once."

GRACE_SECONDS = 15
"""How long requests under way have to end once the service is told to stop."""
_PROBE_GRACE_SECONDS = 2
_BACKLOG = 2_048
_DEMO_SECONDS = 30.0
_POLL_SECONDS = 0.05


class Lifecycle(Value):
    """What is called when requests are answered, and when a signal begins the end."""

    announce: Callable[[], None]
    stopping: Callable[[], None]


def serve_app(
    app: FastAPI, sockets: list[socket.socket], *, log_requests: bool, lifecycle: Lifecycle, ending: Ending
) -> None:
    """Serve on bound sockets until a signal, which arrives as KeyboardInterrupt once everything has ended.

    Raises ConfigurationError where it cannot even begin.
    """
    config = _server_config(app, access_log=log_requests, lifespan="on", grace=GRACE_SECONDS)
    _listen(sockets)
    server = _Server(config, lifecycle, ending, app.state.streams)
    try:
        server.run(sockets=sockets)
    except SystemExit as error:
        raise ConfigurationError("the service did not start; the log says why") from error
    if ending.begun:
        raise KeyboardInterrupt


@contextmanager
def answering_probes(app: FastAPI, sockets: list[socket.socket]) -> Iterator[Callable[[], bool]]:
    """Serve the probes of a worker on bound sockets, in a thread; gives whether they are still served.

    Raises ConfigurationError where it cannot listen.
    """
    _listen(sockets)
    server = uvicorn.Server(_server_config(app, access_log=False, lifespan="off", grace=_PROBE_GRACE_SECONDS))
    thread = threading.Thread(target=server.run, args=(sockets,), name="coalmine-probes", daemon=True)
    thread.start()
    try:
        yield thread.is_alive
    finally:
        server.should_exit = True
        thread.join(2 * _PROBE_GRACE_SECONDS)


def _server_config(app: FastAPI, *, access_log: bool, lifespan: Literal["on", "off"], grace: int) -> uvicorn.Config:
    believed = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")  # as uvicorn's own, but inside of `PeerAddress`
    return uvicorn.Config(
        PeerAddress(cast("Any", ProxyHeadersMiddleware(cast("Any", app), trusted_hosts=believed))),
        proxy_headers=False,
        http=bounded_protocol(raise_descriptor_limit()),
        log_config=None,
        access_log=access_log,
        server_header=False,
        lifespan=lifespan,
        ws="none",
        timeout_graceful_shutdown=grace,
    )


def _listen(sockets: list[socket.socket]) -> None:
    for each in sockets:
        try:
            each.listen(_BACKLOG)  # uvicorn would too, but with a trace where another process was faster
        except OSError as error:
            host, port = each.getsockname()[:2]
            raise _cannot_listen(host, port, error) from error


class _Server(uvicorn.Server):
    """Says when it has started and when it stops, and leaves at once when it is told to stop twice."""

    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle, ending: Ending, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams
        self._lifecycle = lifecycle
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started:
            self._lifecycle.announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn calls it
        """Begin the end; nothing may be written here, in the middle of whatever the signal interrupted."""
        self._ending.begin()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say so, and stop; event streams would be waited for."""
        self._lifecycle.stopping()
        self._streams.end()
        await super().shutdown(sockets)


@contextmanager
def bound(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Bind every address of a host, listening to none yet; `::` is every address of both families.

    Raises ConfigurationError where that is not possible.
    """
    hosts = [host, "0.0.0.0"] if host == "::" else [host]  # noqa: S104 - as asked for
    try:
        addresses = [
            address
            for each in hosts
            for address in socket.getaddrinfo(each, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ]
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigurationError(f"cannot listen on {host}: it is not an address of this machine") from error
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            try:
                sockets.append(_bound(family, kind, protocol, address))
            except OSError as error:
                if error.errno not in {EADDRNOTAVAIL, EAFNOSUPPORT} or (len(addresses) == 1):
                    raise _cannot_listen(host, port, error) from error
        if not sockets:
            raise ConfigurationError(f"cannot listen on {host}: it is not an address of this machine")
        yield sockets
    finally:
        for each in sockets:
            each.close()


def _bound(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigurationError:
    if error.errno == EADDRINUSE:
        return ConfigurationError(f"port {port} of {host} is taken; choose another with --port")
    return ConfigurationError(f"cannot listen on port {port} of {host}: {error.strerror}")


@dataclass(frozen=True, slots=True)
class Demo:
    """The demo retriever as a child process."""

    url: str
    process: "subprocess.Popen[bytes]"

    def wait(self) -> None:
        """Wait until it answers. Raises ConfigurationError where it does not come to that."""
        request = Request(url=f"{self.url}/healthz", method="GET", timeout_seconds=1.0)
        policy = AddressPolicy(name="demo", allow=parse_allow(LOOPBACK), only_allowed=True)
        deadline = time.monotonic() + _DEMO_SECONDS
        while send_one(request, policy=policy).status != HTTPStatus.OK:
            if self.process.poll() is not None:
                raise ConfigurationError("the demo retriever did not start; what it said stands above")
            if time.monotonic() > deadline:
                raise ConfigurationError(f"the demo retriever does not answer at {self.url}")
            time.sleep(_POLL_SECONDS)


@contextmanager
def demo_beside(port: int) -> Iterator[Demo]:
    """Run the demo retriever on the port after this one; it ends with the block, and even with a killed process.

    It has a session of its own, so that Ctrl-C does not end it before the last run has; and it watches its standard
    input, which ends when this process does, however that happens.
    """
    port += 1
    if port > LAST_PORT:
        raise ConfigurationError("the demo retriever takes the port after --port, and there is none")
    try:
        with bound(LOOPBACK_HOST, port):
            pass
    except ConfigurationError as error:
        raise ConfigurationError(f"the demo retriever takes the port after --port, but {error}") from error
    process = subprocess.Popen(  # noqa: S603 - our own module under our own interpreter
        [sys.executable, "-m", "app.cli", "demo", "--port", str(port), "--until-stdin-ends"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=Path(__file__).parents[1],  # `-m` looks here first, and would find another `app` where we were started
        start_new_session=True,
    )
    try:
        yield Demo(f"http://{LOOPBACK_HOST}:{port}", process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_with_stdin() -> None:
    """Send this process SIGTERM when its standard input ends: whoever started it is gone."""

    def watch() -> None:
        with suppress(OSError, ValueError):
            while os.read(0, 4_096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="stdin", daemon=True).start()


def welcome(service: Service, *, version: str, demo: Demo | None, command: str) -> list[str]:
    """Say what is served, to whom, and what to try; without a secret."""
    settings = service.settings
    data_dir = f" --data-dir {shlex.quote(str(settings.data_dir))}" if settings.database_url is None else ""
    lines = [f"Coalmine {version} is serving", f"  page      {settings.url}/", f"  database  {service.store.place}"]
    if is_open(service):
        lines += [
            "  access    open to everybody on this machine, for no API key was created yet; to change that:",
            f"            {command} keys create --scope admin --name me{data_dir}",
        ]
    else:
        issuer = urlsplit(settings.oidc_issuer or "").netloc
        ways = [*filter(None, [issuer]), *(["a trusted proxy"] if settings.trusted_proxies else [])]
        lines.append(
            f"  access    by {', '.join(ways)}, or with an API key" if ways else "  access    with an API key only"
        )
    if service.worker is None:
        lines.append("  worker    none here; start one with: coalmine work")
    if demo is not None:
        lines += [
            f"  demo      {demo.url}/",
            f'    break it  curl -d \'{{"kind": "loss", "size": 0.3}}\' {demo.url}/fault',
            f'    heal it   curl -d \'{{"kind": "none"}}\' {demo.url}/fault',
        ]
    return [*lines, "  Ctrl-C stops it."]


def is_open(service: Service) -> bool:
    """Whether requests need no key: none was ever created, and nobody is signed in by others.

    Beyond loopback it would not have started without a key.
    """
    settings = service.settings
    if settings.trusted_proxies or settings.oidc_issuer is not None:
        return False
    return not keys.any_key_ever(service.store)


HEADER_SECONDS: Final = 10.0
"""From connecting, or from the first byte of a further request, to the end of its headers."""
BODY_SECONDS: Final = 900.0
"""From the end of the headers to the end of the body, however steadily it comes."""
BODY_IDLE_SECONDS: Final = 30.0
"""From one part of a body to the next."""
MOST_CONNECTIONS: Final = 4_096


def bounded_protocol(descriptors: int) -> type[H11Protocol]:
    """Return the protocol of one server that may have so many files open: half of them are for connections."""
    most = max(8, min(MOST_CONNECTIONS, descriptors // 2))
    return type("BoundedProtocol", (_BoundedProtocol,), {"most": most, "waiting": {}})


class _BoundedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for requests."""

    most: ClassVar[int]
    waiting: ClassVar[dict["_BoundedProtocol", None]]
    """Connections whose request has not come, the oldest first."""
    header_seconds: ClassVar[float] = HEADER_SECONDS
    body_seconds: ClassVar[float] = BODY_SECONDS
    body_idle_seconds: ClassVar[float] = BODY_IDLE_SECONDS
    _timer: asyncio.TimerHandle | None = None
    _state: Any = None
    """What the timer waits for: h11's state of the client when it was started."""
    _body_ends: float = 0.0
    """By the loop's clock, when a body has to be whole."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream's
        """Wait for a request; where there are too many connections, close the one that has waited longest for one."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.most and self.waiting:
            next(iter(self.waiting)).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and see whether the request is whole."""
        super().data_received(data)
        if not self.transport.is_closing():
            self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request as uvicorn does, which closes after a while without one."""
        self._unwatch()
        super().on_response_complete()

    def _watch(self) -> None:
        state = self.conn.their_state
        if state is self._state:
            if state is h11.SEND_BODY:
                self._wait_for_body()
            return
        self._unwatch()
        if state is h11.IDLE:
            self.waiting[self] = None
            self._timer = self.loop.call_later(self.header_seconds, self.drop)
        elif state is h11.SEND_BODY:
            self._body_ends = self.loop.time() + self.body_seconds
            self._wait_for_body()
        else:
            return
        self._state = state

    def _wait_for_body(self) -> None:
        """Give the client time for the next part of its body, within that for the whole."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(min(self.loop.time() + self.body_idle_seconds, self._body_ends), self.drop)

    def _unwatch(self) -> None:
        self._state = None
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def drop(self) -> None:
        """Close the connection at once."""
        self._unwatch()
        self.transport.abort()
