"""Find the newest run of a check that has a verdict, without reading all those since that have none."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_known_runs"
down_revision = "2026_11_22_check_alerts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index; a release that does not know it is only faster."""
    op.create_index(
        "ix_runs_known",
        "runs",
        ["check_id", "id"],
        unique=False,
        sqlite_where=sa.text("verdict in ('healthy', 'degraded')"),
        postgresql_where=sa.text("verdict in ('healthy', 'degraded')"),
    )
