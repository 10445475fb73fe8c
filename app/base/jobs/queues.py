"""Which queue of jobs a database has."""

from app.base.db.engine import Store
from app.base.jobs.jobs import JobQueue
from app.base.jobs.local import LocalJobs


def open_queue(store: Store) -> JobQueue:
    """Return the queue of the jobs of a database; nothing is taken yet."""
    if store.dialect == "sqlite":
        return LocalJobs(store)
    from app.base.jobs.postgresql import PostgresqlJobs  # noqa: PLC0415 - a fifth of a second, for nobody on SQLite

    return PostgresqlJobs(store)
