"""Remember the one cause that explains a whole run."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_run_causes"
down_revision = "2026_11_22_completed_runs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; a release that does not know it deletes its rows with their runs."""
    op.create_table(
        "run_causes",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_causes_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_causes")),
    )
