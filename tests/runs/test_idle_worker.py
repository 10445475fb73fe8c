"""A worker with nothing to do: it reads now and then, writes nothing, and hears of what another process queued."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from sqlalchemy import event

from app.base.db.engine import Store
from app.base.values import Trigger
from app.operation import job_threads, worker
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.records.service import run_views
from app.reports import metrics
from tests.support.living import until
from tests.support.world import CHECK, LINKS, World, canary, page

pytestmark = pytest.mark.databases

POLL_SECONDS = 0.02


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the worker look for work often, so that it is idle for many turns at once."""
    monkeypatch.setattr(job_threads, "POLL_SECONDS", POLL_SECONDS)
    monkeypatch.setattr(job_threads, "BEAT_SECONDS", 1000.0)  # where several share the work, each says that it lives


@contextmanager
def _working(world: World) -> Iterator[None]:
    engine = Engine(store=world.store, vault=world.vault, probe=world.probe, send=world.send, links=LINKS, owner="idle")
    working = Worker(engine, metrics.ProcessMetrics(CollectorRegistry()), metrics.Snapshot())
    working.start()
    try:
        yield
    finally:
        working.stop()


def _transactions(store: Store) -> tuple[list[str], list[str]]:
    """Give two lists that grow with every transaction from now on: those that read, and those that write."""
    reads: list[str] = []
    writes: list[str] = []

    def begun(connection: sa.Connection) -> None:
        (writes if connection.get_execution_options().get("coalmine_writes") else reads).append("begun")

    event.listen(store.engine, "begin", begun)
    return reads, writes


def test_an_idle_worker_opens_no_writing_transaction(store: Store) -> None:
    world = World(store=store)
    world.clock.now = datetime.now(UTC)
    reads, writes = _transactions(store)
    with _working(world):
        until(lambda: len(reads) >= 20)  # it has caught up
        before, polled = len(writes), len(reads)
        until(lambda: len(reads) >= polled + 50)
        assert len(writes) == before


def test_an_idle_worker_gives_free_pages_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[str] = []
    monkeypatch.setattr(worker, "return_free_pages", partial(given_back.append, "pages"))
    with _working(World(store=store)):
        until(lambda: given_back)


def test_a_run_that_another_process_queued_is_begun_without_a_word(
    database_url: str, stores: Callable[..., Store]
) -> None:
    ours, theirs = (World(store=stores(database_url)) for _ in range(2))
    for world in (ours, theirs):
        world.clock.now = datetime.now(UTC)
    theirs.apply(page([canary("ant")], schedule={"every": "31d"}))

    def finished() -> int:
        runs = run_views.list_runs(ours.store, CHECK, before=None, limit=10)
        return sum(run["finished_at"] is not None for run in runs)

    reads, _ = _transactions(ours.store)
    with _working(ours):
        before = until(finished)  # the catch-up
        polled = len(reads)
        until(lambda: len(reads) >= polled + 20)
        theirs.wish(trigger=Trigger.API)
        until(lambda: finished() > before)
