"""The seam between what is decided and who does it: jobs, deferred with the rows they are about, and their queue.

A job says that somebody has to look at a row. Whoever does reads the row, so that a job done twice or too early harms
nothing. On PostgreSQL Procrastinate keeps them, on SQLite a table: see `postgresql` and `local`.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from types import ModuleType
from typing import Protocol

from sqlalchemy import Connection

from app.base.db.engine import Store
from app.base.jobs import local
from app.base.jobs.local import LocalJobs
from app.base.jobs.values import Job, JobKind, JobsWaiting, NewJob, Room


class JobQueue(Protocol):
    """The jobs of a database as a worker sees them. All of it raises StoreUnavailableError."""

    is_shared: bool
    """Whether other processes take jobs as well."""

    def begin(self) -> None:
        """Take part: what this process left behind when it ended before is there to be taken again."""
        ...

    def take(self, now: datetime, *rooms: Room) -> list[Job]:
        """Take jobs that are due, as many as there is room for. Where there is none, nothing is written."""
        ...

    def finish(self, job: Job) -> None:
        """Say that a job is done; nothing happens where somebody else has taken it meanwhile."""
        ...

    def put_back(self, job: Job, run_at: datetime) -> None:
        """Let go of a job so that it is taken again, not before `run_at`."""
        ...

    def next_due(self, now: datetime) -> datetime | None:
        """Say when the next job is due that is not yet; None = there is none, or it is not known."""
        ...

    def listen(self, wake: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """Call `wake` whenever somebody defers a job, until `stopping`; only where the queue is shared."""
        ...

    def beat(self) -> None:
        """Give a sign of life, and give back the jobs of processes that give none."""
        ...

    def end(self) -> None:
        """Leave: what is still taken is there to be taken again."""
        ...


def defer(connection: Connection, new: Sequence[NewJob]) -> None:
    """Let workers do these jobs once the transaction is committed; one that waits already is due at the earlier time.

    Whoever takes a job that waited does so after this transaction, and sees what it has written.
    """
    if new:
        _rows(connection).defer(connection, new)


def at_hand(connection: Connection, kinds: Sequence[JobKind], now: int) -> set[int]:
    """Give the keys of the jobs of these kinds that somebody does or could begin now."""
    found: set[int] = _rows(connection).at_hand(connection, kinds, now)
    return found


def waiting(connection: Connection) -> JobsWaiting | None:
    """Return the jobs that wait for a worker alone; None where one process does all of them, on SQLite."""
    return None if connection.dialect.name == "sqlite" else _rows(connection).waiting(connection)


def _rows(connection: Connection) -> ModuleType:
    if connection.dialect.name == "sqlite":
        return local
    from app.base.jobs import postgresql  # noqa: PLC0415 - a fifth of a second, for nobody on SQLite

    return postgresql


def open_queue(store: Store) -> JobQueue:
    """Return the queue of the jobs of a database; nothing is taken yet."""
    if store.dialect == "sqlite":
        return LocalJobs(store)
    from app.base.jobs.postgresql import PostgresqlJobs  # noqa: PLC0415 - as above

    return PostgresqlJobs(store)
