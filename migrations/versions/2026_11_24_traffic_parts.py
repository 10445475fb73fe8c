"""Remember for a day which parts of a traffic log arrived, so that one sent again is not counted twice."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_24_traffic_parts"
down_revision = "2026_11_24_answers"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; a release that does not know it is not hindered."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "traffic_parts",
        sa.Column("id", identity, nullable=False, autoincrement=True),
        sa.Column("suite_id", identity, nullable=False),
        sa.Column("retriever", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text()),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["suite_id"], ["definitions.id"], name=op.f("fk_traffic_parts_suite_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_traffic_parts")),
        sa.UniqueConstraint("suite_id", "retriever", "key", name=op.f("uq_traffic_parts_suite_id_retriever_key")),
    )
    op.create_index(op.f("ix_traffic_parts_received_at"), "traffic_parts", ["received_at"])
