"""Real servers for tests, each in a thread: the service, the demo retriever, a receiver of webhooks."""

import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp

from app.config import Settings
from app.main import Service, create_app, open_service
from tests.support.migrated_files import prepare_database

LOOPBACK = "127.0.0.0/8"
_LINES = 8
"""Lines of a thread's stack that are told where a wait fails."""


@contextmanager
def serving(app: ASGIApp, *, lifespan: Literal["on", "off"] = "on") -> Iterator[str]:
    """Serve an app on a free port of 127.0.0.1 and give its URL."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan=lifespan))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    assert server.started, "the server did not start"
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def coalmine(data_dir: Path, **settings: Any) -> Iterator[tuple[str, Service]]:
    """Serve Coalmine itself with its worker, on a store in `data_dir`."""
    environment = settings.pop("environment", {})
    configured = Settings(data_dir=data_dir, hook_allow=LOOPBACK, **settings)
    prepare_database(configured)
    service = open_service(configured, environment=environment)
    with serving(create_app(service)) as url:
        yield url, service


def until(condition: Any, *, seconds: float = 20.0) -> Any:
    """Wait for a condition and give its first true value; fail when it never comes true, with each thread's stack."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"it never came true; meanwhile\n{_stacks()}"
        time.sleep(0.01)


def _stacks() -> str:
    """Tell where each thread is: the innermost lines of its stack."""
    frames = sys._current_frames()
    stacks = {
        one.name: traceback.extract_stack(frames[one.ident])[-_LINES:]
        for one in threading.enumerate()
        if one.ident in frames
    }
    return "\n".join(f"{name}\n{''.join(traceback.format_list(lines))}" for name, lines in stacks.items())


@dataclass
class Receiver:
    """A receiver of webhooks that keeps what it got and answers as told, 204 when told nothing."""

    answers: list[int] = field(default_factory=list)
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def listening(self) -> Iterator["Receiver"]:
        """Listen on a free port of 127.0.0.1."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}/"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)
