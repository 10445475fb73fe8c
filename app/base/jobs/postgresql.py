"""The queue of jobs on PostgreSQL: Procrastinate's, on our own connections.

Only its manager is used. Its worker, once other workers have taken it for dead, goes on with an id that no longer
exists, and every job it takes then fails.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, LiteralString, TypeVar

import psycopg
import sqlalchemy as sa
from procrastinate.connector import BaseConnector
from procrastinate.jobs import Job as EngineJob
from procrastinate.jobs import Status
from procrastinate.manager import JobManager
from psycopg.types.json import Jsonb
from sqlalchemy import Connection

from app.base.db.engine import Store, error_text, from_us, translate_errors
from app.base.errors import StoreUnavailableError
from app.base.jobs.values import Job, JobKind, JobsWaiting, NewJob, Room

STALLED_SECONDS: Final = 30.0
"""Whoever has given no sign of life for so long has lost its jobs to others."""
_LISTEN_SECONDS: Final = 1.0
_FOR_NEWER: Final = timedelta(seconds=10)
"""How long a job of a newer release waits for one of its workers before an older one looks again."""
_QUIET_BEATS: Final = 2
"""After an error of the database: others could give no sign of life either."""


class PostgresqlJobs:
    """The jobs of a PostgreSQL database; see `JobQueue`."""

    is_shared = True

    def __init__(self, store: Store, *, stalled_seconds: float = STALLED_SECONDS) -> None:
        """Take nothing yet."""
        self._store = store
        self._stalled_seconds = stalled_seconds
        self._worker: int | None = None
        """The number under which this process takes jobs."""
        self._beats = _QUIET_BEATS
        self._held: set[int] = set()
        """The jobs, by id, that were taken and are neither finished nor put back."""
        self._may_miss = False
        """Whether the answer of a statement that takes jobs did not come, which may have been carried out."""

    def begin(self) -> None:
        """Register this process."""
        with self._store.write() as connection:
            self._worker = done(manager_on(connection).register_worker())

    def take(self, now: datetime, *rooms: Room) -> list[Job]:
        """Take jobs that are due by the clock of the database, as many as there is room for.

        One whose arguments only a newer release can read is left to its workers, which run beside this one meanwhile.
        """
        if self._worker is None:
            self.begin()
        if self._may_miss:
            self._give_back_missed()
        self._may_miss = True
        taken = self._fetch(now, rooms)
        self._held |= {job.id for job in taken}
        self._may_miss = False
        return taken

    def _fetch(self, now: datetime, rooms: Sequence[Room]) -> list[Job]:
        taken: list[Job] = []
        free = [(room.kinds, room.most) for room in rooms if room.most > 0]
        with self._store.read() as connection:
            if not connection.execute(_ANY_DUE, {"queues": _queues(free)}).scalar_one():
                return taken
        while free:
            with self._store.write() as connection:  # each for itself: whoever takes a job holds its lock
                found = done(manager_on(connection).fetch_job(_queues(free), self._worker or 0))
            if found is None:
                break
            job = _job(found)
            if _version(found) > VERSION:
                self.put_back(job, now + _FOR_NEWER)
                continue
            taken.append(job)
            left = [(kinds, most - (job.kind in kinds)) for kinds, most in free]
            free = [(kinds, most) for kinds, most in left if most > 0]
        return taken

    def finish(self, job: Job) -> None:
        """Delete a job, unless it is not this process's any more."""
        with self._store.write() as connection:
            if self._is_mine(connection, job):
                _delete(connection, job.id)
        self._held.discard(job.id)

    def put_back(self, job: Job, run_at: datetime) -> None:
        """Let a job wait again, unless it is not this process's any more, or forget it where another like it waits."""
        with self._store.write() as connection:
            if self._is_mine(connection, job):
                _wait_again(connection, job.id, run_at)
        self._held.discard(job.id)

    def next_due(self, now: datetime) -> datetime | None:
        """Say nothing: others defer as well, so whoever takes jobs looks every second anyway."""

    def listen(self, wake: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """Call `wake` whenever somebody defers a job, until `stopping`; on a connection of its own."""
        with translate_errors(), self._store.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            connection.detach()  # closed afterwards: nobody else is to get one that listens
            try:
                driver.rollback()
                driver.autocommit = True
                driver.execute('LISTEN "procrastinate_any_queue_v1"')
                while not stopping():
                    for _ in driver.notifies(timeout=_LISTEN_SECONDS, stop_after=1):
                        wake()
            except psycopg.Error as error:
                raise StoreUnavailableError(error_text(error)) from error

    def beat(self) -> None:
        """Give a sign of life and, unless the database failed us lately, give back the jobs of those who do not."""
        try:
            with self._store.write() as connection:
                is_known = connection.execute(_KNOWN, {"worker": self._worker}).scalar_one()
                if is_known:
                    done(manager_on(connection).update_heartbeat(self._worker or 0))
            if not is_known:  # silent for so long that the others thought this process dead
                self.begin()
            self._beats += 1
            if self._beats > _QUIET_BEATS:
                self._reap()
        except StoreUnavailableError:
            self._beats = 0
            raise

    def end(self) -> None:
        """Give back what is taken still, and unregister."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        with self._store.write() as connection:
            manager = manager_on(connection)
            for job in done(manager.list_jobs_async(worker_id=worker, status=Status.DOING.value)):
                _give_back(connection, job)
            done(manager.unregister_worker(worker))

    def _give_back_missed(self) -> None:
        """Give back jobs that are this process's by their rows alone: it lives, so nobody else would."""
        with self._store.write() as connection:
            for job in done(manager_on(connection).list_jobs_async(worker_id=self._worker, status=Status.DOING.value)):
                if job.id not in self._held:
                    _give_back(connection, job)

    def _reap(self) -> None:
        with self._store.write() as connection:
            manager = manager_on(connection)
            for job in done(manager.get_stalled_jobs(seconds_since_heartbeat=self._stalled_seconds)):
                _give_back(connection, job)
            done(manager.prune_stalled_workers(self._stalled_seconds))

    def _is_mine(self, connection: Connection, job: Job) -> bool:
        """Whether nobody gave it back meanwhile; nobody does before the transaction is over."""
        wanted = {"job": job.id, "worker": self._worker, "attempt": job.attempt}
        return connection.execute(_MINE, wanted).one_or_none() is not None


def _queues(free: Sequence[tuple[Collection[JobKind], int]]) -> list[str]:
    return [str(kind) for kinds, _ in free for kind in kinds]


def _version(found: EngineJob) -> int:
    values: Any = found.task_kwargs
    return int(values["version"])


def _job(found: EngineJob) -> Job:
    values: Any = found.task_kwargs
    assert found.id is not None  # noqa: S101 - it was read
    return Job(
        id=found.id, kind=JobKind(found.task_name), key=values["key"], part=values["part"], attempt=found.attempts
    )


def _give_back(connection: Connection, job: EngineJob) -> None:
    """Let a job of a process that is gone wait again at once, unless others see to it just now."""
    row = connection.execute(_STILL, {"job": job.id, "attempt": job.attempts}).one_or_none()
    if row is not None:
        _wait_again(connection, row.id, row.now)


def _wait_again(connection: Connection, job_id: int, run_at: datetime) -> None:
    try:
        with connection.begin_nested():
            done(manager_on(connection).retry_job_by_id_async(job_id, run_at))
    except sa.exc.IntegrityError:  # another like it waits
        _delete(connection, job_id)


def _delete(connection: Connection, job_id: int) -> None:
    done(manager_on(connection).finish_job_by_id_async(job_id, Status.SUCCEEDED, delete_job=True))


_JOBS: Any = sa.table(
    "procrastinate_jobs",
    sa.column("id", sa.BigInteger),
    sa.column("queue_name", sa.Text),
    sa.column("status", sa.Text),
    sa.column("queueing_lock", sa.Text),
    sa.column("scheduled_at", sa.DateTime(timezone=True)),
    sa.column("attempts", sa.Integer),
    sa.column("worker_id", sa.BigInteger),
)
_ANY_DUE = sa.text(
    "SELECT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status = 'todo' AND queue_name = ANY(:queues) "
    "AND (scheduled_at IS NULL OR scheduled_at <= now()))"
)
_WORKERS: Any = sa.table("procrastinate_workers", sa.column("id", sa.BigInteger))
_TAKEN = sa.and_(
    _JOBS.c.id == sa.bindparam("job"),
    _JOBS.c.status == sa.literal_column("'doing'"),
    _JOBS.c.attempts == sa.bindparam("attempt"),
)
_MINE = sa.select(_JOBS.c.id).where(_TAKEN, _JOBS.c.worker_id == sa.bindparam("worker")).with_for_update()
_STILL = sa.select(_JOBS.c.id, sa.func.now().label("now")).where(_TAKEN).with_for_update(skip_locked=True)
_KNOWN = sa.select(sa.exists().where(_WORKERS.c.id == sa.bindparam("worker")))
VERSION: Final = 1
"""Of the arguments of a job; a release that changes them counts it up, and earlier releases leave its jobs alone."""


def defer(connection: Connection, new: Sequence[NewJob]) -> None:
    """Defer jobs; one that waits already is due at the earlier time."""
    left: dict[str, NewJob] = {}
    for job in new:
        if job.name not in left or job.run_at < left[job.name].run_at:
            left[job.name] = job
    while left:
        for name in _join(connection, left):
            del left[name]
        if left and _inserted(connection, left.values()):
            return


def _join(connection: Connection, wanted: Mapping[str, NewJob]) -> list[str]:
    """Name the jobs that wait; nobody takes them before this transaction is over, and none is due later than wanted."""
    rows = connection.execute(_WAITING, {"names": sorted(wanted)}).all()
    for row in rows:
        at = from_us(wanted[row.queueing_lock].run_at)
        if row.scheduled_at is not None and at < row.scheduled_at:
            connection.execute(_EARLIER, {"job": row.id, "at": at})
    return [row.queueing_lock for row in rows]


def _inserted(connection: Connection, new: Collection[NewJob]) -> bool:
    """Whether the jobs were inserted: another transaction may have been first with one."""
    jobs = [
        EngineJob(
            queue=str(job.kind),
            task_name=str(job.kind),
            lock=job.lock or job.name,
            queueing_lock=job.name,
            task_kwargs={"version": VERSION, "key": job.key, "part": job.part},
            scheduled_at=from_us(job.run_at) if job.run_at else None,
        )
        for job in new
    ]
    try:
        with connection.begin_nested():
            manager_on(connection).batch_defer_jobs(jobs)
    except sa.exc.IntegrityError:
        return False
    return True


def at_hand(connection: Connection, kinds: Sequence[JobKind], _now: int) -> set[int]:
    """Give the keys of the jobs of these kinds that are due or taken."""
    key = sa.cast(sa.func.split_part(_JOBS.c.queueing_lock, ":", 2), sa.BigInteger)
    due = sa.or_(_JOBS.c.scheduled_at.is_(None), _JOBS.c.scheduled_at <= sa.func.now())
    there = sa.or_(_JOBS.c.status == _DOING, sa.and_(_JOBS.c.status == _TODO, due))
    of_kind = _JOBS.c.queue_name.in_([str(kind) for kind in kinds])
    return set(connection.execute(sa.select(key).where(of_kind, there)).scalars())


def waiting(connection: Connection) -> JobsWaiting:
    """Return how many jobs a worker could take now, and for how long the oldest could have been."""
    return JobsWaiting(*connection.execute(_TAKEABLE).one())


_TODO: sa.ColumnElement[str] = sa.literal_column("'todo'")
_DOING: sa.ColumnElement[str] = sa.literal_column("'doing'")
# Procrastinate passes over a row that is locked so when it looks for a job to take.
_WAITING = (
    sa.select(_JOBS.c.id, _JOBS.c.queueing_lock, _JOBS.c.scheduled_at)
    .where(_JOBS.c.queueing_lock == sa.any_(sa.bindparam("names", type_=sa.ARRAY(sa.Text))), _JOBS.c.status == _TODO)
    .order_by(_JOBS.c.id)
    .with_for_update(read=True, key_share=True)
)
# What is due already stays as it is: since when it could be taken says how far behind the workers are.
_EARLIER = (
    sa.update(_JOBS)
    .where(_JOBS.c.id == sa.bindparam("job"), _JOBS.c.scheduled_at > sa.func.now())
    .values(scheduled_at=sa.func.greatest(sa.bindparam("at"), sa.func.now()))
)
# The conditions are those of Procrastinate's `fetch_job`: a job waits behind others with its lock, not for a worker.
_TAKEABLE = sa.text("""
SELECT count(*), coalesce(extract(epoch FROM max(clock_timestamp() - since)), 0)::float8
FROM (
    SELECT greatest(job.scheduled_at, (
        SELECT max(event.at) FROM procrastinate_events AS event
        WHERE event.job_id = job.id AND event.type IN ('deferred', 'deferred_for_retry')
    )) AS since
    FROM procrastinate_jobs AS job
    WHERE job.status = 'todo' AND (job.scheduled_at IS NULL OR job.scheduled_at <= now())
    AND NOT EXISTS (
        SELECT 1 FROM procrastinate_jobs AS other
        WHERE other.lock = job.lock AND (other.status = 'doing' OR (other.status = 'todo' AND other.id < job.id))
    )
) AS takeable
""")


_ValueT = TypeVar("_ValueT")


def manager_on(connection: Connection) -> JobManager:
    """Return the manager of jobs on this connection."""
    return JobManager(_OnConnection(connection))


def done(work: Coroutine[Any, Any, _ValueT]) -> _ValueT:
    """Run a coroutine of the manager to its end and give what it returns."""
    try:
        work.send(None)
    except StopIteration as stop:
        found: _ValueT = stop.value
        return found
    raise AssertionError("a coroutine on a connection of ours waits for an event loop")


class _OnConnection(BaseConnector):
    """Sends statements on one connection, as SQLAlchemy does its own: its errors are those of any statement."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get_sync_connector(self) -> BaseConnector:
        return self

    def execute_query_all(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:
        sent = {name: _wrapped(value) for name, value in arguments.items()}
        return [dict(row) for row in self._connection.exec_driver_sql(query, sent).mappings()]

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        self.execute_query_all(query, **arguments)

    async def execute_query_one_async(self, query: LiteralString, **arguments: Any) -> dict[str, Any]:
        (row,) = self.execute_query_all(query, **arguments)
        return row

    async def execute_query_all_async(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:
        return self.execute_query_all(query, **arguments)


def _wrapped(value: Any) -> Any:
    """Wrap mappings as JSON, which the driver does not do of itself."""
    if isinstance(value, dict):
        return Jsonb(value)
    if isinstance(value, list):
        return [_wrapped(one) for one in value]
    if isinstance(value, tuple):
        return tuple(_wrapped(one) for one in value)
    return value
