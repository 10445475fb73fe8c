"""A database that another process holds, that is damaged, or that came back without our tables; senders that leave."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from starlette.types import Message

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.errors import StoreUnavailableError
from app.config import Settings
from app.main import open_service
from app.operation.service.self_monitor import Issue, SelfMonitor, find_read_error, report_store
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.reports import metrics
from tests.support.api_service import Api, api, bearer
from tests.support.fakes import FakeProbe, FakeSend
from tests.support.world import LINKS, World, canary, page

pytestmark = pytest.mark.databases
TOKEN = "a-token-of-prometheus-alone"


def _impatient(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA busy_timeout = 50")


def _make_impatient(store: Store) -> None:
    store.engine.dispose()
    sa.event.listen(store.engine, "connect", _impatient)


def test_a_writer_held_by_another_process_is_said_until_it_is_free(tmp_path: Path) -> None:
    with api(tmp_path) as service, closing(sqlite3.connect(tmp_path / "coalmine.db", isolation_level=None)) as other:
        store, process = service.service.store, service.service.exposition.process
        _make_impatient(store)
        assert service.client.get("/readyz").text == "ok\n"
        other.execute("BEGIN IMMEDIATE")
        assert service.client.put("/v1/suites/docs", json={"canaries": []}).status_code == 503
        report_store(process.monitor, store)
        answer = service.client.get("/readyz")
        assert answer.status_code == 503
        assert "database is locked: another process held it" in answer.json()["detail"]
        scraped = service.client.get("/metrics").text
        assert "\ncoalmine_store_up 0.0" in scraped
        assert 'coalmine_self_issue{issue="store_write"} 1.0' in scraped
        assert "Database takes no writes: " in service.client.get("/", headers={"accept": "text/html"}).text
        other.execute("ROLLBACK")
        report_store(process.monitor, store)
        assert service.client.get("/readyz").text == "ok\n"
        assert "\ncoalmine_store_up 1.0" in service.client.get("/metrics").text


def test_the_lag_grows_while_no_tick_can_write(tmp_path: Path) -> None:
    path = tmp_path / "coalmine.db"
    with api(tmp_path) as service, closing(sqlite3.connect(path, isolation_level=None)) as other:
        store = service.service.store
        world = World(store=store)
        world.apply(page([canary("ant")], schedule={"every": "5m"}))
        _make_impatient(store)
        engine = Engine(
            store=store,
            vault=world.vault,
            probe=FakeProbe(),
            send=FakeSend(),
            links=LINKS,
            owner="here",
            clock=world.clock,
        )
        worker = Worker(engine, metrics.ProcessMetrics(CollectorRegistry()), metrics.Snapshot())
        worker._sync()
        before = worker.lag
        other.execute("BEGIN IMMEDIATE")
        world.clock.now += timedelta(minutes=12)
        with pytest.raises(StoreUnavailableError):
            worker._sync()
        assert worker.lag >= before + 400
        other.execute("ROLLBACK")


def test_the_lag_of_the_worker_is_that_of_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = open_service(Settings(data_dir=tmp_path), environment={}, with_worker=True, probe=FakeProbe())
    with closing(service.store):
        monkeypatch.setattr(Worker, "lag", 432.0)
        assert b"\ncoalmine_scheduler_lag_seconds 432.0" in service.exposition.render()[0]


def _damage(path: Path, table: str) -> None:
    """Overwrite the pages of a table, its root among them, with what no page holds."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)


def test_damage_that_a_write_meets_is_noted_as_well(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.docs()
        store = service.service.store
        _damage(tmp_path / "coalmine.db", "runs")
        store.engine.dispose()  # connections that hold pages of before
        with pytest.raises(StoreUnavailableError), store.write() as connection:
            connection.exec_driver_sql("DELETE FROM runs")
        assert "malformed" in str(store.damage)


def test_a_damaged_table_is_not_ready(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.docs()
        service.run()
        _damage(tmp_path / "coalmine.db", "runs")
        service.service.store.engine.dispose()
        answer = service.client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["detail"].startswith("a part of the database is damaged")


def _drop_a_table(store: Store) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("DROP TABLE next_runs")


def _drop_all(store: Store) -> None:
    with store.write() as connection:
        if store.dialect == "postgresql":
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
            return
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        for name in sa.inspect(connection).get_table_names():
            connection.exec_driver_sql(f'DROP TABLE "{name}"')


def _make_older(store: Store) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '2026_11_21_first_tables'")


def _make_newer(store: Store) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '2099_01_01_unknown'")


def _empty(service: Api) -> None:
    _drop_all(service.service.store)


def _damage_runs(service: Api) -> None:
    _damage(service.service.settings.data_dir / "coalmine.db", "runs")
    service.service.store.engine.dispose()


def _damage_keys(service: Api) -> None:
    _damage(service.service.settings.data_dir / "coalmine.db", "api_keys")
    service.service.store.engine.dispose()


def _hold(service: Api) -> None:
    """Take the file for oneself, so that nobody else reads it either, until the service ends."""
    patient, store = service.service.store, Store(service.service.settings.database, busy_milliseconds=50)
    for holder in (service.client.app.state.access, service.service):  # type: ignore[attr-defined] # it is a FastAPI
        object.__setattr__(holder, "store", store)
    patient.close()
    other = sqlite3.connect(service.service.settings.data_dir / "coalmine.db", isolation_level=None)
    HELD.append(other)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")


HELD: list[sqlite3.Connection] = []


@pytest.fixture
def _released() -> Iterator[None]:
    """Close what holds a file."""
    yield
    while HELD:
        HELD.pop().close()


@pytest.mark.usefixtures("_released")
@pytest.mark.parametrize("spoil", [_empty, _damage_runs, _damage_keys, _hold])
def test_scrapers_hear_that_the_store_is_down_whatever_is_wrong_with_it(
    spoil: Callable[[Api], None], tmp_path: Path
) -> None:
    with api(tmp_path, metrics_token=TOKEN) as service:
        service.docs()
        service.run()
        service.refresh()
        scrapers = [bearer(service.key(Scope.READ)), bearer(TOKEN)]
        for headers in scrapers:
            assert "\ncoalmine_store_up 1.0" in service.client.get("/metrics", headers=headers).text
        spoil(service)
        for headers in scrapers:  # the first of them is who finds that keys cannot be read
            assert service.client.get("/metrics", headers=headers).status_code == 200
        report_store(service.service.exposition.process.monitor, service.service.store)
        with suppress(StoreUnavailableError):
            service.refresh()
        for headers in scrapers:
            answer = service.client.get("/metrics", headers=headers)
            assert (answer.status_code, "\ncoalmine_store_up 0.0" in answer.text) == (200, True), answer.text[:300]
        assert service.client.get("/readyz").status_code == 503
        strange = service.client.get("/metrics", headers=bearer("cmk_read_nobody-ever-had-this-key"))
        assert strange.status_code in {401, 503}, "what is not known is not answered"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_drop_all, "the database has no tables of Coalmine"),
        (_drop_a_table, "the database lacks 1 tables"),
        (_make_older, "the database has the older schema 2026_11_21_first_tables"),
    ],
)
def test_a_database_without_our_tables_is_named(store: Store, change: Callable[[Store], None], reason: str) -> None:
    assert find_read_error(store) is None
    change(store)
    assert str(find_read_error(store)).startswith(reason)
    monitor = SelfMonitor()
    report_store(monitor, store)
    assert monitor.issues[Issue.STORE_READ].startswith(reason)


def test_a_release_serves_on_while_a_newer_one_has_migrated(store: Store) -> None:
    _make_newer(store)
    assert find_read_error(store) is None


@pytest.mark.parametrize("code", ["XX001", "XX002"])
def test_damage_that_postgresql_finds_is_noted(postgresql_store: Store, code: str) -> None:
    with pytest.raises(StoreUnavailableError), postgresql_store.read() as connection:
        connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'bad page' USING ERRCODE = '{code}'; END $$")
    assert "bad page" in str(postgresql_store.damage)


def test_a_request_broken_off_by_its_sender_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with api(tmp_path) as service:
        caplog.set_level(logging.INFO)
        with ThreadPoolExecutor(1) as pool:  # a browser of another test may keep a loop running in this thread
            pool.submit(asyncio.run, _break_off(service)).result()
    events = [record for record in caplog.records if record.name == "coalmine.api"]
    assert [(record.getMessage(), record.levelname, record.exc_info) for record in events] == [
        ("request_broken_off", "INFO", None)
    ]


async def _break_off(service: Api) -> None:
    """Send half of a body, and leave."""
    messages: list[Message] = [
        {"type": "http.request", "body": b'{"canaries":', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(_message: Message) -> None:
        return None

    headers = [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "PUT",
        "scheme": "http",
        "path": "/v1/suites/docs",
        "raw_path": b"/v1/suites/docs",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    await service.client.app(scope, receive, send)
