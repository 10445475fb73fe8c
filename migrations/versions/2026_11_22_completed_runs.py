"""Find when a run of a check last completed, without reading all those since that failed."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_completed_runs"
down_revision = "2026_11_22_known_runs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index; a release that does not know it is only faster."""
    op.create_index(
        "ix_runs_completed",
        "runs",
        ["check_id", "finished_at"],
        unique=False,
        sqlite_where=sa.text("status in ('finished', 'partial')"),
        postgresql_where=sa.text("status in ('finished', 'partial')"),
    )
