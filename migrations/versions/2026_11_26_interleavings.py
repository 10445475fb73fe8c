"""Take clicks of interleaved lists in, and count which ranking units prefer."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_interleavings"
down_revision = "2026_11_26_habit_refusals"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "interleavings",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("a", sa.BigInteger(), nullable=False),
        sa.Column("b", sa.BigInteger(), nullable=False),
        sa.Column("ties", sa.BigInteger(), nullable=False),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("decided_a", sa.BigInteger(), nullable=True),
        sa.Column("decided_b", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_interleavings")),
        sa.UniqueConstraint("slug", name=op.f("uq_interleavings_slug")),
    )
    op.create_table(
        "interleaving_clicks",
        sa.Column("interleaving_id", number, autoincrement=False, nullable=False),
        sa.Column("unit", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("event", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("credit", sa.SmallInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["interleaving_id"], ["interleavings.id"], name=op.f("fk_interleaving_clicks_interleaving_id")
        ),
        sa.PrimaryKeyConstraint("interleaving_id", "unit", "event", name=op.f("pk_interleaving_clicks")),
    )
