"""Tables of incidents, alerts with their transitions, reports, and deliveries with their attempts."""

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

incidents = Table(
    "incidents",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("incident_class", Text, nullable=False),
    Column("dedupe_key", Text, nullable=False),  # what receivers know it by
    Column("severity", Text, nullable=False),  # never falls
    Column("alert_id", Id, nullable=False),  # its first alert
    Column("opened_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger),  # when its last alert.updated was written
    Column("resolved_at", BigInteger),
    # One open incident per check and class, whatever races: the key says both. Those made of alerts of before there
    # were incidents keep the keys their receivers know, which may be those of another class.
    partial_index(
        "uq_incidents_open", "check_id", "incident_class", "dedupe_key", unique=True, where="resolved_at is null"
    ),
    # Deliveries of one fault keep their order over its incidents.
    Index("ix_incidents_dedupe_key", "dedupe_key"),
)

alerts = Table(
    "alerts",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("rule_key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", Text, nullable=False),  # JSON: the last window, so "why (not)" has an answer
    Column("dedupe_key", Text, nullable=False),
    Column("first_run", Id),  # since when
    Column("created_at", BigInteger, nullable=False),
    Column("opened_at", BigInteger),
    Column("resolved_at", BigInteger),
    Column("acknowledged_at", BigInteger),
    Column("acknowledged_by", Text),
    Column("incident_id", Id),  # NULL: it has entered none
    # One open alert per rule and scope, whatever races.
    partial_index("uq_alerts_open", "check_id", "rule_key", "scope", unique=True, where="state != 'resolved'"),
    Index("ix_alerts_created", "created_at"),
    # The alerts of a check, newest first.
    Index("ix_alerts_check", "check_id", "id"),
    Index("ix_alerts_incident", "incident_id", "id"),
)

transitions = Table(
    "transitions",
    metadata,
    id_column(),
    Column("alert_id", Id, ForeignKey("alerts.id"), nullable=False, index=True),
    Column("at", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("run_id", Id),
    Column("evidence", Text, nullable=False),
    Column("suppressed", Text),  # why it was not sent, where it was not
    Column("silence", Text),  # the slug of the silence that kept it back, where one did
)

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
