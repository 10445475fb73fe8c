"""What is under way stays with its worker: the heartbeat survives whatever goes wrong with one beat, and says so."""

import threading
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app.base.db.engine import Store
from app.operation import job_threads
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.reports import metrics
from tests.support.fakes import Crash
from tests.support.living import until
from tests.support.world import LINKS, World, canary, page


@pytest.mark.parametrize("error", [ValueError("a bug"), MemoryError(), Crash()])
def test_a_heartbeat_goes_on_after_any_error_and_tells_of_one_that_lasts(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    world = World(store=sqlite_store)
    world.clock.now = datetime.now(UTC)
    world.apply(page([canary("ant")], schedule={"every": "31d"}))
    broken = threading.Event()
    broken.set()
    beaten: list[None] = []
    monkeypatch.setattr(job_threads, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(job_threads, "_SILENT_SECONDS", 0.1)
    registry = CollectorRegistry()
    engine = Engine(store=sqlite_store, vault=world.vault, probe=world.probe, send=world.send, links=LINKS, owner="it")
    working = Worker(engine, metrics.ProcessMetrics(registry), metrics.Snapshot())
    queue = working._jobs._queue
    beat = queue.beat

    def beat_unless_broken() -> None:
        beaten.append(None)
        if broken.is_set():
            raise error
        beat()

    monkeypatch.setattr(queue, "beat", beat_unless_broken)
    issue = b'coalmine_self_issue{issue="heartbeat"} %s'
    working.start()
    try:
        until(lambda: len(beaten) > 3)
        until(lambda: issue % b"1.0" in generate_latest(registry))
        assert working.alive
        world.wish()
        working.wake()
        until(lambda: world.shown(1)["status"] == "finished")
        broken.clear()
        until(lambda: issue % b"0.0" in generate_latest(registry))
    finally:
        working.stop()
