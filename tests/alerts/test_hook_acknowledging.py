"""An acknowledged alert stops paging where the receiver pages by itself; others have no use for the news."""

import json
from typing import Any

import pytest

from app.alerts.service import notifications
from app.base.db.engine import Store
from app.hooks.domain import Receipt
from tests.support.receivers import ROUTING_KEY
from tests.support.world import COVERAGE, HOOK, World, canary, page

AT_ONCE = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}
PAGER = {"slug": "pager", "kind": "pagerduty", "routing_key": ROUTING_KEY}
BUSY = Receipt(ok=False, http_status=503, error="http_5xx")


def _begun(store: Store) -> World:
    """Give a world in which an alert has just opened."""
    world = World(store=store)
    world.apply({**page([canary("ant")], rules=[AT_ONCE], hooks=["ops", "pager"]), "hooks": [HOOK, PAGER]})
    world.probe.all_miss()
    world.run()
    world.clock.advance(31)
    return world


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give it on SQLite, for what does not depend on the database."""
    return _begun(sqlite_store)


@pytest.fixture
def anywhere(store: Store) -> World:
    """Give it on each kind of store."""
    return _begun(store)


def _acknowledge(world: World) -> None:
    alert = int(world.alerts()[0]["id"])
    notifications.acknowledge(world.store, alert, by="ann", note=None, now=world.clock.advance(1))


def _events(world: World) -> list[dict[str, Any]]:
    return [json.loads(message.body) for hook, message in world.send.sent if hook == "pager"]


def test_pagerduty_hears_of_an_acknowledgement_between_trigger_and_resolve(anywhere: World) -> None:
    anywhere.deliver_all()
    _acknowledge(anywhere)
    _acknowledge(anywhere)
    anywhere.send.receipts = [BUSY]
    anywhere.deliver_all()
    anywhere.probe.all_answer()
    anywhere.run()
    anywhere.deliver_all()
    assert [event["event_action"] for event in _events(anywhere)] == [
        "trigger",
        "acknowledge",
        "acknowledge",
        "resolve",
    ]
    assert {event["dedup_key"] for event in _events(anywhere)} == {anywhere.alerts()[0]["dedupe_key"]}
    types = [item["type"] for item in anywhere.deliveries(hook="ops")]
    assert types == ["alert.opened", "alert.resolved"]


def test_nobody_hears_of_an_acknowledgement_who_has_not_heard_of_the_alert(world: World) -> None:
    _acknowledge(world)
    world.deliver_all()
    assert [event["event_action"] for event in _events(world)] == ["trigger"]
