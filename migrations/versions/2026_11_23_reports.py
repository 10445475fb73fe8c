"""Reports on a schedule, and the deliveries that carry them."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_reports"
down_revision = "2026_11_23_pooled_recall"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; the release before leaves the new column empty."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "reports",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("check_id", number, nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("run_id", number),
        sa.Column("content", sa.LargeBinary()),
        sa.Column("reason", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_reports_check_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reports")),
        sa.UniqueConstraint("check_id", "due_at", name=op.f("uq_reports_check_id_due_at")),
    )
    op.create_index("ix_reports_created", "reports", ["created_at"])
    op.add_column("deliveries", sa.Column("report_id", number))
    some = sa.text("report_id is not null")
    op.create_index("ix_deliveries_report", "deliveries", ["report_id"], sqlite_where=some, postgresql_where=some)
