"""Jobs on PostgreSQL: deferred by Procrastinate, on the connection of the transaction that writes their rows."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import from_us
from app.base.jobs.values import JobKind, JobsWaiting, NewJob

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
        if left and _insert(connection, left.values()):
            return


def _join(connection: Connection, wanted: Mapping[str, NewJob]) -> list[str]:
    """Name the jobs that wait; nobody takes them before this transaction is over, and none is due later than wanted."""
    rows = connection.execute(_WAITING, {"names": sorted(wanted)}).all()
    for row in rows:
        at = from_us(wanted[row.queueing_lock].run_at)
        if row.scheduled_at is not None and at < row.scheduled_at:
            connection.execute(_EARLIER, {"job": row.id, "at": at})
    return [row.queueing_lock for row in rows]


def _insert(connection: Connection, new: Collection[NewJob]) -> bool:
    """Whether the jobs were inserted: another transaction may have been first with one."""
    from procrastinate.jobs import Job  # noqa: PLC0415 - a fifth of a second, which nobody on SQLite is to wait

    from app.base.jobs.procrastinate_manager import manager_on  # noqa: PLC0415 - as above

    jobs = [
        Job(
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
_JOBS: Any = sa.table(
    "procrastinate_jobs",
    sa.column("id", sa.BigInteger),
    sa.column("queue_name", sa.Text),
    sa.column("status", sa.Text),
    sa.column("queueing_lock", sa.Text),
    sa.column("scheduled_at", sa.DateTime(timezone=True)),
)
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
