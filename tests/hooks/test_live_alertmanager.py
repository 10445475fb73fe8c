"""A real Alertmanager hears of an alert once, keeps it while it fires, and hears of its end.

The clock of Coalmine starts half an hour ago and moves by whole minutes; Alertmanager lives in the present, and
forgets after a few seconds.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.base.addresses import hook_policy, parse_allow
from app.base.db.engine import Store
from app.hooks.client.webhook import Sender
from app.hooks.service import deliveries
from tests.support.fakes import FakeClock, answered, hits
from tests.support.http_servers import Peer, peer, reply
from tests.support.living import until
from tests.support.monitoring import alertmanager
from tests.support.world import COVERAGE, World, canary, page

pytestmark = pytest.mark.systems

RULE = {**COVERAGE, "warning": {"below": 0.9}, "critical": {"below": 0.4}, "open": {"bad": 1, "of": 1}, "close": 1}
send = Sender(policy=hook_policy(parse_allow("127.0.0.1")))


@contextmanager
def alertmanager_for(receiver: Peer, folder: Path, *, forgets_after: str) -> Iterator[str]:
    """Run Alertmanager, alone, with this receiver; gives its address."""
    route = {"receiver": "seen", "group_by": ["..."], "group_wait": "1ms", "group_interval": "50ms"}
    hook = {"url": f"{receiver.url}/", "send_resolved": True}
    config = {
        "global": {"resolve_timeout": forgets_after},
        "route": {**route, "repeat_interval": "1h"},
        "receivers": [{"name": "seen", "webhook_configs": [hook]}],
    }
    with alertmanager(folder, config) as url:
        yield url


def world_with(store: Store, url: str) -> World:
    """Give a world that tells Alertmanager, and is well."""
    world = World(store=store, clock=FakeClock(now=datetime.now(UTC) - timedelta(minutes=30)))
    hook = {"slug": "am", "kind": "alertmanager", "url": url, "labels": {"team": "search"}}
    canaries = [canary("ant"), canary("bee")]
    world.apply({**page(canaries, rules=[RULE], hooks=["am"]), "hooks": [hook]})
    world.run()
    return world


def tell(world: World) -> int:
    """Attempt all that is due, and count it."""
    sent = list(iter(partial(world.attempt, send=send), None))
    assert [one.reason for one in sent if one.error is not None] == []
    return len(sent)


def degrade(world: World, *keys: str) -> None:
    """Let these canaries miss, and tell of it."""
    world.probe.all_answer()
    world.probe.answers = {key: answered(hits("noise")) for key in keys}
    world.run()
    world.clock.advance(31)  # the diagnosis that news waits for
    tell(world)


def listed(url: str) -> list[dict[str, Any]]:
    """List the alerts Alertmanager takes for active."""
    found: list[dict[str, Any]] = httpx2.get(f"{url}/api/v2/alerts", timeout=5).json()
    return found


def heard(receiver: Peer) -> list[tuple[str, str]]:
    """Tell what Alertmanager told its own receiver: (status, severity)."""
    bodies = [json.loads(seen.body) for seen in receiver.seen]
    return [(alert["status"], alert["annotations"]["severity"]) for body in bodies for alert in body["alerts"]]


def test_an_alert_is_one_alert_until_it_ends_and_is_told_once_each_way(sqlite_store: Store, tmp_path: Path) -> None:
    with peer(reply()) as receiver:
        with alertmanager_for(receiver, tmp_path, forgets_after="5m") as url:
            world = world_with(sqlite_store, url)
            degrade(world, "ant")
            (alert,) = listed(url)
            until(lambda: receiver.seen)
            assert heard(receiver) == [("firing", "warning")]
            assert alert["labels"] == {
                "alertname": "CoalmineQuality",
                "service": "coalmine",
                "check": "watch",
                "dedupe_key": world.alerts()[0]["dedupe_key"],
                "team": "search",
            }
            degrade(world, "ant", "bee")
            (escalated,) = listed(url)
            assert escalated["fingerprint"] == alert["fingerprint"]
            assert escalated["annotations"]["severity"] == "critical"
            assert escalated["startsAt"] == alert["startsAt"]
            world.probe.all_answer()
            world.run()
            tell(world)
            until(lambda: len(receiver.seen) > 1)
            assert listed(url) == []
            for _ in range(7):
                world.clock.advance(60)
                tell(world)
        told = heard(receiver)  # Alertmanager has ended, so this is all there will ever be
    assert [status for status, _ in told] == ["firing", "resolved"]
    assert [item["type"] for item in world.deliveries()] == ["alert.opened", "alert.escalated", "alert.resolved"]


def test_a_firing_alert_outlives_what_alertmanager_remembers(sqlite_store: Store, tmp_path: Path) -> None:
    with peer(reply()) as receiver:
        with alertmanager_for(receiver, tmp_path, forgets_after="8s") as url:
            world = world_with(sqlite_store, url)
            degrade(world, "ant")
            (first,) = listed(url)
            ends = first["endsAt"]
            remembered = 0

            def is_kept() -> bool:
                """Tell again, and see whether more time has passed than Alertmanager remembers."""
                nonlocal remembered
                world.clock.advance(60)
                remembered += tell(world)
                (alert,) = listed(url)
                assert alert["status"]["state"] == "active"
                return bool(_moment(alert["endsAt"]) - _moment(ends) > timedelta(seconds=8.5))

            until(is_kept, seconds=60)
            assert remembered > 1
            assert [status for status, _ in heard(receiver)] == ["firing"]
            until(lambda: listed(url) == [], seconds=60)  # nobody tells it any more
            until(lambda: len(receiver.seen) > 1)
        assert [status for status, _ in heard(receiver)] == ["firing", "resolved"]


def test_a_test_message_reaches_it(sqlite_store: Store, tmp_path: Path) -> None:
    with peer(reply()) as receiver, alertmanager_for(receiver, tmp_path, forgets_after="5m") as url:
        world = world_with(sqlite_store, url)
        deliveries.send_test(sqlite_store, "am", now=world.clock())
        assert tell(world) == 1
        assert [alert["labels"]["alertname"] for alert in listed(url)] == ["CoalmineTest"]


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
