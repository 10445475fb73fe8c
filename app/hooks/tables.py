"""Tables of deliveries: one row for each message to a hook, with the attempts to send it."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from app.base.db.rows import Id, id_column, metadata, partial_index

deliveries = Table(
    "deliveries",
    metadata,
    id_column(),
    Column("hook_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("alert_id", Id, ForeignKey("alerts.id")),  # the incident's first; NULL: a test send
    Column("transition_id", Id, ForeignKey("transitions.id")),  # what it is about
    Column("incident_id", Id),
    Column("report_id", Id),  # NULL: it is no report
    Column("message_id", Text, nullable=False, unique=True),  # the receiver's idempotency key
    Column("type", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("body", LargeBinary),  # frozen at the first attempt
    Column("created_at", BigInteger, nullable=False),
    Column("first_attempt_at", BigInteger),
    Column("next_attempt_at", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("reason", Text),  # why it ended as it did
    Column("claimed_by", Text),
    Column("lease_until", BigInteger),  # of releases before there were jobs
    Column("may_be_taken", Boolean, nullable=False, server_default=false()),  # an attempt may have reached people
    Column("taken_by", Text),  # JSON: the recipients of a mail who took it
    Column("refresh_at", BigInteger),  # delivered, but the receiver forgets unless it is notified again by then
    UniqueConstraint("transition_id", "hook_id"),
    # The outbox: what is left to send, oldest first.
    partial_index("ix_deliveries_pending", "next_attempt_at", where="state = 'pending'"),
    Index("ix_deliveries_alert", "alert_id"),
    Index("ix_deliveries_incident", "incident_id"),
    Index("ix_deliveries_hook", "hook_id", "id"),
    partial_index("ix_deliveries_report", "report_id", where="report_id is not null"),
    # What people are to look at: dead letters by hook.
    partial_index("ix_deliveries_dead", "hook_id", where="state = 'dead'"),
    partial_index("ix_deliveries_refresh", "refresh_at", where="refresh_at is not null"),
)

attempts = Table(
    "attempts",
    metadata,
    id_column(),
    Column("delivery_id", Id, ForeignKey("deliveries.id"), nullable=False, index=True),
    Column("at", BigInteger, nullable=False),
    Column("http_status", Integer),
    Column("error", Text),
    Column("detail", Text),
    Column("latency_seconds", Float(53), nullable=False),
    # How a hook fared lately.
    partial_index("ix_attempts_failed", "at", where="error is not null"),
)
