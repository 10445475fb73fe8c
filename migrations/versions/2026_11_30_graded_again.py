"""Keep which items are graded again for what one person said of them, so that no agreement counts them."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_30_graded_again"
down_revision = "2026_11_30_epoch_tallies"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; what an older release has graded again counts as drawn for everybody."""
    op.add_column("task_items", sa.Column("graded_again", sa.Integer(), server_default=sa.text("0"), nullable=False))
