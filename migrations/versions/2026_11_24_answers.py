"""Keep generated answers, what judges say of them, and what that costs."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_24_answers"
down_revision = "2026_11_23_traffic"
branch_labels = None
depends_on = None


def _id(name: str, *, nullable: bool = False, autoincrement: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, nullable=nullable, autoincrement=autoincrement)


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    op.create_table(
        "answer_texts",
        _id("id", autoincrement=True),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_answer_texts")),
        sa.UniqueConstraint("hash", name=op.f("uq_answer_texts_hash")),
    )
    op.create_table(
        "answers",
        _id("id", autoincrement=True),
        _id("check_id"),
        _id("canary_id"),
        _id("canary_version_id"),
        _id("ranking_id"),
        _id("text_id", nullable=True),
        _id("judge_id", nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        _id("first_run"),
        _id("last_run", nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_answers_check_id")),
        sa.ForeignKeyConstraint(["canary_id"], ["canaries.id"], name=op.f("fk_answers_canary_id")),
        sa.ForeignKeyConstraint(["text_id"], ["answer_texts.id"], name=op.f("fk_answers_text_id")),
        sa.ForeignKeyConstraint(["judge_id"], ["definitions.id"], name=op.f("fk_answers_judge_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_answers")),
    )
    op.create_index("ix_answers_open", "answers", ["check_id", "canary_id", "last_run"])
    op.create_index("ix_answers_ranking_id", "answers", ["ranking_id"])
    op.create_index("ix_answers_text_id", "answers", ["text_id"])
    op.create_table(
        "run_answers",
        _id("run_id"),
        sa.Column("body", sa.Text()),
        sa.Column("finished_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_answers_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_answers")),
    )
    op.create_table(
        "staged_answers",
        _id("run_id"),
        sa.Column("part", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_staged_answers_run_id")),
        sa.PrimaryKeyConstraint("run_id", "part", name=op.f("pk_staged_answers")),
    )
    op.create_table(
        "ratings",
        sa.Column("key", sa.Text(), nullable=False),
        _id("judge_id"),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["judge_id"], ["definitions.id"], name=op.f("fk_ratings_judge_id")),
        sa.PrimaryKeyConstraint("key", "judge_id", name=op.f("pk_ratings")),
    )
    op.create_index(op.f("ix_ratings_used_at"), "ratings", ["used_at"])
    op.create_table(
        "judge_days",
        _id("judge_id"),
        sa.Column("day", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("cached", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.Float(53), nullable=False),
        sa.Column("outcomes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["judge_id"], ["definitions.id"], name=op.f("fk_judge_days_judge_id")),
        sa.PrimaryKeyConstraint("judge_id", "day", name=op.f("pk_judge_days")),
    )
