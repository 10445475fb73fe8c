"""Diagnoses wait for one another and for slow retrievers; runs and news never wait for them."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from app.base.db.engine import Store
from app.base.jobs.local import jobs
from app.base.values import Answer
from app.diagnosis.service.diagnoses import diagnose_run
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.records.service import run_views
from app.reports import metrics
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from app.runs.service.finalising import EndedRun
from tests.support.library import Diagnosed, Library, shelf
from tests.support.living import until
from tests.support.world import LINKS, World


@dataclass
class Slow:
    """Answers runs at once; every diagnosis hangs until it is let go."""

    library: Library
    hanging: list[str] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Ask the library."""
        if context.run_id.endswith("-diagnosis"):
            self.hanging.append(context.run_id)
            assert self.go.wait(20)
        yield from self.library(context, queries)


@contextmanager
def _working(setting: Diagnosed, probe: Slow, **more: Any) -> Iterator[Worker]:
    world = setting.world
    engine = Engine(
        store=world.store, vault=world.vault, probe=probe, send=world.send, links=LINKS, owner="worker", **more
    )
    worker = Worker(engine, metrics.ProcessMetrics(CollectorRegistry()), metrics.Snapshot())
    worker.start()
    try:
        yield worker
    finally:
        probe.go.set()
        worker.stop()


def _degraded(store: Store) -> tuple[Diagnosed, EndedRun]:
    """End a run that opened an alert the news of which waits for a diagnosis."""
    setting = Diagnosed.of(store)
    setting.run()
    del setting.library.chunks["refunds"]
    return setting, setting.run(diagnosed=False)


def _diagnose(setting: Diagnosed, run_id: int, probe: Any = None, **more: Any) -> None:
    diagnose_run(setting.planner, probe or setting.library, run_id, clock=setting.world.clock, **more)


# --- of a worker ---------------------------------------------------------------------------------------------


def test_runs_go_on_while_a_diagnosis_hangs(sqlite_store: Store) -> None:
    setting = Diagnosed(world=World(store=sqlite_store))
    setting.world.clock.now = datetime.now(UTC) - timedelta(minutes=5)
    setting.apply(shelf(), schedule={"every": "31d"})
    setting.run()
    del setting.library.chunks["refunds"]
    probe = Slow(setting.library)
    with _working(setting, probe, run_threads=1) as worker:
        setting.world.wish()
        worker.wake()
        until(lambda: probe.hanging)
        later = setting.world.wish()
        worker.wake()
        until(lambda: run_views.run(sqlite_store, str(later))["status"] == "finished")
        assert not probe.go.is_set()
        assert len(probe.hanging) == 1  # the second of the same retriever waits
        probe.go.set()
        until(lambda: setting.world.send.sent)
        assert setting.why("refunds").cause == "missing"
        assert worker.alive


def test_a_worker_that_stops_lets_the_news_of_all_that_wait_go(sqlite_store: Store) -> None:
    setting, ended = _degraded(sqlite_store)
    assert setting.world.deliver() is None
    _diagnose(setting, ended.id, stopping=lambda: True)
    assert setting.world.deliver() is not None
    assert setting.library.questions() == []


# --- of a run ------------------------------------------------------------------------------------------------


def _jobs(store: Store) -> list[tuple[int, str]]:
    with store.read() as connection:
        found = sa.select(jobs.c.key, jobs.c.lock).where(jobs.c.kind == "diagnosis").order_by(jobs.c.id)
        return [(row.key, row.lock) for row in connection.execute(found)]


def test_what_waits_is_diagnosed_and_its_news_let_go(sqlite_store: Store) -> None:
    setting, ended = _degraded(sqlite_store)
    assert (setting.world.deliver(), setting.library.questions()) == (None, [])
    _diagnose(setting, ended.id)
    assert setting.why("refunds").cause == "missing"
    assert setting.world.deliver() is not None


def test_only_runs_with_something_to_diagnose_wait_for_it_one_of_a_retriever_at_a_time(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run(diagnosed=False)
    assert _jobs(sqlite_store) == []
    del setting.library.chunks["refunds"]
    first, second = (setting.run(diagnosed=False) for _ in range(2))
    assert _jobs(sqlite_store) == [(first.id, "diagnosis:search"), (second.id, "diagnosis:search")]


def test_what_waited_too_long_is_let_go_without_a_question(sqlite_store: Store) -> None:
    setting, ended = _degraded(sqlite_store)
    setting.world.clock.advance(21)
    _diagnose(setting, ended.id)
    assert setting.world.deliver() is not None
    assert setting.library.questions() == []


def test_the_time_spent_waiting_is_not_there_for_asking(sqlite_store: Store) -> None:
    setting, ended = _degraded(sqlite_store)
    asked: list[str] = []

    def slow(context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        for batch in setting.library(context, queries):
            setting.world.clock.advance(4)
            asked.append(context.run_id)
            yield batch

    setting.world.clock.advance(15)
    _diagnose(setting, ended.id, slow)
    assert len(asked) == 3  # in the ten seconds left
    assert setting.world.deliver() is not None


def test_a_bug_lets_the_news_go(sqlite_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    setting, ended = _degraded(sqlite_store)

    def broken(_asking: ProbeContext, _asks: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        raise RuntimeError("a bug of our own")

    _diagnose(setting, ended.id, broken)
    assert setting.world.deliver() is not None
    assert [record.message for record in caplog.records if record.exc_info] == ["bug"]


def test_a_run_that_is_gone_is_no_error(sqlite_store: Store) -> None:
    setting, _ = _degraded(sqlite_store)
    _diagnose(setting, 99)
