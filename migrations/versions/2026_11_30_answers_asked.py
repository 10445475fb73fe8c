"""Keep of answers that people label as whom and within which conversation their query was asked."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_30_answers_asked"
down_revision = "2026_11_30_graded_again"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of answers that an older release has drawn, what their canary was frozen with is shown."""
    op.add_column("answer_items", sa.Column("asked", sa.Text(), nullable=True))
