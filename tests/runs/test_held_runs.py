"""What another transaction holds: queueing passes over it, or waits until it is let go of."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import Store, to_us
from app.base.jobs import open_queue
from app.base.jobs.values import JobKind, Room
from app.catalog import store as catalog
from app.records.store import open_runs
from app.runs.service.due_checks import DueChecks
from tests.conftest import Databases
from tests.support.blocking import overtaken
from tests.support.fakes import START
from tests.support.world import World, canary, page

pytestmark = pytest.mark.databases

CHECKS = ("calm", "held")


@pytest.fixture
def worlds(databases: Databases, stores: Callable[..., Store]) -> tuple[World, World]:
    """Give two worlds over one database of two checks; of the second no transaction waits for a lock."""
    url = databases.postgresql()
    world, impatient = World(store=stores(url)), World(store=stores(f"{url}&options=-c%20lock_timeout%3D2000"))
    described = page([canary("ant")])
    world.apply({**described, "checks": [{**described["checks"][0], "slug": slug} for slug in CHECKS]})
    impatient.clock = world.clock
    return world, impatient


def _hold(connection: Connection) -> None:
    check = catalog.find_definition(connection, "check", "held")
    assert check is not None
    catalog.lock_definition(connection, check.id)


def _queued(world: World) -> set[str]:
    found = set()
    while (claimed := world.claim()) is not None:
        found.add(claimed.check)
    return found


def test_a_check_that_a_transaction_holds_is_passed_over_at_the_start(worlds: tuple[World, World]) -> None:
    world, impatient = worlds
    with world.store.write() as connection:
        _hold(connection)
        impatient.queue_due(anew=True)
    assert _queued(world) == {"calm"}
    world.queue_due()
    assert _queued(world) == {"held"}


def test_a_check_that_a_transaction_holds_is_passed_over_when_it_is_due(worlds: tuple[World, World]) -> None:
    world, impatient = worlds
    world.queue_due()
    assert _queued(world) == set(CHECKS)
    for run_id in (1, 2):
        assert world.execute(world.take_over(run_id)) is not None
    world.clock.now = START + timedelta(minutes=5)
    due = DueChecks(impatient.store)
    with world.store.write() as connection:
        _hold(connection)
        due.queue_due(world.clock())
    world.clock.advance(299)  # a run begins up to a minute after it is due
    assert _queued(world) == {"calm"}


def test_a_run_is_not_taken_over_while_its_worker_writes_to_it(worlds: tuple[World, World]) -> None:
    world, _ = worlds
    run_id = world.wish("calm")
    assert world.claim() is not None

    def write(connection: Connection) -> None:
        assert open_runs.holds(connection, run_id, "worker")

    overtaken(world.store, write, lambda: world.take_over(run_id, "another"))


def test_a_run_behind_another_of_its_check_waits_and_is_begun_by_its_end(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    world.wish()
    first = world.claim()
    assert first is not None
    following = world.wish()
    with store.write() as connection:
        assert open_runs.begin_run(connection, following, owner="second", now=to_us(world.clock())) is None
        assert connection.execute(sa.select(sa.literal(1))).scalar_one() == 1  # the transaction goes on
    jobs = open_queue(store)
    jobs.begin()
    for job in jobs.take(datetime.now(UTC), Room([JobKind.RUN], 9)):
        jobs.finish(job)
    assert world.execute(first) is not None
    assert [job.key for job in jobs.take(datetime.now(UTC), Room([JobKind.RUN], 9))] == [following]


def test_a_run_that_has_ended_is_not_begun_again(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    ended = world.run()
    with store.write() as connection:
        assert open_runs.begin_run(connection, ended.id, owner="second", now=to_us(world.clock())) is None
