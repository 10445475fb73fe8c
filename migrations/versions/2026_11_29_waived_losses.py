"""Keep with a waiver the losses that its gate had shown when it was given."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_29_waived_losses"
down_revision = "2026_11_29_public_links"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of earlier waivers none are known, and an older release does not write it."""
    op.add_column("promotion_waivers", sa.Column("losses", sa.Text(), nullable=True))
