"""Runs under way stay with their worker: the heartbeat survives whatever goes wrong with one beat, and says so."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app import metrics, worker
from app.services.runs import heartbeat, runs
from app.store.engine import Store
from app.worker import Engine, Worker
from tests.support.fakes import Crash
from tests.support.living import until
from tests.support.world import CHECK, LINKS, World, canary, page

pytestmark = pytest.mark.databases


@pytest.mark.parametrize("error", [ValueError("a bug"), MemoryError(), Crash()])
def test_a_heartbeat_goes_on_after_any_error_and_tells_of_one_that_lasts(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    world = World(store=store)
    world.clock.now = datetime.now(UTC)
    world.apply(page([canary("ant")], schedule={"every": "31d"}))
    midway, over, broken = threading.Event(), threading.Event(), threading.Event()
    broken.set()

    def wait(_number: int) -> None:
        midway.set()
        assert over.wait(20)

    renewed: list[Any] = []
    renew = runs.renew

    def renew_unless_broken(*arguments: Any, **more: Any) -> None:
        renewed.append(arguments)
        if broken.is_set():
            raise error
        renew(*arguments, **more)

    monkeypatch.setattr(runs, "renew", renew_unless_broken)
    monkeypatch.setattr(heartbeat, "EVERY_SECONDS", 0.02)
    monkeypatch.setattr(worker, "LEASE", timedelta(seconds=2))
    world.probe.before_batch = wait
    registry = CollectorRegistry()
    engine = Engine(
        store=store, vault=world.vault, probe=world.probe, send=world.send, links=LINKS, owner="it", diagnosis_threads=1
    )
    working = Worker(engine, metrics.ProcessMetrics(registry), metrics.Snapshot())
    issue = b'coalmine_self_issue{issue="heartbeat"} %s'
    working.start()
    try:
        world.wish()
        working.wake()
        assert midway.wait(20)
        until(lambda: len(renewed) > 3)
        until(lambda: issue % b"1.0" in generate_latest(registry))
        assert working.alive
        broken.clear()
        until(lambda: issue % b"0.0" in generate_latest(registry))
        over.set()
        until(lambda: world.shown(1)["status"] == "finished")
    finally:
        over.set()
        working.stop()
    assert {run["check"] for run in [world.shown(1)]} == {CHECK}
