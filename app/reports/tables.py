"""The table of reports on a schedule."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, LargeBinary, Table, Text, UniqueConstraint

from app.base.db.rows import Id, id_column, metadata

# Reports on a schedule: which are due, and what they say.
reports = Table(
    "reports",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("due_at", BigInteger, nullable=False),  # the instant of its schedule
    Column("state", Text, nullable=False),  # due, sent or skipped
    Column("run_id", Id),  # the run it is about
    Column("content", LargeBinary),  # compressed JSON, of which bodies are made
    Column("reason", Text),  # why it was skipped
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("check_id", "due_at"),  # N replicas look at the clock, one inserts
    Index("ix_reports_created", "created_at"),
)
