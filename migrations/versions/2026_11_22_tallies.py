"""Find the deliveries of a hook, what is dead, and which attempts failed lately, without reading all there ever was."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_tallies"
down_revision = "2026_11_22_silence"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the indexes; a release that does not know them is only faster."""
    op.create_index("ix_deliveries_hook", "deliveries", ["hook_id", "id"], unique=False)
    op.create_index(
        "ix_deliveries_dead",
        "deliveries",
        ["hook_id"],
        unique=False,
        sqlite_where=sa.text("state = 'dead'"),
        postgresql_where=sa.text("state = 'dead'"),
    )
    op.create_index(
        "ix_attempts_failed",
        "attempts",
        ["at"],
        unique=False,
        sqlite_where=sa.text("error is not null"),
        postgresql_where=sa.text("error is not null"),
    )
