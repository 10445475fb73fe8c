"""Keep of planted documents when they were asked for, so that a time that nobody measured is not told as one."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_30_plants_asked"
down_revision = "2026_11_30_plants"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; rows without them are judged by when their questions were answered."""
    for name in ("found_asked_at", "taken_at", "seen_at", "absent_asked_at"):
        op.add_column("plants", sa.Column(name, sa.BigInteger(), nullable=True))
