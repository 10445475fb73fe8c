"""Keep what past runs amount to by corrected judgments, beside what they amounted to then."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_rescorings"
down_revision = "2026_11_21_embedders"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    op.create_table(
        "rescorings",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("suite_version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("measures_version", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_rescorings_check_id")),
        sa.ForeignKeyConstraint(
            ["suite_version_id"], ["suite_versions.id"], name=op.f("fk_rescorings_suite_version_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rescorings")),
        sa.UniqueConstraint(
            "check_id",
            "suite_version_id",
            "measures_version",
            name=op.f("uq_rescorings_check_id_suite_version_id_measures_version"),
        ),
    )
    op.create_table(
        "rescored_rollups",
        sa.Column(
            "rescoring_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("seconds", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "layout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["layout_id"], ["layouts.id"], name=op.f("fk_rescored_rollups_layout_id")),
        sa.ForeignKeyConstraint(["rescoring_id"], ["rescorings.id"], name=op.f("fk_rescored_rollups_rescoring_id")),
        sa.PrimaryKeyConstraint("rescoring_id", "seconds", "bucket", "layout_id", name=op.f("pk_rescored_rollups")),
    )
    op.create_table(
        "rescored_runs",
        sa.Column(
            "rescoring_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("measured", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("undefined", sa.Integer(), nullable=False),
        sa.Column("degraded", sa.Integer(), nullable=False),
        sa.Column("degraded_positions", sa.LargeBinary(), nullable=True),
        sa.Column("degraded_reasons", sa.LargeBinary(), nullable=True),
        sa.Column("aggregates", sa.LargeBinary(), nullable=False),
        sa.Column("layout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("scores_layout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["layout_id"], ["layouts.id"], name=op.f("fk_rescored_runs_layout_id")),
        sa.ForeignKeyConstraint(["rescoring_id"], ["rescorings.id"], name=op.f("fk_rescored_runs_rescoring_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_rescored_runs_run_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["scores_layout_id"], ["layouts.id"], name=op.f("fk_rescored_runs_scores_layout_id")),
        sa.PrimaryKeyConstraint("rescoring_id", "run_id", name=op.f("pk_rescored_runs")),
    )
    op.create_index(op.f("ix_rescored_runs_run_id"), "rescored_runs", ["run_id"], unique=False)
