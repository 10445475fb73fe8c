"""Acknowledging an alert: stops the reminders of its incident, and is sent to receivers that page."""

from datetime import datetime

from app.alerts.domain.alert_state import OPEN, AlertState, TransitionType
from app.alerts.service.notifications import new_delivery
from app.alerts.store import alerts
from app.alerts.store.alerts import AlertRow
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, NotFoundError
from app.catalog.store import definitions
from app.hooks.domain.attempts import ACKNOWLEDGING
from app.hooks.store import outbox


def acknowledge(store: Store, alert_id: int, *, by: str, note: str | None, now: datetime) -> bool:
    """Acknowledge an open alert and with it its incident; False where it was acknowledged already, by an earlier note.

    Raises NotFoundError, and ConflictError for an alert that is not open: not yet, or not any more.
    """
    at = to_us(now)
    with store.write() as connection:
        alert = alerts.find_alert(connection, alert_id)
        if alert is not None:
            alerts.open_alerts(connection, alert.check_id)  # waits for an alert that is about to enter the incident
        acknowledged = alerts.acknowledge(connection, alert_id, at=at, by=by)
        alert = alerts.find_alert(connection, alert_id)
        if alert is None:
            raise NotFoundError(f"there is no alert '{alert_id}'")
        state = AlertState(alert.state)
        if state not in OPEN:
            why = "has resolved" if state is AlertState.RESOLVED else "has not opened yet"
            raise ConflictError(f"the alert {why}; only an open one can be acknowledged")
        if acknowledged:
            text = f"by {by}{f': {note}' if note else ''}."
            transition_id = _append(connection, alert, f"Acknowledged {text}", by=by, note=note, at=at)
            if alert.incident_id is not None:
                for other in alerts.alerts_of_incident(connection, alert.incident_id):
                    if alerts.acknowledge(connection, other.id, at=at, by=by):
                        reason = f"Acknowledged with alert {alert.id} of the same incident {text}"
                        _append(connection, other, reason, by=by, note=note, at=at)
                _enqueue(connection, alert.incident_id, transition_id, at=at)
        return acknowledged


def _append(connection: Connection, alert: AlertRow, reason: str, *, by: str, note: str | None, at: int) -> int:
    return alerts.append_transition(
        connection,
        alert_id=alert.id,
        at=at,
        type=TransitionType.ACKNOWLEDGED,
        severity=alert.severity,
        reason=reason,
        run_id=None,
        evidence={"by": by, "note": note},
    )


def _enqueue(connection: Connection, incident_id: int, transition_id: int, *, at: int) -> None:
    """Enqueue deliveries to the hooks that were notified of the incident and support acknowledgements."""
    past = outbox.deliveries_of_incident(connection, incident_id, hold=True)
    reached = {row.hook_id: row.alert_id for row in past if row.attempts > 0 or row.body is not None}
    hooks = [definitions.definition_by_id(connection, hook_id) for hook_id in sorted(reached)]
    rows = [
        new_delivery(
            incident_id,
            reached[hook.id],
            hook.id,
            transition_id=transition_id,
            change=TransitionType.ACKNOWLEDGED,
            at=at,
        )
        for hook in hooks
        if hook.body["kind"] in ACKNOWLEDGING and hook.archived_at is None and hook.disabled_reason is None
    ]
    outbox.enqueue_deliveries(connection, rows)
