"""The process may die before any statement of claiming, sending, settling, and of what a run means for alerts.

Each test dies before the first write, then before the second, and so on, until the whole was carried out; and each
time the next process goes on from the rows alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa

from app.alerts.service import notifications
from app.alerts.silences.documents import SilenceDocument
from app.alerts.tables import alerts, transitions
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.catalog.service import references
from app.definitions.service import definitions
from app.hooks.domain import Hook, Message, Receipt
from app.hooks.service import hooks
from app.hooks.tables import attempts, deliveries
from tests.support.fakes import DELIVERED, Crash
from tests.support.world import CHECK, COVERAGE, World, canary, page, statements

pytestmark = [pytest.mark.systems, pytest.mark.databases]

AT_ONCE = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}
PAGE = page([canary("ant"), canary("bee")], rules=[AT_ONCE], remind="1h")
BUSY = Receipt(ok=False, http_status=503, error="http_5xx")
GONE = Receipt(ok=False, http_status=410, error="gone", untaken=True, gone=True)


@dataclass(kw_only=True)
class Mailbox:
    """Takes every message, and answers as told; then with success."""

    receipts: list[Receipt] = field(default_factory=list)
    taken: list[Message] = field(default_factory=list)

    def __call__(self, hook: Hook, message: Message, now: Any) -> Receipt:  # noqa: ARG002 - the protocol's
        """Take it."""
        self.taken.append(message)
        return self.receipts.pop(0) if self.receipts else DELIVERED


@pytest.fixture
def world(store: Store) -> World:
    """Give a world in which one bad run opens an alert and one good run resolves it."""
    world = World(store=store)
    world.apply(PAGE)
    return world


def dies(world: World, number: int, act: Callable[[], object], *, since: str = "") -> bool:
    """Act, and die before the writing statement of this number, COMMITs among them; whether it came to that.

    Statements that read change nothing: to die before one is to die after the write before it. Counted is from the
    first statement on that holds the text `since`.
    """
    left = [number]
    begun = [not since]

    def before(statement: str) -> None:
        begun[0] = begun[0] or since in statement
        if begun[0] and statement.startswith(("INSERT", "UPDATE", "DELETE", "COMMIT")):
            left[0] -= 1
            if left[0] < 0:
                raise Crash

    with statements(world.store, before):
        try:
            act()
        except Crash:
            return True
    return False


def reborn(world: World) -> World:
    """Give the world of the next process."""
    world.clock.advance(1)
    return World(store=world.store, clock=world.clock, probe=world.probe, send=world.send, let_go=world.let_go)


def rows(world: World, table: sa.Table) -> list[Any]:
    with world.store.read() as connection:
        return list(connection.execute(sa.select(table).order_by(table.c.id)))


def fail(world: World, *, bad: bool = True) -> None:
    """Let the next runs be bad, or good."""
    (world.probe.all_miss if bad else world.probe.all_answer)()


# --- claiming, sending, settling -----------------------------------------------------------------------------


@pytest.mark.parametrize("first", [DELIVERED, BUSY], ids=["taken", "refused"])
def test_a_delivery_survives_a_death_before_any_of_its_writes(world: World, first: Receipt) -> None:
    mailbox = Mailbox()
    world.send = mailbox  # type: ignore[assignment] # a send as good as another
    for number in count():
        fail(world, bad=number % 2 == 0)  # the trigger and its resolve in turn
        world.run()
        newest = rows(world, deliveries)[-1]
        mailbox.receipts = [first]
        before = len(mailbox.taken)
        died = dies(world, number, world.deliver)
        following = reborn(world)
        following.deliver_all()
        world.clock.advance(30)
        following.deliver_all()
        after = rows(world, deliveries)[-1]
        assert (after.id, after.state, after.claimed_by) == (newest.id, "delivered", None)
        mine = mailbox.taken[before:]
        assert {message.id for message in mine} == {newest.message_id}
        assert {message.body for message in mine} == {after.body}  # the same bytes, however often
        assert len(mine) <= 2 + (first is BUSY)
        settled = [row.error for row in rows(world, attempts) if row.delivery_id == newest.id]
        assert settled.count(None) == 1
        if not died:
            break
    assert number >= 7  # the claim, the preparation, the attempt and the settling, with three COMMITs
    assert [row.type for row in rows(world, deliveries)] == (["alert.opened", "alert.resolved"] * 8)[: number + 1]


def test_a_hook_whose_receiver_is_gone_is_disabled_whenever_we_die(world: World) -> None:
    mailbox = Mailbox()
    world.send = mailbox  # type: ignore[assignment] # a send as good as another
    fail(world)
    world.run()
    for number in count():
        mailbox.receipts = [GONE, GONE]
        died = dies(world, number, world.deliver)
        reborn(world).deliver_all()
        (delivery,) = rows(world, deliveries)
        assert delivery.state == "dead"
        assert references.load_definition(world.store, "hook", "ops").disabled_reason is not None
        if not died:
            break
        world.apply(PAGE)  # enables it again
        hooks.replay_all(world.store, "ops", now=world.clock())
    assert number >= 9  # with the hook's own row, and what else was to be sent to it
    assert len({message.body for message in mailbox.taken}) == 1


# --- ticks and acknowledgement -------------------------------------------------------------------------------


def test_a_tick_tells_once_what_a_silence_held_back_before_whichever_write_we_die(world: World) -> None:
    silence = {"slug": "quiet", "checks": [CHECK], "ends": (world.clock() + timedelta(minutes=10)).isoformat()}
    document = parse_document(SilenceDocument, silence)
    definitions.put(world.store, world.vault, document, now=world.clock())
    fail(world)
    world.run()
    world.clock.advance(600)
    for number in count():
        if not dies(world, number, world.tick):
            break
        assert rows(world, deliveries) == []
        assert rows(world, transitions)[-1].suppressed == "silenced"
    assert number >= 3
    assert len(rows(world, deliveries)) == 1
    assert (rows(world, transitions)[-1].suppressed, rows(world, transitions)[-1].silence) == (None, "quiet")
    assert reborn(world).tick() == 0


def test_a_reminder_is_sent_once_before_whichever_write_we_die(world: World) -> None:
    fail(world)
    world.run()
    world.deliver_all()
    world.clock.advance(3_600)
    for number in count():
        if not dies(world, number, world.tick):
            break
        assert [row.type for row in rows(world, transitions)] == ["opened"]
        assert len(rows(world, deliveries)) == 1
    assert number >= 3
    assert [row.type for row in rows(world, transitions)] == ["opened", "reminded"]
    assert len(rows(world, deliveries)) == 2
    assert reborn(world).tick() == 0


def test_an_acknowledgement_is_there_whole_or_not_at_all(world: World) -> None:
    fail(world)
    world.run()
    (alert,) = rows(world, alerts)

    def acknowledge() -> bool:
        return notifications.acknowledge(world.store, alert.id, by="ada", note=None, now=world.clock())

    for number in count():
        if not dies(world, number, acknowledge):
            break
        assert rows(world, alerts)[0].acknowledged_at is None
        assert [row.type for row in rows(world, transitions)] == ["opened"]
    assert number >= 3
    assert rows(world, alerts)[0].acknowledged_by == "ada"
    assert [row.type for row in rows(world, transitions)] == ["opened", "acknowledged"]


# --- a fault that stays --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bad", "of", "close"), [(1, 1, 1), (2, 3, 2), (3, 5, 4)])
def test_a_fault_that_stays_is_one_alert_and_ends_within_its_closing_runs(
    sqlite_store: Store, bad: int, of: int, close: int
) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary("ant")], rules=[{**COVERAGE, "open": {"bad": bad, "of": of}, "close": close}]))
    for number in range(12):
        fail(world)
        if number % 4 == 3:
            world.probe.all_fail()  # a run that measured nothing is neither bad nor good
        world.run()
    world.deliver_all()
    fail(world, bad=False)
    for _ in range(close):
        assert [row.state for row in _of_coverage(world)] != ["resolved"]
        world.run()
    assert [row.state for row in _of_coverage(world)] == ["resolved"]
    (alert,) = _of_coverage(world)
    changes = [row.type for row in rows(world, transitions) if row.alert_id == alert.id]
    assert changes == ["opened", "resolved"]


def _of_coverage(world: World) -> list[Any]:
    return [row for row in rows(world, alerts) if row.rule_key == "threshold-coverage"]
