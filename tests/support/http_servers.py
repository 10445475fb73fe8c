"""Tiny HTTP peers on 127.0.0.1 that answer as told, well or badly, byte for byte."""

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedIOBase


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request as it arrived; header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The bytes to send back, and whether to close then; `hang` says nothing more until the peer goes away."""

    raw: bytes = b""
    close: bool = False
    hang: bool = False


HANG = Reply(hang=True)
SILENCE = Reply(close=True)


def reply(body: bytes = b"", status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Build a well-formed answer."""
    fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return Reply(raw=f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + body)


@dataclass(kw_only=True)
class Peer:
    """A running server: where it is and what it has seen."""

    port: int
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def peer(answer: Callable[[Seen], Reply] | Reply, *, tls: ssl.SSLContext | None = None) -> Iterator[Peer]:
    """Serve every request by `answer`, each connection in a thread; all threads have ended afterwards."""
    server = _Server(("127.0.0.1", 0), _Connection)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.answer = answer if callable(answer) else lambda _: answer
    server.peer = Peer(port=server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.peer
    finally:
        server.peer.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def closed_port() -> Iterator[int]:
    """Hold a port on which nobody listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = 128
    answer: Callable[[Seen], Reply]
    peer: Peer


class _Connection(socketserver.StreamRequestHandler):
    server: _Server
    timeout = 30
    disable_nagle_algorithm = True

    def handle(self) -> None:
        self.server.peer.connections += 1
        try:
            while (seen := read_request(self.rfile)) is not None:
                self.server.peer.seen.append(seen)
                answer = self.server.answer(seen)
                self.wfile.write(answer.raw)
                if answer.hang:
                    self.server.peer.released.wait(30)
                if answer.close or answer.hang:
                    return
        except OSError:
            return  # the other side went away, as some tests want it to

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:
            return


def read_request(stream: BufferedIOBase) -> Seen | None:
    """Read a request; None where the other side has closed."""
    line = stream.readline().decode().split()
    if not line:
        return None
    headers: dict[str, str] = {}
    while (field_line := stream.readline().strip()) != b"":
        name, _, value = field_line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip(" \t")
    body = stream.read(int(headers.get("content-length", "0")))
    return Seen(method=line[0], target=line[1], headers=headers, body=body)
