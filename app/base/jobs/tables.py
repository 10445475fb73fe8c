"""The table of jobs on SQLite; on PostgreSQL they are those of Procrastinate, in a schema of its own."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text, text

from app.base.db.tables import Id, id_column, metadata

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
    Index(
        "uq_jobs_waiting",
        "kind",
        "key",
        "part",
        unique=True,
        sqlite_where=text("taken = 0"),
        postgresql_where=text("taken = 0"),
    ),
    Index("ix_jobs_taken", "lock", sqlite_where=text("taken = 1"), postgresql_where=text("taken = 1")),
    Index("ix_jobs_due", "kind", "run_at", sqlite_where=text("taken = 0"), postgresql_where=text("taken = 0")),
)
