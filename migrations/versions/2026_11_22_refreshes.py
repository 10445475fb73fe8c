"""Remember which deliveries are to be told again, because their receivers forget."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_refreshes"
down_revision = "2026_11_22_diagnosis"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a release that does not know it leaves it empty."""
    op.add_column("deliveries", sa.Column("refresh_at", sa.BigInteger(), nullable=True))
    op.create_index(
        "ix_deliveries_refresh",
        "deliveries",
        ["refresh_at"],
        unique=False,
        sqlite_where=sa.text("refresh_at is not null"),
        postgresql_where=sa.text("refresh_at is not null"),
    )
