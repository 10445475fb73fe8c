"""A retriever served on loopback for as long as a block runs, to whoever knows its address."""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from coalmine_client.retrievers import Retrieve

UNSTATED = "-"
"""What `coalmine check` sends for a variable that nobody stated."""


@contextmanager
def served(retrieve: Retrieve) -> Iterator[str]:
    """Serve a retriever on a free port of 127.0.0.1; gives its address, which nobody can guess.

    One query is asked at a time: a retriever of a notebook need not be safe for threads. What it raises is answered
    with HTTP 500 and the error's own words.
    """
    path = f"/{secrets.token_urlsafe(16)}"
    server = _Server(("127.0.0.1", 0), _handler(retrieve, path))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{path}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def _handler(retrieve: Retrieve, path: str) -> type[BaseHTTPRequestHandler]:
    alone = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.path != path:
                self._send(404, {"error": "there is no retriever at this address"})
                return
            try:
                asked = json.loads(body)
                variables = {name: value for name, value in asked["vars"].items() if value != UNSTATED}
                variables |= {"history": asked["history"]} if asked.get("history") else {}
                with alone:
                    results = retrieve(asked["query"], int(asked["k"]), variables)
            except Exception as error:  # noqa: BLE001 - whatever a retriever raises is its answer
                self._send(500, {"error": f"{type(error).__name__}: {error}"})
            else:
                self._send(200, {"results": results})

        def _send(self, status: int, answer: Any) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parameter of http.server
            """Say nothing: the report tells what was answered."""

    return Handler
