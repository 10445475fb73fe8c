"""Tell of rankings whether they differ in more than scores, which jitter."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_content_hash"
down_revision = "2026_11_26_interleavings"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column that rows of earlier releases leave empty: the next answer that differs from them is stored anew."""
    op.add_column("rankings", sa.Column("content_hash", sa.LargeBinary(), nullable=True))
