"""Remember what detectors learn and see, and whom somebody chose to compare a check with."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_detection"
down_revision = "2026_11_21_unscored"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    op.create_table(
        "baseline_choices",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("after_run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("means", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_baseline_choices_check_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_baseline_choices")),
    )
    op.create_index(op.f("ix_baseline_choices_check_id"), "baseline_choices", ["check_id"], unique=False)
    op.create_table(
        "baselines",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("first_run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("last_run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("deterministic", sa.Boolean(), nullable=False),
        sa.Column("learned_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("failures", sa.LargeBinary(), nullable=False),
        sa.Column("means", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_baselines_check_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_baselines")),
    )
    op.create_index(op.f("ix_baselines_check_id"), "baselines", ["check_id"], unique=False)
    op.create_table(
        "detectors",
        sa.Column(
            "check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("baseline_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["baseline_id"], ["baselines.id"], name=op.f("fk_detectors_baseline_id")),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_detectors_check_id")),
        sa.PrimaryKeyConstraint("check_id", name=op.f("pk_detectors")),
    )
    op.create_table(
        "detections",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("baseline_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("evidence", sa.Float(53), nullable=True),
        sa.Column("lost", sa.Integer(), nullable=False),
        sa.Column("worse", sa.Integer(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("since_run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("learns", sa.Boolean(), nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_detections_check_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_detections_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_detections")),
    )
    op.create_index("ix_detections_check", "detections", ["check_id", "run_id"], unique=False)
