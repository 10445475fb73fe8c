"""Keep which items of a task were planted, with the grade that is known of them."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_29_planted_items"
down_revision = "2026_11_29_labels_of_checks"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; an older release does not write them, and has no task with planted items."""
    op.add_column("tasks", sa.Column("planting", sa.Text(), nullable=True))
    op.add_column("task_items", sa.Column("known_grade", sa.Integer(), nullable=True))
