"""Remember how embedders answer known texts, and what each run found of its embedder."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_embedders"
down_revision = "2026_11_21_first_tables"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    op.create_table(
        "embedder_findings",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_embedder_findings")),
        sa.UniqueConstraint("hash", name=op.f("uq_embedder_findings_hash")),
    )
    op.create_table(
        "embedders",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("retriever_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("reference", sa.LargeBinary(), nullable=True),
        sa.Column("learned_at", sa.BigInteger(), nullable=True),
        sa.Column("learned_run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("finding_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("seen_run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("since_run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.ForeignKeyConstraint(["finding_id"], ["embedder_findings.id"], name=op.f("fk_embedders_finding_id")),
        sa.ForeignKeyConstraint(["retriever_id"], ["definitions.id"], name=op.f("fk_embedders_retriever_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_embedders")),
        sa.UniqueConstraint("retriever_id", "hash", name=op.f("uq_embedders_retriever_id_hash")),
    )
    op.create_table(
        "run_embedders",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("finding_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["finding_id"], ["embedder_findings.id"], name=op.f("fk_run_embedders_finding_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_embedders_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_embedders")),
    )
    op.create_index(op.f("ix_run_embedders_finding_id"), "run_embedders", ["finding_id"], unique=False)
