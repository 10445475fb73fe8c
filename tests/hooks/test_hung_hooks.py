"""Receivers that hang hold up nobody but themselves, and one that is back hears within a minute what it missed."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from app.base.db.engine import Store
from app.hooks.domain import Hook, Message, Receipt
from app.hooks.service import deliveries
from app.hooks.store import MOST_ATTEMPTS
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.reports import metrics
from tests.support.living import until
from tests.support.world import HOOK, LINKS, World, canary, page

pytestmark = [pytest.mark.databases, pytest.mark.systems]

HUNG = 40


class Receivers:
    """Receivers that hang until released, but for the sound one; each notes what it is sent."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.sent: list[str] = []
        self.most = 0
        self.under_way: list[str] = []

    def __call__(self, hook: Hook, message: Message, now: datetime) -> Receipt:  # noqa: ARG002 - the seam
        """Take a message, or hang with it."""
        with self.lock:
            assert hook.slug not in self.under_way
            self.under_way.append(hook.slug)
            self.most = max(self.most, len(self.under_way))
            self.sent.append(hook.slug)
        if hook.slug != "sound":
            assert self.over.wait(30)
        with self.lock:
            self.under_way.remove(hook.slug)
        return Receipt(ok=hook.slug == "sound", error=None if hook.slug == "sound" else "timeout", latency_seconds=0.1)


def test_forty_hooks_that_hang_hold_up_no_other(store: Store) -> None:
    world, receivers = World(store=store), Receivers()
    world.clock.now = datetime.now(UTC)
    hung = [f"hung-{number:02}" for number in range(HUNG)]
    described = [{**HOOK, "slug": slug} for slug in (*hung, "sound", "ops")]
    world.apply({**page([canary("ant")], schedule={"every": "31d"}), "hooks": described})
    for slug in hung:  # all before the sound one, and two each
        for _ in range(2):
            deliveries.send_test(store, slug, now=world.clock.advance(0.001))
    deliveries.send_test(store, "sound", now=world.clock.advance(0.001))
    world.clock.now = datetime.now(UTC)
    engine = Engine(store=store, vault=world.vault, probe=world.probe, send=receivers, links=LINKS, owner="it")
    worker = Worker(engine, metrics.ProcessMetrics(CollectorRegistry()), metrics.Snapshot())
    worker.start()
    try:
        until(lambda: "sound" in receivers.sent)
        assert not receivers.over.is_set()
        until(lambda: len(receivers.under_way) == HUNG)
        assert worker.alive
    finally:
        receivers.over.set()
        worker.stop()
    assert receivers.most <= HUNG + 1


def test_a_receiver_that_answered_500_for_hours_hears_within_a_minute_of_its_return(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    deliveries.send_test(store, "ops", now=world.clock())
    world.send.receipts = [Receipt(ok=False, http_status=500, error="refused")] * 10_000
    back = world.clock() + timedelta(hours=2.5)
    (hook_id,) = world.due_hooks()
    while world.clock() < back:
        following = deliveries.next_attempt(store, hook_id, world.clock())
        assert following is not None
        world.clock.now = max(world.clock(), following)
        assert world.deliver() is not None
    world.send.receipts = []
    (delivery,) = world.deliveries()
    assert datetime.fromisoformat(delivery["next_attempt_at"]) - world.clock() <= timedelta(minutes=1)
    assert len(delivery["attempts"]) == MOST_ATTEMPTS
    world.clock.advance(60)
    assert world.deliver() is not None
    assert world.deliveries()[0]["state"] == "delivered"
