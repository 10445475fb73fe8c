"""Keep which endpoint a judge asked when the answers were rated that people label."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_30_judge_endpoints"
down_revision = "2026_11_30_answers_asked"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of what an older release has drawn, the versions of the judge tell it as far as they can."""
    op.add_column("answer_draws", sa.Column("endpoint", sa.Text(), nullable=True))
