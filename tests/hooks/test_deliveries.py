"""News is delivered at least once, in order, with the same bytes, whatever the receiver or the process does."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from standardwebhooks.webhooks import Webhook

from app.base.addresses import hook_policy, parse_allow
from app.base.db.engine import Store
from app.base.db.keys import Vault
from app.base.errors import ConflictError, NotFoundError
from app.catalog.service import references
from app.catalog.tables import definition_versions
from app.hooks.client.webhook import Sender, send_webhook
from app.hooks.domain import Hook, Message, Receipt
from app.hooks.service import deliveries
from app.hooks.service import hooks as hook_views
from app.hooks.service.deliveries import SentDelivery
from app.hooks.tables import deliveries as rows
from tests.support.blocking import waits_for_a_lock
from tests.support.fakes import ActingSend, Crash, FakeClock, answered, hits
from tests.support.http_servers import Peer, Reply, Seen, peer, reply
from tests.support.receivers import mail_server
from tests.support.world import AT_ONCE, HOOK, SECRET, World, canary, page

pytestmark = pytest.mark.databases

REFUSED = Receipt(ok=False, http_status=500, error="http_5xx", detail="answered 500", latency_seconds=0.1)
GONE = Receipt(ok=False, http_status=410, error="gone", untaken=True, gone=True)


def _page(*urls: str, timeout: float = 15.0, **check: Any) -> dict[str, Any]:
    hooks: Sequence[Mapping[str, Any]] = [
        {**HOOK, "slug": f"hook-{n}", "url": url, "timeout": timeout} for n, url in enumerate(urls)
    ] or [HOOK]
    fields = {"rules": [AT_ONCE], "hooks": [hook["slug"] for hook in hooks], **check}
    return {**page([canary("ant"), canary("bee")], **fields), "hooks": hooks}


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world in which one bad run opens an alert and one good run resolves it."""
    return _world(sqlite_store)


def _world(store: Store) -> World:
    world = World(store=store)
    world.apply(_page())
    return world


# --- against a real receiver ---------------------------------------------------------------------------------


def real_send(hook: Hook, message: Message, now: datetime) -> Receipt:
    """Send over HTTP to this machine."""
    return send_webhook(hook, message, now, policy=hook_policy(parse_allow("127.0.0.0/8")))


def _answering(*replies: Reply) -> Callable[[Seen], Reply]:
    left = list(replies)
    return lambda _: left.pop(0) if left else reply(status=204)


def _verified(seen: Seen) -> dict[str, Any]:
    Webhook(SECRET).verify(seen.body, dict(seen.headers))
    body: dict[str, Any] = json.loads(seen.body)
    return body


def _real_world(store: Store, *peers: Peer, timeout: float = 15.0) -> World:
    world = World(store=store, clock=FakeClock(now=datetime.now(UTC).replace(microsecond=0)))
    world.apply(_page(*(f"{one.url}/hook" for one in peers), timeout=timeout))
    return world


def test_a_receiver_that_fails_gets_the_same_signed_message_again(sqlite_store: Store) -> None:
    with peer(_answering(reply(status=500))) as receiver:
        world = _real_world(sqlite_store, receiver)
        world.degrade()
        first = world.deliver(send=real_send)
        assert first is not None
        assert (first.state, first.error) == ("pending", "http_5xx")
        assert world.deliver(send=real_send) is None  # not before its time
        world.clock.advance(6)
        second = world.deliver("another worker", send=real_send)
        assert second is not None
        assert second.state == "delivered"
        assert [seen.method for seen in receiver.seen] == ["POST", "POST"]
        assert receiver.seen[0].body == receiver.seen[1].body
        assert receiver.seen[0].headers["webhook-id"] == receiver.seen[1].headers["webhook-id"]
        assert _verified(receiver.seen[1])["type"] == "alert.opened"
    attempts = world.deliveries()[0]["attempts"]
    assert [(attempt["http_status"], attempt["error"]) for attempt in attempts] == [(500, "http_5xx"), (204, None)]


def test_the_message_says_what_the_contract_promises(sqlite_store: Store) -> None:
    with peer(reply(status=200)) as receiver:
        world = _real_world(sqlite_store, receiver)
        world.heal()
        world.degrade()
        world.deliver(send=real_send)
        body = _verified(receiver.seen[0])
    data = body["data"]
    assert (body["type"], body["version"]) == ("alert.opened", 1)
    assert data["dedupe_key"] == world.alerts()[0]["dedupe_key"]
    assert (data["check"], data["suite"], data["retriever"], data["severity"]) == (
        "watch",
        "suite",
        "search",
        "critical",
    )
    assert (data["measure"], data["value"], data["threshold"], data["coverage"]) == ("coverage", 0.0, 0.5, 0.0)
    assert data["degraded_queries"] == ["ant", "bee"]
    assert data["degraded"][0] == {
        "key": "ant",
        "query": "ant",
        "reasons": ["missing"],
        "rank_before": 1,
        "rank_now": None,
        "lower": [{"id": "doc-ant", "document": None, "rank_before": 1, "rank_now": None}],
        "lost": ["doc-ant"],
        "lost_total": 1,
        "cause": None,
        "cause_reason": None,
        "persistent": None,
    }
    assert data["degraded_total"] == 2
    assert data["lost"] == "doc-ant, doc-bee"
    assert data["links"]["alert"] == f"http://coalmine.test/alerts/{world.alerts()[0]['id']}"
    assert data["links"]["check"] == "http://coalmine.test/checks/watch"
    assert data["links"]["run"] == f"http://coalmine.test/runs/{data['run_id']}"


def test_a_receiver_that_is_gone_disables_its_hook(sqlite_store: Store) -> None:
    with peer(_answering(reply(status=410))) as receiver:
        world = _real_world(sqlite_store, receiver)
        world.degrade()
        assert _state(world.deliver(send=real_send)) == "dead"
        hook = references.load_definition(world.store, "hook", "hook-0")
        assert hook.disabled_reason is not None
        assert "410" in hook.disabled_reason
        world.heal()
        world.degrade()
        assert world.deliver_all() == []
        assert len(receiver.seen) == 1
        with pytest.raises(ConflictError, match="disabled"):
            deliveries.send_test(world.store, "hook-0", now=world.clock())
        world.apply(_page(f"{receiver.url}/hook"))  # saved again, unchanged
        assert references.load_definition(world.store, "hook", "hook-0").disabled_reason is None
        world.heal()
        world.degrade()
        assert _state(world.deliver(send=real_send)) == "delivered"


def _state(sent: SentDelivery | None) -> str | None:
    return sent.state if sent is not None else None


# --- order ---------------------------------------------------------------------------------------------------


def test_a_resolve_never_overtakes_its_trigger(store: Store) -> None:
    world = _world(store)
    world.degrade()
    world.send.receipts = [REFUSED] * 3
    world.deliver()
    world.heal()
    types = []
    for _ in range(8):
        world.clock.advance(30)
        world.deliver_all()
        types = world.received()
    assert types == ["alert.opened"] * 4 + ["alert.resolved"]
    assert world.told() == [("alert.opened", "delivered"), ("alert.resolved", "delivered")]


def test_a_resolve_before_any_attempt_cancels_both(store: Store) -> None:
    world = _world(store)
    world.degrade()
    world.heal()
    assert world.told() == [("alert.opened", "cancelled")]
    (cancelled,) = world.deliveries()
    assert cancelled["reason"] == "It will not be sent: its incident was resolved before it was tried."
    assert world.deliver_all() == []
    assert world.send.sent == []


def test_a_trigger_that_is_being_claimed_while_its_alert_resolves_is_followed_by_the_resolve(
    postgresql_store: Store,
) -> None:
    """The worker has claimed but not committed when the run that resolves looks: it must wait and see."""
    world = World(store=postgresql_store)
    world.apply(_page())
    world.degrade()
    world.probe.all_answer()
    world.clock.advance(60)
    world.wish()
    claimed = world.claim()
    assert claimed is not None
    ended: list[object] = []
    run = threading.Thread(target=lambda: ended.append(world.execute(claimed)))
    with postgresql_store.write() as connection:
        connection.execute(sa.update(rows).values(attempts=1, claimed_by="worker"))
        run.start()
        while not waits_for_a_lock(postgresql_store):
            assert run.is_alive(), "the run did not wait for the claim"
    run.join(20)
    assert ended != [None]
    assert world.told() == [("alert.opened", "pending"), ("alert.resolved", "pending")]


def _die(_hook: Hook, _message: Message) -> Receipt:
    raise Crash


def test_a_hook_whose_secret_cannot_be_read_does_not_delay_another(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(_page("http://one.test/"))
    world.apply(_page("http://one.test/", "http://two.test/"))
    with sqlite_store.write() as connection:
        token = Vault("a key that is known no more").encrypt({"secret": "x"})
        hook = references.load_definition(sqlite_store, "hook", "hook-0")
        table = definition_versions
        connection.execute(sa.update(table).where(table.c.id == hook.version_id).values(secrets=token))
    world.degrade()
    sent = {one.hook: one for one in world.deliver_all()}
    assert (sent["hook-0"].state, sent["hook-0"].error) == ("pending", "configuration")
    assert sent["hook-1"].state == "delivered"
    assert "SECRET_KEY" in world.deliveries(hook="hook-0")[0]["attempts"][0]["detail"]


# --- dying ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_sending", [False, True])
def test_a_crash_around_the_attempt_leads_to_another_with_the_same_bytes(world: World, *, after_sending: bool) -> None:
    world.degrade()
    seen: list[Message] = []

    def die(_hook: Hook, message: Message) -> Receipt:
        if after_sending:
            seen.append(message)
        raise Crash

    with pytest.raises(Crash):
        world.deliver("first", send=ActingSend(act=die))
    world.vault = Vault("a key for the tests of this world")  # a new process
    assert _state(world.deliver("second")) == "delivered"
    message = world.send.sent[0][1]
    assert all(one == message for one in seen)
    assert world.deliver("third") is None


def test_a_crash_between_claim_and_body_leads_to_another_attempt(world: World) -> None:
    world.degrade()
    with world.store.write() as connection:
        claim = {"attempts": 1, "claimed_by": "first", "first_attempt_at": 0}
        connection.execute(sa.update(rows).values(**claim))
    assert _state(world.deliver("second")) == "delivered"


def test_a_resolve_follows_a_trigger_that_crashed_in_flight(world: World) -> None:
    """Nobody knows whether the receiver got it."""
    world.degrade()

    with pytest.raises(Crash):
        world.deliver(send=ActingSend(act=_die))
    world.heal()
    world.deliver_all()
    assert world.received() == ["alert.opened", "alert.resolved"]


def test_one_who_was_taken_for_dead_does_not_undo_what_the_other_wrote(store: Store) -> None:
    world = _world(store)
    world.degrade()

    def slow(_hook: Hook, _message: Message) -> Receipt:
        assert _state(world.deliver("second")) == "delivered"
        return REFUSED

    world.deliver("first", send=ActingSend(act=slow))
    assert world.told() == [("alert.opened", "delivered")]


# --- giving up and starting over -----------------------------------------------------------------------------


def test_after_a_day_a_delivery_is_dead_and_can_be_replayed(store: Store) -> None:
    world = _world(store)
    world.degrade()
    world.send.receipts = [REFUSED] * 100
    for _ in range(40):
        world.clock.advance(3600)
        world.deliver_all()
    assert world.told() == [("alert.opened", "dead")]
    number = int(world.deliveries()[0]["id"])
    assert 24 < len(world.deliveries()[0]["attempts"]) < 40
    world.send.receipts = []
    hook_views.replay(world.store, number, now=world.clock())
    assert _state(world.deliver()) == "delivered"
    assert len({message for _, message in world.send.sent}) == 1  # the same bytes under the same id
    with pytest.raises(ConflictError):
        hook_views.replay(world.store, number, now=world.clock())
    with pytest.raises(NotFoundError):
        hook_views.replay(world.store, 999, now=world.clock())


def test_a_resolve_is_retried_exactly_like_a_trigger(world: World) -> None:
    world.degrade()
    world.deliver()
    world.heal()
    world.send.receipts = [REFUSED] * 4
    for _ in range(10):
        world.clock.advance(60)
        world.deliver_all()
    assert world.told() == [("alert.opened", "delivered"), ("alert.resolved", "delivered")]
    assert world.received() == ["alert.opened"] + ["alert.resolved"] * 5


def test_a_replayed_trigger_was_begun_once_so_its_resolve_is_sent(world: World) -> None:
    world.degrade()
    world.send.receipts = [GONE.__class__(ok=False, http_status=400, error="http_4xx", untaken=True)] * 3
    for _ in range(3):
        world.deliver_all()
        world.clock.advance(43_200)
    assert world.told() == [("alert.opened", "dead")]
    hook_views.replay(world.store, int(world.deliveries()[0]["id"]), now=world.clock())
    world.heal()
    world.deliver_all()
    assert world.told() == [("alert.opened", "delivered"), ("alert.resolved", "delivered")]


def test_what_waits_for_an_archived_hook_is_not_sent_any_more(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(_page())
    deliveries.send_test(sqlite_store, "ops", now=world.clock.advance(1))
    world.apply({**_page(hooks=[]), "hooks": []})
    assert world.deliver_all() == []
    assert world.deliveries()[0]["reason"] == "The hook was archived."


def test_a_test_send_takes_the_same_path(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(_page())
    deliveries.send_test(sqlite_store, "ops", now=world.clock())
    world.send.receipts = [REFUSED]
    assert _state(world.deliver()) == "pending"
    world.clock.advance(6)
    assert _state(world.deliver()) == "delivered"
    first, second = (message for _, message in world.send.sent)
    assert first == second
    assert json.loads(first.body)["type"] == "hook.test"
    with pytest.raises(NotFoundError):
        deliveries.send_test(sqlite_store, "nothing", now=world.clock())


def test_the_body_is_what_it_was_at_the_first_attempt(world: World) -> None:
    """However the alert goes on, every attempt says the same under the same id."""
    world.degrade()
    world.send.receipts = [REFUSED]
    world.deliver()
    world.probe.answers["ant"] = answered(hits("doc-ant"))
    world.run()
    world.deliver_all()
    first, second = (message for _, message in world.send.sent[:2])
    assert first == second


def test_tests_in_one_microsecond_are_two_messages(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(_page())
    assert deliveries.send_test(sqlite_store, "ops", now=world.clock()) != deliveries.send_test(
        sqlite_store, "ops", now=world.clock()
    )


def test_a_mail_that_some_took_goes_to_the_others_alone_after_a_restart(store: Store) -> None:
    replies = {"RCPT b@x.test": "450 greylisted"}
    send = Sender(policy=hook_policy(parse_allow("127.0.0.1,localhost")))
    with mail_server(replies) as server:
        world = World(store=store)
        hook = {"slug": "ops", "kind": "email", "host": "localhost", "port": server.port, "tls": "none"}
        files = page([canary("ant"), canary("bee")], rules=[AT_ONCE])
        world.apply({**files, "hooks": [{**hook, "from": "canary@example.org", "to": ["a@x.test", "b@x.test"]}]})
        world.degrade()
        world.deliver(send=send)
        (waiting,) = world.deliveries()
        assert waiting["attempts"][0]["detail"] == "taken for a@x.test; the mail server answered 450 to b@x.test"
        replies.clear()
        with closing(Store(store.engine.url.render_as_string(hide_password=False))) as reopened:
            restarted = World(store=reopened, vault=world.vault, clock=world.clock)
            restarted.clock.advance(600)
            restarted.deliver(send=send)
    assert [one.recipients for one in server.mailed] == [["a@x.test"], ["b@x.test"]]
    assert len({one.message["message-id"] for one in server.mailed}) == 1
    (sent,) = world.deliveries()
    assert (sent["state"], sent["reason"]) == ("delivered", "Delivered to a@x.test, b@x.test.")
