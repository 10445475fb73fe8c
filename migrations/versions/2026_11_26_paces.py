"""Let latencies be packed: they differ in every run, and nothing else of an unchanged canary does."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_paces"
down_revision = "2026_11_26_figures"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a release that does not know it shows no latencies of single probes of runs that have it."""
    op.add_column("run_probes", sa.Column("paces", sa.LargeBinary(), nullable=True))
