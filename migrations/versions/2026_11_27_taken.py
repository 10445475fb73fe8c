"""Keep of deliveries whether one may have reached people, and which recipients of a mail took it."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_27_taken"
down_revision = "2026_11_26_detector_words"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; what was attempted before may have been taken. An older release does not write them."""
    op.add_column("deliveries", sa.Column("may_be_taken", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("deliveries", sa.Column("taken_by", sa.Text(), nullable=True))
    op.execute("update deliveries set may_be_taken = true where attempts > 0")
