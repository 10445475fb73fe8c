"""Whatever ends in the middle of a run, the run is carried on: nothing lost, nothing twice, nothing half."""

from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

from app.base.db.engine import Store
from app.base.db.keys import Vault
from app.base.values import Outcome, RunStatus, Verdict
from app.records.store.open_runs import ClaimedRun
from app.runs.service import execution
from tests.support.fakes import Crash, FakeClock, answered, failed, hits
from tests.support.world import COVERAGE, World, canary, page, statements

pytestmark = pytest.mark.both

COUNT = 250  # three shards, the last one half full
QUERIES = {f"q{number:03}" for number in range(COUNT)}
AT_ONCE = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}


@pytest.fixture
def world(store: Store) -> World:
    """Give a world with three shards of canaries, in which every batch takes a second."""
    world = World(store=store)
    world.apply(page([canary(key) for key in sorted(QUERIES)], rules=[AT_ONCE]))
    world.probe.before_batch = partial(_wait, world.clock)
    return world


def _wait(clock: FakeClock, _batch: int) -> None:
    clock.advance(1)


def _claimed(world: World, owner: str = "first") -> ClaimedRun:
    world.wish()
    claimed = world.claim(owner)
    assert claimed is not None
    return claimed


def _taken_over(world: World, run_id: int, owner: str = "second") -> ClaimedRun:
    claimed = world.take_over(run_id, owner)
    assert (claimed.id, claimed.resumed) == (run_id, True)
    return claimed


def _assert_whole(world: World, run_id: int) -> None:
    """Hold the run to be complete, once, with nothing left behind."""
    results = world.results(run_id, limit=COUNT + 1)
    assert set(results) == QUERIES
    assert {result["verdict"] for result in results.values()} == {"healthy"}
    shown = world.shown(run_id)
    assert (shown["status"], shown["verdict"], shown["probes"]) == ("finished", "healthy", {"ok": COUNT})
    assert world.count("runs", "states", "run_probes", "shards", "rollups", "latest") == {
        "runs": 1,
        "states": COUNT,
        "run_probes": 1,
        "shards": 0,
        "rollups": 2,
        "latest": 1,
    }


# --- stopping ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [0, 4, 8])
def test_a_worker_that_stops_lets_go_and_another_carries_on_at_once(world: World, batches: int) -> None:
    claimed = _claimed(world)
    given = iter(range(batches))
    assert world.execute(claimed, "first", stopping=lambda: next(given, None) is None) is None
    staged = world.count("shards")["shards"]
    first_asked = len(world.probe.asked)
    assert (staged, first_asked) == {0: (0, 25), 4: (1, 125), 8: (2, 225)}[batches]
    resumed = _taken_over(world, claimed.id)
    world.execute(resumed, "second")
    _assert_whole(world, claimed.id)
    assert len(world.probe.asked) == first_asked + COUNT - _canaries_in(staged)


def test_a_worker_told_to_stop_when_all_is_answered_finishes(world: World) -> None:
    claimed = _claimed(world)
    assert world.execute(claimed, "first", stopping=lambda: len(world.probe.asked) == COUNT) is not None
    _assert_whole(world, claimed.id)


def _canaries_in(shards: int) -> int:
    return {0: 0, 1: 50, 2: 150, 3: 250}[shards]  # the fake asks the last canary first


# --- dying ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, 1, 5, 9])
def test_a_run_whose_worker_died_is_carried_on_by_another(world: World, batch: int) -> None:
    def die(number: int) -> None:
        world.clock.advance(1)
        if number == batch:
            raise Crash

    claimed = _claimed(world)
    world.probe.before_batch = die
    with pytest.raises(Crash):
        world.execute(claimed, "first")
    staged = world.count("shards")["shards"]
    asked_before = set(world.probe.asked)
    committed = sorted(QUERIES, reverse=True)[: _canaries_in(staged)]
    world.probe.before_batch = lambda _: None
    world.probe.asked.clear()
    world.execute(_taken_over(world, claimed.id), "second")
    _assert_whole(world, claimed.id)
    asked = Counter(query for _, query in world.probe.asked)
    assert set(asked) == QUERIES - set(committed)
    assert set(asked.values()) == {1}
    assert {query for _, query in asked_before} | set(asked) == QUERIES


def test_a_run_carried_on_too_late_ends_partial_with_what_there_is(world: World) -> None:
    claimed = _claimed(world)
    given = iter(range(4))
    assert world.execute(claimed, "first", stopping=lambda: next(given, None) is None) is None
    world.clock.now += timedelta(minutes=16)
    asked = len(world.probe.asked)
    ended = world.execute(_taken_over(world, claimed.id), "second")
    assert ended is not None
    assert (ended.status, ended.verdict) == (RunStatus.PARTIAL, Verdict.UNKNOWN)
    assert len(world.probe.asked) == asked
    shown = world.shown(claimed.id)
    assert shown["probes"] == {"ok": 50, "skipped": 200}
    results = world.results(claimed.id, limit=COUNT)
    assert Counter(result["outcome"] for result in results.values()) == {"ok": 50, "skipped": 200}


# --- taken over ----------------------------------------------------------------------------------------------


@pytest.mark.databases
def test_one_who_was_taken_over_in_the_middle_writes_nothing_any_more(world: World) -> None:
    dumps: list[object] = []

    def pause(number: int) -> None:
        world.clock.advance(1)
        if number == 5:
            world.probe.before_batch = lambda _: None
            assert world.execute(_taken_over(world, claimed.id), "second") is not None
            dumps.append(world.dump())

    claimed = _claimed(world)
    world.probe.before_batch = pause
    assert world.execute(claimed, "first") is None
    assert dumps == [world.dump()]
    _assert_whole(world, claimed.id)


@pytest.mark.databases
def test_one_who_was_taken_over_just_before_the_end_writes_nothing_any_more(world: World) -> None:
    """All answers are staged by the first; the second finalises them while the first is about to."""
    dumps: list[object] = []
    claimed = _claimed(world)
    clock = world.clock

    class Paused:
        def __call__(self) -> object:
            if not dumps and world.count("shards")["shards"] == 3:
                dumps.append(None)
                world.clock = clock
                assert world.execute(_taken_over(world, claimed.id), "second") is not None
                dumps.append(world.dump())
            return clock()

    world.clock = Paused()  # type: ignore[assignment] # a clock that is slow once
    assert world.execute(claimed, "first") is None
    world.clock = clock
    assert dumps == [None, world.dump()]
    _assert_whole(world, claimed.id)


@pytest.mark.databases
def test_one_who_was_taken_over_cannot_fail_the_run_either(store: Store) -> None:
    world = World(store=store)
    world.apply(page())
    claimed = _claimed(world)
    resumed = _taken_over(world, claimed.id)
    assert world.execute(claimed, "first") is None
    assert world.shown(claimed.id)["status"] == "running"
    assert world.execute(resumed, "second") is not None
    assert world.shown(claimed.id)["status"] == "failed"


# --- the last transaction ------------------------------------------------------------------------------------


@pytest.mark.systems(seconds=30)
@pytest.mark.databases
def test_dying_anywhere_in_the_last_transaction_leaves_nothing_half_written(store: Store) -> None:
    """The process dies before the nth statement of finalising, for every n, and then before the commit."""
    world = World(store=store)
    world.apply(page([canary(key) for key in ("ant", "bee", "cat")], rules=[AT_ONCE], hooks=["ops"]))
    world.run()
    bad, fatal = True, 0
    opened = 0
    while True:
        world.clock.advance(60)
        world.probe.answers = {key: answered(hits(f"{fatal}")) for key in ("ant", "bee", "cat")} if bad else {}
        opened += bad
        claimed = _claimed(world)
        dying = _Dying(world, fatal)
        with statements(store, dying.before):
            try:
                ended = world.execute(claimed, "first")
            except Crash:
                ended = None
        if ended is None:
            assert world.dump() == dying.dump
            ended = world.execute(_taken_over(world, claimed.id), "second")
        assert ended is not None
        assert ended.verdict is (Verdict.DEGRADED if bad else Verdict.HEALTHY)
        alerts = world.alerts()
        assert len(alerts) == opened
        assert [alert["state"] for alert in alerts] == ["resolved"] * (opened - bad) + ["firing"] * bad
        assert [len(alert["transitions"]) for alert in alerts] == [2] * (opened - bad) + [1] * bad
        if dying.seen <= fatal:
            break
        world.deliver_all()
        bad, fatal = not bad, fatal + 1
    assert fatal > 15  # it really was a transaction of many statements
    assert Counter(item["type"] for item in world.deliveries()) == {
        "alert.opened": opened,
        "alert.resolved": opened - bad,
    }


class _Dying:
    """Raises Crash before the nth statement after the one that ends a run, and remembers how things stood then."""

    def __init__(self, world: World, fatal: int) -> None:
        self.world, self.fatal = world, fatal
        self.seen = 0
        self.dump: dict[str, list[tuple[object, ...]]] | None = None
        self._busy = False

    def before(self, statement: str) -> None:
        if self._busy:
            return
        if self.dump is None:
            if not (statement.startswith("UPDATE runs") and "verdict=" in statement):
                return
            self._busy = True
            self.dump = self.world.dump()
            self._busy = False
        if self.seen == self.fatal:
            self.seen += 1
            raise Crash
        self.seen += 1


@pytest.mark.databases
def test_dying_while_shards_are_committed_leaves_whole_shards_only(world: World) -> None:
    claimed = _claimed(world)
    seen = 0

    def before(statement: str) -> None:
        nonlocal seen
        if "INTO shards" in statement:
            seen += 1
            if seen == 2:
                raise Crash

    with statements(world.store, before), pytest.raises(Crash):
        world.execute(claimed, "first")
    assert world.count("shards", "states")["shards"] == 1
    world.execute(_taken_over(world, claimed.id), "second")
    _assert_whole(world, claimed.id)


def test_a_failed_probe_is_not_asked_again_after_a_takeover(world: World) -> None:
    """Its failure is staged like an answer: asking again would hide what the retriever did."""
    world.probe.answers["q249"] = failed(Outcome.REFUSED, http_status=500)
    claimed = _claimed(world)
    given = iter(range(4))
    assert world.execute(claimed, "first", stopping=lambda: next(given, None) is None) is None
    del world.probe.answers["q249"]
    world.execute(_taken_over(world, claimed.id), "second")
    result = world.results(claimed.id, limit=COUNT)["q249"]
    assert (result["outcome"], result["http_status"]) == ("refused", 500)


# --- errors of our own ---------------------------------------------------------------------------------------


def test_a_run_that_only_raises_is_tried_again_and_given_up_in_the_end(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    claimed = _claimed(world)

    def broken(_: int) -> None:
        raise ZeroDivisionError

    world.probe.before_batch = broken
    with pytest.raises(ZeroDivisionError):
        world.execute(claimed, "first")
    assert execution.give_up(store, claimed, owner="first", clock=world.clock) is None
    world.clock.now += timedelta(minutes=16)
    resumed = _taken_over(world, claimed.id)
    ended = execution.give_up(store, resumed, owner="second", clock=world.clock)
    assert ended is not None
    assert (ended.status, ended.verdict) == (RunStatus.FAILED, Verdict.UNKNOWN)
    assert "error in Coalmine" in world.shown(claimed.id)["reasons"][0]


def test_a_retriever_whose_secrets_cannot_be_read_fails_the_run_with_the_reason(store: Store) -> None:
    world = World(store=store)
    definitions = page([canary("ant")])
    definitions["retrievers"] = [
        {**definitions["retrievers"][0], "request": {"headers": {"x-key": "secret"}, "json": {"q": "{{ query }}"}}}
    ]
    world.apply(definitions)
    world.vault = Vault("another key than it was stored under")
    run = world.run()
    assert run.status is RunStatus.FAILED
    assert "SECRET_KEY" in world.shown(run)["reasons"][0]
