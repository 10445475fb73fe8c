"""Keep when each check is due next, and find queued runs by the moment they may begin."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_next_runs"
down_revision = "2026_11_22_incidents"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and an index; a release that does not know them looks at every check as before."""
    op.create_table(
        "next_runs",
        sa.Column(
            "check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, autoincrement=False
        ),
        sa.Column("version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("next_run_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_next_runs_check_id")),
        sa.PrimaryKeyConstraint("check_id", name=op.f("pk_next_runs")),
    )
    op.create_index("ix_next_runs_at", "next_runs", ["next_run_at"], unique=False)
    op.create_index(
        "ix_runs_queued",
        "runs",
        ["not_before"],
        unique=False,
        sqlite_where=sa.text("status = 'queued'"),
        postgresql_where=sa.text("status = 'queued'"),
    )
