"""Remember why canaries degraded, and the judgments proposed for what was renamed."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_diagnosis"
down_revision = "2026_11_22_detection"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    op.create_table(
        "diagnoses",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("canary_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("canary_version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ranking_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["canary_id"], ["canaries.id"], name=op.f("fk_diagnoses_canary_id")),
        sa.ForeignKeyConstraint(
            ["canary_version_id"], ["canary_versions.id"], name=op.f("fk_diagnoses_canary_version_id")
        ),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_diagnoses_check_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_diagnoses")),
    )
    op.create_index("ix_diagnoses_canary", "diagnoses", ["check_id", "canary_id", "id"], unique=False)
    op.create_index(op.f("ix_diagnoses_run_id"), "diagnoses", ["run_id"], unique=False)
    op.create_table(
        "reanchors",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("diagnosis_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("canary_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("canary_version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("judgment", sa.Text(), nullable=False),
        sa.Column("proposal", sa.Text(), nullable=False),
        sa.Column("similarity", sa.Float(53), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["canary_id"], ["canaries.id"], name=op.f("fk_reanchors_canary_id")),
        sa.ForeignKeyConstraint(
            ["canary_version_id"], ["canary_versions.id"], name=op.f("fk_reanchors_canary_version_id")
        ),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_reanchors_check_id")),
        sa.ForeignKeyConstraint(["diagnosis_id"], ["diagnoses.id"], name=op.f("fk_reanchors_diagnosis_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reanchors")),
    )
    op.create_index("ix_reanchors_check", "reanchors", ["check_id", "state", "id"], unique=False)
    op.create_index(op.f("ix_reanchors_diagnosis_id"), "reanchors", ["diagnosis_id"], unique=False)
    op.create_index(
        "uq_reanchors_proposed",
        "reanchors",
        ["canary_id", "hash"],
        unique=True,
        sqlite_where=sa.text("state = 'proposed'"),
        postgresql_where=sa.text("state = 'proposed'"),
    )
