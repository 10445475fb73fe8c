"""Keep which habits of a check people called not normal."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_habit_refusals"
down_revision = "2026_11_26_side_by_side"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table; a release that does not know it is not hindered."""
    op.create_table(
        "habit_refusals",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("check_id", _ID, nullable=False),
        sa.Column("habit", sa.Text(), nullable=False),
        sa.Column("after_run", _ID, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_habit_refusals_check_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_habit_refusals")),
        sa.UniqueConstraint("check_id", "habit", name=op.f("uq_habit_refusals_check_id_habit")),
    )
