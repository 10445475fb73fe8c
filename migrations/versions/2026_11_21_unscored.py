"""Remember of which canaries a run could not measure the relevance, so that their states need not end for it."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_unscored"
down_revision = "2026_11_21_rescorings"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a release that does not know it leaves it empty."""
    op.add_column("run_probes", sa.Column("unscored", sa.LargeBinary(), nullable=True))
