"""Find what refers to a vector or a run that is deleted by an index: retention deletes them, and foreign keys look."""

from alembic import op

revision = "2026_11_22_retention_indexes"
down_revision = "2026_11_22_rescoring_attempts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the indexes; nothing else changes."""
    op.create_index("ix_scores_vector_id", "scores", ["vector_id"])
    op.create_index("ix_latest_run_id", "latest", ["run_id"])
