"""Silence is told from rows alone: no restart hides it, and nothing that completed is called silent."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from app.base.db.engine import Store
from app.catalog.service import references
from app.reports.service import overview
from app.reports.service.overview import CheckFilter
from app.runs.service import due_checks
from tests.support.blocking import waits_for_a_lock
from tests.support.fakes import START
from tests.support.living import until
from tests.support.world import CHECK, World, canary, page, statements

PAGE = page([canary("ant"), canary("bee")])


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world whose check has completed one run."""
    return _begun(sqlite_store)


def _begun(store: Store) -> World:
    world = World(store=store)
    world.apply(PAGE)
    world.run()
    return world


def _watch(world: World, **more: Any) -> bool:
    """Look at the check as a worker that started long ago does."""
    check = references.load_definition(world.store, "check", CHECK)
    moments = {"started_at": START - timedelta(days=9), "now": world.clock(), **more}
    return due_checks.watch_for_no_data(world.store, check.id, **moments)


def _overdue(world: World) -> bool:
    (line,) = overview.list_checks(world.store, CheckFilter(), world.clock()).lines
    return line.overdue


def test_restarts_do_not_hide_that_nothing_completes(world: World) -> None:
    opened = []
    for _ in range(6):
        started = world.clock()
        world.clock.advance(4 * 60)
        opened.append(_watch(world, started_at=started))
        assert _overdue(world) == bool(world.alerts())
    assert opened.count(True) == 1
    assert [(one["kind"], one["state"]) for one in world.alerts()] == [("no_data", "firing")]
    (alert,) = world.alerts()
    assert [alert["evidence"][name][-1] for name in ("since", "deadline")] == ["Z", "Z"]


def test_catching_up_after_a_start_is_given_two_minutes(world: World) -> None:
    started = world.clock.advance(3 * 86_400)
    assert not _watch(world, started_at=started, now=started + timedelta(seconds=119))
    assert _watch(world, started_at=started, now=started + timedelta(seconds=120))


def test_a_run_that_completes_between_the_look_and_the_alert_keeps_it_shut(database_url: str, stores: Any) -> None:
    world, other = _begun(stores(database_url)), World(store=stores(database_url))
    world.clock.advance(3600)
    looked: list[str] = []
    completed: list[object] = []

    def complete(statement: str) -> None:
        if looked and not completed:
            completed.append(world.run())
        if "max(runs.finished_at)" in statement:
            looked.append(statement)

    with statements(other.store, complete):
        assert not _watch(other, now=world.clock())
    assert completed
    assert world.alerts() == []


def test_a_run_that_is_about_to_complete_is_waited_for(postgresql_store: Store, stores: Any) -> None:
    world = _begun(postgresql_store)
    url = postgresql_store.engine.url.render_as_string(hide_password=False)
    other = World(store=stores(url), clock=world.clock)
    world.clock.advance(3600)
    opened: list[bool] = []
    watching = threading.Thread(target=lambda: opened.append(_watch(other)))

    def wait(statement: str) -> None:
        if statement.startswith("DELETE FROM shards") and watching.ident is None:
            watching.start()
            until(lambda: waits_for_a_lock(postgresql_store))

    with statements(world.store, wait):
        world.run()
    watching.join(20)
    assert opened == [False]
    assert world.alerts() == []


@pytest.mark.both
def test_a_schedule_changed_between_the_look_and_the_alert_is_what_counts(database_url: str, stores: Any) -> None:
    world, other = _begun(stores(database_url)), World(store=stores(database_url))
    world.clock.advance(3600)
    looked: list[str] = []
    changed: list[object] = []

    def change(statement: str) -> None:
        if looked and not changed:
            changed.append(world.apply(page([canary("ant"), canary("bee")], schedule={"every": "1d"})))
        if "max(runs.finished_at)" in statement:
            looked.append(statement)

    with statements(other.store, change):
        assert not _watch(other, now=world.clock())
    assert changed
    assert world.alerts() == []
