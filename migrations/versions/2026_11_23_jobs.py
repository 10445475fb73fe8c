"""Jobs: a table on SQLite, Procrastinate's schema on PostgreSQL."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_jobs"
down_revision = "2026_11_23_incident_classes"
branch_labels = None
depends_on = None

SCHEMA = "procrastinate"
UNTIL = "03.04.00_50"
"""Its last migration of 3.10; what comes later is for a later revision of ours."""


def upgrade() -> None:
    """Create the table, and the engine's tables and functions by its own migrations, which never change."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("lock", sa.Text(), nullable=False),
        sa.Column("run_at", sa.BigInteger(), nullable=False),
        sa.Column("taken", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    waiting = sa.text("taken = 0")
    op.create_index(
        "uq_jobs_waiting",
        "jobs",
        ["kind", "key", "part"],
        unique=True,
        sqlite_where=waiting,
        postgresql_where=waiting,
    )
    taken = sa.text("taken = 1")
    op.create_index("ix_jobs_taken", "jobs", ["lock"], sqlite_where=taken, postgresql_where=taken)
    op.create_index("ix_jobs_due", "jobs", ["kind", "run_at"], sqlite_where=waiting, postgresql_where=waiting)
    op.add_column("shards", sa.Column("staged_at", sa.BigInteger()))
    op.create_table(
        "rates",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_rates")),
    )
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    import procrastinate  # noqa: PLC0415 - a quarter of a second, which nobody on SQLite is to wait

    driver: Any = connection.connection.driver_connection
    before = connection.exec_driver_sql("SHOW search_path").scalar_one()
    op.execute(f"CREATE SCHEMA {SCHEMA}")
    op.execute(f"SET LOCAL search_path TO {SCHEMA}")
    files = sorted((Path(procrastinate.__file__).parent / "sql" / "migrations").glob("*.sql"))
    for file in files:
        if file.name[: len(UNTIL)] <= UNTIL:
            driver.execute(file.read_text("utf-8"))
    connection.exec_driver_sql("SELECT set_config('search_path', %s, true)", (before,))
