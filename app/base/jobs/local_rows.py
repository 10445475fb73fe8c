"""Jobs on SQLite: rows of a table, which one process takes."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new
from app.base.jobs.tables import jobs
from app.base.jobs.values import JobKind, NewJob


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
