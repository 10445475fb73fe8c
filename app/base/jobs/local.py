"""The queue of jobs on SQLite, of which one process at a time takes any: no lease, no heartbeat.

A job that is taken stays in its row until it is done, so that it is there again when the next process begins.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Connection, Integer, Table, Text

from app.base.db.engine import Store, from_us, insert_new, sql_literal, to_us
from app.base.db.rows import Id, id_column, metadata, partial_index
from app.base.jobs.values import Job, JobKind, NewJob, Room

jobs = Table(
    "jobs",
    metadata,
    id_column(),
    Column("kind", Text, nullable=False),
    Column("key", Id, nullable=False),  # the id of what it is about
    Column("part", Integer, nullable=False),
    Column("lock", Text, nullable=False),
    Column("run_at", BigInteger, nullable=False),
    Column("taken", Integer, nullable=False),  # 1 = the worker is at it, or was when it ended
    Column("attempts", Integer, nullable=False),
    # One waits at most, whoever defers.
    partial_index("uq_jobs_waiting", "kind", "key", "part", unique=True, where="taken = 0"),
    partial_index("ix_jobs_taken", "lock", where="taken = 1"),
    partial_index("ix_jobs_due", "kind", "run_at", where="taken = 0"),
)

_WAITS = jobs.c.taken == sa.literal_column("0")


class LocalJobs:
    """The jobs of a SQLite file; see `JobQueue`."""

    is_shared = False

    def __init__(self, store: Store) -> None:
        """Take nothing yet."""
        self._store = store

    def begin(self) -> None:
        """Give back what the process before left; of two of the same the one that waits stays."""
        self.end()

    def take(self, now: datetime, *rooms: Room) -> list[Job]:
        """Take jobs that are due, those due for longest first, as many as there is room for."""
        most = {kind: room.most for room in rooms for kind in room.kinds if room.most > 0}
        if not most:
            return []
        with self._store.read() as connection:
            limits = {_limit_of(kind): most.get(kind, 0) for kind in JobKind}
            due = connection.execute(_DUE, {"now": to_us(now), **limits}).all()
        chosen = _one_a_lock(_fitting(due, rooms))
        if not chosen:
            return []
        with self._store.write() as connection:
            taken = connection.execute(_TAKE, {"ids": [row.id for row in chosen]})
            got = set(taken.scalars())
        return [
            Job(id=row.id, kind=JobKind(row.kind), key=row.key, part=row.part, attempt=row.attempts)
            for row in chosen
            if row.id in got
        ]

    def finish(self, job: Job) -> None:
        """Delete a job."""
        with self._store.write() as connection:
            connection.execute(_FINISH, {"job": job.id})

    def put_back(self, job: Job, run_at: datetime) -> None:
        """Let a job wait again, or forget it where another like it waits."""
        with self._store.write() as connection:
            if connection.execute(_LIKE_IT, {"job": job.id}).one_or_none() is not None:
                connection.execute(_FINISH, {"job": job.id})
            else:
                again = {"taken": 0, "run_at": to_us(run_at), "attempts": jobs.c.attempts + 1}
                connection.execute(sa.update(jobs).where(jobs.c.id == job.id).values(**again))

    def next_due(self, now: datetime) -> datetime | None:
        """Say when the next job is due that is not yet."""
        with self._store.read() as connection:
            instant = connection.execute(_NEXT, {"now": to_us(now)}).scalar_one()
        return from_us(instant) if instant is not None else None

    def listen(self, wake: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """Do nothing: whoever defers in this process wakes the worker itself."""

    def beat(self) -> None:
        """Do nothing: nobody waits for a sign of life."""

    def end(self) -> None:
        """Let all that is taken wait again."""
        with self._store.read() as connection:
            if not connection.execute(_ANY_TAKEN).scalar_one():
                return
        with self._store.write() as connection:
            connection.execute(sa.delete(jobs).where(~_WAITS, _HAS_LIKE))
            connection.execute(sa.update(jobs).where(~_WAITS).values(taken=0, attempts=jobs.c.attempts + 1))


def _fitting(rows: Sequence[Any], rooms: Sequence[Room]) -> list[Any]:
    """Return the rows there is room for, the one due for longest first."""
    ordered = sorted(rows, key=lambda row: (row.run_at, row.id))
    return [row for room in rooms for row in [row for row in ordered if row.kind in room.kinds][: room.most]]


def _one_a_lock(rows: Sequence[Any]) -> list[Any]:
    locks: set[str] = set()
    chosen = []
    for row in rows:
        if row.lock not in locks:
            chosen.append(row)
            locks.add(row.lock)
    return chosen


def _limit_of(kind: JobKind) -> str:
    return f"most_{kind}"


def _due_of(kind: JobKind) -> sa.Select[Any]:
    """Select due jobs of a kind whose lock is free; each kind has a part of its own of the index."""
    busy = sa.exists().where(_OTHER.c.lock == jobs.c.lock, _OTHER.c.taken == sa.literal_column("1"))
    found = (
        sa.select(jobs)
        .where(_WAITS, jobs.c.kind == sql_literal(kind), jobs.c.run_at <= sa.bindparam("now"), ~busy)
        .order_by(jobs.c.run_at, jobs.c.id)
        .limit(sa.bindparam(_limit_of(kind), type_=sa.Integer))
    )
    return sa.select(found.subquery())


_OTHER = jobs.alias()
_DUE = sa.union_all(*map(_due_of, JobKind))
"""One statement for all kinds, made once: it is what a service does most often."""
_TAKE = (
    sa.update(jobs)
    .where(jobs.c.id.in_(sa.bindparam("ids", expanding=True)), _WAITS)
    .values(taken=1)
    .returning(jobs.c.id)
)
_HAS_LIKE = sa.exists().where(
    _OTHER.c.kind == jobs.c.kind,
    _OTHER.c.key == jobs.c.key,
    _OTHER.c.part == jobs.c.part,
    sa.or_(_OTHER.c.taken == sa.literal_column("0"), _OTHER.c.id < jobs.c.id),
)
_LIKE_IT = sa.select(jobs.c.id).where(jobs.c.id == sa.bindparam("job"), _HAS_LIKE)
_FINISH = sa.delete(jobs).where(jobs.c.id == sa.bindparam("job"), ~_WAITS)
_NEXT = sa.select(sa.func.min(jobs.c.run_at)).where(
    _WAITS, jobs.c.kind.in_([sql_literal(kind) for kind in JobKind]), jobs.c.run_at > sa.bindparam("now")
)
_ANY_TAKEN = sa.select(sa.exists().where(~_WAITS))


def defer(connection: Connection, new: Sequence[NewJob]) -> None:
    """Insert jobs; one that waits already is due at the earlier time."""
    rows = [(str(job.kind), job.key, job.part, job.lock or job.name, job.run_at, 0, 0) for job in new]
    insert_new(connection, jobs, ("kind", "key", "part", "lock", "run_at", "taken", "attempts"), rows)
    earlier = [dict(zip(("its_kind", "its_key", "its_part", "_", "at"), row, strict=False)) for row in rows]
    connection.execute(_EARLIER, earlier)


def at_hand(connection: Connection, kinds: Sequence[JobKind], now: int) -> set[int]:
    """Give the keys of the jobs of these kinds that are due or taken."""
    statement = sa.select(jobs.c.key).where(
        jobs.c.kind.in_([str(kind) for kind in kinds]),
        sa.or_(jobs.c.run_at <= now, jobs.c.taken != sa.literal_column("0")),
    )
    return set(connection.execute(statement).scalars())


_EARLIER = (
    sa.update(jobs)
    .where(
        jobs.c.kind == sa.bindparam("its_kind"),
        jobs.c.key == sa.bindparam("its_key"),
        jobs.c.part == sa.bindparam("its_part"),
        jobs.c.taken == sa.literal_column("0"),
        jobs.c.run_at > sa.bindparam("at"),
    )
    .values(run_at=sa.bindparam("at"))
)
