"""Find the alerts of a check, newest first, without reading those of all others: its list, and its charts."""

from alembic import op

revision = "2026_11_22_check_alerts"
down_revision = "2026_11_22_texts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index; a release that does not know it is only faster."""
    op.create_index("ix_alerts_check", "alerts", ["check_id", "id"], unique=False)
