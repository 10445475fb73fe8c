"""A clock that is set, back or forward, stops no check, opens no false alert, and is told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app.base.db.engine import Store
from app.base.schedules import credible_until, parse_schedule
from app.base.views import time_text
from app.catalog.service import references
from app.operation import worker as worker_module
from app.operation.service.self_monitor import ClockSteps, Issue, SelfMonitor, WorkerClock
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.records.service import run_views
from app.reports import metrics
from app.runs.service import due_checks
from tests.support.api_service import api
from tests.support.fakes import START
from tests.support.living import until
from tests.support.world import CHECK, LINKS, World, canary, page

pytestmark = pytest.mark.both

HOUR = 3600


@pytest.fixture
def world(store: Store) -> World:
    """Give a world whose check is due every five minutes and has run at each of three instants."""
    world = World(store=store)
    world.apply(page([canary("ant")]))
    assert [_run_due(world) for _ in range(3)] == [True] * 3
    return world


def _check_id(world: World) -> int:
    return references.load_definition(world.store, "check", CHECK).id


def _run_due(world: World) -> bool:
    """Let five minutes pass, then queue what is due and carry it out; whether there was anything."""
    world.clock.advance(300)
    queued = world.queue_due(anew=True) == 1
    world.clock.advance(30)  # the longest spread
    claimed = world.claim()
    if claimed is not None:
        assert world.execute(claimed) is not None
    world.clock.advance(-30)
    return queued and claimed is not None


def _watch(world: World, *, after_start: timedelta = timedelta(days=1)) -> bool:
    now = world.clock()
    return due_checks.watch_for_no_data(world.store, _check_id(world), started_at=now - after_start, now=now)


# --- rows from the future ------------------------------------------------------------------------------------


def test_every_instant_has_its_run_after_the_clock_was_set_back(world: World) -> None:
    world.clock.advance(1_200)
    assert [_run_due(world) for _ in range(2)] == [True] * 2
    world.clock.advance(-1_200 - 2 * 300)
    # Through the time that the wrong clock had been to, and out of it again.
    assert [_run_due(world) for _ in range(8)] == [True] * 8
    listed = run_views.list_runs(world.store, CHECK, before=None, limit=50)
    assert len({run["scheduled_for"] for run in listed}) == len(listed) == 3 + 2 + 8


def test_a_run_queued_by_a_clock_that_was_ahead_does_not_wait_until_then(world: World) -> None:
    world.clock.advance(HOUR + 300)
    assert world.queue_due() == 1
    world.clock.advance(-HOUR)
    assert world.claim() is not None


def test_silence_after_the_clock_was_set_back_is_told(world: World) -> None:
    world.clock.advance(HOUR)
    assert _run_due(world)
    world.clock.advance(-HOUR)
    assert not _watch(world)  # completed a moment ago, whatever the other clock said
    world.clock.advance(660)
    assert _watch(world)
    assert [alert["kind"] for alert in world.alerts()] == ["no_data"]


def test_a_clock_set_forward_opens_no_alert_before_there_was_time_to_catch_up(world: World) -> None:
    monotonic = [0.0]
    clock = WorkerClock(world.clock, SelfMonitor(), lambda: monotonic[0])
    clock()
    monotonic[0] += 600
    world.clock.advance(600 + HOUR)
    clock()
    assert not _watch(world, after_start=clock.steady_for)
    monotonic[0] += 119
    assert not _watch(world, after_start=clock.steady_for)
    assert world.alerts() == []
    monotonic[0] += 1
    assert _watch(world, after_start=clock.steady_for)  # and nothing came


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [({"every": "10s"}, 120), ({"every": "1h"}, HOUR), ({"cron": "0 12 * * *", "timezone": "UTC"}, 2 * HOUR)],
)
def test_an_instant_is_credible_until_the_next_one_due(schedule: dict[str, Any], seconds: int) -> None:
    now = datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert credible_until(parse_schedule(**schedule), now) == now + timedelta(seconds=seconds)


# --- seeing it -----------------------------------------------------------------------------------------------


def test_steps_are_seen_in_both_directions_and_drift_is_none() -> None:
    steps = ClockSteps()
    assert steps.observe(START, 100.0) is None
    assert steps.observe(START + timedelta(seconds=61), 160.0) is None
    assert steps.observe(START + timedelta(seconds=HOUR + 61), 160.0) == timedelta(seconds=HOUR + 1)
    assert steps.observe(START + timedelta(seconds=HOUR + 62), 161.0) is None
    assert steps.observe(START + timedelta(seconds=62), 161.0) == timedelta(seconds=-HOUR)


def test_a_clock_that_was_set_is_an_issue_for_an_hour() -> None:
    wall, monotonic = [START], [0.0]
    monitor = SelfMonitor(lambda: monotonic[0])
    clock = WorkerClock(lambda: wall[0], monitor, lambda: monotonic[0])
    clock()
    assert not monitor.has(Issue.CLOCK)
    wall[0] -= timedelta(seconds=HOUR)
    clock()
    assert "set back by 3,600 s" in monitor.issues[Issue.CLOCK]
    monotonic[0] += HOUR
    assert not monitor.has(Issue.CLOCK)


# --- alive ---------------------------------------------------------------------------------------------------


@dataclass
class SetClock:
    """The real clock and how far it was set."""

    ahead: timedelta = field(default=timedelta())

    def __call__(self) -> datetime:
        """Read it."""
        return datetime.now(UTC) + self.ahead


@pytest.mark.systems(seconds=35)
def test_a_worker_goes_on_when_its_clock_is_set_forward_and_back(
    database_url: str, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_SYNC_SECONDS", 0.2)
    world = World(store=stores(database_url))
    world.clock.now = datetime.now(UTC)
    world.apply(page([canary("ant")], schedule={"every": "10s"}))
    clock, registry = SetClock(), CollectorRegistry()
    engine = Engine(
        store=world.store, vault=world.vault, probe=world.probe, send=world.send, links=LINKS, owner="it", clock=clock
    )
    worker = Worker(engine, metrics.ProcessMetrics(registry), metrics.Snapshot())

    def ended() -> int:
        return sum(
            run["status"] == "finished" for run in run_views.list_runs(world.store, CHECK, before=None, limit=200)
        )

    worker.start()
    try:
        until(ended)
        for ahead in (timedelta(hours=1), timedelta(seconds=20), timedelta(seconds=29)):  # the last is no step
            clock.ahead = ahead
            before = ended()
            until(lambda before=before: ended() > before)
        assert worker.alive
    finally:
        worker.stop()
    assert b'coalmine_self_issue{issue="clock"} 1.0' in generate_latest(registry)
    assert world.alerts() == []


# --- clocks that differ --------------------------------------------------------------------------------------


def _ahead() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=31)  # more than a lease lasts


def test_a_run_asked_for_by_a_clock_that_is_ahead_begins_at_once(world: World) -> None:
    world.clock.advance(31)
    run_id = world.wish()
    world.clock.advance(-31)
    claimed = world.claim()
    assert claimed is not None
    assert claimed.id == run_id


def test_a_run_asked_of_a_replica_whose_clock_is_ahead_is_at_the_time_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=60)
    monkeypatch.setattr(Store, "read_clock", lambda _: databases)
    with api(tmp_path) as service:
        service.docs()
        asked = service.client.post("/v1/checks/docs/runs", json={}).json()
    assert asked["scheduled_for"] == time_text(databases), "else no instant would be due until then"


def test_the_clock_of_a_worker_is_that_of_the_database_and_its_steps_are_told(
    postgresql_store: Store, sqlite_store: Store
) -> None:
    monotonic, monitor = [0.0], SelfMonitor(lambda: monotonic[0])
    clock = WorkerClock(_ahead, monitor, lambda: monotonic[0])
    clock.follow(sqlite_store)
    assert clock() > datetime.now(UTC) + timedelta(seconds=25), "it has the clock of this machine"
    clock.follow(postgresql_store)
    before = clock()
    assert abs(before - datetime.now(UTC)) < timedelta(seconds=5)
    monotonic[0] += 60
    assert clock() - before == timedelta(seconds=60)
    monotonic[0] += HOUR  # the database fails over to a machine whose clock is an hour behind
    clock.follow(postgresql_store)
    assert "the database's clock was set back by" in monitor.issues[Issue.CLOCK]


def test_a_reading_of_the_clock_that_took_long_changes_nothing(postgresql_store: Store) -> None:
    monotonic, reading_seconds = [0.0], [0.0]
    monitor = SelfMonitor(lambda: monotonic[0])

    def count() -> float:
        monotonic[0] += reading_seconds[0]
        return monotonic[0]

    clock = WorkerClock(lambda: START + timedelta(seconds=monotonic[0]), monitor, count)
    clock.follow(postgresql_store)
    before = clock()
    reading_seconds[0] = 20  # the database stands still meanwhile
    clock.follow(postgresql_store)
    reading_seconds[0] = 0
    assert clock() - before == timedelta(seconds=monotonic[0])
    assert not monitor.has(Issue.CLOCK)
