"""Keep of pooled recall what it takes for granted of the grades, and how much rests on texts that nobody ranked."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_29_wrong_grades"
down_revision = "2026_11_29_waiver_findings"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; they are filled when recall is computed anew. An older release does not write them."""
    op.add_column("pooled_recalls", sa.Column("rest_share", sa.Float(53), nullable=True))
    op.add_column("pooled_recalls", sa.Column("uncorrected", sa.Float(53), nullable=True))
    op.add_column("pooled_recalls", sa.Column("assumes", sa.Text(), server_default=sa.text("''"), nullable=False))
