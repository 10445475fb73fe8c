"""Keep how far people confirm a judge, task by task."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_calibrations"
down_revision = "2026_11_26_answer_tasks"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; a release that does not know it is not hindered."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "calibrations",
        sa.Column("task_id", identity, nullable=False, autoincrement=False),
        sa.Column("judge_id", identity, nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("wording", sa.Text(), nullable=False),
        sa.Column("labels", sa.Integer(), nullable=False),
        sa.Column("calibrated", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_calibrations_task_id")),
        sa.ForeignKeyConstraint(["judge_id"], ["definitions.id"], name=op.f("fk_calibrations_judge_id")),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_calibrations")),
    )
    op.create_index(op.f("ix_calibrations_judge_id"), "calibrations", ["judge_id"])
