"""Peers that begin like a PostgreSQL server and go on as told, byte for byte (PostgreSQL's manual, chapter 54)."""

import select
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.tcp_servers import listening

Step = bytes | None
"""What is sent for the next thing that comes in; None says nothing and waits until the other side goes away."""


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


WELCOME = _message(b"R", struct.pack("!I", 0)) + _message(b"Z", b"I")
REFUSAL = _message(b"E", b"SFATAL\0VFATAL\0C42000\0Ma secret of the server's\0\0")

IN_CLEAR = _message(b"R", struct.pack("!I", 3))
BEGUN = _message(b"C", b"BEGIN\0") + _message(b"C", b"SET\0") + _message(b"Z", b"T")
ONE_COLUMN = _message(b"T", b"\0\1text\0" + struct.pack("!IhIhih", 0, 0, 25, -1, -1, 0))
PARSED = _message(b"1", b"") + _message(b"2", b"")
MUTE: Sequence[Step] = (b"N", WELCOME, None)
FAREWELL: Sequence[Step] = (b"N", WELCOME, b"")
ASKS_IN_CLEAR: Sequence[Step] = (b"N", IN_CLEAR, WELCOME)
LOCKED_OUT: Sequence[Step] = (b"N", REFUSAL)


def wide_row(announced: int, sent: int) -> Sequence[Step]:
    """Begin a row of one column that is so wide, and say no more after so many bytes of it."""
    head = b"D" + struct.pack("!Ih", announced + 10, 1) + struct.pack("!I", announced)
    return (b"N", WELCOME, BEGUN, PARSED + ONE_COLUMN + head + b"x" * sent, None)


@contextmanager
def impostor(script: Sequence[Step], heard: list[bytes] | None = None) -> Iterator[int]:
    """Answer every connection by the script, then close it; gives the port. `heard` gets what came in."""
    released = threading.Event()

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                for step in script:
                    came = self.request.recv(65_536)
                    if heard is not None:
                        heard.append(came)
                    if step is None:
                        released.wait(30)
                        return
                    self.request.sendall(step)

    with listening(Connection, released) as port:
        yield port


@contextmanager
def behind_tls(port: int, context: ssl.SSLContext) -> Iterator[tuple[int, list[str]]]:
    """Speak TLS for a server that does not; gives the port, and whom clients say they are, as they come."""
    released, clients = threading.Event(), list[str]()

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(8)  # the client asks for TLS
            self.request.sendall(b"S")
            with suppress(OSError), context.wrap_socket(self.request, server_side=True) as front:
                subject: Any = (front.getpeercert() or {}).get("subject", ())
                clients.append("".join(value for ((name, value),) in subject if name == "commonName"))
                with socket.create_connection(("127.0.0.1", port)) as back:
                    _pass_on(front, back)

    with listening(Connection, released) as own:
        yield own, clients


def _pass_on(front: ssl.SSLSocket, back: socket.socket) -> None:
    """Carry bytes both ways until one side goes away."""
    while True:
        for source in [front] if front.pending() else select.select([front, back], [], [])[0]:
            chunk = source.recv(65_536)
            if not chunk:
                return
            (back if source is front else front).sendall(chunk)
