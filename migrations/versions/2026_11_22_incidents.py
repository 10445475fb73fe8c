"""Bind the alerts of a check and class that are open together into incidents; deliveries belong to these."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_incidents"
down_revision = "2026_11_22_ended_sessions"
branch_labels = None
depends_on = None

_ANNOUNCED = """
    EXISTS (
        SELECT 1 FROM deliveries
        WHERE deliveries.alert_id = alerts.id AND deliveries.state <> 'cancelled'
        AND deliveries.type IN ('alert.opened', 'alert.escalated', 'alert.reminded')
    ) OR (
        alerts.state IN ('firing', 'recovering') AND NOT EXISTS (
            SELECT 1 FROM transitions WHERE transitions.alert_id = alerts.id AND transitions.suppressed IS NOT NULL
        )
    )
"""


def upgrade() -> None:
    """Create the table; a release that does not know it goes on without.

    Every alert that was announced becomes an incident of its own, under its own id and dedupe key: receivers know it by
    that key, and its resolve has to carry it. What was held back or silenced belongs to none yet.
    """
    op.create_table(
        "incidents",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("incident_class", sa.Text(), nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("alert_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_incidents_check_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
    )
    op.add_column(
        "alerts", sa.Column("incident_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True)
    )
    op.add_column(
        "deliveries", sa.Column("incident_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True)
    )
    op.execute(
        f"""
        INSERT INTO incidents (
            id, check_id, incident_class, dedupe_key, severity, alert_id, opened_at, resolved_at
        )
        SELECT id, check_id,
            CASE WHEN kind IN ('probe_errors', 'no_data') THEN 'outage' WHEN kind = 'latency' THEN 'latency'
                ELSE 'quality' END,
            dedupe_key, severity, id, coalesce(opened_at, created_at),
            CASE WHEN state = 'resolved' THEN coalesce(resolved_at, created_at) END
        FROM alerts WHERE {_ANNOUNCED}
        """  # noqa: S608 - a constant of this file
    )
    op.execute("UPDATE alerts SET incident_id = id WHERE id IN (SELECT id FROM incidents)")
    op.execute("UPDATE deliveries SET incident_id = alert_id WHERE alert_id IN (SELECT id FROM incidents)")
    if op.get_bind().dialect.name == "postgresql":  # ids were given; the sequence goes on behind them
        op.execute(
            "SELECT setval(pg_get_serial_sequence('incidents', 'id'), max(id)) FROM incidents HAVING count(*) > 0"
        )
    op.create_index(
        "uq_incidents_open",
        "incidents",
        ["check_id", "dedupe_key"],
        unique=True,
        sqlite_where=sa.text("resolved_at is null"),
        postgresql_where=sa.text("resolved_at is null"),
    )
    op.create_index("ix_incidents_dedupe_key", "incidents", ["dedupe_key"], unique=False)
    op.create_index("ix_alerts_incident", "alerts", ["incident_id", "id"], unique=False)
    op.create_index("ix_deliveries_incident", "deliveries", ["incident_id"], unique=False)
