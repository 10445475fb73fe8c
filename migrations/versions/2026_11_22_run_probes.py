"""Keep with each run how its probes ended and how long they took, so that lists of runs need not read every probe."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_run_probes"
down_revision = "2026_11_22_run_causes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; runs of before have none, and are counted from their probes when they are shown."""
    op.add_column("runs", sa.Column("probes", sa.Text(), nullable=True))
