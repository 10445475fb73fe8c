"""What another transaction holds or has claimed: queueing and claims pass over it, or wait until it is let go of."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from app.services.runs.due_checks import DueChecks
from app.store.catalog import definitions
from app.store.engine import Store, to_us
from app.store.runs import queue
from tests.conftest import Databases
from tests.support.blocking import overtaken
from tests.support.fakes import START
from tests.support.world import LEASE, World, canary, page

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
    check = definitions.find_definition(connection, "check", "held")
    assert check is not None
    definitions.lock_definition(connection, check.id)


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
    with world.store.write() as connection:
        queue.release_runs(connection, owner="worker")
    for _ in CHECKS:
        claimed = world.claim()
        assert claimed is not None
        assert world.execute(claimed) is not None
    world.clock.now = START + timedelta(minutes=5)
    due = DueChecks(impatient.store)
    with world.store.write() as connection:
        _hold(connection)
        due.queue_due(world.clock())
    world.clock.advance(299)  # a run begins up to a minute after it is due
    assert _queued(world) == {"calm"}


def test_a_lapsed_run_is_not_claimed_while_its_worker_writes_to_it(worlds: tuple[World, World]) -> None:
    world, _ = worlds
    run_id = world.wish("calm")
    assert world.claim() is not None
    world.clock.advance(LEASE.total_seconds() + 1)

    def write(connection: Connection) -> None:
        assert queue.holds(connection, run_id, "worker")

    overtaken(world.store, write, lambda: world.claim("another"))


@pytest.mark.parametrize("lapsed", [True, False])
def test_of_two_that_read_the_same_run_one_claims_it(store: Store, *, lapsed: bool) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    world.wish()
    if lapsed:
        assert world.claim("dead") is not None
        world.clock.advance(LEASE.total_seconds() + 1)
    now = to_us(world.clock())
    with store.read() as connection:
        seen = queue.claimable_runs(connection, now)
    assert len(seen) == 1
    assert world.claim("first") is not None
    with store.write() as connection:
        assert queue.claim_run(connection, seen, owner="second", now=now, lease_until=now + 10) is None
