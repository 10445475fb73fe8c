"""Remember which silence kept a transition back."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_silence"
down_revision = "2026_11_22_refreshes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a release that does not know it leaves it empty."""
    op.add_column("transitions", sa.Column("silence", sa.Text(), nullable=True))
