"""A receiver that forgets is told again: each minute of a firing alert, five minutes of its end, by one replica."""

import json
from typing import Any

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.db.keys import Vault
from app.base.errors import ConflictError
from app.hooks.domain import Hook, Message, Receipt
from app.hooks.service import deliveries, hooks
from app.hooks.service.deliveries import SentDelivery
from app.hooks.tables import deliveries as rows
from tests.support.fakes import DELIVERED, ActingSend, Crash, answered, hits
from tests.support.world import AT_ONCE, HOOK, World, canary, page

BUSY = Receipt(ok=False, http_status=503, error="http_5xx", detail="answered 503")
DECLINED = Receipt(ok=False, http_status=400, error="http_4xx", untaken=True)
ALERTMANAGER = {"slug": "ops", "kind": "alertmanager", "url": "http://alertmanager.test:9093"}
PAGE = {**page([canary("ant"), canary("bee")], rules=[AT_ONCE]), "hooks": [ALERTMANAGER]}


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world in which an alert has opened and Alertmanager heard of it."""
    return _firing(sqlite_store)


@pytest.fixture
def either(store: Store) -> World:
    """Give such a world on either database, for what depends on its locks and statements."""
    return _firing(store)


def _firing(store: Store) -> World:
    world = World(store=store)
    world.apply(PAGE)
    world.degrade()
    world.clock.advance(31)
    assert world.attempt() is not None
    return world


def _all(world: World) -> list[SentDelivery]:
    return list(iter(world.attempt, None))


def _minutes(world: World, count: int) -> list[int]:
    """Let minutes pass, and count what is sent in each."""
    sent = []
    for _ in range(count):
        world.clock.advance(60)
        sent.append(len(_all(world)))
    return sent


def _ends(world: World) -> list[bool]:
    """Tell of every message sent whether it says that it is over."""
    return ["endsAt" in json.loads(message.body)[0] for _, message in world.send.sent]


def _waiting(world: World) -> int:
    with world.store.read() as connection:
        waiting = sa.select(sa.func.count()).where(rows.c.refresh_at.is_not(None))
        return int(connection.execute(waiting).scalar_one())


def test_a_firing_alert_is_told_again_every_minute_in_the_same_bytes(world: World) -> None:
    assert world.attempt() is None
    assert _minutes(world, 6) == [1] * 6
    assert len({message for _, message in world.send.sent}) == 1
    assert _ends(world) == [False] * 7
    (delivery,) = world.deliveries()
    assert (delivery["state"], len(delivery["attempts"])) == (
        "delivered",
        1,
    )  # what went well is not written down again


def test_its_end_is_told_for_five_minutes_and_then_no_more(world: World) -> None:
    _minutes(world, 2)
    world.heal()
    world.send.sent.clear()
    assert len(_all(world)) == 1
    assert _minutes(world, 8) == [1, 1, 1, 1, 1, 0, 0, 0]
    assert _ends(world) == [True] * 6
    assert _waiting(world) == 0


def test_a_trigger_is_not_told_again_behind_the_end(world: World) -> None:
    world.heal()
    world.send.receipts = [BUSY] * 4
    world.send.sent.clear()
    _all(world)
    _minutes(world, 3)  # the resolve is being retried meanwhile
    assert set(_ends(world)) == {True}


@pytest.mark.parametrize("resolve", ["dead", "cancelled"])
def test_a_trigger_stays_untold_where_its_end_never_arrives(world: World, resolve: str) -> None:
    world.heal()
    if resolve == "dead":
        world.send.receipts = [DECLINED] * 2
        _minutes(world, 1)
        world.clock.advance(86_400)
        _minutes(world, 1)
    else:
        with world.store.write() as connection:
            connection.execute(sa.update(rows).where(rows.c.state == "pending").values(state="cancelled"))
    world.send.sent.clear()
    _minutes(world, 5)
    assert world.send.sent == []
    assert _waiting(world) == 0


def test_a_failure_is_written_down_and_the_next_minute_tries_again(world: World) -> None:
    world.send.receipts = [BUSY, BUSY]
    assert _minutes(world, 4) == [1] * 4
    (delivery,) = world.deliveries()
    assert delivery["state"] == "delivered"
    assert [attempt["error"] for attempt in delivery["attempts"]] == [None, "http_5xx", "http_5xx"]


def test_what_is_told_again_says_so(world: World) -> None:
    world.clock.advance(60)
    sent = world.attempt()
    assert sent is not None
    assert (sent.is_resend, sent.error, sent.state) == (True, None, "delivered")


def test_a_bug_is_a_failure_like_others(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_hook: Hook, _message: Message) -> Receipt:
        raise RuntimeError("no such luck")

    world.clock.advance(60)
    sent = world.attempt(send=ActingSend(act=fail))
    assert sent is not None
    assert (sent.error, "no such luck" in caplog.text) == (deliveries.BUG, True)
    assert _minutes(world, 1) == [1]


def test_secrets_under_another_key_are_told_and_nothing_is_sent(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply({**PAGE, "hooks": [{**ALERTMANAGER, "username": "me", "password": "s3cret"}]})
    world.degrade()
    world.clock.advance(31)
    _all(world)
    world.clock.advance(60)
    other = Vault("quite another key than before")
    (hook_id,) = world.due_hooks()
    sent = deliveries.resend_next(sqlite_store, other, world.send, hook_id, owner="worker", clock=world.clock)
    assert sent is not None
    assert sent.error == deliveries.UNPREPARED
    assert len(world.send.sent) == 1
    assert _minutes(world, 1) == [1]


def test_an_escalation_takes_over(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    rule = {**AT_ONCE, "warning": {"below": 0.9}, "critical": {"below": 0.4}}
    world.apply({**PAGE, "checks": [{**PAGE["checks"][0], "rules": [rule]}]})
    world.probe.answers = {"ant": answered(hits("noise"))}
    world.run()
    world.clock.advance(31)
    _all(world)
    world.degrade()
    world.clock.advance(31)
    _all(world)
    world.send.sent.clear()
    assert _minutes(world, 2) == [1, 1]
    severities = [json.loads(message.body)[0]["annotations"]["severity"] for _, message in world.send.sent]
    assert severities == ["critical", "critical"]
    assert _waiting(world) == 1


def test_a_new_alert_of_the_same_fault_takes_over_from_the_end_of_the_old_one(either: World) -> None:
    either.heal()
    _all(either)
    either.degrade()
    either.clock.advance(31)
    _all(either)
    either.send.sent.clear()
    assert _minutes(either, 6) == [1] * 6
    assert _ends(either) == [False] * 6


def test_the_next_opening_does_not_overtake_the_end_before_it(either: World) -> None:
    either.heal()
    either.send.receipts = [BUSY]
    either.attempt()
    either.degrade()
    either.clock.advance(3600)
    either.send.sent.clear()
    _all(either)
    assert _ends(either) == [True, False]


def test_a_dead_end_is_not_replayed_behind_the_next_opening(world: World) -> None:
    world.heal()
    world.send.receipts = [DECLINED] * 2
    _minutes(world, 1)
    world.clock.advance(86_400)
    _minutes(world, 1)
    (dead,) = world.deliveries(state="dead")
    world.degrade()
    world.clock.advance(31)
    _all(world)
    with pytest.raises(ConflictError, match="later"):
        hooks.replay(world.store, int(dead["id"]), now=world.clock())


@pytest.mark.both
def test_a_replica_that_dies_is_followed_by_another(either: World) -> None:
    def die(_hook: Hook, _message: Message) -> Receipt:
        raise Crash

    either.clock.advance(60)
    with pytest.raises(Crash):
        either.attempt(send=ActingSend(act=die))
    assert either.attempt("another") is not None
    assert len(either.send.sent) == 2


def test_whoever_comes_back_too_late_changes_nothing(world: World) -> None:
    def be_slow(_hook: Hook, _message: Message) -> Receipt:
        world.clock.advance(91)
        assert world.attempt("another") is not None
        return DELIVERED

    world.clock.advance(60)
    world.attempt("slow", send=ActingSend(act=be_slow))
    assert _waiting(world) == 1
    assert _minutes(world, 1) == [1]


@pytest.mark.parametrize("change", ["archived", "another kind"])
def test_a_hook_that_is_gone_or_another_is_told_nothing_again(world: World, change: str) -> None:
    if change == "archived":
        checks: list[dict[str, Any]] = [{**PAGE["checks"][0], "hooks": []}]
        world.apply({**PAGE, "checks": checks, "hooks": []})
    else:
        world.apply({**PAGE, "hooks": [HOOK]})
    assert _minutes(world, 3) == [0] * 3
    assert _waiting(world) == 0


def test_a_test_message_and_other_kinds_are_told_once(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply({**PAGE, "hooks": [HOOK]})
    world.degrade()
    world.apply({**PAGE, "hooks": [HOOK, {**ALERTMANAGER, "slug": "am"}]})
    deliveries.send_test(sqlite_store, "am", now=world.clock())
    world.clock.advance(31)
    assert len(_all(world)) == 2
    assert _minutes(world, 3) == [0] * 3


def test_a_hook_saved_as_another_kind_gets_what_was_waiting_in_the_words_of_that_kind(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply({**PAGE, "hooks": [HOOK]})
    world.degrade()
    world.clock.advance(31)
    world.send.receipts = [BUSY]
    _all(world)
    world.apply(PAGE)
    world.clock.advance(60)
    _all(world)
    first, second = (json.loads(message.body) for _, message in world.send.sent)
    assert (first["type"], second[0]["labels"]["check"]) == ("alert.opened", "watch")
