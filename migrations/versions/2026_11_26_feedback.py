"""Keep what users said of generated answers."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_feedback"
down_revision = "2026_11_26_promotions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; a release that does not know it is not hindered."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "feedback",
        sa.Column("id", identity, nullable=False, autoincrement=True),
        sa.Column("check_id", identity, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("canary_id", identity, nullable=False),
        sa.Column("answer_hash", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("positive", sa.Integer(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_feedback_check_id")),
        sa.ForeignKeyConstraint(["canary_id"], ["canaries.id"], name=op.f("fk_feedback_canary_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feedback")),
        sa.UniqueConstraint("check_id", "event_id", name=op.f("uq_feedback_check_id_event_id")),
    )
    op.create_index(op.f("ix_feedback_received_at"), "feedback", ["received_at"])
    op.create_index("ix_feedback_canary", "feedback", ["check_id", "canary_id"])
