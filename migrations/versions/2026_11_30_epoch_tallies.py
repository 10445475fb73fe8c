"""Count per epoch units that came without an arm and successes that came too late, so that both can be told."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_30_epoch_tallies"
down_revision = "2026_11_30_index_facts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; of earlier epochs neither is known."""
    for name in ("dealt", "late_first", "late_second"):
        op.add_column("experiment_epochs", sa.Column(name, sa.BigInteger(), nullable=True))
