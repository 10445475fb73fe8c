"""A worker plants at the instant of a schedule, whenever it looks after everything else."""

from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from app.base.db.engine import Store
from app.operation import worker
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.plants.service import shown
from app.reports import metrics
from tests.plants.test_planting import described
from tests.support.living import until
from tests.support.planted import retriever_of, source
from tests.support.world import CHECK, LINKS, World


def test_an_instant_between_two_looks_is_met(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_SYNC_SECONDS", 1000)
    with source() as (_, served):
        world = World(store=sqlite_store)
        world.clock.now = datetime.now(UTC)
        world.apply(described(retriever_of(served), every="10s"))
        engine = Engine(
            store=world.store, vault=world.vault, probe=world.probe, send=world.send, links=LINKS, owner="in-time"
        )
        working = Worker(engine, metrics.ProcessMetrics(CollectorRegistry()), metrics.Snapshot())
        working.start()
        try:
            until(lambda: shown.load_plants(world.store, CHECK, now=datetime.now(UTC))["items"])
        finally:
            working.stop()
