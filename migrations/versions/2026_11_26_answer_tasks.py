"""Keep the generated answers that people label, with what the judge said of them when they were drawn."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_answer_tasks"
down_revision = "2026_11_24_traffic_parts"
branch_labels = None
depends_on = None


def _id(name: str) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, nullable=False, autoincrement=False)


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    op.create_table(
        "answer_items",
        _id("item_id"),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("expected", sa.Text()),
        sa.Column("contexts", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["task_items.id"], name=op.f("fk_answer_items_item_id")),
        sa.PrimaryKeyConstraint("item_id", name=op.f("pk_answer_items")),
    )
    op.create_table(
        "answer_draws",
        _id("task_id"),
        _id("judge_id"),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("wording", sa.Text(), nullable=False),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_answer_draws_task_id")),
        sa.ForeignKeyConstraint(["judge_id"], ["definitions.id"], name=op.f("fk_answer_draws_judge_id")),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_answer_draws")),
    )
    op.create_index(op.f("ix_answer_draws_judge_id"), "answer_draws", ["judge_id"])
    op.create_table(
        "drawn_verdicts",
        _id("item_id"),
        _id("task_id"),
        sa.Column("value", sa.Float(53), nullable=False),
        sa.Column("padded", sa.Float(53)),
        sa.Column("padded_outcome", sa.Text()),
        sa.ForeignKeyConstraint(["item_id"], ["task_items.id"], name=op.f("fk_drawn_verdicts_item_id")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_drawn_verdicts_task_id")),
        sa.PrimaryKeyConstraint("item_id", name=op.f("pk_drawn_verdicts")),
    )
    op.create_index(op.f("ix_drawn_verdicts_task_id"), "drawn_verdicts", ["task_id"])
