"""Remember which chunk ids retrievers use for different texts, also among what was ranked and not drawn."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_shared_ids"
down_revision = "2026_11_26_shadows"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a release that does not know it leaves it NULL, which is unknown."""
    op.add_column("task_canaries", sa.Column("shared_ids", sa.Text(), nullable=True))
