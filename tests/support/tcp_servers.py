"""Servers of bare TCP on a port of their own."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def listening(handler: type[socketserver.BaseRequestHandler], over: threading.Event) -> Iterator[int]:
    """Hand every connection to a handler in a thread; gives the port. At the end `over` lets those go that wait."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
