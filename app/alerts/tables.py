"""Tables of incidents, and of alerts with their transitions."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text

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
