"""Adoption of alerts that a release without incidents announced during a rolling upgrade.

Receivers wait for the resolve of such an alert under its own key. So it becomes an incident of its own under that key,
as in the migration of older alerts.
"""

from collections.abc import Collection

from app.alerts.domain.alert_state import AlertState
from app.alerts.domain.incidents import class_of
from app.alerts.store import alerts, incidents
from app.alerts.store.alerts import AlertRow
from app.base.db.engine import Connection
from app.base.values import RuleKind


def adopt_announced(connection: Connection, check_id: int, alert_ids: Collection[int]) -> dict[int, int]:
    """Create incidents for alerts of a check that were announced without one; returns the incident ids by alert id.

    The caller holds the alerts, see `alerts.open_alerts`, or their check.
    """
    adopted = {}
    for alert_id in incidents.announced_without(connection, alert_ids):
        alert = alerts.find_alert(connection, alert_id)
        assert alert is not None  # noqa: S101 - the delivery's foreign key
        adopted[alert_id] = (
            alert.incident_id if alert.incident_id is not None else _open_incident(connection, check_id, alert)
        )
        incidents.adopt_alert(connection, alert_id, adopted[alert_id])
    return adopted


def _open_incident(connection: Connection, check_id: int, alert: AlertRow) -> int:
    """Open an incident for an alert; returns its id, or that of the open one with the same key."""
    resolved_at = alert.resolved_at or alert.created_at
    incident_class = class_of(RuleKind(alert.kind))
    number = incidents.open_incident(
        connection,
        check_id=check_id,
        incident_class=incident_class,
        dedupe_key=alert.dedupe_key,
        severity=alert.severity,
        alert_id=alert.id,
        opened_at=alert.opened_at or alert.created_at,
        resolved_at=resolved_at if alert.state == AlertState.RESOLVED else None,
    )
    if number is not None:
        return number
    there = incidents.open_incidents(connection, check_id, hold=True)
    mine = (incident_class, alert.dedupe_key)
    return next(one.id for one in there if (one.incident_class, one.dedupe_key) == mine)
