"""What is wrong with Coalmine itself is told once, as its own: overload, and a database that takes no writes."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry, generate_latest

from app.base.db import engine as store_engine
from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.errors import StoreUnavailableError
from app.catalog.service import references
from app.config import Settings
from app.main import create_app, open_service
from app.operation.service.self_monitor import Issue, SelfMonitor, report_overload
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.reports import metrics
from app.reports.service.metrics_snapshot import State
from app.runs.service import due_checks
from tests.support.api_service import BASE
from tests.support.asgi_client import TestClient
from tests.support.fakes import FakeProbe, FakeSend
from tests.support.living import until
from tests.support.world import CHECK, LINKS, World, canary, page, statements

pytestmark = pytest.mark.both

CHECKS = 12


# --- overload ------------------------------------------------------------------------------------------------


def _many(**check: Any) -> dict[str, Any]:
    one = page([canary("ant")], **check)
    return {**one, "checks": [{**one["checks"][0], "slug": f"check-{number:02}"} for number in range(CHECKS)]}


def _watch_all(world: World) -> int:
    world.queue_due()
    slugs = [f"check-{number:02}" for number in range(CHECKS)]
    opened = 0
    for slug in slugs:
        check = references.load_definition(world.store, "check", slug)
        long_ago = world.clock() - timedelta(days=1)
        opened += due_checks.watch_for_no_data(world.store, check.id, started_at=long_ago, now=world.clock())
    return opened


def test_checks_that_wait_for_a_worker_are_not_silent(store: Store) -> None:
    world = World(store=store)
    world.apply(_many())
    for _ in range(4):  # twenty minutes, after eleven of which it would be silence, in which no worker begins anything
        world.clock.advance(300)
        assert _watch_all(world) == 0
    assert world.alerts() == []


@pytest.mark.databases
def test_who_waits_for_a_worker_is_asked_once_for_all_checks(store: Store) -> None:
    world = World(store=store)
    world.apply(_many())
    ids = [references.load_definition(store, "check", f"check-{number:02}").id for number in range(CHECKS)]
    world.clock.advance(300)
    world.queue_due()
    begun = world.claim()
    assert begun is not None
    asked: list[str] = []
    with statements(store, asked.append):
        left = due_checks.without_backlog(store, ids, world.clock())
    assert left == [begun.check_id]
    assert sum(statement.startswith("SELECT") for statement in asked) == 1


def test_a_check_whose_retriever_hangs_is_silent_all_the_same(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    check = references.load_definition(world.store, "check", CHECK)
    world.clock.advance(300)
    assert world.queue_due() == 1
    world.clock.advance(30)
    assert world.claim() is not None  # and it never ends
    world.clock.advance(900)
    world.queue_due()
    assert due_checks.watch_for_no_data(
        world.store, check.id, started_at=world.clock() - timedelta(days=1), now=world.clock()
    )


def test_overload_is_one_issue_that_ends_by_itself() -> None:
    monitor = SelfMonitor()
    state = {"checks": (), "alerts": {}, "outbox_pending": 0, "outbox_oldest_seconds": 0.0, "hooks": ()}
    report_overload(monitor, State(**state, runs_waiting=3, runs_waiting_oldest_seconds=59.0))  # type: ignore[arg-type] # of one value each
    assert not monitor.has(Issue.OVERLOAD)
    report_overload(monitor, State(**state, runs_waiting=725, runs_waiting_oldest_seconds=90.0))  # type: ignore[arg-type] # as above
    assert monitor.issues[Issue.OVERLOAD].startswith("725 runs are due and not started, the oldest for 90 s")
    report_overload(monitor, None)
    assert monitor.has(Issue.OVERLOAD)
    report_overload(monitor, State(**state, runs_waiting=0, runs_waiting_oldest_seconds=0.0))  # type: ignore[arg-type] # as above
    assert not monitor.has(Issue.OVERLOAD)


def test_a_blocked_worker_tells_of_overload_and_opens_no_alert(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.operation.worker._SYNC_SECONDS", 0.1)
    monkeypatch.setattr("app.operation.service.self_monitor.OVERLOAD_SECONDS", 0.2)
    world, over = World(store=store), threading.Event()
    world.clock.now = datetime.now(UTC) - timedelta(days=9)
    world.apply(_many(schedule={"every": "10s"}))

    def wait(_number: int) -> None:
        assert over.wait(30)

    world.probe.before_batch = wait
    registry = CollectorRegistry()
    engine = Engine(store=store, vault=world.vault, probe=world.probe, send=world.send, links=LINKS, owner="it")
    worker = Worker(engine, metrics.ProcessMetrics(registry), metrics.Snapshot())
    worker.start()
    try:
        until(lambda: b'coalmine_self_issue{issue="overload"} 1.0' in generate_latest(registry))
        assert world.alerts() == []
        over.set()
        until(lambda: b'coalmine_self_issue{issue="overload"} 0.0' in generate_latest(registry))
    finally:
        over.set()
        worker.stop()


# --- a full disk ---------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_and_is_over_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_engine, "WRITE_FAILURE_SECONDS", 0.1)
    monkeypatch.setattr("app.operation.worker._SYNC_SECONDS", 0.1)
    service = open_service(Settings(data_dir=tmp_path), environment={}, probe=FakeProbe(), send=FakeSend())
    pages = [1]

    def limit(connection: Any, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages[0]}")

    suite = {"canaries": [canary(f"q{number}", query="x" * 900) for number in range(200)]}
    sa.event.listen(service.store.engine, "connect", limit)
    with TestClient(create_app(service), base_url=BASE) as client:
        assert client.get("/readyz").text == "ok\n"
        service.store.engine.dispose()  # every connection from now on has no page left
        assert client.put("/v1/suites/big", json=suite).status_code == 503
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "database or disk is full" in answer.json()["detail"]
        until(lambda: "coalmine_store_up 0.0" in client.get("/metrics").text)
        assert 'coalmine_self_issue{issue="store_write"} 1.0' in client.get("/metrics").text
        assert "Database takes no writes" in client.get("/").text
        assert client.get("/readyz").status_code == 503  # it does not go by itself
        pages[0] = 1_000_000
        service.store.engine.dispose()
        until(lambda: client.get("/readyz").text == "ok\n")
        until(lambda: "coalmine_store_up 1.0" in client.get("/metrics").text)
        assert client.put("/v1/suites/big", json=suite).status_code < 300


def test_readiness_tells_details_to_keys_that_may_read_alone(tmp_path: Path) -> None:
    service = open_service(Settings(data_dir=tmp_path), environment={}, probe=FakeProbe(), send=FakeSend())
    with TestClient(create_app(service), base_url=BASE) as client:
        client.app.state.exposition.process.monitor.report(Issue.RESOURCES, "no room in /srv")  # type: ignore[attr-defined] # of Starlette
        assert client.get("/readyz").text == "ok\nresources: no room in /srv\n"  # open to this machine: no key was made
        key = keys.create_key(service.store, name="reader", scope=Scope.READ, now=datetime.now(UTC))
        assert client.get("/readyz").text == "ok\nresources\n"
        assert client.get("/readyz", headers={"authorization": "Bearer wrong"}).text == "ok\nresources\n"
        told = client.get("/readyz", headers={"authorization": f"Bearer {key}"})
        assert (told.status_code, told.text) == (200, "ok\nresources: no room in /srv\n")


@pytest.mark.databases
def test_a_trial_write_leaves_nothing_behind(store: Store) -> None:
    before = World(store=store).dump()
    tables = sa.inspect(store.engine).get_table_names()
    store.try_write()
    assert World(store=store).dump() == before
    assert sa.inspect(store.engine).get_table_names() == tables
    assert store.write_failure is None


def test_trial_writes_of_several_threads_are_in_no_other_s_way(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'coalmine.db'}")

    def drop(connection: sa.Connection) -> None:  # as another thread does between the two transactions of this one
        connection.exec_driver_sql("DROP TABLE IF EXISTS write_probe")

    sa.event.listen(store.engine, "begin", drop)
    store.try_write()
    assert store.write_failure is None
    store.close()


def test_a_database_that_is_read_only_now_refuses_the_trial_write(postgresql_store: Store) -> None:
    url = postgresql_store.engine.url.update_query_dict({"options": "-c default_transaction_read_only=on"})
    store = Store(url.render_as_string(hide_password=False))
    try:
        with pytest.raises((StoreUnavailableError, sa.exc.DBAPIError)):
            store.try_write()
        assert store.write_failure is not None
        assert "read-only" in store.write_failure
    finally:
        store.close()


def test_an_issue_ends_unless_it_is_reported_again() -> None:
    now = [0.0]
    monitor = SelfMonitor(lambda: now[0])
    monitor.report(Issue.RESOURCES, "out of it", seconds=10)
    now[0] = 9.0
    monitor.report(Issue.RESOURCES, "still out of it", seconds=10)
    now[0] = 18.0
    assert monitor.issues == {Issue.RESOURCES: "still out of it"}
    now[0] = 19.0
    assert monitor.issues == {}
