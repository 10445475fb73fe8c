"""Clients that connect and ask for nothing take nothing from others, and what this process lacks is no retriever's."""

import errno
import json
import os
import resource
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from prometheus_client import CollectorRegistry, generate_latest

from app.base.addresses import retriever_policy
from app.base.db.engine import Store
from app.base.errors import LocalResourceError
from app.base.net.transfer import Request, are_exhausted, raise_descriptor_limit
from app.base.net.transport import exchange
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.records.service import run_views
from app.reports import metrics
from app.serving import bounded_protocol
from tests.support.fakes import FakeProbe
from tests.support.http_servers import peer, reply
from tests.support.living import until
from tests.support.processes import free_ports
from tests.support.world import CHECK, LINKS, RETRIEVER, World, canary, page

pytestmark = [pytest.mark.databases, pytest.mark.systems]

ROOT = Path(__file__).parents[2]
HITS = b'{"hits": [{"id": "doc-ant", "score": 0.9}]}'


# --- the protocol --------------------------------------------------------------------------------------------


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of what was sent."""
    if scope["type"] != "http":
        return
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"%02d" % size})


@contextmanager
def _served(descriptors: int, **seconds: float) -> Iterator[int]:
    protocol = bounded_protocol(descriptors)
    for name, value in seconds.items():
        setattr(protocol, name, value)
    config = uvicorn.Config(_answer, host="127.0.0.1", port=0, http=protocol, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)


def _connected(port: int, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=10)
    made.sendall(sent)
    return made


def _closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1_000) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf"]
)
def test_a_request_that_does_not_come_whole_is_not_waited_for(sent: bytes) -> None:
    with _served(1_000, header_seconds=0.2, body_seconds=0.2) as port, closing(_connected(port, sent)) as connection:
        assert _closed(connection)


def test_a_body_that_comes_slowly_but_steadily_is_waited_for() -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 12\r\n\r\n"
    with _served(1_000, body_idle_seconds=1.0) as port, closing(_connected(port, head)) as connection:
        for _ in range(12):  # longer than it may be silent
            assert select.select([connection], [], [], 0.125) == ([], [], [])
            connection.sendall(b"x")
        assert b"200 OK" in connection.recv(1_000)


def test_a_body_that_stops_coming_is_not_waited_for() -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 12\r\n\r\n"
    with _served(1_000, body_idle_seconds=0.2) as port, closing(_connected(port, head)) as connection:
        connection.sendall(b"x")
        assert _closed(connection)


def test_half_a_further_request_is_not_waited_for_either() -> None:
    whole = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    with _served(1_000, header_seconds=0.3) as port, closing(_connected(port, whole)) as connection:
        assert b"200 OK" in connection.recv(1_000)
        connection.sendall(whole)
        assert b"200 OK" in connection.recv(1_000)
        connection.sendall(whole[:9])
        assert _closed(connection)


def test_of_too_many_connections_the_one_that_waited_longest_is_closed_and_requests_are_answered() -> None:
    with _served(40) as port, ExitStack() as stack:
        idle = [stack.enter_context(closing(_connected(port))) for _ in range(60)]
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert [client.post("/", content=b"x" * 7).text for _ in range(5)] == ["07"] * 5
        assert _closed(idle[0])
        idle[-1].sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200 OK" in idle[-1].recv(1_000)


# --- a real process ------------------------------------------------------------------------------------------


def test_a_thousand_idle_connections_stop_no_check(tmp_path: Path) -> None:
    port = free_ports()
    raise_descriptor_limit()
    with peer(reply(HITS)) as retriever, ExitStack() as stack:
        definitions = page([canary("ant")], schedule={"every": "10s"}, hooks=[])
        definitions |= {"retrievers": [{**RETRIEVER, "url": f"{retriever.url}/"}], "hooks": []}
        file = tmp_path / "canaries.yaml"
        file.write_text(json.dumps(definitions))
        arguments = ["serve", "--port", str(port), "--data-dir", str(tmp_path), "--canaries", str(file)]
        log = stack.enter_context((tmp_path / "log").open("wb"))
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "app.cli", *arguments],
            stdout=log,
            stderr=log,
            cwd=ROOT,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),  # noqa: PLW1509 - in tests
        )
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)
        client = stack.enter_context(httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=10))

        def ended() -> int:
            runs = client.get(f"/v1/checks/{CHECK}/runs").json()["items"]
            assert {run["verdict"] for run in runs if run["status"] == "finished"} <= {"healthy"}
            return sum(run["status"] == "finished" for run in runs)

        until(lambda: _is_up(client), seconds=60)
        until(ended, seconds=30)
        for _ in range(1_000):
            connection = socket.create_connection(("127.0.0.1", port), timeout=10)
            stack.callback(connection.close)
        before = ended()
        until(lambda: ended() > before, seconds=40)
        assert client.get("/livez").status_code == 200
        assert client.get("/v1/alerts").json()["items"] == []


def _is_up(client: httpx2.Client) -> bool:
    try:
        return client.get("/livez").status_code == 200
    except httpx2.TransportError:
        return False


# --- an error of our own -------------------------------------------------------------------------------------


@contextmanager
def _no_descriptors() -> Iterator[None]:
    """Leave this process no file to open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(400, hard), hard))
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_nothing_is_said_about_the_peer() -> None:
    anywhere = retriever_policy()
    with peer(reply(HITS)) as server:
        assert not are_exhausted()
        with _no_descriptors():
            assert are_exhausted()
            with pytest.raises(LocalResourceError, match="Too many open files"):
                list(exchange([Request(url=f"{server.url}/")], policy=anywhere, concurrency=1))
        assert list(exchange([Request(url=f"{server.url}/")], policy=anywhere, concurrency=1))


def test_a_socket_that_cannot_be_made_here_is_no_failure_of_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("app.base.net.transfer._Socket", refuse)
    anywhere = retriever_policy()
    with peer(reply(HITS)) as server, pytest.raises(LocalResourceError, match="Too many open files"):
        list(exchange([Request(url=f"{server.url}/")], policy=anywhere, concurrency=1))


def test_a_run_that_could_not_ask_is_begun_anew_and_opens_no_alert(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause in ("_LOCAL_PAUSE", "_PAUSE"):
        monkeypatch.setattr(f"app.operation.worker_tasks.{pause}", timedelta(seconds=0.02))
    monkeypatch.setattr("app.operation.worker._SYNC_SECONDS", 0.05)
    world = World(store=store)
    world.clock.now = datetime.now(UTC)
    world.apply(page([canary("ant")]))
    left = [7]

    class Probe(FakeProbe):
        def __call__(self, *arguments: Any, **more: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise LocalResourceError("nothing could be asked from here: Too many open files")
            return super().__call__(*arguments, **more)

    registry = CollectorRegistry()
    engine = Engine(store=store, vault=world.vault, probe=Probe(), send=world.send, links=LINKS, owner="it")
    worker = Worker(engine, metrics.ProcessMetrics(registry), metrics.Snapshot())
    worker.start()
    try:
        world.wish()
        worker.wake()
        until(lambda: left[0] == 0)
        until(lambda: world.shown(1)["status"] == "finished")
    finally:
        worker.stop()
    runs = run_views.list_runs(store, CHECK, before=None, limit=9)
    assert {run["verdict"] for run in runs if run["status"] == "finished"} == {"healthy"}
    assert world.alerts() == []
    assert b'coalmine_self_issue{issue="resources"} 1.0' in generate_latest(registry)
