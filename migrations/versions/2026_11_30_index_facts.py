"""Facts of indexes: what each run read of the index of its retriever."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_30_index_facts"
down_revision = "2026_11_30_plants_asked"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; the release before knows nothing of it."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "index_facts",
        sa.Column("run_id", number, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("check_id", number, nullable=False),
        sa.Column("value", sa.Float(53)),
        sa.Column("reason", sa.Text()),
        sa.Column("low", sa.Float(53)),
        sa.Column("high", sa.Float(53)),
        sa.Column("canaries", sa.Integer()),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("sentence", sa.Text()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_index_facts_run_id")),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_index_facts_check_id")),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_index_facts")),
    )
    op.create_index("ix_index_facts_check", "index_facts", ["check_id", "run_id"])
