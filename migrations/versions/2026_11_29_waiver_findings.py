"""Keep with a waiver what its gate had found when it was given."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_29_waiver_findings"
down_revision = "2026_11_27_baseline_latency"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; nothing is known of earlier waivers, and an older release does not write them."""
    op.add_column("promotion_waivers", sa.Column("finding", sa.Text(), nullable=True))
    op.add_column("promotion_waivers", sa.Column("found", sa.Text(), nullable=True))
