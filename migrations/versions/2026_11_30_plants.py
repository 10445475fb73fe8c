"""Planted documents: rows that say what may be in a source, and how to remove it."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_30_plants"
down_revision = "2026_11_29_waived_losses"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; the release before knows nothing of it."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "plants",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("check_id", number, nullable=False),
        sa.Column("scheduled_for", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("sent_at", sa.BigInteger()),
        sa.Column("put_at", sa.BigInteger()),
        sa.Column("missed_at", sa.BigInteger()),
        sa.Column("found_at", sa.BigInteger()),
        sa.Column("finding", sa.Text()),
        sa.Column("failure", sa.Text()),
        sa.Column("removals_failed", sa.Integer(), nullable=False),
        sa.Column("removal_failure", sa.Text()),
        sa.Column("removed_at", sa.BigInteger()),
        sa.Column("absent_at", sa.BigInteger()),
        sa.Column("absent", sa.Integer(), nullable=False),
        sa.Column("gone_at", sa.BigInteger()),
        sa.Column("watches", sa.Integer(), nullable=False),
        sa.Column("late_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_plants_check_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plants")),
        sa.UniqueConstraint("check_id", "scheduled_for", name=op.f("uq_plants_check_id_scheduled_for")),
    )
    op.create_index("ix_plants_check", "plants", ["check_id", "id"])
    open_ones = sa.text("ended_at is null")
    op.create_index("ix_plants_next", "plants", ["next_at"], sqlite_where=open_ones, postgresql_where=open_ones)
    op.create_index("ix_plants_ended", "plants", ["ended_at"])
