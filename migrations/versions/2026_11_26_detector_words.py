"""Let what a detector says of every run be packed, as far as nothing is decided by it."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_detector_words"
down_revision = "2026_11_26_paces"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a release that does not know it shows no reason beside runs that have it."""
    op.add_column("detections", sa.Column("words", sa.LargeBinary(), nullable=True))
