"""Keep what users ask for some weeks, and the sample of it that tells the reach of a suite."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_traffic"
down_revision = "2026_11_23_reports"
branch_labels = None
depends_on = None


def _id(name: str, *, autoincrement: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, nullable=False, autoincrement=autoincrement)


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    op.create_table(
        "traffic_queries",
        _id("id", autoincrement=True),
        _id("suite_id"),
        sa.Column("retriever", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("asked_at", sa.BigInteger()),
        sa.Column("chunk", sa.Text()),
        sa.Column("document", sa.Text()),
        sa.Column("relevance", sa.Float(53)),
        sa.Column("failure", sa.Text()),
        sa.ForeignKeyConstraint(["suite_id"], ["definitions.id"], name=op.f("fk_traffic_queries_suite_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_traffic_queries")),
        sa.UniqueConstraint(
            "suite_id", "retriever", "digest", name=op.f("uq_traffic_queries_suite_id_retriever_digest")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_traffic_queries_count", "traffic_queries", ["suite_id", "retriever", "count"])
    op.create_index(op.f("ix_traffic_queries_received_at"), "traffic_queries", ["received_at"])
    op.create_table(
        "reaches",
        _id("id", autoincrement=True),
        _id("suite_id"),
        sa.Column("retriever", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["suite_id"], ["definitions.id"], name=op.f("fk_reaches_suite_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reaches")),
        sa.UniqueConstraint("suite_id", "retriever", name=op.f("uq_reaches_suite_id_retriever")),
    )
