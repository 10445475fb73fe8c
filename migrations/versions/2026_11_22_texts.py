"""Remember the texts a re-anchored judgment was proposed for, so that people can hold them side by side."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_texts"
down_revision = "2026_11_22_tallies"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a release that does not know it leaves it empty."""
    op.add_column("reanchors", sa.Column("texts", sa.Text(), nullable=True))
