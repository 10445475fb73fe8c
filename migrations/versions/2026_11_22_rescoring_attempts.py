"""Keep how often a re-scoring has been begun without getting on, and why it was given up."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_rescoring_attempts"
down_revision = "2026_11_22_next_runs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; a release that does not know them tries for ever, as it did."""
    op.add_column("rescorings", sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("rescorings", sa.Column("failure", sa.Text(), nullable=True))
