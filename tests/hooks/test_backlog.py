"""A receiver that is back hears at once, and in order, what it missed; what waits says what it waits for."""

import json
from datetime import datetime
from typing import Any

import pytest

from app.alerts.service import shown_alerts
from app.base.db.engine import Store, to_us
from app.hooks import store as outbox
from app.hooks.domain import OUT_OF_REACH, Receipt
from app.hooks.service import deliveries
from tests.hooks.test_deliveries import real_send
from tests.support.fakes import DELIVERED, Crash, answered, hits
from tests.support.http_servers import peer, reply
from tests.support.world import HOOK, World, canary, page, statements

pytestmark = pytest.mark.databases

DOWN = Receipt(ok=False, error="unreachable", detail="could not be reached", latency_seconds=0.1)
BUSY = Receipt(ok=False, http_status=503, error="http_5xx", detail="answered 503", latency_seconds=0.1)
BUG = Receipt(ok=False, error="bug", latency_seconds=0.1)
KEYS = ("ant", "bee", "cat")
HOUR = 3600


def _page(**hook: Any) -> dict[str, Any]:
    one = page([canary(key) for key in KEYS])
    checks = [
        {
            **one["checks"][0],
            "slug": key,
            "rules": [{"kind": "canary", "canary": key, "open": {"bad": 1, "of": 1}, "close": 1}],
        }
        for key in KEYS
    ]
    return {**one, "checks": checks, "hooks": [{**HOOK, **hook}]}


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world in which each canary has a check of its own, whose incident opens and ends by one run."""
    return _world(sqlite_store)


def _world(store: Store) -> World:
    world = World(store=store)
    world.apply(_page())
    return world


def _break(world: World, *keys: str) -> None:
    world.probe.all_answer()
    world.probe.answers |= {key: answered(hits("noise")) for key in keys}
    for key in KEYS:  # within a moment: what waits for its next attempt goes on waiting
        world.clock.advance(1)
        world.wish(key)
        claimed = world.claim()
        assert claimed is not None
        assert world.execute(claimed) is not None


def _fail(world: World, receipt: Receipt, hours: int = 8) -> None:
    """Let everything that comes due in this time fail like this, the last of it just now."""
    for _ in range(hours):
        world.clock.advance(HOUR)
        world.send.before = lambda _hook, _message: world.send.receipts.append(receipt)
        assert world.deliver_all()
    world.send.before = lambda _hook, _message: None


def _test(world: World) -> None:
    deliveries.send_test(world.store, "ops", now=world.clock())


def _waits(world: World) -> list[float]:
    """Give the seconds until each of the pending is tried, oldest first."""
    pending = world.deliveries(state="pending")
    return [(datetime.fromisoformat(one["next_attempt_at"]) - world.clock()).total_seconds() for one in pending]


def _heard(world: World) -> list[tuple[str, str | None]]:
    told = [json.loads(message.body) for _, message in world.send.sent]
    return [(one["type"], one["data"].get("alert_id")) for one in told]


def test_a_receiver_that_is_back_hears_at_once_and_in_order_what_it_missed(store: Store) -> None:
    world = _world(store)
    _break(world, *KEYS)
    _fail(world, DOWN)
    _break(world, "cat")  # two of them resolve meanwhile
    world.send.sent.clear()
    assert min(_waits(world)[:3]) > 0
    _test(world)
    world.deliver_all()
    heard = _heard(world)
    assert heard[0] == ("hook.test", None)
    assert len(heard) == 6
    for alert in world.alerts(state="resolved"):
        assert [kind for kind, about in heard if about == alert["id"]] == ["alert.opened", "alert.resolved"]
    assert {state for _, state in world.told()} == {"delivered"}


def test_each_message_taken_lets_one_more_be_tried_and_one_that_fails_ends_that(world: World) -> None:
    _break(world, *KEYS)
    _fail(world, DOWN)
    before = {one["id"]: one for one in world.deliveries()}
    _test(world)
    world.send.receipts = [DELIVERED, DELIVERED, DOWN]
    assert len(world.deliver_all()) == 3
    left = {one["id"]: one for one in world.deliveries(state="pending")}
    assert len(left) == 2
    assert [one == before[key] for key, one in left.items()].count(True) == 1, "the last in line was tried"


def test_what_fails_once_more_keeps_none_of_the_others_back(world: World) -> None:
    _break(world, *KEYS)
    _fail(world, DOWN)
    poison = min(world.deliveries(), key=lambda one: one["next_attempt_at"])["id"]
    with world.store.read() as connection:
        row = outbox.find_delivery(connection, int(poison))
    assert row is not None
    world.send.before = lambda _, message: world.send.receipts.append(
        DOWN if message.id == row.message_id else DELIVERED
    )
    for _ in range(2):
        _test(world)
        world.deliver_all()
    assert [one["id"] for one in world.deliveries(state="pending")] == [poison]


@pytest.mark.parametrize("receipt", [BUSY, BUG])
def test_what_was_answered_or_failed_by_itself_waits_as_long_as_it_was_to(world: World, receipt: Receipt) -> None:
    _break(world, "ant")
    _fail(world, receipt)
    (before,) = world.deliveries()
    _test(world)
    assert [sent.state for sent in world.deliver_all()] == ["delivered"]
    assert world.deliveries()[0] == before


def test_only_the_last_attempt_tells_why_a_delivery_waits(world: World) -> None:
    _break(world, "ant", "bee")
    _fail(world, DOWN, hours=4)
    _fail(world, BUSY, hours=1)
    _test(world)
    assert len(world.deliver_all()) == 1


def test_nothing_of_another_hook_is_brought_forward(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    both = {**_page(), "hooks": [HOOK, {**HOOK, "slug": "other"}]}
    both["checks"][0]["hooks"] = ["ops", "other"]
    world.apply(both)
    _break(world, "ant")
    _fail(world, DOWN)
    _test(world)
    world.deliver_all()
    assert [one["hook"] for one in world.deliveries(state="pending")] == ["other"]


def test_a_crash_while_it_is_brought_forward_loses_nothing(world: World) -> None:
    _break(world, "ant")
    _fail(world, DOWN)
    _test(world)

    def crash(statement: str) -> None:
        if statement.startswith("UPDATE deliveries SET next_attempt_at="):
            raise Crash

    with statements(world.store, crash), pytest.raises(Crash):
        world.deliver()
    assert [state for _, state in world.told()] == ["pending", "pending"]
    world.clock.advance(60)
    world.deliver_all()
    assert [state for _, state in world.told()] == ["delivered", "delivered"]


@pytest.mark.systems
def test_what_somebody_else_holds_is_passed_over_not_waited_for(postgresql_store: Store) -> None:
    world = World(store=postgresql_store)
    world.apply(_page())
    _break(world, "ant", "bee")
    _fail(world, DOWN)
    soonest = min(world.deliveries(), key=lambda one: one["next_attempt_at"])
    with postgresql_store.read() as connection:
        row = outbox.find_delivery(connection, int(soonest["id"]))
    assert row is not None
    assert row.incident_id is not None
    now = to_us(world.clock())
    with postgresql_store.write() as ending, postgresql_store.write() as settling:
        outbox.deliveries_of_incident(ending, row.incident_id, hold=True)
        settling.exec_driver_sql("SET LOCAL lock_timeout = 100")
        assert outbox.bring_forward(settling, row.hook_id, now=now, errors=OUT_OF_REACH)
        assert not outbox.bring_forward(settling, row.hook_id, now=now, errors=OUT_OF_REACH)
    waiting = {one["id"]: datetime.fromisoformat(one["next_attempt_at"]) > world.clock() for one in world.deliveries()}
    assert [number for number, waits in waiting.items() if waits] == [soonest["id"]]


def test_a_receiver_that_was_shut_gets_all_of_it_in_one_go_once_it_is_there(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    with peer(reply(status=204)) as receiver:
        url = receiver.url
    world.apply(_page(url=url))
    _break(world, *KEYS)
    for _ in range(4):
        world.clock.advance(HOUR)
        assert {sent.error for sent in iter(lambda: world.deliver(send=real_send), None)} == {"unreachable"}
    with peer(reply(status=204)) as receiver:
        world.apply(_page(url=receiver.url))
        _test(world)
        sent = list(iter(lambda: world.deliver(send=real_send), None))
    assert [one.state for one in sent] == ["delivered"] * 4


# --- what is said of it --------------------------------------------------------------------------------------


def test_a_delivery_tells_the_one_before_it_that_it_waits_for(world: World) -> None:
    _break(world, "ant", "bee")
    _fail(world, DOWN)
    _break(world, "bee")
    opened, other, resolved = world.deliveries()
    if opened["alert_id"] != resolved["alert_id"]:
        opened, other = other, opened
    assert [one["waits_for"] for one in (opened, other, resolved)] == [None, None, opened["id"]]
    world.clock.advance(HOUR)
    world.deliver_all()
    assert {one["waits_for"] for one in world.deliveries()} == {None}


def test_a_fault_that_opens_again_waits_for_the_end_before_it_not_the_beginning(store: Store) -> None:
    world = _world(store)
    _break(world, "ant")
    _fail(world, DOWN)
    _break(world)
    _break(world, "ant")
    first, end, again = world.deliveries()
    assert [one["waits_for"] for one in (first, end, again)] == [None, first["id"], end["id"]]
    (alert, _) = world.alerts()
    assert [one["waits_for"] for one in shown_alerts.alert(world.store, int(alert["id"]))["deliveries"]] == [
        None,
        first["id"],
    ]
