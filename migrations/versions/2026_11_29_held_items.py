"""Keep what annotators have in hand, so that nobody else is handed it meanwhile."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_29_held_items"
down_revision = "2026_11_29_planted_items"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; an older release knows none of it, and hands the same items to several people."""
    op.create_table(
        "held_items",
        sa.Column("task_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("item_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_held_items_task_id")),
        sa.PrimaryKeyConstraint("task_id", "annotator", "place", name=op.f("pk_held_items")),
    )
    op.create_index(op.f("ix_held_items_item_id"), "held_items", ["item_id"])
