"""What a process left behind that ended: on SQLite, where nobody else can be at it, it goes on at once."""

import json
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from app.domain.delivery.hooks import Hook, Message, Receipt, Send
from app.services.delivery import resends
from app.services.delivery.deliveries import SentDelivery
from app.services.runs import abandoned_work, rescoring
from app.services.runs.abandoned_work import Released
from app.services.runs.plans import Planner
from app.services.runs.rescoring import COMMAND, LEASE
from app.services.runs.runs import execute
from app.store.engine import Store, from_us
from app.store.tables import deliveries as delivery_rows
from app.store.tables import rescorings, runs
from tests.support.http_servers import HANG, Reply, Seen, peer, reply
from tests.support.living import until
from tests.support.processes import free_ports, started
from tests.support.world import CHECK, COVERAGE, HOOK, RETRIEVER, SECRET, World, canary, page
from tests.support.world import LEASE as RUN_LEASE

AT_ONCE = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}
ALERTMANAGER = {"slug": "ops", "kind": "alertmanager", "url": "http://alertmanager.test:9093"}


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world in which one bad run opens an alert."""
    world = World(store=sqlite_store)
    world.apply(page([canary("ant"), canary("bee")], rules=[AT_ONCE]))
    return world


def _release(world: World) -> Released:
    return abandoned_work.release_abandoned(world.store, now=world.clock())


def test_a_run_goes_on_at_once(world: World) -> None:
    world.wish()
    assert world.claim("gone") is not None
    assert world.claim("next") is None
    assert _release(world) == Released(runs=1, deliveries=0, news=0, rescorings=0)
    claimed = world.claim("next")
    assert claimed is not None
    assert claimed.resumed
    assert world.execute(claimed, "next") is not None
    assert _release(world) == Released(runs=0, deliveries=0, news=0, rescorings=0)


def test_a_delivery_amid_its_sending_is_sent_again_at_once(world: World) -> None:
    world.probe.all_miss()
    world.run()
    with pytest.raises(KeyboardInterrupt):
        world.deliver("gone", _Killed())
    assert world.deliver("next") is None
    assert _release(world) == Released(runs=0, deliveries=1, news=0, rescorings=0)
    sent = world.deliver("next")
    assert sent is not None
    assert sent.error is None


def test_a_resend_amid_its_sending_is_sent_at_once(world: World) -> None:
    world.apply({**page([canary("ant"), canary("bee")], rules=[AT_ONCE]), "hooks": [ALERTMANAGER]})
    world.probe.all_miss()
    world.run()
    assert world.deliver() is not None
    world.clock.advance(90)

    def resend(send: Send) -> SentDelivery | None:
        return resends.resend_next(world.store, world.vault, send, owner="worker", clock=world.clock, lease=RUN_LEASE)

    with pytest.raises(KeyboardInterrupt):
        resend(_Killed())
    assert resend(world.send) is None
    assert _release(world) == Released(runs=0, deliveries=1, news=0, rescorings=0)
    assert resend(world.send) is not None


def test_news_that_waited_for_a_diagnosis_goes_out_without_it(world: World) -> None:
    world.probe.all_miss()
    world.wish()
    claimed = world.claim()
    assert claimed is not None
    hold = timedelta(seconds=30)
    planner = Planner(world.store, world.vault)
    execute(planner, world.probe, claimed, owner="worker", clock=world.clock, stopping=lambda: False, hold=hold)
    assert world.deliver() is None
    assert _release(world) == Released(runs=0, deliveries=0, news=1, rescorings=0)
    assert world.deliver() is not None


def test_a_delivery_that_failed_is_not_hastened(world: World) -> None:
    world.probe.all_miss()
    world.run()
    world.send.receipts = [Receipt(ok=False, http_status=503, error="http_5xx")]
    assert world.deliver() is not None
    assert _release(world) == Released(runs=0, deliveries=0, news=0, rescorings=0)
    assert world.deliver() is None


def test_a_rescoring_goes_on_at_once_but_for_one_that_a_command_carries_out(world: World) -> None:
    world.run()
    number = rescoring.ask(world.store, CHECK, since=None, now=world.clock.advance(1))
    assert rescoring.claim(world.store, owner=f"{COMMAND}1:ab", now=world.clock()) == number
    assert _release(world) == Released(runs=0, deliveries=0, news=0, rescorings=0)
    assert rescoring.claim(world.store, owner="next", now=world.clock()) is None
    world.clock.now += LEASE + timedelta(seconds=1)
    assert rescoring.claim(world.store, owner="gone", now=world.clock()) == number
    assert _release(world) == Released(runs=0, deliveries=0, news=0, rescorings=1)
    assert rescoring.claim(world.store, owner="next", now=world.clock()) == number
    with world.store.read() as connection:
        assert connection.execute(sa.select(rescorings.c.attempts)).scalar_one() == 3  # each may have ended a process


class _Killed:
    """A send amid which the process ends."""

    def __call__(self, hook: Hook, message: Message, now: datetime) -> Receipt:  # noqa: ARG002 - the protocol's
        """End it."""
        raise KeyboardInterrupt


# --- real processes ------------------------------------------------------------------------------------------

COUNT = 300  # three shards


@pytest.mark.systems
def test_a_run_whose_service_was_killed_goes_on_before_its_lease_is_over(
    tmp_path: Path, stores: Callable[..., Store]
) -> None:
    data, keys = tmp_path / "data", [f"q{number:03}" for number in range(COUNT)]
    killed = threading.Event()

    def answer(seen: Seen) -> Reply:
        if len(retriever.seen) > COUNT * 2 // 3:
            killed.wait(60)  # so slow that the run cannot end before
        return reply(json.dumps({"hits": [{"id": f"doc-{json.loads(seen.body)['q']}", "score": 0.9}]}).encode())

    with peer(answer) as retriever:
        whole = page([canary(key) for key in keys], schedule={"every": "31d"}, hooks=[])
        described = {**RETRIEVER, "url": f"{retriever.url}/", "timeout": 60}
        file = _file(tmp_path, {**whole, "retrievers": [described], "hooks": []})
        serve = ("serve", "--port", free_ports(), "--data-dir", data, "--canaries", file)
        with started(tmp_path, *serve) as process:
            process.wait_for("run_started")
            store = stores(f"sqlite:///{data / 'coalmine.db'}")
            world = World(store=store)
            until(lambda: world.count("shards")["shards"] and len(retriever.seen) > COUNT * 2 // 3)
            process.end(signal.SIGKILL)
        lease_until = _one(store, runs.c.lease_until)
        killed.set()
        restarted_at = datetime.now(UTC)
        with started(tmp_path, *serve) as process:
            until(lambda: _one(store, runs.c.status) == "finished")
            assert "work_taken_over" in process.said
    finished_at = from_us(_one(store, runs.c.finished_at))
    assert finished_at < from_us(lease_until), f"{finished_at - restarted_at} after the restart"
    assert world.shown(1)["probes"] == {"ok": COUNT}


@pytest.mark.systems
def test_a_delivery_whose_service_was_killed_is_sent_again_before_its_lease_is_over(
    tmp_path: Path, stores: Callable[..., Store]
) -> None:
    data, port = tmp_path / "data", free_ports()
    replies = [HANG]
    with peer(lambda _: replies.pop() if replies else reply(b"", 204)) as receiver:
        hook = {**HOOK, "url": f"{receiver.url}/", "secret": SECRET}
        file = _file(tmp_path, {**page([canary("ant")]), "hooks": [hook], "checks": []})
        serve = ("serve", "--port", port, "--data-dir", data, "--canaries", file)
        allowed = {"COALMINE_HOOK_ALLOW": "127.0.0.0/8"}
        with started(tmp_path, *serve, **allowed) as process:
            process.wait_for("is serving")
            assert httpx2.post(f"http://127.0.0.1:{port}/v1/hooks/ops/test", json={}).is_success
            until(lambda: receiver.seen)
            process.end(signal.SIGKILL)
        store = stores(f"sqlite:///{data / 'coalmine.db'}")
        lease_until = from_us(_one(store, delivery_rows.c.lease_until))
        restarted_at = datetime.now(UTC)
        with started(tmp_path, *serve, **allowed) as process:
            until(lambda: _one(store, delivery_rows.c.state) == "delivered")
            delivered_at = datetime.now(UTC)
    assert delivered_at < lease_until, f"{delivered_at - restarted_at} after the restart"
    assert {seen.headers["webhook-id"] for seen in receiver.seen} == {_one(store, delivery_rows.c.message_id)}
    assert len(receiver.seen) == 2


def _file(folder: Path, whole: dict[str, Any]) -> Path:
    """Write a canary file; JSON is YAML."""
    file = folder / "canaries.yaml"
    file.write_text(json.dumps(whole), encoding="utf-8")
    return file


def _one(store: Store, column: Any) -> Any:
    with store.read() as connection:
        return connection.execute(sa.select(column)).scalar_one()
