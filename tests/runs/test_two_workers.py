"""Two workers on one store: every run and every delivery once, in one order, whatever their clocks say."""

import json
import logging
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from app.base.db.engine import Store
from app.base.db.files import migrate
from app.base.values import Trigger
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.records.service import run_views
from app.records.tables import runs as rows
from app.records.views import RunView
from app.reports import metrics
from tests.conftest import Databases
from tests.support.http_servers import Reply, Seen, peer, reply
from tests.support.living import until
from tests.support.processes import free_ports, started
from tests.support.world import CHECK, COVERAGE, HOOK, LINKS, RETRIEVER, World, canary, page

pytestmark = [pytest.mark.databases, pytest.mark.systems(seconds=30)]

AT_ONCE = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}
CHECKS = tuple(f"check-{number}" for number in range(6))
KEYS = ("ant", "bee", "cat")
ROUNDS = 3


# --- alive ---------------------------------------------------------------------------------------------------


@contextmanager
def _working(world: World, owner: str, **more: Any) -> Iterator[Worker]:
    """Run a worker with the probe and the receiver of a world, on its store."""
    engine = Engine(
        store=world.store, vault=world.vault, probe=world.probe, send=world.send, links=LINKS, owner=owner, **more
    )
    worker = Worker(engine, metrics.ProcessMetrics(CollectorRegistry()), metrics.Snapshot())
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def _once(act: Callable[[], object]) -> Callable[..., None]:
    """Act at the first call only."""
    left = [act]

    def call(*_: object) -> None:
        if left:
            left.pop()()

    return call


def _ended(world: World) -> int:
    return sum(run["status"] == "finished" for slug in CHECKS for run in _runs(world, slug))


def test_two_live_workers_do_every_run_and_every_delivery_once(
    databases: Databases, stores: Callable[..., Store]
) -> None:
    """On PostgreSQL: a file of SQLite has one worker, and a second one is refused."""
    url = databases.postgresql()
    worlds = [World(store=stores(url)) for _ in range(2)]
    first = worlds[0]
    first.clock.now = datetime.now(UTC)
    check = page([canary(key) for key in KEYS], rules=[AT_ONCE], schedule={"every": "31d"}, hooks=["one", "two"])
    hooks = [{**HOOK, "slug": slug} for slug in ("one", "two")]
    first.apply({**check, "checks": [{**check["checks"][0], "slug": slug} for slug in CHECKS], "hooks": hooks})
    probing, sending = threading.Barrier(2), threading.Barrier(2)
    for world in worlds:  # none goes on before both are at work
        world.probe.all_miss()
        world.probe.before_batch = _once(lambda: probing.wait(20))
        world.send.before = _once(lambda: sending.wait(20))
    few = {"run_threads": 1, "delivery_threads": 1}
    with _working(worlds[0], "first", **few) as one, _working(worlds[1], "second", **few) as other:
        for number in range(1, ROUNDS + 1):
            until(lambda number=number: _ended(first) == number * len(CHECKS))
            until(lambda number=number: len(first.deliveries(state="delivered")) == number * 2 * len(CHECKS))
            if number == ROUNDS:
                break
            for world in worlds:
                (world.probe.all_answer if number % 2 else world.probe.all_miss)()
            for slug in CHECKS:
                first.clock.now = datetime.now(UTC)
                first.wish(slug)
            one.wake()
            other.wake()
    probes = [question for world in worlds for question in world.probe.asked]
    asked = Counter(question for question in probes if not question[0].endswith("-diagnosis"))  # which asks again
    assert set(asked.values()) == {1}
    assert len(asked) == ROUNDS * len(CHECKS) * len(KEYS)
    assert all(world.probe.asked and world.send.sent for world in worlds)  # both took their part
    assert first.count("runs") == {"runs": ROUNDS * len(CHECKS)}
    sent = Counter((hook, message.id) for world in worlds for hook, message in world.send.sent)
    assert set(sent.values()) == {1}
    assert len(sent) == ROUNDS * len(CHECKS) * 2
    assert {len(item["attempts"]) for item in first.deliveries()} == {1}
    assert Counter(alert["state"] for alert in first.alerts()) == {"firing": len(CHECKS), "resolved": len(CHECKS)}


def test_one_check_that_raises_does_not_keep_the_others_from_being_looked_after(
    sqlite_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(store=sqlite_store)
    world.clock.now = datetime.now(UTC)
    both = page([canary("ant")], schedule={"every": "31d"})
    world.apply({**both, "checks": [{**both["checks"][0], "slug": slug} for slug in ("a-broken-one", "sound")]})
    world.wish("a-broken-one")
    with sqlite_store.write() as connection:  # beyond every calendar
        connection.execute(sa.update(rows).values(scheduled_for=-(10**18)))
    with caplog.at_level(logging.ERROR, "coalmine"), _working(world, "worker"):
        until(lambda: [run["status"] for run in _runs(world, "sound")] == ["finished"])
        until(lambda: _messages(caplog, "bug"))
    assert {record.__dict__["check"] for record in _messages(caplog, "bug")} == {"a-broken-one"}


def test_a_store_that_is_locked_is_told_in_one_line_and_the_work_goes_on_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stores: Callable[..., Store]
) -> None:
    file = tmp_path / "coalmine.db"
    migrate(Store(f"sqlite:///{file}"))
    world = World(store=stores(f"sqlite:///{file}", busy_milliseconds=400))
    world.clock.now = datetime.now(UTC)
    world.apply(page([canary("ant")], schedule={"every": "31d"}))
    with closing(sqlite3.connect(file, isolation_level=None)) as other, caplog.at_level(logging.WARNING, "coalmine"):
        other.execute("BEGIN IMMEDIATE")
        with _working(world, "worker"):
            until(lambda: len(_messages(caplog, "store_unavailable")) > 3)
            other.execute("ROLLBACK")
            until(lambda: [run["status"] for run in _runs(world, CHECK)] == ["finished"])
    for record in _messages(caplog, "store_unavailable"):
        assert (record.levelname, record.exc_info) == ("ERROR", None)
        assert record.__dict__["detail"] == "the database cannot be used now: database is locked"
    assert _messages(caplog, "bug") == []


def _messages(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage() == event]


# --- one after the other -------------------------------------------------------------------------------------

COUNT = 300  # three shards


def test_a_service_told_to_stop_amid_a_run_carries_it_on_after_its_restart(
    tmp_path: Path, stores: Callable[..., Store]
) -> None:
    data, keys = tmp_path / "data", [f"q{number:03}" for number in range(COUNT)]
    patience = threading.Event()

    def answer(seen: Seen) -> Reply:
        if len(retriever.seen) > COUNT * 2 // 3:
            patience.wait(60)  # so slow that the run cannot end before it is told to stop
        return reply(json.dumps({"hits": [{"id": f"doc-{_query(seen)}", "score": 0.9}]}).encode())

    with peer(answer) as retriever:
        file = _file(tmp_path, {"url": f"{retriever.url}/", "timeout": 60}, keys)
        serve = ("serve", "--port", free_ports(), "--data-dir", data, "--canaries", file)
        with started(tmp_path, *serve) as process:
            process.wait_for("run_started")
            until(lambda: len(retriever.seen) > COUNT * 2 // 3)
            assert process.end(signal.SIGTERM) == 0, process.said
        world = World(store=stores(f"sqlite:///{data / 'coalmine.db'}"))
        assert world.count("runs", "states") == {"runs": 1, "states": 0}
        kept = world.count("shards")["shards"]
        patience.set()
        before = len(retriever.seen)
        with started(tmp_path, *serve) as process:
            until(lambda: _runs(world, CHECK)[0]["status"] == "finished")
            assert process.end(signal.SIGTERM) == 0, process.said
        again = {_query(seen) for seen in retriever.seen[before:]}
    assert kept > 0
    assert len(again) == COUNT - 100 * kept  # what was committed is not asked again
    assert world.count("runs", "states", "run_probes", "shards") == {
        "runs": 1,
        "states": COUNT,
        "run_probes": 1,
        "shards": 0,
    }
    results = world.results(1, limit=COUNT + 1)
    assert (sorted(results), {result["verdict"] for result in results.values()}) == (keys, {"healthy"})


def _file(folder: Path, retriever: Mapping[str, Any], keys: list[str]) -> Path:
    """Write a canary file whose check runs once, at the start; JSON is YAML."""
    file = folder / "canaries.yaml"
    whole = page([canary(key) for key in keys], schedule={"every": "31d"}, hooks=[])
    file.write_text(json.dumps({**whole, "retrievers": [{**RETRIEVER, **retriever}], "hooks": []}))
    return file


def _query(seen: Seen) -> str:
    return str(json.loads(seen.body)["q"])


def _runs(world: World, slug: str) -> list[RunView]:
    return run_views.list_runs(world.store, slug, before=None, limit=50)


# --- rows that agree -----------------------------------------------------------------------------------------


def test_an_alert_resolves_though_the_worker_that_opened_it_is_ahead_of_time(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant"), canary("bee")]))
    world.probe.all_miss()
    world.run()
    world.clock.advance(600)
    world.run()
    world.clock.advance(-600)
    assert [alert["state"] for alert in world.alerts()] == ["firing"]
    world.probe.all_answer()
    world.run()
    world.run()
    assert [alert["state"] for alert in world.alerts()] == ["resolved"]


def test_a_run_says_who_asked_for_it_also_where_the_clock_had_queued_it(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    assert world.queue_due() == 1
    run = world.wish(trigger=Trigger.PAGE)
    assert world.shown(run)["trigger"] == "page"
    assert world.wish(trigger=Trigger.API) == run
    assert world.shown(run)["trigger"] == "page", "who asked first"
    assert world.wish(trigger=Trigger.UPDATE, index_version="v2") == run
    assert world.wish(trigger=Trigger.API) == run
    assert (world.shown(run)["trigger"], world.shown(run)["index_version"]) == ("update", "v2")
