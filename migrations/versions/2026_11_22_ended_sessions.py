"""Remember sessions that were signed out of, so that a cookie somebody kept is of no use."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_ended_sessions"
down_revision = "2026_11_22_default_rules"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; a release that does not know it lets cookies hold until they expire."""
    op.create_table(
        "ended_sessions",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_ended_sessions")),
    )
