"""Sum up by the hour how far a shadow's answers differ from those that users get."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_shadows"
down_revision = "2026_11_26_feedback"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; a release that does not know it is not hindered."""
    op.create_table(
        "shadow_hours",
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("pairs", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("rbo", sa.Float(53), nullable=False),
        sa.Column("jaccard", sa.Float(53), nullable=False),
        sa.Column("a_empty", sa.BigInteger(), nullable=False),
        sa.Column("b_empty", sa.BigInteger(), nullable=False),
        sa.Column("timed", sa.BigInteger(), nullable=False),
        sa.Column("a_seconds", sa.Float(53), nullable=False),
        sa.Column("b_seconds", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("slug", "hour", name=op.f("pk_shadow_hours")),
    )
    op.create_index(op.f("ix_shadow_hours_hour"), "shadow_hours", ["hour"])
