"""Keep what the gates of a promotion read, and who waived which of them."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_promotions"
down_revision = "2026_11_26_experiments"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "promotions",
        sa.Column("id", identity, nullable=False, autoincrement=True),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_promotions")),
        sa.UniqueConstraint("slug", name=op.f("uq_promotions_slug")),
    )
    op.create_table(
        "promotion_waivers",
        sa.Column("promotion_id", identity, nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("waived_by", sa.Text(), nullable=False),
        sa.Column("waived_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["promotion_id"], ["promotions.id"], name=op.f("fk_promotion_waivers_promotion_id")),
        sa.PrimaryKeyConstraint("promotion_id", "gate", name=op.f("pk_promotion_waivers")),
    )
