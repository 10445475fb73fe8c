"""What a retriever takes holds over runs and everything else that asks it, whichever process does."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from app.base.db.engine import Store
from app.base.jobs import open_queue
from app.base.jobs.values import JobKind, Room
from app.base.values import Answer
from app.records.service.plans import Planner
from app.records.tables import rates
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery, Retriever
from app.retrievers.store import hold_lane
from app.runs.service import execution
from app.runs.service.execution import ROUNDS, SharedProbe, share_limits
from tests.support.blocking import waits_for_a_lock
from tests.support.fakes import FakeProbe
from tests.support.living import until
from tests.support.present import present
from tests.support.world import RETRIEVER, World, canary, page

pytestmark = pytest.mark.databases

SLUG = str(RETRIEVER["slug"])


def _retriever(**more: object) -> Retriever:
    return RetrieverDocument.model_validate({**RETRIEVER, **more}).to_domain()


def _queries(number: int) -> list[ProbeQuery]:
    return [ProbeQuery(position=at, query=f"q{at}", key=f"q{at}") for at in range(number)]


def _ask(probe: Probe, retriever: Retriever, number: int = 1) -> dict[int, Answer]:
    context = ProbeContext(retriever=retriever, k=10, run_id="diagnosis")
    return dict(one for batch in probe(context, _queries(number)) for one in batch)


class CountingProbe:
    """Counts what may be under way: the concurrency of whatever is being asked, in all threads."""

    def __init__(self) -> None:
        self.most = 0
        self.during: Callable[[ProbeContext], None] = lambda _: None
        self._under_way = 0
        self._lock = threading.Lock()

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Count while it answers."""
        return self._batches(context, queries) if queries else iter(())

    def _batches(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        with self._counted(context.concurrency):
            self.during(context)
            yield from FakeProbe()(context, queries)

    @contextmanager
    def _counted(self, concurrency: int) -> Iterator[None]:
        with self._lock:
            self._under_way += concurrency
            self.most = max(self.most, self._under_way)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= concurrency


def test_a_diagnosis_waits_for_the_shard_of_a_run_that_another_process_asks(postgresql_store: Store) -> None:
    world = World(store=postgresql_store)
    world.apply({**page([canary("ant")], rules=[]), "retrievers": [{**RETRIEVER, "concurrency": 1}]})
    counting = CountingProbe()
    probe = share_limits(postgresql_store, counting)
    other = threading.Thread(target=_ask, args=(probe, _retriever(concurrency=1)))

    def ask_too(context: ProbeContext) -> None:
        if context.run_id != "diagnosis":
            other.start()
            until(lambda: waits_for_a_lock(postgresql_store))

    counting.during = ask_too
    world.wish()
    planner, queue = Planner(world.store, world.vault), open_queue(world.store)
    queue.begin()
    for kind in (JobKind.RUN, JobKind.SHARD):
        (job,) = queue.take(world.clock(), Room([kind], 1))
        claimed = present(execution.begin(world.store, job.key, owner=execution.OWNER, now=world.clock()))
        if kind is JobKind.RUN:
            execution.begin_in_lanes(planner, claimed, world.clock)
        else:
            end = execution.ask_shard(planner, probe, claimed, job.part, clock=world.clock, stopping=lambda: False)
            assert present(end.ended).probes == {"ok": 1}
        queue.finish(job)
    other.join()
    assert counting.most == 1


def test_of_what_is_no_run_one_asks_in_a_lane_at_a_time(postgresql_store: Store) -> None:
    counting, retriever = CountingProbe(), _retriever(concurrency=1)
    probes = [SharedProbe(postgresql_store, counting) for _ in range(2)]
    other = threading.Thread(target=_ask, args=(probes[1], retriever))

    def ask_too(_context: ProbeContext) -> None:
        if other.ident is None:
            other.start()
            until(lambda: waits_for_a_lock(postgresql_store))

    counting.during = ask_too
    assert set(_ask(probes[0], retriever)) == {0}
    other.join()
    assert counting.most == 1


def test_it_asks_in_every_lane_in_turn_and_lets_others_in_between(postgresql_store: Store) -> None:
    fake, retriever = FakeProbe(), _retriever(concurrency=10)
    probe = SharedProbe(postgresql_store, fake)
    for _ in range(4):
        assert len(_ask(probe, retriever, 4 * ROUNDS)) == 4 * ROUNDS
    in_lanes = [present(context.lane) for context in fake.askings if context.lane is not None]
    assert [lane.number for lane in in_lanes] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sum(lane.concurrency for lane in in_lanes[::2]) == 10


def test_a_lane_that_is_never_free_is_waited_for_only_so_long(postgresql_store: Store) -> None:
    probe = SharedProbe(postgresql_store, FakeProbe(), patience=0.05)
    with hold_lane(postgresql_store, SLUG, 0, alone=False, at_most=1.0) as is_held:
        assert is_held
        assert set(_ask(probe, _retriever(concurrency=1))) == {0}


def test_its_requests_are_reserved_in_the_rate_that_all_have_in_common(postgresql_store: Store) -> None:
    fake = FakeProbe()
    _ask(SharedProbe(postgresql_store, fake), _retriever(concurrency=1, requests_per_second=2))
    lane = present(fake.askings[-1].lane)
    assert lane.reserve(1, 0.5) == 0.0
    assert 0.0 < lane.reserve(1, 0.5) <= 0.5
    with postgresql_store.read() as connection:
        assert [row.name for row in connection.execute(rates.select())] == [SLUG]


def test_shards_do_not_wait_for_one_another(postgresql_store: Store) -> None:
    with (
        hold_lane(postgresql_store, SLUG, 0, alone=False, at_most=1.0) as first,
        hold_lane(postgresql_store, SLUG, 0, alone=False, at_most=1.0) as second,
    ):
        assert (first, second) == (True, True)
        with hold_lane(postgresql_store, SLUG, 0, alone=True, at_most=0.05) as alone:
            assert not alone
        with hold_lane(postgresql_store, SLUG, 1, alone=True, at_most=1.0) as another:
            assert another


def test_on_sqlite_there_is_one_process_whose_own_limits_hold(sqlite_store: Store) -> None:
    fake = FakeProbe()
    assert share_limits(sqlite_store, fake) is fake
