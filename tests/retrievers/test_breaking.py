"""A retriever that fails again and again is left in peace: the run ends early, unknown, with the reason, for good."""

import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.db.engine import Store
from app.base.values import Answer, Outcome, RunStatus, Step, Verdict, replace
from app.retrievers.domain.probes import CircuitBreaker
from app.retrievers.domain.retrievers import ProbeQuery
from app.runs.service.finalising import EndedRun
from app.runs.service.gate import choose_targets, measure
from tests.support.fakes import Crash, FakeClock, FakeProbe, answered, failed, hits
from tests.support.world import COVERAGE, RETRIEVER, World, canary, documents, page, statements

COUNT = 250  # three shards, the last one half full; the fake asks the last canary first
REASON = "the run was ended early: 10 probes in a row failed (7 timeout, 3 unreachable)"
FAILURES = [
    "retriever does not answer in time (7 of 250 probes, 3 failed otherwise, 105 were not sent)",
    "retriever is unreachable: as told (3 of 250 probes)",
]


# --- counting ------------------------------------------------------------------------------------------------


def _answer(outcome: Outcome) -> Answer:
    return answered(hits("a")) if outcome is Outcome.OK else failed(outcome)


@given(
    limit=st.integers(1, 5),
    batches=st.lists(st.lists(st.sampled_from([Outcome.OK, Outcome.TIMEOUT, Outcome.REFUSED]), max_size=6), max_size=6),
)
def test_the_breaker_opens_at_so_many_failures_in_a_row_however_they_come_in(
    limit: int, batches: Sequence[Sequence[Outcome]]
) -> None:
    breaker = CircuitBreaker(limit=limit)
    for batch in batches:
        breaker = breaker.after(map(_answer, batch))
    flat = [outcome for batch in batches for outcome in batch]
    rows = [flat[start : start + limit] for start in range(len(flat) - limit + 1)]
    opening = next((row for row in rows if Outcome.OK not in row), None)
    assert breaker.is_open == (opening is not None)
    assert breaker.arrived == len(flat)
    if opening is not None:
        assert breaker.failures == Counter(map(str, opening))


def test_a_breaker_without_a_limit_never_opens() -> None:
    patience = replace(failed(Outcome.REFUSED, http_status=429), retry_after_seconds=3600.0)
    assert not CircuitBreaker(limit=None).after([*[failed(Outcome.TIMEOUT)] * 1000, patience]).is_open


def test_the_reason_tells_how_probes_failed_and_at_whom() -> None:
    at_embedder = Answer(outcome=Outcome.TIMEOUT, latency_seconds=1.0, step=Step.EMBEDDER)
    breaker = CircuitBreaker(limit=3).after([failed(Outcome.REFUSED, http_status=500), at_embedder, at_embedder])
    assert breaker.reason.endswith("3 probes in a row failed (2 timeout at the embedder, 1 HTTP 500)")
    impatient = CircuitBreaker(limit=1).after([at_embedder])
    assert impatient.reason.endswith("ended early: 1 probe in a row failed (1 timeout at the embedder)")


# --- runs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def world(store: Store) -> World:
    """Give a world with three shards of canaries, in which every batch of five takes a second."""
    world = World(store=store)
    _define(world)
    world.probe.batch = 5
    world.probe.before_batch = partial(_wait, world)
    return world


def _define(world: World, **retriever: Any) -> None:
    whole = page([canary(f"q{number:03}") for number in range(COUNT)], rules=[COVERAGE])
    world.apply({**whole, "retrievers": [{**RETRIEVER, **retriever}]})


def _wait(world: World, _batch: int) -> None:
    world.clock.advance(1)


def _dies_after(world: World, answers: int) -> None:
    """Let the retriever answer so often, then time out seven times, then be gone."""
    given = 0

    def answer(ask: ProbeQuery) -> Answer:
        nonlocal given
        given += 1
        if given <= answers:
            return answered(hits(f"doc-{ask.query}"))
        return failed(Outcome.TIMEOUT if given <= answers + 7 else Outcome.UNREACHABLE)

    world.probe.otherwise = answer


def _assert_ended_early(world: World, run: EndedRun) -> None:
    shown = world.shown(run)
    assert (run.status, run.verdict) == (RunStatus.PARTIAL, Verdict.UNKNOWN)
    assert (shown["status"], shown["verdict"], shown["reasons"]) == ("partial", "unknown", [REASON, *FAILURES])
    assert shown["probes"] == {"ok": 135, "timeout": 7, "unreachable": 3, "skipped": 105}
    results = world.results(run, limit=COUNT)
    told = Counter(result["detail"] for result in results.values() if result["outcome"] == "skipped")
    assert told == {REASON: 105}
    assert world.count("shards") == {"shards": 0}


@pytest.mark.both
def test_a_dead_retriever_ends_the_run_as_unknown_though_most_was_measured(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It stops amid the second shard: what came of that shard is kept, what was not asked is skipped."""
    _dies_after(world, 135)
    with caplog.at_level(logging.WARNING, "coalmine"):
        run = world.run()
    _assert_ended_early(world, run)
    assert len(world.probe.asked) == 145
    assert world.results(run, limit=COUNT)["q249"]["verdict"] == "healthy"
    assert world.count("states") == {"states": 135}
    told = [record.__dict__ for record in caplog.records if record.getMessage() == "run_ended_early"]
    assert [(one["run"], one["detail"]) for one in told] == [(run.id, REASON)]


def test_what_failed_now_and_then_ends_nothing(world: World) -> None:
    world.probe.otherwise = lambda ask: (
        answered(hits(f"doc-{ask.query}")) if ask.position % 10 == 0 else failed(Outcome.TIMEOUT)
    )
    run = world.run()
    assert (run.status, run.verdict, run.probes) == (RunStatus.FINISHED, Verdict.UNKNOWN, {"ok": 25, "timeout": 225})


def test_a_retriever_without_a_breaker_is_asked_to_the_end(world: World) -> None:
    _define(world, breaker=None)
    world.probe.all_fail()
    run = world.run()
    assert (run.status, run.probes) == (RunStatus.FINISHED, {"unreachable": COUNT})


def test_a_run_that_has_asked_everything_was_not_ended_early(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary(f"q{number}") for number in range(20)]))
    world.probe.all_fail()
    run = world.run()
    assert run.status is RunStatus.FINISHED
    assert world.shown(run)["reasons"] == [
        "only 0 of 20 probes measured: retriever is unreachable: as told (20 of 20 probes)"
    ]


def test_a_run_ended_early_is_told_to_stop_in_vain(world: World) -> None:
    _dies_after(world, 135)
    world.wish()
    claimed = world.claim()
    assert claimed is not None
    run = world.execute(claimed, stopping=lambda: len(world.probe.asked) == 145)
    assert run is not None
    _assert_ended_early(world, run)


def test_the_next_run_asks_anew(world: World) -> None:
    _dies_after(world, 135)
    world.run()
    world.probe.all_answer()
    run = world.run()
    assert (run.status, run.verdict, run.probes) == (RunStatus.FINISHED, Verdict.HEALTHY, {"ok": COUNT})


def test_runs_ended_early_count_whatever_share_of_failures_is_allowed(store: Store) -> None:
    world = World(store=store)
    rule = {"kind": "probe_errors", "failed_share": 0.9}
    world.apply(page([canary(f"q{number:03}") for number in range(COUNT)], rules=[COVERAGE, rule]))
    world.probe.batch = 5
    for _ in range(2):
        _dies_after(world, 135)
        world.run()
    (alert,) = world.alerts()
    assert (alert["rule"], alert["severity"], alert["state"]) == ("probe_errors", "critical", "firing")


# --- crashes -------------------------------------------------------------------------------------------------


def test_a_run_ended_early_whose_worker_dies_is_finalised_without_asking_again(world: World) -> None:
    _dies_after(world, 135)
    world.wish()
    claimed = world.claim("first")
    assert claimed is not None

    def die(statement: str) -> None:
        if statement.startswith("UPDATE runs") and "verdict=" in statement:
            raise Crash

    with statements(world.store, die), pytest.raises(Crash):
        world.execute(claimed, "first")
    world.probe.all_answer()
    resumed = world.claim("second")
    assert resumed is not None
    run = world.execute(resumed, "second")
    assert run is not None
    _assert_ended_early(world, run)
    assert len(world.probe.asked) == 145


def test_failures_in_a_row_are_counted_on_after_a_crash(world: World) -> None:
    _define(world, breaker=60)
    world.probe.all_fail()
    world.wish()
    claimed = world.claim("first")
    assert claimed is not None

    def die(batch: int) -> None:
        world.clock.advance(1)
        if batch == 10:  # fifty failures are staged, the last shard
            raise Crash

    world.probe.before_batch = die
    with pytest.raises(Crash):
        world.execute(claimed, "first")
    assert world.count("shards") == {"shards": 1}
    world.probe.before_batch = partial(_wait, world)
    resumed = world.claim("second")
    assert resumed is not None
    run = world.execute(resumed, "second")
    assert run is not None
    assert len(world.probe.asked) == 60
    assert world.shown(run)["reasons"] == [
        "the run was ended early: 60 probes in a row failed (60 unreachable)",
        "retriever is unreachable: as told (60 of 250 probes, 190 were not sent)",
    ]


# --- the gate ------------------------------------------------------------------------------------------------


def test_the_gate_stops_asking_too_and_says_the_same(world: World) -> None:
    _dies_after(world, 135)
    of_service = world.shown(world.run())
    probe = FakeProbe(batch=5)
    world.probe = probe
    _dies_after(world, 135)
    whole = page([canary(f"q{number:03}") for number in range(COUNT)], rules=[COVERAGE])
    (target,) = choose_targets(documents(whole))
    heard: list[int] = []
    report = measure(target, probe, run_id="r", clock=FakeClock(), answered=heard.append)
    same = ("status", "verdict", "reasons", "probes", "canaries", "coverage", "health_score", "measures")
    told = {name: value for name, value in report["run"].items() if name in same}
    assert told == {name: of_service[name] for name in same}
    assert sum(heard) == len(probe.asked) == 145
    assert Counter(result["detail"] for result in report["results"] if result["outcome"] == "skipped") == {REASON: 105}
