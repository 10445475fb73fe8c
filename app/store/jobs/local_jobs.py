"""The queue of jobs on SQLite, of which one process at a time takes any: no lease, no heartbeat.

A job that is taken stays in its row until it is done, so that it is there again when the next process begins.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from app.store.engine import Store, from_us, to_us
from app.store.jobs.values import Job, JobKind
from app.store.tables import jobs

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

    def take(self, kinds: Collection[JobKind], now: datetime, most: int) -> list[Job]:
        """Take up to so many jobs that are due, the one due for longest first."""
        if not kinds or most < 1:
            return []
        with self._store.read() as connection:
            due = connection.execute(_due(kinds, to_us(now), most)).all()
        chosen = _one_a_lock(due)
        if not chosen:
            return []
        with self._store.write() as connection:
            ids = [row.id for row in chosen]
            taken = sa.update(jobs).where(jobs.c.id.in_(ids), _WAITS).values(taken=1).returning(jobs.c.id)
            got = set(connection.execute(taken).scalars())
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


def _due(kinds: Collection[JobKind], now: int, most: int) -> sa.Select[Any]:
    other = jobs.alias()
    busy = sa.exists().where(other.c.lock == jobs.c.lock, other.c.taken == sa.literal_column("1"))
    return (
        sa.select(jobs)
        .where(_WAITS, jobs.c.run_at <= now, jobs.c.kind.in_(sorted(kinds)), ~busy)
        .order_by(jobs.c.run_at, jobs.c.id)
        .limit(most)
    )


def _one_a_lock(rows: Sequence[Any]) -> list[Any]:
    locks: set[str] = set()
    chosen = []
    for row in rows:
        if row.lock not in locks:
            chosen.append(row)
            locks.add(row.lock)
    return chosen


_OTHER = jobs.alias()
_HAS_LIKE = sa.exists().where(
    _OTHER.c.kind == jobs.c.kind,
    _OTHER.c.key == jobs.c.key,
    _OTHER.c.part == jobs.c.part,
    sa.or_(_OTHER.c.taken == sa.literal_column("0"), _OTHER.c.id < jobs.c.id),
)
_LIKE_IT = sa.select(jobs.c.id).where(jobs.c.id == sa.bindparam("job"), _HAS_LIKE)
_FINISH = sa.delete(jobs).where(jobs.c.id == sa.bindparam("job"), ~_WAITS)
_NEXT = sa.select(sa.func.min(jobs.c.run_at)).where(_WAITS, jobs.c.run_at > sa.bindparam("now"))
_ANY_TAKEN = sa.select(sa.exists().where(~_WAITS))
