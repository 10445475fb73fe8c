"""Keep what the annotations of a task say of the recall of its retrievers."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_pooled_recall"
down_revision = "2026_11_23_annotation"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; a release that does not know it is not hindered."""
    op.create_table(
        "pooled_recalls",
        sa.Column("task_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("retriever", sa.Text(), nullable=False),
        sa.Column("k", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("queries", sa.Integer(), nullable=False),
        sa.Column("found", sa.Integer(), nullable=False),
        sa.Column("relevant", sa.Float(53)),
        sa.Column("value", sa.Float(53)),
        sa.Column("low", sa.Float(53)),
        sa.Column("high", sa.Float(53)),
        sa.Column("frame", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_pooled_recalls_task_id")),
        sa.PrimaryKeyConstraint("task_id", "retriever", "k", name=op.f("pk_pooled_recalls")),
    )
