"""No receiver is left with an incident that is over: what its hook missed while it was disabled, it hears after."""

import pytest

from app.base.db.engine import Store
from app.base.errors import ConflictError
from app.catalog import store as catalog
from app.hooks import store as outbox
from app.hooks.domain import Receipt
from app.hooks.service import deliveries, hooks
from tests.support.present import present
from tests.support.world import AT_ONCE, World, canary, page

pytestmark = pytest.mark.databases

BUSY = Receipt(ok=False, http_status=503, error="http_5xx")
GONE = Receipt(ok=False, http_status=410, error="gone", untaken=True, gone=True)
PAGE = page([canary("ant"), canary("bee")], rules=[AT_ONCE])


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world in which one bad run opens an alert and one good run resolves it."""
    return _world(sqlite_store)


def _world(store: Store) -> World:
    world = World(store=store)
    world.apply(PAGE)
    return world


def _disable(world: World) -> None:
    deliveries.send_test(world.store, "ops", now=world.clock.advance(1))
    world.send.receipts = [GONE]
    world.deliver_all()


def _told(world: World) -> list[tuple[str, str]]:
    """List the deliveries about alerts, oldest first."""
    return [(one["type"].removeprefix("alert."), one["state"]) for one in world.deliveries() if one["alert_id"]]


def test_a_hook_that_was_disabled_hears_of_the_end_once_it_is_saved_again(store: Store) -> None:
    world = _world(store)
    world.degrade()
    world.deliver_all()
    _disable(world)
    world.heal()
    assert _told(world) == [("opened", "delivered"), ("resolved", "dead")]
    world.apply(PAGE)
    world.deliver_all()
    assert _told(world) == [("opened", "delivered"), ("resolved", "delivered")]


def test_the_end_of_what_it_may_have_heard_is_told_though_its_trigger_died(store: Store) -> None:
    world = _world(store)
    world.degrade()
    world.send.receipts = [BUSY, GONE]
    world.deliver_all()
    world.clock.advance(30)
    world.deliver_all()
    world.heal()
    world.apply(PAGE)
    assert hooks.replay_all(world.store, "ops", now=world.clock()).replayed == 0  # the end is on its way
    world.deliver_all()
    assert _told(world) == [("opened", "dead"), ("resolved", "delivered")]


def test_an_end_waits_while_the_fault_is_there_again(world: World) -> None:
    world.degrade()
    world.deliver_all()
    _disable(world)
    world.heal()
    world.degrade()  # it does not hear of this one
    world.apply(PAGE)
    assert world.deliver_all() == []
    world.heal()
    world.deliver_all()
    assert _told(world) == [("opened", "delivered"), ("resolved", "delivered")]


def test_a_disabled_hook_that_never_heard_of_an_alert_is_owed_no_end(world: World) -> None:
    _disable(world)
    world.degrade()
    world.heal()
    world.apply(PAGE)
    assert _told(world) == []


def test_what_tells_of_an_alert_whose_end_nobody_will_tell_is_not_replayed(world: World) -> None:
    deliveries.send_test(world.store, "ops", now=world.clock.advance(1))
    world.degrade()
    world.send.receipts = [GONE]
    world.deliver_all()  # the test message; what waited behind it was never tried
    world.heal()
    world.apply(PAGE)
    (opened,) = (one for one in world.deliveries() if one["alert_id"])
    assert (opened["state"], opened["attempts"]) == ("dead", [])
    with pytest.raises(ConflictError, match="has resolved since"):
        hooks.replay(world.store, int(opened["id"]), now=world.clock())
    assert hooks.replay_all(world.store, "ops", now=world.clock()).replayed == 0


def _unended(world: World) -> list[str]:
    with world.store.read() as connection:
        hook = present(catalog.find_definition(connection, "hook", "ops"))
        return [f"{kind} of {check}" for check, kind in outbox.unended_incidents(connection, hook.id)]


def test_an_incident_is_unended_at_a_receiver_from_its_first_message_to_its_resolve(world: World) -> None:
    assert _unended(world) == []
    world.degrade()
    assert _unended(world) == []  # nobody was told
    world.send.receipts = [BUSY]
    world.deliver_all()
    assert _unended(world) == ["quality of watch"]  # it may have been taken
    world.clock.advance(30)
    world.deliver_all()
    world.heal()
    assert _unended(world) == ["quality of watch"]
    world.deliver_all()
    assert _unended(world) == []


def test_the_resolve_of_a_later_incident_ends_an_earlier_one_at_the_receiver(store: Store) -> None:
    world = _world(store)
    world.degrade()
    world.deliver_all()
    world.heal()
    for _ in range(2):
        world.send.receipts = [BUSY]
        world.deliver_all()
        world.clock.advance(86_400)
    assert _told(world) == [("opened", "delivered"), ("resolved", "dead")]
    assert _unended(world) == ["quality of watch"]  # a replay could still end it
    world.degrade()
    world.deliver_all()
    assert _unended(world) == ["quality of watch"]
    world.heal()
    world.deliver_all()
    assert _told(world)[-1] == ("resolved", "delivered")
    assert _unended(world) == []
