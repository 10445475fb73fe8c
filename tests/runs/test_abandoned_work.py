"""What a process left behind that ended: on SQLite, where nobody else can be at it, it goes on at once."""

import json
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from app.base.db.engine import Store, from_us
from app.hooks.tables import deliveries as delivery_rows
from app.records.tables import runs
from tests.support.http_servers import HANG, Reply, Seen, peer, reply
from tests.support.living import until
from tests.support.processes import free_ports, started
from tests.support.world import HOOK, RETRIEVER, SECRET, World, canary, page

# --- real processes ------------------------------------------------------------------------------------------

COUNT = 300  # three shards
AT_ONCE = timedelta(seconds=25)  # of which a busy machine takes most to start a process; others wait for 30 s


@pytest.mark.systems(seconds=30)
def test_a_run_whose_service_was_killed_goes_on_at_once(tmp_path: Path, stores: Callable[..., Store]) -> None:
    data, keys = tmp_path / "data", [f"q{number:03}" for number in range(COUNT)]
    killed = threading.Event()

    def answer(seen: Seen) -> Reply:
        if len(retriever.seen) > COUNT * 2 // 3:
            killed.wait(60)  # so slow that the run cannot end before
        return reply(json.dumps({"hits": [{"id": f"doc-{json.loads(seen.body)['q']}", "score": 0.9}]}).encode())

    with peer(answer) as retriever:
        whole = page([canary(key) for key in keys], schedule={"every": "31d"}, hooks=[])
        described = {**RETRIEVER, "url": f"{retriever.url}/", "timeout": 60}
        file = _file(tmp_path, {**whole, "retrievers": [described], "hooks": []})
        serve = ("serve", "--port", free_ports(), "--data-dir", data, "--canaries", file)
        with started(tmp_path, *serve) as process:
            process.wait_for("run_started")
            store = stores(f"sqlite:///{data / 'coalmine.db'}")
            world = World(store=store)
            until(lambda: world.count("shards")["shards"] and len(retriever.seen) > COUNT * 2 // 3)
            process.end(signal.SIGKILL)
        killed.set()
        restarted_at = datetime.now(UTC)
        with started(tmp_path, *serve) as process:
            process.wait_for("run_started")
            until(lambda: _one(store, runs.c.status) == "finished")
    finished_at = from_us(_one(store, runs.c.finished_at))
    assert finished_at - restarted_at < AT_ONCE, f"{finished_at - restarted_at} after the restart"
    assert world.shown(1)["probes"] == {"ok": COUNT}


@pytest.mark.systems
def test_a_delivery_whose_service_was_killed_is_sent_again_at_once(
    tmp_path: Path, stores: Callable[..., Store]
) -> None:
    data, port = tmp_path / "data", free_ports()
    replies = [HANG]
    with peer(lambda _: replies.pop() if replies else reply(b"", 204)) as receiver:
        hook = {**HOOK, "url": f"{receiver.url}/", "secret": SECRET}
        file = _file(tmp_path, {**page([canary("ant")]), "hooks": [hook], "checks": []})
        serve = ("serve", "--port", port, "--data-dir", data, "--canaries", file)
        allowed = {"COALMINE_HOOK_ALLOW": "127.0.0.0/8"}
        with started(tmp_path, *serve, **allowed) as process:
            process.wait_for("is serving")
            assert httpx2.post(f"http://127.0.0.1:{port}/v1/hooks/ops/test", json={}).is_success
            until(lambda: receiver.seen)
            process.end(signal.SIGKILL)
        store = stores(f"sqlite:///{data / 'coalmine.db'}")
        restarted_at = datetime.now(UTC)
        with started(tmp_path, *serve, **allowed) as process:
            until(lambda: _one(store, delivery_rows.c.state) == "delivered")
            delivered_at = datetime.now(UTC)
    assert delivered_at - restarted_at < AT_ONCE, f"{delivered_at - restarted_at} after the restart"
    assert {seen.headers["webhook-id"] for seen in receiver.seen} == {_one(store, delivery_rows.c.message_id)}
    assert len(receiver.seen) == 2


def _file(folder: Path, whole: dict[str, Any]) -> Path:
    """Write a canary file; JSON is YAML."""
    file = folder / "canaries.yaml"
    file.write_text(json.dumps(whole), encoding="utf-8")
    return file


def _one(store: Store, column: Any) -> Any:
    with store.read() as connection:
        return connection.execute(sa.select(column)).scalar_one()
