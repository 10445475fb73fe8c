"""Jobs exist exactly if the rows they are about do, wait once, are taken by one, and outlive whoever took them."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store, to_us
from app.base.errors import StoreUnavailableError
from app.base.jobs import JobQueue, at_hand, defer, postgresql, waiting
from app.base.jobs.local import LocalJobs
from app.base.jobs.postgresql import PostgresqlJobs
from app.base.jobs.values import Job, JobKind, JobsWaiting, NewJob, Room
from tests.support.fakes import Crash
from tests.support.living import until

pytestmark = pytest.mark.databases

EVERY = tuple(JobKind)
Opener = Callable[..., Store]


def now() -> datetime:
    return datetime.now(UTC)


def open_queue(store: Store, *, stalled_seconds: float = 30.0) -> JobQueue:
    if store.dialect == "sqlite":
        return LocalJobs(store)
    return PostgresqlJobs(store, stalled_seconds=stalled_seconds)


@pytest.fixture
def queue(store: Store) -> JobQueue:
    queue = open_queue(store)
    queue.begin()
    return queue


def put(store: Store, *jobs: NewJob) -> None:
    with store.write() as connection:
        defer(connection, jobs)


def taken(queue: JobQueue, *, most: int = 100, later: timedelta = timedelta()) -> list[Job]:
    return queue.take(now() + later, Room(EVERY, most))


def keys(jobs: list[Job]) -> list[int]:
    return [job.key for job in jobs]


def test_a_job_is_there_if_its_transaction_was_committed(store: Store, queue: JobQueue) -> None:
    def fail() -> None:
        with store.write() as connection:
            defer(connection, [NewJob(JobKind.RUN, 1)])
            raise Crash

    with pytest.raises(Crash):
        fail()
    assert taken(queue) == []
    put(store, NewJob(JobKind.RUN, 1, part=3))
    (job,) = taken(queue)
    assert (job.kind, job.key, job.part, job.attempt) == (JobKind.RUN, 1, 3, 0)


def test_of_the_same_job_one_waits_due_at_the_earlier_time(store: Store, queue: JobQueue) -> None:
    far, near = (to_us(now() + timedelta(hours=hours)) for hours in (2, 1))
    put(store, NewJob(JobKind.DELIVERY, 7, run_at=far), NewJob(JobKind.DELIVERY, 7, run_at=near))
    put(store, NewJob(JobKind.DELIVERY, 7, run_at=far))
    assert taken(queue) == []
    put(store, NewJob(JobKind.DELIVERY, 7))
    assert keys(taken(queue)) == [7]
    assert taken(queue) == []


def test_what_is_deferred_while_the_same_is_done_is_done_after_it(store: Store, queue: JobQueue) -> None:
    put(store, NewJob(JobKind.RUN, 1))
    (first,) = taken(queue)
    put(store, NewJob(JobKind.RUN, 1))
    assert taken(queue) == []
    queue.finish(first)
    assert keys(taken(queue)) == [1]


def test_of_one_lock_one_is_done_at_a_time(store: Store, queue: JobQueue) -> None:
    put(store, *(NewJob(JobKind.SHARD, key, lock="retriever:1") for key in (1, 2)), NewJob(JobKind.SHARD, 3, lock="x"))
    first = taken(queue)
    assert sorted(keys(first)) == [1, 3]
    queue.finish(next(job for job in first if job.key == 1))
    assert keys(taken(queue)) == [2]


def test_only_the_kinds_that_are_wanted_are_taken_and_no_more_than_that(store: Store, queue: JobQueue) -> None:
    put(store, *(NewJob(JobKind.RUN, key) for key in range(1, 6)), NewJob(JobKind.RETENTION, 0))
    assert len(queue.take(now(), Room([JobKind.RUN], 3))) == 3
    assert len(queue.take(now(), Room([JobKind.RUN], 0))) == 0
    assert queue.take(now(), Room([], 3)) == []
    assert keys(queue.take(now(), Room([JobKind.RETENTION], 3))) == [0]


def test_a_job_that_is_put_back_is_taken_again_not_before_its_time(store: Store, queue: JobQueue) -> None:
    put(store, NewJob(JobKind.RUN, 1))
    (job,) = taken(queue)
    queue.put_back(job, now() + timedelta(hours=1))
    assert taken(queue) == []
    put(store, NewJob(JobKind.RUN, 1))  # news of it
    (again,) = taken(queue)
    assert (again.id, again.attempt) == (job.id, 1)
    queue.put_back(again, now() - timedelta(seconds=1))
    assert [one.attempt for one in taken(queue)] == [2]


def test_a_job_that_is_put_back_beside_another_like_it_is_forgotten(store: Store, queue: JobQueue) -> None:
    put(store, NewJob(JobKind.RUN, 1))
    (job,) = taken(queue)
    put(store, NewJob(JobKind.RUN, 1))
    queue.put_back(job, now() + timedelta(hours=1))
    (other,) = taken(queue)
    assert other.id != job.id
    queue.finish(other)
    assert taken(queue, later=timedelta(hours=2)) == []


def test_what_a_process_leaves_behind_is_taken_by_the_next(store: Store, queue: JobQueue) -> None:
    put(store, NewJob(JobKind.RUN, 1, lock="one"), NewJob(JobKind.RUN, 2, lock="one"), NewJob(JobKind.RUN, 3))
    first = taken(queue)
    assert sorted(keys(first)) == [1, 3]
    put(store, NewJob(JobKind.RUN, 3))  # the same again, while it is done
    queue.end()
    following = open_queue(store)
    following.begin()
    assert sorted(keys(taken(following))) == [1, 3]


def test_looking_for_jobs_writes_nothing_where_there_is_none(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = LocalJobs(sqlite_store)
    queue.begin()
    put(sqlite_store, NewJob(JobKind.RUN, 1, run_at=to_us(now() + timedelta(hours=1))))
    monkeypatch.setattr(sqlite_store, "write", None)
    assert taken(queue) == []
    queue.beat()
    queue.end()


def test_what_is_due_or_taken_is_at_hand(store: Store, queue: JobQueue) -> None:
    put(store, NewJob(JobKind.RUN, 1), NewJob(JobKind.RUN, 2, run_at=to_us(now() + timedelta(hours=1))))
    put(store, NewJob(JobKind.SHARD, 3, part=1), NewJob(JobKind.DELIVERY, 4))
    assert queue.take(now(), Room([JobKind.SHARD], 1))
    with store.read() as connection:
        assert at_hand(connection, [JobKind.RUN, JobKind.SHARD], to_us(now())) == {1, 3}


def test_only_where_others_could_help_is_it_known_what_waits_for_a_worker(store: Store) -> None:
    put(store, NewJob(JobKind.RUN, 1))
    with store.read() as connection:
        found = waiting(connection)
    assert found is None if store.dialect == "sqlite" else found is not None and found.number == 1


def test_the_next_that_is_due_is_known(sqlite_store: Store) -> None:
    queue = LocalJobs(sqlite_store)
    at = now().replace(microsecond=0) + timedelta(minutes=1)
    assert queue.next_due(now()) is None
    put(sqlite_store, NewJob(JobKind.RUN, 1), NewJob(JobKind.RUN, 2, run_at=to_us(at)))
    assert queue.next_due(now()) == at


# --- several processes, which is PostgreSQL ---


def silence(store: Store) -> None:
    """Let every process have been silent for long."""
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'")


def waits(store: Store) -> JobsWaiting:
    """Give what waits for a worker."""
    with store.read() as connection:
        found = waiting(connection)
    assert found is not None
    return found


def age(store: Store, *, seconds: int) -> None:
    """Let every job have been deferred, and due, this much earlier."""
    with store.write() as connection:
        for column in ("procrastinate_events SET at = at", "procrastinate_jobs SET scheduled_at = scheduled_at"):
            connection.exec_driver_sql(f"UPDATE {column} - interval '{seconds} seconds'")


def test_what_waits_for_a_worker_is_as_old_as_its_oldest_job(postgresql_store: Store) -> None:
    assert waits(postgresql_store) == (0, 0.0)
    put(postgresql_store, NewJob(JobKind.RUN, 1))
    age(postgresql_store, seconds=90)
    put(postgresql_store, NewJob(JobKind.DELIVERY, 2))
    number, oldest = waits(postgresql_store)
    assert number == 2
    assert 90 <= oldest < 150


def test_a_job_waits_for_a_worker_from_when_it_is_due(postgresql_store: Store) -> None:
    hour = timedelta(hours=1)
    put(postgresql_store, NewJob(JobKind.RUN, 1, run_at=to_us(now() + hour)))
    assert waits(postgresql_store) == (0, 0.0), "it waits for its time"
    age(postgresql_store, seconds=3_660)
    number, oldest = waits(postgresql_store)
    assert number == 1
    assert 50 < oldest < 120, "a minute over its time, whenever it was deferred"


def test_a_job_that_waits_for_its_lock_waits_for_no_worker(postgresql_store: Store) -> None:
    put(postgresql_store, NewJob(JobKind.SHARD, 1, lock="lane"), NewJob(JobKind.SHARD, 2, lock="lane"))
    assert waits(postgresql_store).number == 1
    queue = open_queue(postgresql_store)
    queue.begin()
    (first,) = taken(queue)
    assert waits(postgresql_store) == (0, 0.0), "one is being done, and the other goes after it"
    queue.finish(first)
    assert waits(postgresql_store).number == 1


def test_deferring_the_same_again_makes_a_job_that_waits_no_younger(postgresql_store: Store) -> None:
    put(postgresql_store, NewJob(JobKind.DELIVERY, 7, run_at=to_us(now())))
    age(postgresql_store, seconds=90)
    put(postgresql_store, NewJob(JobKind.DELIVERY, 7), NewJob(JobKind.DELIVERY, 7, run_at=to_us(now())))
    number, oldest = waits(postgresql_store)
    assert number == 1
    assert oldest >= 90


def test_a_job_that_is_hastened_waits_from_then_on(postgresql_store: Store) -> None:
    put(postgresql_store, NewJob(JobKind.DELIVERY, 7, run_at=to_us(now() + timedelta(hours=1))))
    put(postgresql_store, NewJob(JobKind.DELIVERY, 7))
    number, oldest = waits(postgresql_store)
    assert number == 1
    assert oldest < 60, "not since 1970, which is what `at once` is written as"


def test_jobs_of_a_process_that_is_dead_are_given_to_others(postgresql_store: Store) -> None:
    dead, alive = PostgresqlJobs(postgresql_store), PostgresqlJobs(postgresql_store)
    dead.begin()
    put(postgresql_store, NewJob(JobKind.RUN, 1))
    (lost,) = taken(dead)
    silence(postgresql_store)
    alive.begin()
    alive.beat()
    (again,) = taken(alive)
    assert (again.id, again.attempt) == (lost.id, 1)


def test_whoever_comes_back_from_the_dead_ends_no_job_of_others_and_takes_new_ones(postgresql_store: Store) -> None:
    frozen, alive = PostgresqlJobs(postgresql_store), PostgresqlJobs(postgresql_store)
    frozen.begin()
    put(postgresql_store, NewJob(JobKind.RUN, 1), NewJob(JobKind.RUN, 2))
    first, second = taken(frozen)
    silence(postgresql_store)
    alive.begin()
    alive.beat()
    assert sorted(keys(taken(alive))) == [1, 2]
    frozen.finish(first)
    frozen.put_back(second, now())
    with postgresql_store.read() as connection:
        doing = sa.text("SELECT count(*) FROM procrastinate_jobs WHERE status = 'doing'")
        assert connection.execute(doing).scalar_one() == 2
    put(postgresql_store, NewJob(JobKind.RUN, 3))
    frozen.beat()
    assert keys(taken(frozen)) == [3]


def test_after_an_error_of_the_database_nobody_is_thought_dead_at_once(
    postgresql_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have stood still, and everybody with it."""
    alive, other = PostgresqlJobs(postgresql_store), PostgresqlJobs(postgresql_store)
    alive.begin()
    other.begin()
    put(postgresql_store, NewJob(JobKind.RUN, 1))
    assert keys(taken(other)) == [1]

    def fails() -> None:
        raise StoreUnavailableError("the database cannot be used now")

    with monkeypatch.context() as patch:
        patch.setattr(postgresql_store, "write", fails)
        with pytest.raises(StoreUnavailableError):
            alive.beat()
    silence(postgresql_store)
    for _ in range(2):
        alive.beat()
        assert taken(alive) == []
    silence(postgresql_store)
    alive.beat()
    alive.beat()
    assert keys(taken(alive)) == [1]


def test_a_waiting_job_is_not_taken_before_what_it_is_about_is_committed(postgresql_store: Store) -> None:
    """Else whoever takes it would see the rows as they were, and the news would be lost."""
    queue = PostgresqlJobs(postgresql_store)
    queue.begin()
    put(postgresql_store, NewJob(JobKind.DELIVERY, 1))
    with postgresql_store.write() as connection:
        defer(connection, [NewJob(JobKind.DELIVERY, 1)])
        assert taken(queue) == []
    assert keys(taken(queue)) == [1]


def test_whoever_listens_is_woken_by_a_job_that_another_defers(postgresql_store: Store) -> None:
    queue, woken, over = PostgresqlJobs(postgresql_store), threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: queue.listen(woken.set, over.is_set))
    thread.start()
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"

    def is_listening() -> bool:
        with postgresql_store.read() as connection:
            return bool(connection.execute(sa.text(sessions)).scalar_one())

    until(is_listening)
    put(postgresql_store, NewJob(JobKind.RUN, 1))
    assert woken.wait(20)
    over.set()
    thread.join(20)
    assert not thread.is_alive()


def test_transactions_that_defer_the_same_at_once_leave_one_job(postgresql_store: Store) -> None:
    together = threading.Barrier(8)
    failures: list[Exception] = []

    def act() -> None:
        try:
            together.wait(20)
            for _ in range(10):
                put(postgresql_store, NewJob(JobKind.DELIVERY, 1))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test reports it
            failures.append(error)

    threads = [threading.Thread(target=act) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    queue = PostgresqlJobs(postgresql_store)
    queue.begin()
    assert keys(taken(queue)) == [1]
    assert taken(queue) == []


def test_a_job_of_a_newer_release_is_left_to_its_workers(
    postgresql_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = PostgresqlJobs(postgresql_store), PostgresqlJobs(postgresql_store)
    with monkeypatch.context() as patch:
        patch.setattr(postgresql, "VERSION", postgresql.VERSION + 1)
        put(postgresql_store, NewJob(JobKind.RUN, 1))
    put(postgresql_store, NewJob(JobKind.RUN, 2))
    room = Room((JobKind.RUN,), 5)
    assert [job.key for job in older.take(now(), room)] == [2]
    with monkeypatch.context() as patch:
        patch.setattr(postgresql, "VERSION", postgresql.VERSION + 1)
        assert newer.take(now(), room) == [], "it waits for a moment, lest the older one takes it again at once"
        age(postgresql_store, seconds=30)
        assert [job.key for job in newer.take(now(), room)] == [1]


def test_a_job_that_was_taken_as_the_connection_broke_is_not_held_for_ever(
    postgresql_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = PostgresqlJobs(postgresql_store)
    room = Room((JobKind.RUN,), 5)
    put(postgresql_store, NewJob(JobKind.RUN, 1))
    (under_way,) = queue.take(now(), room)
    put(postgresql_store, NewJob(JobKind.RUN, 2), NewJob(JobKind.RUN, 3))

    def breaks(_found: object) -> Job:
        raise StoreUnavailableError("the connection broke when the job was taken, before that was known here")

    with monkeypatch.context() as patch:
        patch.setattr(postgresql, "_job", breaks)
        with pytest.raises(StoreUnavailableError):
            queue.take(now(), room)
    queue.beat()
    assert sorted(job.key for job in queue.take(now(), room)) == [2, 3], "and not the one that is under way"
    queue.finish(under_way)
    assert queue.take(now(), room) == []
