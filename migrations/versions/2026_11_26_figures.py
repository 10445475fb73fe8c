"""Let the numbers of a run be packed: they are most of its row."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_figures"
down_revision = "2026_11_26_content_hash"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a release that does not know it takes runs that have it for ones that measured nothing."""
    op.add_column("runs", sa.Column("figures", sa.LargeBinary(), nullable=True))
