"""A forward proxy on 127.0.0.1: tunnels (CONNECT) lead to ports of this machine, whatever host they name."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class ForwardProxy:
    """A running proxy: where it is, and the heads of the requests it got."""

    port: int
    heads: list[str] = field(default_factory=list)

    @property
    def targets(self) -> list[str]:
        """Host and port of each tunnel."""
        return [head.split()[1] for head in self.heads]


@contextmanager
def forward_proxy(*, refusal: int | None = None) -> Iterator[ForwardProxy]:
    """Serve tunnels, or answer each with a refusal."""
    server = _Server(("127.0.0.1", 0), _Tunnel)
    server.refusal = refusal
    server.proxy = ForwardProxy(port=server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    refusal: int | None
    proxy: ForwardProxy


class _Tunnel(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Answer CONNECT and pass bytes on until one side ends."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline()
            if not line:
                return
            head += line
        self.server.proxy.heads.append(head.decode("latin-1"))
        if self.server.refusal is not None:
            self.wfile.write(f"HTTP/1.1 {self.server.refusal} No\r\ncontent-length: 0\r\n\r\n".encode())
            return
        port = int(head.split()[1].rpartition(b":")[2])
        with socket.create_connection(("127.0.0.1", port)) as upstream:
            self.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            back = threading.Thread(target=_pass, args=(upstream, self.connection))
            back.start()
            _pass(self.connection, upstream)
            back.join()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(65_536):
            target.sendall(received)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
