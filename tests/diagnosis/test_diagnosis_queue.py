"""Diagnoses wait for one another and for slow retrievers; runs and news never wait for them."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app import metrics
from app.domain.model import Answer
from app.domain.probing.retrievers import ProbeContext, ProbeQuery
from app.services.diagnosis.diagnosis_queue import Diagnoses
from app.services.history import run_views
from app.services.runs.runs import EndedRun
from app.store.engine import Store
from app.worker import Engine, Worker
from tests.support.library import TEXTS, Diagnosed, Library, shelf
from tests.support.living import until
from tests.support.world import LINKS, World

PAIR = ("one", "two")


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


def _queue(setting: Diagnosed, probe: Any = None, **more: Any) -> Diagnoses:
    return Diagnoses(planner=setting.planner, probe=probe or setting.library, clock=setting.world.clock, **more)


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
    queue = _queue(setting)
    queue.add(ended)
    assert setting.world.deliver() is None
    queue.close()
    assert setting.world.deliver() is not None
    assert not queue.work_once()


# --- of the queue --------------------------------------------------------------------------------------------


def test_what_waits_is_diagnosed_and_its_news_let_go(sqlite_store: Store) -> None:
    setting, ended = _degraded(sqlite_store)
    queue = _queue(setting)
    queue.add(ended)
    assert (setting.world.deliver(), setting.library.questions()) == (None, [])
    assert (queue.work_once(), queue.work_once()) == (True, False)
    assert setting.why("refunds").cause == "missing"
    assert setting.world.deliver() is not None


def test_healthy_runs_do_not_take_the_places_of_others(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    queue = _queue(setting, most=1)
    queue.add(setting.run(diagnosed=False))
    assert not queue.work_once()
    del setting.library.chunks["refunds"]
    queue.add(setting.run(diagnosed=False))
    assert queue.work_once()


def test_where_the_queue_is_full_the_news_goes_out_at_once(sqlite_store: Store) -> None:
    setting, ended = _degraded(sqlite_store)
    queue = _queue(setting, most=0)
    queue.add(ended)
    assert setting.world.deliver() is not None
    assert not queue.work_once()


def test_what_waited_too_long_is_let_go_without_a_question(sqlite_store: Store) -> None:
    setting, ended = _degraded(sqlite_store)
    queue = _queue(setting)
    queue.add(ended)
    setting.world.clock.advance(21)
    assert queue.work_once()
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

    queue = _queue(setting, slow)
    queue.add(ended)
    setting.world.clock.advance(15)
    assert queue.work_once()
    assert len(asked) == 3  # in the ten seconds left
    assert setting.world.deliver() is not None


def test_behind_a_retriever_known_to_be_slow_no_news_waits(sqlite_store: Store) -> None:
    setting, first = _degraded(sqlite_store)
    behind: list[EndedRun] = []
    told: list[bool] = []

    def slow(context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        for one in behind:
            queue.add(one)  # while another is at work
            told.append(setting.world.deliver() is not None)
        behind.clear()
        yield from setting.library(context, queries)
        setting.world.clock.advance(22)

    queue = _queue(setting, slow)
    queue.add(first)
    assert queue.work_once()
    assert setting.world.deliver() is not None
    setting.library.chunks["refunds"] = TEXTS["refunds"]
    setting.run(diagnosed=False)
    assert setting.world.deliver() is not None
    del setting.library.chunks["tokens"]
    behind.append(setting.run(diagnosed=False))
    queue.add(first)
    assert queue.work_once()
    assert told == [True]
    assert not queue.work_once()


@pytest.mark.parametrize("retriever", ["search", "elsewhere"])
def test_a_retriever_has_one_diagnosis_at_a_time(sqlite_store: Store, retriever: str) -> None:
    setting, ended = _degraded(sqlite_store)
    beside: list[bool] = []
    other = EndedRun(
        **{name: getattr(ended, name) for name in EndedRun.__dataclass_fields__} | {"retriever": retriever}
    )

    def meanwhile(context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        if not beside:
            beside.append(True)
            beside[0] = queue.work_once()
        yield from setting.library(context, queries)

    queue = _queue(setting, meanwhile)
    queue.add(ended)
    queue.add(other)
    assert queue.work_once()
    assert beside == [retriever == "elsewhere"]
    assert queue.work_once() is (retriever == "search")


def test_a_bug_lets_the_news_go_and_the_next_one_have_its_turn(
    sqlite_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    setting, ended = _degraded(sqlite_store)

    def broken(_asking: ProbeContext, _asks: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        raise RuntimeError("a bug of our own")

    queue = _queue(setting, broken)
    for _ in PAIR:
        queue.add(ended)
    assert queue.work_once()
    assert setting.world.deliver() is not None
    assert queue.work_once()
    assert [record.message for record in caplog.records if record.exc_info] == ["bug", "bug"]
