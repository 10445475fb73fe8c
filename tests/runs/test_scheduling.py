"""Runs are queued once per instant and once per wish, and no check ever overlaps with itself."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from app.base.db.engine import Store
from app.base.jobs import open_queue
from app.base.jobs.values import JobKind, Room
from app.base.schedules import parse_schedule, spread
from app.base.values import RunStatus, Trigger
from app.records.service import run_views
from tests.support.fakes import START
from tests.support.world import CHECK, World, canary, page, race

pytestmark = pytest.mark.both


@pytest.fixture
def world(store: Store) -> World:
    """Give a world with one canary, its check due every five minutes."""
    world = World(store=store)
    world.apply(page([canary("ant")]))
    return world


def _tick(world: World) -> bool:
    return world.queue_due() == 1


def _runs(world: World) -> list[tuple[str | None, str, str]]:
    listed = run_views.list_runs(world.store, CHECK, before=None, limit=50)
    return [(run["scheduled_for"], run["trigger"], run["status"]) for run in reversed(listed)]


def _finish(world: World) -> None:
    claimed = world.claim()
    assert claimed is not None
    assert world.execute(claimed) is not None


# --- by hand -------------------------------------------------------------------------------------------------


@pytest.mark.databases
def test_a_wish_joins_the_run_that_waits_but_never_the_one_that_runs(world: World) -> None:
    first = world.wish()
    assert world.wish() == first
    running = world.claim()
    assert running is not None
    assert running.id == first
    second = world.wish(trigger=Trigger.UPDATE, index_version="v2")
    assert second != first
    assert world.wish() == second
    assert world.claim() is None  # the check does not overlap with itself
    world.execute(running)
    followed = world.claim("another worker")
    assert followed is not None
    assert followed.id == second


def test_a_wish_that_joins_passes_on_its_index_version(world: World) -> None:
    first = world.wish(index_version="v1")
    world.wish()
    assert world.shown(first)["index_version"] == "v1"
    world.wish(index_version="v2", trigger=Trigger.UPDATE)
    assert (world.shown(first)["index_version"], world.shown(first)["trigger"]) == ("v2", "update")


@pytest.mark.databases
def test_threads_that_wish_at_once_get_one_run(world: World) -> None:
    assert len(set(race(8, lambda _: world.wish()))) == 1
    queue = open_queue(world.store)
    queue.begin()
    # A process takes jobs in one thread, so several of them are as many processes.
    queues = [open_queue(world.store) if queue.is_shared else queue for _ in range(8)]
    taken = race(8, lambda at: queues[at].take(datetime.now(UTC), Room([JobKind.RUN], 1)))
    assert sum(len(jobs) for jobs in taken) == 1
    assert world.claim() is not None
    assert len(set(race(8, lambda _: world.wish()))) == 1
    assert Counter(status for _, _, status in _runs(world)) == {RunStatus.RUNNING: 1, RunStatus.QUEUED: 1}


@pytest.mark.databases
def test_wishing_and_claiming_at_once_never_runs_a_check_twice_at_a_time(world: World) -> None:
    def act(number: int) -> None:
        for _ in range(5):
            world.wish()
            world.claim(f"worker {number}")

    race(6, act)
    assert Counter(status for _, _, status in _runs(world)) == {RunStatus.RUNNING: 1, RunStatus.QUEUED: 1}


@pytest.mark.databases
def test_an_idempotency_key_makes_one_run_even_while_runs_are_claimed(world: World) -> None:
    """Between two wishes with one key the run may start, and the second must not make a follow-up."""

    def act(number: int) -> int:
        run_id = world.wish(idempotency_key="k")
        world.claim(f"worker {number}")
        return run_id

    assert len(set(race(8, act))) == 1
    assert len(_runs(world)) == 1


def test_a_queued_run_of_an_archived_check_ends_failed_with_the_reason(world: World) -> None:
    run_id = world.wish()
    world.apply(page([canary("ant")], slug="another"))
    _finish(world)
    assert (world.shown(run_id)["status"], world.shown(run_id)["reasons"]) == (
        "failed",
        [f"check '{CHECK}' is archived: the run was not carried out"],
    )
    assert world.probe.asked == []


@pytest.mark.parametrize("trigger", ["schedule", "api"])
def test_a_run_that_was_queued_before_its_check_was_disabled_asks_nobody_and_pages_nobody(
    world: World, trigger: str
) -> None:
    if trigger == "schedule":
        _tick(world)
    else:
        world.wish()
    for _ in range(3):  # as often as it takes to page of a retriever that fails
        world.apply(page([canary("ant")], enabled=False))
        _finish(world)
        world.apply(page([canary("ant")]))
        world.wish()
    runs = [run for run in _runs(world) if run[2] == "failed"]
    assert len(runs) == 3
    shown = world.shown(1)
    assert (shown["verdict"], shown["coverage"], shown["reasons"]) == (
        "unknown",
        None,
        [f"check '{CHECK}' was disabled while the run was queued: the run was not carried out"],
    )
    assert world.probe.asked == []
    _finish(world)
    assert (world.alerts(), world.deliveries()) == ([], [])


def test_who_runs_a_disabled_check_by_hand_is_not_held_up_by_what_was_queued_before(world: World) -> None:
    _tick(world)
    world.apply(page([canary("ant")], enabled=False))
    world.clock.advance(1)
    run_id = world.wish()
    _finish(world)
    assert (world.shown(run_id)["status"], world.shown(run_id)["trigger"]) == ("finished", "api")


# --- by the clock --------------------------------------------------------------------------------------------


def test_the_first_run_of_a_check_comes_at_once(world: World) -> None:
    world.clock.now = START + timedelta(minutes=3)
    assert _tick(world)
    _finish(world)
    assert _runs(world) == [("2026-03-02T12:00:00Z", "schedule", "finished")]


@pytest.mark.databases
def test_an_instant_is_queued_once_however_many_tick(world: World) -> None:
    assert race(8, lambda _: _tick(world)).count(True) == 1
    _finish(world)
    assert race(8, lambda _: _tick(world)).count(True) == 0
    assert len(_runs(world)) == 1


def test_after_a_pause_one_run_catches_up(world: World) -> None:
    _tick(world)
    _finish(world)
    world.clock.now = START + timedelta(days=1, minutes=7)
    assert _tick(world)
    assert not _tick(world)
    world.clock.advance(60)
    _finish(world)
    assert not _tick(world)
    assert [at for at, _, _ in _runs(world)] == ["2026-03-02T12:00:00Z", "2026-03-03T12:05:00Z"]


@pytest.mark.databases
def test_a_run_that_takes_longer_than_the_interval_is_followed_by_one(world: World) -> None:
    _tick(world)
    long = world.claim()
    assert long is not None
    world.clock.now = START + timedelta(minutes=5, seconds=1)
    assert _tick(world)
    world.clock.now = START + timedelta(minutes=10, seconds=1)
    assert not _tick(world)  # one waits already
    taken_over = world.take_over(long.id, "another worker")  # still nothing overlaps
    assert taken_over.id == long.id
    assert world.claim("a third") is None
    world.execute(taken_over, "another worker")
    world.clock.advance(60)
    _finish(world)
    assert [at for at, _, _ in _runs(world)] == ["2026-03-02T12:00:00Z", "2026-03-02T12:05:00Z"]
    assert _tick(world)
    assert _runs(world)[-1][0] == "2026-03-02T12:10:00Z"


def test_spreading_delays_the_start_and_not_the_instant(world: World) -> None:
    _tick(world)
    _finish(world)
    world.clock.now = START + timedelta(minutes=5)
    assert _tick(world)
    delay = spread(CHECK, parse_schedule(every="5m"))
    assert timedelta(0) < delay < timedelta(seconds=30)
    world.clock.now += delay - timedelta(microseconds=1)
    assert world.claim() is None
    world.clock.now += timedelta(microseconds=1)
    _finish(world)
    assert _runs(world)[-1][0] == "2026-03-02T12:05:00Z"


def test_a_wish_starts_a_run_that_waits_for_its_spread(world: World) -> None:
    _tick(world)
    _finish(world)
    world.clock.now = START + timedelta(minutes=5)
    _tick(world)
    world.wish()
    _finish(world)
    assert _runs(world)[-1] == ("2026-03-02T12:05:00Z", "api", "finished")


def test_the_next_run_is_computed_from_rows_and_survives_a_restart(
    world: World, database_url: str, stores: Callable[..., Store]
) -> None:
    _tick(world)
    _finish(world)
    world.clock.now = START + timedelta(minutes=4, seconds=59)
    restarted = World(store=stores(database_url), clock=world.clock)
    assert not _tick(restarted)
    world.clock.now = START + timedelta(minutes=5)
    assert _tick(restarted)
    assert _runs(restarted)[-1] == ("2026-03-02T12:05:00Z", "schedule", "queued")


def test_a_disabled_check_is_not_scheduled_and_can_be_run_by_hand(world: World) -> None:
    world.apply(page([canary("ant")], enabled=False))
    assert not _tick(world)
    assert world.run().status is RunStatus.FINISHED


@pytest.mark.databases
def test_checks_run_in_the_order_they_came_due(world: World) -> None:
    other = {**page()["checks"][0], "slug": "other"}
    world.apply({**page([canary("ant")]), "checks": [*page()["checks"], other]})
    later = world.wish("other")
    world.clock.advance(1)
    world.wish()
    claimed = [world.claim(), world.claim()]
    assert claimed[0] is not None
    assert claimed[0].id == later
    assert claimed[1] is not None
