"""Keep a note of a person on a run."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_29_run_notes"
down_revision = "2026_11_29_held_items"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; an older release shows no notes, and deletes them with their runs."""
    op.create_table(
        "run_notes",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("written_by", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_notes_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_notes")),
    )
