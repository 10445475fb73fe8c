"""Keep of drawn and other rated answers whose check they are of, so that labels tell of each check."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_29_labels_of_checks"
down_revision = "2026_11_29_wrong_grades"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; they stay empty for answers that were drawn before, or by an older release."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("drawn_verdicts", sa.Column("check_id", number, nullable=True))
    op.add_column("answer_draws", sa.Column("rest_checks", sa.Text(), nullable=True))
