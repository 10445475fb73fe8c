"""What a receiver hears makes sense in the order it hears it, and nothing is sent where nothing should go any more."""

import json
import logging
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from app.alerts.tables import incidents, transitions
from app.base.db.engine import Store, to_us
from app.base.errors import ConflictError
from app.catalog.service import references
from app.hooks import store as outbox
from app.hooks.domain import Hook, Message, Receipt
from app.hooks.service import deliveries
from app.hooks.service import hooks as hook_views
from app.hooks.tables import deliveries as rows
from tests.support.blocking import overtaken
from tests.support.fakes import DELIVERED, ActingSend
from tests.support.world import AT_ONCE, HOOK, World, canary, page, statements

pytestmark = pytest.mark.databases

DECLINED = Receipt(ok=False, http_status=404, error="http_4xx", untaken=True)
BUSY = Receipt(ok=False, http_status=503, error="http_5xx")
GONE = Receipt(ok=False, http_status=410, error="gone", untaken=True, gone=True)
PAGE = page([canary("ant"), canary("bee")], rules=[AT_ONCE])
WITHOUT_HOOK = {**page([canary("ant"), canary("bee")], rules=[AT_ONCE], hooks=[]), "hooks": []}
MOVED = {**PAGE, "hooks": [{**HOOK, "url": "http://moved.test/"}]}


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world in which an alert has just opened."""
    return _world(sqlite_store)


def _world(store: Store) -> World:
    world = World(store=store)
    world.apply(PAGE)
    world.probe.all_miss()
    world.run()
    return world


def _die(world: World) -> int:
    """Let the receiver answer 503 to the only delivery until it is dead."""
    world.send.receipts = [BUSY] * 3
    for _ in range(3):
        world.deliver()
        world.clock.advance(43_200)
    (dead,) = world.deliveries(state="dead")
    return int(dead["id"])


def test_a_resolve_is_never_the_first_thing_a_receiver_hears(world: World) -> None:
    world.send.receipts = [DECLINED] * 3
    for _ in range(3):
        world.deliver()
        world.clock.advance(43_200)
    world.heal()
    assert world.deliver_all() == []
    assert world.received() == ["alert.opened"] * 3
    assert world.told() == [("alert.opened", "dead"), ("alert.resolved", "dead")]
    opened = next(one for one in world.deliveries() if one["type"] == "alert.opened")
    hook_views.replay(world.store, int(opened["id"]), now=world.clock())
    world.deliver_all()
    assert world.received()[3:] == ["alert.opened", "alert.resolved"]


def test_a_receiver_that_is_being_deployed_hears_of_the_alert_before_its_end(world: World) -> None:
    world.send.receipts = [DECLINED] * 4
    for _ in range(4):
        world.deliver()
        world.clock.advance(60)
    world.heal()
    world.deliver_all()
    assert world.received()[4:] == ["alert.opened", "alert.resolved"]


# --- replay --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivered", [True, False])
def test_a_trigger_is_not_replayed_behind_its_resolve(world: World, *, delivered: bool) -> None:
    dead = _die(world)
    world.heal()
    if delivered:
        world.deliver_all()
    with pytest.raises(ConflictError, match="later"):
        hook_views.replay(world.store, dead, now=world.clock())
    world.deliver_all()
    assert world.received() == [*["alert.opened"] * 3, "alert.resolved"]


def test_a_trigger_is_replayed_with_its_resolve_behind_it_where_that_is_dead_too(store: Store) -> None:
    world = _world(store)
    dead = _die(world)
    world.heal()
    world.send.receipts = [BUSY] * 3
    for _ in range(3):
        world.deliver()
        world.clock.advance(43_200)
    assert len(world.deliveries(state="dead")) == 2
    hook_views.replay(world.store, dead, now=world.clock())
    assert not world.deliveries(state="dead")
    world.deliver_all()
    assert world.received()[-2:] == ["alert.opened", "alert.resolved"]


def test_what_another_hook_heard_is_no_obstacle(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    hooks = [{**HOOK, "slug": slug} for slug in ("one", "two")]
    world.apply({**page([canary("ant")], rules=[AT_ONCE], hooks=["one", "two"]), "hooks": hooks})
    world.probe.all_miss()
    world.run()
    world.send.before = lambda hook, _: world.send.receipts.append(DECLINED if hook.slug == "one" else DELIVERED)
    for _ in range(3):
        world.deliver_all()
        world.clock.advance(43_200)
    (dead,) = world.deliveries(state="dead")
    hook_views.replay(sqlite_store, int(dead["id"]), now=world.clock())
    assert world.deliveries(hook="one")[0]["state"] == "pending"


@pytest.mark.parametrize("archived", [True, False])
def test_nothing_is_replayed_to_a_hook_that_is_archived_or_disabled(world: World, *, archived: bool) -> None:
    dead = _die(world)
    if archived:
        world.apply(WITHOUT_HOOK)
    else:
        world.send.receipts = [GONE]
        deliveries.send_test(world.store, "ops", now=world.clock())
        world.deliver()
    with pytest.raises(ConflictError, match="archived" if archived else "disabled"):
        hook_views.replay(world.store, dead, now=world.clock())
    assert world.deliver() is None


def test_a_replay_waits_for_the_transaction_that_ends_its_incident_and_sees_its_resolve(
    postgresql_store: Store,
) -> None:
    world = _world(postgresql_store)
    with world.store.write() as connection:
        connection.execute(sa.update(rows).where(rows.c.state == "pending").values(state="dead", attempts=3))
    (dead,) = world.deliveries(state="dead")

    def end(connection: Connection) -> None:
        trigger = outbox.find_delivery(connection, int(dead["id"]))
        assert trigger is not None
        connection.execute(sa.select(incidents.c.id).where(incidents.c.id == trigger.incident_id).with_for_update())
        assert trigger.incident_id is not None
        outbox.enqueue_deliveries(
            connection,
            [trigger.hook_id],
            message="msg_end",
            type="alert.resolved",
            alert_id=trigger.alert_id,
            incident_id=trigger.incident_id,
            at=to_us(world.clock()),
        )

    with pytest.raises(ConflictError, match="a later delivery about this incident"):
        overtaken(world.store, end, lambda: hook_views.replay(world.store, int(dead["id"]), now=world.clock.advance(1)))


# --- hooks that change while something is under way ----------------------------------------------------------


def _meanwhile(world: World, receipt: Receipt, *pages: Any) -> ActingSend:
    """Change the definitions while a message is under way, and answer then."""

    def act(_hook: Hook, _message: Message) -> Receipt:
        world.apply(*pages)
        return receipt

    return ActingSend(act=act)


def test_a_hook_archived_while_an_attempt_fails_is_not_tried_again(world: World) -> None:
    settled = world.deliver(send=_meanwhile(world, BUSY, WITHOUT_HOOK))
    assert settled is not None
    assert (settled.state, settled.reason) == ("dead", "The hook was archived.")
    world.clock.advance(86_400)
    assert world.deliver() is None


def test_what_an_archived_hook_takes_all_the_same_is_delivered(world: World) -> None:
    world.deliver(send=_meanwhile(world, DELIVERED, WITHOUT_HOOK))
    assert world.told() == [("alert.opened", "delivered")]


def test_what_is_claimed_for_a_hook_archived_before_it_is_sent_is_not_sent(store: Store) -> None:
    world = _world(store)
    with world.store.write() as connection:
        (hook_id,) = world.due_hooks()
        outbox.begin_attempt(connection, hook_id, owner="dead", now=to_us(world.clock()))
    world.apply(WITHOUT_HOOK)  # what is in flight is left to whoever has it, and that one is dead
    world.deliver_all()
    assert world.send.sent == []
    assert world.told() == [("alert.opened", "dead")]


def test_a_late_410_does_not_disable_a_hook_that_was_mended_meanwhile(world: World) -> None:
    settled = world.deliver(send=_meanwhile(world, GONE, MOVED))
    assert settled is not None
    assert settled.state == "pending"
    assert references.load_definition(world.store, "hook", "ops").disabled_reason is None
    world.clock.advance(60)
    world.deliver()
    assert world.told() == [("alert.opened", "delivered")]  # where it now leads


def test_one_who_lost_its_claim_before_sending_does_not_send(database_url: str, stores: Any) -> None:
    world, slow = World(store=stores(database_url)), World(store=stores(database_url))
    world.apply(PAGE)
    world.probe.all_miss()
    world.run()
    slow.clock.now = world.clock()
    claimed: list[str] = []

    def overtake(statement: str) -> None:
        if claimed and world.send.sent == []:
            world.deliver("the faster one")
        if statement == "COMMIT":
            claimed.append(statement)

    with statements(slow.store, overtake):
        assert slow.deliver("the slow one") is None
    assert (len(world.send.sent), slow.send.sent) == (1, [])
    assert len(world.deliveries()[0]["attempts"]) == 1


# --- the end of what is taken away ---------------------------------------------------------------------------

OTHER = {"suite": "other", "canaries": [canary("cat")]}


@pytest.mark.parametrize("takes_it", [True, False])
def test_a_hook_that_goes_together_with_its_check_hears_the_resolve_tried_once(world: World, *, takes_it: bool) -> None:
    world.deliver()
    world.apply(OTHER)
    world.send.receipts = [DELIVERED if takes_it else BUSY]
    for _ in range(3):
        world.deliver_all()
        world.clock.advance(43_200)
    assert world.received() == ["alert.opened", "alert.resolved"]
    assert world.told()[1:] == [("alert.resolved", "delivered" if takes_it else "dead")]


def test_a_hook_archived_before_hears_nothing_of_an_alert_that_ends(world: World) -> None:
    world.deliver()
    world.apply(WITHOUT_HOOK)
    world.heal()
    assert [alert["state"] for alert in world.alerts()] == ["resolved"]
    assert world.told() == [("alert.opened", "delivered")]


def test_a_disabled_check_says_so_and_not_that_it_was_archived(world: World) -> None:
    world.apply(page([canary("ant"), canary("bee")], rules=[AT_ONCE], enabled=False))
    (alert,) = world.alerts()
    assert (alert["state"], alert["reason"]) == ("resolved", "check_disabled: the check was disabled.")


# --- errors of our own ---------------------------------------------------------------------------------------


def _fail(_hook: Hook, message: Message) -> Receipt:
    if b"alert.opened" in message.body:
        raise RuntimeError("no such luck")
    return DELIVERED


def test_a_delivery_that_raises_is_a_failed_attempt_and_does_not_starve_its_hook(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries.send_test(world.store, "ops", now=world.clock.advance(5))
    send = ActingSend(act=_fail)
    with caplog.at_level(logging.ERROR, "coalmine"):
        first = world.deliver(send=send)
    assert first is not None
    assert (first.state, first.error) == ("pending", "bug")
    assert [record.getMessage() for record in caplog.records] == ["bug"]
    second = world.deliver(send=send)
    assert second is not None
    assert second.state == "delivered"
    for _ in range(30):
        world.clock.advance(3600)
        world.deliver(send=send)
    assert world.told() == [("alert.opened", "dead"), ("hook.test", "delivered")]
    assert "no such luck" not in json.dumps(world.deliveries())  # that is for the log


def test_a_delivery_that_cannot_be_rendered_is_a_failed_attempt(world: World) -> None:
    with world.store.write() as connection:
        connection.execute(sa.update(transitions).values(evidence='{"canaries": [{}]}'))
    attempted = world.deliver()
    assert attempted is not None
    assert (attempted.state, attempted.error) == ("pending", "bug")
