"""What another transaction holds on PostgreSQL: claims pass over it, and what must see its outcome waits for it."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from app.domain.errors import ConflictError
from app.services.delivery import dead_letters, deliveries
from app.store.delivery import claims, outbox, resend
from app.store.engine import Store, to_us
from app.store.tables import deliveries as rows
from app.store.tables import incidents
from tests.support.blocking import overtaken
from tests.support.fakes import answered, hits
from tests.support.world import COVERAGE, HOOK, World, canary, page, statements

pytestmark = pytest.mark.databases

AT_ONCE = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}
HOOKS = [{**HOOK, "slug": slug} for slug in ("one", "two")]


@pytest.fixture
def world(postgresql_store: Store) -> World:
    """Give a world with a test message to each of two hooks, the older one to the first."""
    world = World(store=postgresql_store)
    world.apply({**page([canary("ant")], rules=[AT_ONCE], hooks=["one", "two"]), "hooks": HOOKS})
    for hook in ("one", "two"):
        deliveries.send_test(world.store, hook, now=world.clock.advance(1))
    return world


def _hold(connection: Connection, hook: str) -> None:
    """Hold the deliveries of a hook as a transaction does that ends an incident."""
    of_hook = outbox.DELIVERY.where(rows.c.id.in_([row.id for row in _of(connection, hook)]))
    connection.execute(of_hook.with_for_update(of=rows))


def _of(connection: Connection, hook: str) -> list[outbox.DeliveryRow]:
    return [row for row in outbox.list_deliveries(connection) if row.hook == hook]


def _impatient(connection: Connection) -> Connection:
    """Let a transaction fail that waits for another."""
    connection.execute(sa.text("SET LOCAL lock_timeout = '2s'"))
    return connection


def test_a_claim_passes_over_a_delivery_that_a_transaction_holds(world: World) -> None:
    now = to_us(world.clock())
    with world.store.write() as ending, world.store.write() as claiming:
        _hold(ending, "one")
        claim = claims.claim_delivery(_impatient(claiming), owner="worker", now=now, lease_until=now + 1)
        assert claim is not None
        assert claim.hook == "two"
        assert claims.claim_delivery(claiming, owner="worker", now=now, lease_until=now + 1) is None


def test_a_claim_passes_over_a_hook_that_a_transaction_holds(world: World) -> None:
    now = to_us(world.clock())
    with world.store.write() as other, world.store.write() as claiming:
        (row,) = _of(other, "one")
        assert claims.lock_hook(other, row.hook_id)
        claim = claims.claim_delivery(_impatient(claiming), owner="worker", now=now, lease_until=now + 1)
        assert claim is not None
        assert claim.hook == "two"


@pytest.mark.parametrize(
    "hold", [_hold, lambda connection, hook: claims.lock_hook(connection, _hook_id(connection, hook))]
)
def test_a_resend_passes_over_what_a_transaction_holds(world: World, hold: Callable[[Connection, str], object]) -> None:
    world.deliver_all()
    now = to_us(world.clock.advance(60))
    with world.store.write() as connection:
        connection.execute(sa.update(rows).values(refresh_at=rows.c.created_at))
    with world.store.write() as ending, world.store.write() as claiming:
        hold(ending, "one")
        claim = resend.claim_resend(_impatient(claiming), owner="worker", now=now, lease_until=now + 1)
        assert claim is not None
        assert claim.hook == "two"


def _hook_id(connection: Connection, hook: str) -> int:
    return _of(connection, hook)[0].hook_id


def test_of_two_that_resend_at_once_one_does(world: World) -> None:
    """The second has read what is due before the first commits; what it read does not hold any more."""
    world.deliver_all()
    now = to_us(world.clock.advance(60))
    with world.store.write() as connection:
        connection.execute(sa.update(rows).where(rows.c.hook_id == _hook_id(connection, "one")).values(refresh_at=now))

    def claim(connection: Connection, owner: str) -> outbox.DeliveryRow | None:
        return resend.claim_resend(_impatient(connection), owner=owner, now=now, lease_until=now + 10)

    with world.store.write() as first, world.store.write() as second:
        assert claim(first, "first") is not None
        assert claim(second, "second") is None
    with world.store.write() as third:
        assert claim(third, "third") is None


def test_a_resend_sees_a_claim_of_its_hook_that_was_made_while_it_looked(world: World) -> None:
    """It holds the delivery that it read, not yet the hook; another message to that is claimed and committed."""
    assert world.deliver() is not None
    deliveries.send_test(world.store, "one", now=world.clock.advance(1))
    now = to_us(world.clock())
    with world.store.write() as connection:
        (_, sent) = _of(connection, "one")
        connection.execute(sa.update(rows).where(rows.c.id == sent.id).values(refresh_at=now))
        connection.execute(sa.update(rows).where(rows.c.hook_id != sent.hook_id).values(state="cancelled"))
    claimed: list[str] = []

    def before(statement: str) -> None:
        if "FOR NO KEY UPDATE" in statement and not claimed:
            claimed.append(statement)
            with world.store.write() as other:
                assert claims.claim_delivery(other, owner="other", now=now, lease_until=now + 10) is not None

    with statements(world.store, before), world.store.write() as connection:
        assert resend.claim_resend(_impatient(connection), owner="worker", now=now, lease_until=now + 10) is None
    assert claimed


def test_a_replay_waits_for_the_transaction_that_ends_its_incident_and_sees_its_resolve(world: World) -> None:
    world.deliver_all()
    world.probe.answers["ant"] = answered(hits("noise"))
    world.run()
    with world.store.write() as connection:
        connection.execute(sa.update(rows).where(rows.c.state == "pending").values(state="dead", attempts=3))
    (dead, _) = world.deliveries(state="dead")

    def end(connection: Connection) -> None:
        trigger = outbox.find_delivery(connection, int(dead["id"]))
        assert trigger is not None
        connection.execute(sa.select(incidents.c.id).where(incidents.c.id == trigger.incident_id).with_for_update())
        resolve = {name: getattr(trigger, name) for name in ("hook_id", "alert_id", "transition_id", "incident_id")}
        times = dict.fromkeys(("created_at", "next_attempt_at"), to_us(world.clock()))
        told = {"type": "alert.resolved", "state": "pending", "message_id": "msg_end", "attempts": 0}
        outbox.enqueue_deliveries(connection, [{**resolve, **times, **told, "transition_id": None}])

    with pytest.raises(ConflictError, match="a later delivery about this incident"):
        overtaken(
            world.store, end, lambda: dead_letters.replay(world.store, int(dead["id"]), now=world.clock.advance(1))
        )
