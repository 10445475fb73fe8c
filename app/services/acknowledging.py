"""Somebody has seen it: acknowledging an alert stops its reminders, and nothing else."""

from datetime import datetime

from app.domain.alerting import OPEN, AlertState, TransitionType
from app.domain.errors import ConflictError, NotFoundError
from app.store import alerts
from app.store.engine import Store, to_us


def acknowledge(store: Store, alert_id: int, *, by: str, note: str | None, now: datetime) -> bool:
    """Note who has seen an open alert; False where somebody had already, whose note stands.

    Raises NotFoundError, and ConflictError for an alert that is not open: not yet, or not any more.
    """
    with store.write() as connection:
        taken = alerts.acknowledge(connection, alert_id, at=to_us(now), by=by)
        alert = alerts.find_alert(connection, alert_id)
        if alert is None:
            raise NotFoundError(f"there is no alert '{alert_id}'")
        state = AlertState(alert.state)
        if state not in OPEN:
            why = "has resolved" if state is AlertState.RESOLVED else "has not opened yet"
            raise ConflictError(f"the alert {why}; only an open one can be acknowledged")
        if taken:
            alerts.append_transition(
                connection,
                alert_id=alert_id,
                at=to_us(now),
                type=TransitionType.ACKNOWLEDGED,
                severity=alert.severity,
                reason=f"Acknowledged by {by}{f': {note}' if note else ''}.",
                run_id=None,
                evidence={"by": by, "note": note},
            )
        return taken
