"""The database locked or gone, the process told to stop or killed: said plainly, nothing half-written, carried on."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.config import Settings
from app.main import Service, create_app, open_service
from tests.conftest import running_postgresql
from tests.support.fakes import FakeProbe, FakeSend
from tests.support.http_servers import HANG, Reply, Seen, peer, reply
from tests.support.living import serving, until
from tests.support.world import CHECK, RETRIEVER, World, canary, page

pytestmark = pytest.mark.systems(seconds=30)

COUNT = 300
KEYS = [f"q{number:03}" for number in range(COUNT)]


def _file(folder: Path, retriever: Mapping[str, Any], keys: list[str]) -> Path:
    """Write a canary file whose check runs once, at the start; JSON is YAML."""
    definitions = page([canary(key) for key in keys], schedule={"every": "31d"}, hooks=[])
    file = folder / "canaries.yaml"
    file.write_text(json.dumps({**definitions, "retrievers": [{**RETRIEVER, **retriever}], "hooks": []}))
    return file


@contextmanager
def _service(folder: Path, probe: FakeProbe, **settings: Any) -> Iterator[tuple[httpx2.Client, Service]]:
    """Serve with a fake retriever; locks are waited for only briefly."""
    service = open_service(
        Settings(data_dir=folder, canaries=_file(folder, {}, KEYS), **settings),
        environment={},
        probe=probe,
        send=FakeSend(),
    )
    service.store.engine.dispose()
    sa.event.listen(service.store.engine, "connect", _impatient)
    with serving(create_app(service)) as url, httpx2.Client(base_url=url, timeout=30) as client:
        yield client, service


def _impatient(connection: Any, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA busy_timeout = 50")


def _assert_whole(store: Store, probes: Counter[str]) -> None:
    """Hold the one run there is to have every result, once, every canary having been asked."""
    world = World(store=store)
    assert world.count("runs", "run_probes", "states", "shards") == {
        "runs": 1,
        "run_probes": 1,
        "states": COUNT,
        "shards": 0,
    }
    results = world.results(1, limit=COUNT + 1)
    assert sorted(results) == KEYS
    assert {result["verdict"] for result in results.values()} == {"healthy"}
    assert sorted(probes) == KEYS


# --- the database --------------------------------------------------------------------------------------------


def test_a_locked_database_answers_503_and_the_run_goes_on_when_it_is_free(tmp_path: Path) -> None:
    probe, midway, locked = FakeProbe(), threading.Event(), threading.Event()

    def wait_in_the_middle(number: int) -> None:
        if number == 6:
            midway.set()
            assert locked.wait(20)

    probe.before_batch = wait_in_the_middle
    with _service(tmp_path, probe) as (client, service):
        assert midway.wait(20)
        with closing(sqlite3.connect(tmp_path / "coalmine.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            before = World(store=service.store).dump()
            locked.set()
            answer = client.post(f"/v1/checks/{CHECK}/runs", json={})
            _assert_unavailable(answer)
            assert client.get(f"/v1/checks/{CHECK}/runs").status_code == 200  # who only reads is not held up
            until(lambda: _let_go(service))  # there are answers, but they cannot be written
            assert World(store=service.store).dump() == before
            other.execute("ROLLBACK")
        until(lambda: client.get(f"/v1/checks/{CHECK}/health").status_code == 200)
        _assert_whole(service.store, Counter(query for _, query in probe.asked))


def test_a_database_that_is_gone_answers_503_and_the_worker_recovers_when_it_returns(tmp_path: Path) -> None:
    probe, midway, stopped = FakeProbe(), threading.Event(), threading.Event()

    def wait_in_the_middle(number: int) -> None:
        if number == 2 and len(probe.asked) > COUNT // 2 and not stopped.is_set():
            midway.set()
            assert stopped.wait(20)

    probe.before_batch = wait_in_the_middle
    with running_postgresql() as postgresql:
        settings = {"database_url": postgresql.url, "auto_migrate": True, "metrics_token": "scraper"}
        with _service(tmp_path, probe, **settings) as (client, service):
            assert midway.wait(20)
            postgresql.stop()
            try:
                _assert_unavailable(client.get(f"/v1/checks/{CHECK}/runs"))
                _assert_unavailable(client.post(f"/v1/checks/{CHECK}/runs", json={}))
                assert client.get("/livez").status_code == 200
                assert client.get("/readyz").status_code == 503
                until(lambda: "coalmine_store_up 0.0" in _metrics(client))
                stopped.set()
                until(lambda: _let_go(service))
            finally:
                postgresql.start()
            until(lambda: client.get("/readyz").status_code == 200)
            until(lambda: client.get(f"/v1/checks/{CHECK}/health").status_code == 200)
            until(lambda: "coalmine_store_up 1.0" in _metrics(client))
            _assert_whole(service.store, Counter(query for _, query in probe.asked))


def _metrics(client: httpx2.Client) -> str:
    """Scrape with the token, which unlike a key takes no store to be known."""
    return client.get("/metrics", headers={"authorization": "Bearer scraper"}).text


def _assert_unavailable(answer: httpx2.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["type"] == "/problems/store-unavailable"


def _let_go(service: Service) -> bool:
    """Whether the worker carries out no run any more."""
    assert service.worker is not None
    return service.worker._jobs._under_way() == 0


# --- the process ---------------------------------------------------------------------------------------------


def test_a_run_is_carried_on_after_every_way_to_end_a_process(tmp_path: Path) -> None:
    """Told to end, interrupted and killed one after another, each time in the middle of the one run there is."""
    with peer(_answer) as retriever, closing(Store(f"sqlite:///{tmp_path / 'coalmine.db'}")) as store:
        file = _file(tmp_path, {"url": f"{retriever.url}/", "requests_per_second": 400}, KEYS)
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            before = len(retriever.seen)
            process = _start(tmp_path, file)
            until(lambda before=before: len(retriever.seen) >= before + 70)
            process.send_signal(sign)
            _, log = process.communicate(timeout=20)
            assert sign is signal.SIGKILL or b"Traceback" not in log, log.decode()
            assert World(store=store).count("runs", "run_probes", "states") == {"runs": 1, "run_probes": 0, "states": 0}
        last = _start(tmp_path, file)
        until(lambda: World(store=store).count("run_probes") == {"run_probes": 1})
        last.terminate()
        last.communicate(timeout=20)
        _assert_whole(store, Counter(_query(seen) for seen in retriever.seen))


def test_a_hanging_retriever_does_not_hold_up_the_end_of_the_process(tmp_path: Path) -> None:
    with peer(HANG) as retriever:
        process = _start(tmp_path, _file(tmp_path, {"url": f"{retriever.url}/", "timeout": 300}, KEYS[:3]))
        until(lambda: len(retriever.seen) == 3)
        process.terminate()
        process.communicate(timeout=15)  # the probes would take five minutes
    with closing(sqlite3.connect(tmp_path / "coalmine.db")) as connection:
        assert connection.execute("SELECT status FROM runs").fetchall() == [("running",)]


def _answer(seen: Seen) -> Reply:
    body = {"hits": [{"id": f"doc-{_query(seen)}", "score": 0.9}]}
    return reply(json.dumps(body).encode())


def _query(seen: Seen) -> str:
    return str(json.loads(seen.body)["q"])


def _start(folder: Path, file: Path) -> "subprocess.Popen[bytes]":
    """Serve in a process of its own."""
    code = "from tests.operation.test_store_outage import serve_until_told; serve_until_told()"
    environment = {**os.environ, "COALMINE_DATA_DIR": str(folder), "COALMINE_CANARIES": str(file)}
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def serve_until_told() -> None:
    """Serve as the command line does, on a free port: the program of the processes above."""
    import uvicorn  # noqa: PLC0415 - only in that process

    from app.config import load_settings  # noqa: PLC0415 - the same

    service = open_service(load_settings(os.environ), environment=os.environ)
    config = uvicorn.Config(create_app(service), host="127.0.0.1", port=0, log_level="warning", lifespan="on")
    try:
        uvicorn.Server(config).run()
    except KeyboardInterrupt:
        return
