"""Keep the public links of checks, hashed."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_29_public_links"
down_revision = "2026_11_29_run_notes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; an older release serves no public pages."""
    op.create_table(
        "public_links",
        sa.Column(
            "check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_public_links_check_id")),
        sa.PrimaryKeyConstraint("check_id", name=op.f("pk_public_links")),
        sa.UniqueConstraint("digest", name=op.f("uq_public_links_digest")),
    )
