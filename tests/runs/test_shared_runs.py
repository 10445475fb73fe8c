"""A run that several processes carry out lane by lane: whole, once, and within what its retriever takes."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.errors import StoreUnavailableError
from app.base.jobs import open_queue
from app.base.jobs.values import Job, JobKind, Room
from app.base.values import RunStatus, Verdict
from app.records.service.plans import SHARD, Planner
from app.records.tables import runs as rows
from app.retrievers import store as retriever_rows
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import ProbeContext, fan_out, lane_count
from app.runs.service import execution
from app.runs.service.execution import ShardEnd
from app.runs.service.finalising import EndedRun
from tests.conftest import Databases
from tests.support.fakes import Crash
from tests.support.present import present
from tests.support.world import RETRIEVER, World, canary, page

pytestmark = pytest.mark.databases

COUNT = 4 * SHARD + 50
QUERIES = sorted(f"q{number:03}" for number in range(COUNT))


class Replica:
    """A process that takes part: its own plans and its own number at the queue."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.planner = Planner(world.store, world.vault)
        self.queue = open_queue(world.store)
        self.queue.begin()

    def take(self) -> Job | None:
        """Take a job of a run, if one is due."""
        found = self.queue.take(datetime.now(UTC), Room([JobKind.RUN, JobKind.SHARD], 1))
        return found[0] if found else None

    def do(self, job: Job, *, stopping: Callable[[], bool] = lambda: False) -> EndedRun | None:
        """Do a job of a run, and give the run where it ended."""
        world = self.world
        claimed = execution.begin(world.store, job.key, owner=execution.OWNER, now=world.clock())
        if claimed is None:
            end = ShardEnd()
        elif job.kind is JobKind.RUN:
            end = ShardEnd(ended=execution.begin_in_lanes(self.planner, claimed, world.clock))
        else:
            end = execution.ask_shard(
                self.planner, world.probe, claimed, job.part, clock=world.clock, stopping=stopping
            )
        if end.is_done:
            self.queue.finish(job)
        else:
            self.queue.put_back(job, datetime.now(UTC))
        return end.ended

    def work(self) -> list[EndedRun]:
        """Do all there is to do, one job after the other."""
        ended = [self.do(job) for job in iter(self.take, None)]
        return [one for one in ended if one is not None]


@pytest.fixture
def world(postgresql_store: Store) -> World:
    """Give a world with five shards of canaries, whose retriever takes ten requests at a time."""
    world = World(store=postgresql_store)
    described = page([canary(key) for key in QUERIES], rules=[])
    world.apply({**described, "retrievers": [{**RETRIEVER, "concurrency": 10, "breaker": 150}]})
    return world


@pytest.fixture
def replicas(world: World) -> tuple[Replica, Replica]:
    """Give two processes that take part."""
    return Replica(world), Replica(world)


def _assert_whole(world: World, run_id: int) -> None:
    shown = world.shown(run_id)
    assert (shown["status"], shown["verdict"], shown["probes"]) == ("finished", "healthy", {"ok": COUNT})
    assert set(world.results(run_id, limit=COUNT + 1)) == set(QUERIES)
    assert world.count("states", "shards", "run_probes") == {"states": COUNT, "shards": 0, "run_probes": 1}


def _asked(world: World) -> Counter[str]:
    return Counter(query for _, query in world.probe.asked)


def test_the_lanes_of_a_retriever_add_up_to_what_it_takes() -> None:
    for concurrency in range(1, 33):
        retriever = RetrieverDocument.model_validate({**RETRIEVER, "concurrency": concurrency}).to_domain()
        widths = [fan_out(retriever, lane) for lane in range(lane_count(retriever))]
        assert sum(widths) == concurrency
        assert len(widths) == min(4, concurrency)
        assert max(widths) - min(widths) <= 1


def test_two_processes_share_a_run_and_ask_every_canary_once(world: World, replicas: tuple[Replica, Replica]) -> None:
    one, other = replicas
    run_id = world.wish()
    assert one.do(present(one.take())) is None
    first, second = present(one.take()), present(other.take())
    assert {first.part, second.part} < set(range(4))
    assert first.part != second.part
    assert one.do(first) is None
    assert other.do(second) is None
    (ended,) = [*other.work(), *one.work()]
    assert (ended.id, ended.status) == (run_id, RunStatus.FINISHED)
    _assert_whole(world, run_id)
    assert set(_asked(world).values()) == {1}
    assert len(_asked(world)) == COUNT


def test_what_is_under_way_of_a_retriever_never_exceeds_what_it_takes_whatever_runs(
    world: World, replicas: tuple[Replica, Replica]
) -> None:
    """Two checks of one retriever run at once; of each lane one shard is asked at a time."""
    whole = page([canary(key) for key in QUERIES], rules=[])
    retriever = {**RETRIEVER, "concurrency": 10}
    checks = [{**whole["checks"][0], "slug": slug} for slug in ("one", "two")]
    world.apply({**whole, "retrievers": [retriever], "checks": checks})
    for slug in ("one", "two"):
        world.wish(slug)
    under_way: dict[int, Job] = {}
    widths: list[int] = []
    jobs: list[tuple[Replica, Job]] = []
    while True:
        for replica in replicas:
            while (job := replica.take()) is not None:
                jobs.append((replica, job))
                if job.kind is JobKind.SHARD:
                    assert job.part not in under_way
                    under_way[job.part] = job
        widths.append(len(under_way))
        if not jobs:
            break
        replica, job = jobs.pop(0)
        replica.do(job)
        if job.kind is JobKind.SHARD:
            del under_way[job.part]
    assert max(widths) == 4
    by_lane = {present(context.lane).number: present(context.lane).concurrency for context in world.probe.askings}
    assert sum(by_lane.values()) == 10
    assert [world.shown(run_id)["status"] for run_id in (1, 2)] == ["finished", "finished"]
    assert set(Counter(world.probe.asked).values()) == {1}


def test_a_shard_whose_process_died_is_asked_by_another(world: World, replicas: tuple[Replica, Replica]) -> None:
    dead, alive = replicas
    run_id = world.wish()
    dead.do(present(dead.take()))
    job = present(dead.take())

    def die(number: int) -> None:
        if number == 2:
            raise Crash

    world.probe.before_batch = die
    with pytest.raises(Crash):
        dead.do(job)
    world.probe.before_batch = lambda _: None
    dead.queue.end()  # as others do who take it for dead
    (ended,) = alive.work()
    assert ended.status is RunStatus.FINISHED
    _assert_whole(world, run_id)
    assert Counter(_asked(world).values()) == {1: COUNT - 50, 2: 50}  # what was not staged


def test_a_process_that_dies_before_the_end_of_the_last_shard_leaves_the_end_to_another(
    world: World, replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive = replicas
    run_id = world.wish()

    def die(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(execution, "finalise", die)
        with pytest.raises(Crash):
            dead.work()
    assert world.count("shards") == {"shards": 5}
    dead.queue.end()
    (ended,) = alive.work()
    assert ended.status is RunStatus.FINISHED
    _assert_whole(world, run_id)


def test_a_process_that_stops_amid_a_shard_keeps_nothing_of_it(world: World, replicas: tuple[Replica, Replica]) -> None:
    one, other = replicas
    run_id = world.wish()
    one.do(present(one.take()))
    assert one.do(present(one.take()), stopping=lambda: len(world.probe.asked) == 50) is None
    assert world.count("shards") == {"shards": 0}
    assert len(other.work()) == 1
    _assert_whole(world, run_id)


def test_whoever_comes_back_from_the_dead_changes_nothing(world: World, replicas: tuple[Replica, Replica]) -> None:
    frozen, alive = replicas
    run_id = world.wish()
    frozen.do(present(frozen.take()))
    job = present(frozen.take())
    dumps: list[object] = []

    def freeze(number: int) -> None:
        if number == 3:
            world.probe.before_batch = lambda _: None
            with world.store.write() as connection:
                silent = "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour' WHERE id <> %s"
                connection.exec_driver_sql(silent, (alive.queue._worker,))  # type: ignore[attr-defined] # of PostgreSQL
            alive.queue.beat()
            assert len(alive.work()) == 1
            dumps.append(world.dump())

    world.probe.before_batch = freeze
    assert frozen.do(job) is None
    assert dumps == [world.dump()]
    _assert_whole(world, run_id)


def test_a_dead_retriever_ends_the_run_early_for_all_lanes(world: World, replicas: tuple[Replica, Replica]) -> None:
    world.probe.all_fail()
    run_id = world.wish()
    (ended,) = replicas[0].work()
    assert (ended.status, ended.verdict) == (RunStatus.PARTIAL, Verdict.UNKNOWN)
    assert len(world.probe.asked) == 150
    assert world.shown(run_id)["reasons"][0] == "the run was ended early: 150 probes in a row failed (150 unreachable)"
    assert replicas[1].work() == []


def test_answers_too_far_apart_are_not_one_run(world: World, replicas: tuple[Replica, Replica]) -> None:
    run_id = world.wish()
    one, other = replicas
    one.do(present(one.take()))
    one.do(present(one.take()))
    world.clock.advance(timedelta(minutes=10).total_seconds())
    one.do(present(one.take()))
    world.clock.advance(timedelta(minutes=16).total_seconds())
    (ended,) = other.work()
    assert ended.status is RunStatus.PARTIAL
    assert world.shown(run_id)["probes"]["skipped"] == COUNT - len(world.probe.asked)


def test_a_run_that_cannot_be_carried_out_fails_when_it_is_begun(
    world: World, replicas: tuple[Replica, Replica]
) -> None:
    world.wish()
    world.apply({**page([canary("ant")], suite="another"), "checks": []})
    (ended,) = replicas[0].work()
    assert ended.status is RunStatus.FAILED


def test_runs_of_one_shard_each_are_spread_over_the_lanes(world: World, replicas: tuple[Replica, Replica]) -> None:
    whole = page([canary("ant")], rules=[])
    checks = [{**whole["checks"][0], "slug": f"check-{number}"} for number in range(8)]
    world.apply({**whole, "retrievers": [{**RETRIEVER, "concurrency": 8}], "checks": checks})
    for check in checks:
        world.wish(check["slug"])
    assert len(replicas[0].work()) == 8
    assert Counter(present(context.lane).number for context in world.probe.askings) == dict.fromkeys(range(4), 2)


# --- the rate ------------------------------------------------------------------------------------------------


def test_stretches_of_a_rate_follow_one_another_whoever_reserves_them(
    databases: Databases, stores: Callable[..., Store]
) -> None:
    url = databases.postgresql()
    waits = []
    for store in (stores(url), stores(url), stores(url)):
        with store.write() as connection:
            waits.append(retriever_rows.reserve(connection, "search", microseconds=60_000_000))
    assert waits[0] == 0
    assert 55_000_000 < waits[1] <= 60_000_000
    assert 115_000_000 < waits[2] <= 120_000_000
    with stores(url).write() as connection:
        assert retriever_rows.reserve(connection, "another", microseconds=1) == 0


def test_the_rate_of_a_lane_is_asked_of_the_database(world: World, replicas: tuple[Replica, Replica]) -> None:
    seen: list[ProbeContext] = world.probe.askings
    world.wish()
    replicas[0].work()
    reserve = present(seen[0].lane).reserve
    assert reserve(5, 2.0) == 0.0
    assert 9.0 < present(seen[1].lane).reserve(1, 2.0) <= 10.0


def test_a_run_under_way_stays_so_while_the_database_is_away(
    world: World, replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = world.wish()
    one, other = replicas
    one.do(present(one.take()))
    job = present(one.take())

    def refuse() -> None:
        raise StoreUnavailableError("the database cannot be used now")

    def fail(number: int) -> None:
        if number == 3:
            monkeypatch.setattr(world.store, "write", refuse)

    world.probe.before_batch = fail
    with pytest.raises(StoreUnavailableError):
        one.do(job)
    monkeypatch.undo()
    world.probe.before_batch = lambda _: None
    with world.store.read() as connection:
        assert connection.execute(sa.select(rows.c.status)).scalar_one() == "running"
    one.queue.end()
    assert len(other.work()) == 1
    _assert_whole(world, run_id)
