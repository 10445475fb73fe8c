"""Somebody has seen it: acknowledging an alert stops its reminders, and receivers that know of such a thing hear it."""

from datetime import datetime

from app.domain.alerting import OPEN, AlertState, TransitionType
from app.domain.delivering import ACKNOWLEDGING, DeliveryState
from app.domain.errors import ConflictError, NotFoundError
from app.store import alerts, catalog, outbox
from app.store.engine import Connection, Store, to_us


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
            transition_id = alerts.append_transition(
                connection,
                alert_id=alert_id,
                at=to_us(now),
                type=TransitionType.ACKNOWLEDGED,
                severity=alert.severity,
                reason=f"Acknowledged by {by}{f': {note}' if note else ''}.",
                run_id=None,
                evidence={"by": by, "note": note},
            )
            _tell(connection, alert_id, transition_id, at=to_us(now))
        return taken


def _tell(connection: Connection, alert_id: int, transition_id: int, *, at: int) -> None:
    """Write the deliveries to those who heard of the alert and take an acknowledgement over as their own."""
    told = outbox.deliveries_of_alert(connection, alert_id, hold=True)
    heard = {row.hook_id for row in told if row.attempts > 0 or row.body is not None}
    hooks = [catalog.definition_by_id(connection, hook_id) for hook_id in sorted(heard)]
    rows = [
        {
            "hook_id": hook.id,
            "alert_id": alert_id,
            "transition_id": transition_id,
            "message_id": f"msg_{at}_{transition_id}_{hook.id}",
            "type": f"alert.{TransitionType.ACKNOWLEDGED}",
            "state": DeliveryState.PENDING,
            "created_at": at,
            "next_attempt_at": at,
            "attempts": 0,
        }
        for hook in hooks
        if hook.body["kind"] in ACKNOWLEDGING and hook.archived_at is None and hook.disabled_reason is None
    ]
    outbox.enqueue_deliveries(connection, rows)
