"""Notifications of a check's incidents: writes the incidents, their deliveries, or why a change is not sent.

Called inside the transaction that changed the alerts; `notification_plan` of the domain decides, from rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from app.alerts.domain.alert_state import OPEN, TransitionType
from app.alerts.domain.incidents import NON_REPEATING, IncidentClass, Suppression, dedupe_keys
from app.alerts.domain.notification_plan import Step
from app.alerts.service.incident_adoption import adopt_announced
from app.alerts.service.notification_context import NEWS_PREFIX, AlertInProgress, Context, load_context
from app.alerts.store import alerts, incidents
from app.alerts.store.incidents import IncidentRow
from app.base.db.engine import Connection, to_us
from app.base.values import DeliveryState
from app.catalog.store.definitions import Definition
from app.hooks.store import outbox, replays
from app.hooks.store.outbox import NewDelivery

_DEFERRED = "The hook is disabled; this is sent once it is saved again."


def enqueue_notifications(
    connection: Connection,
    check: Definition,
    in_progress: Mapping[int, AlertInProgress],
    *,
    now: datetime,
    hold_until: datetime | None = None,
    remind: Callable[[int, IncidentRow], int] | None = None,
) -> bool:
    """Write the incidents of a check, their deliveries, and why there are none; True where there may be deliveries.

    `in_progress`: every unresolved alert of the check by its id, and those just resolved. Notifications of a fault are
    not sent before `hold_until`, where given: it is still being diagnosed. `remind` appends the transition of a
    reminder about an alert and returns its id; None = no reminders.
    """
    strays = [one.id for one in in_progress.values() if one.incident_id is None and (one.change or one.state in OPEN)]
    for alert_id, incident_id in adopt_announced(connection, check.id, strays).items():
        in_progress[alert_id].incident_id = incident_id
    context = load_context(connection, check, in_progress, now=now, hold=True)
    plan = context.plan(now, remind=remind is not None)
    for alert_id, silence in plan.silenced.items():
        number = in_progress[alert_id].transition_id
        if number is not None:
            alerts.suppress(connection, number, Suppression.SILENCED, silence=silence)
    resolved: list[int] = []
    for step in plan.steps:
        row = _write_incident(connection, context, step, now=now)
        if row is None:
            continue  # another replica has just opened one: the next tick lets the alerts enter it
        transition_id = _notified_transition(context, in_progress, step, row, remind)
        _record_suppressions(connection, context, in_progress, step, transition_id)
        if transition_id is not None:
            _enqueue(connection, in_progress, step, row, transition_id, now=now, hold_until=hold_until)
        if step.type is TransitionType.RESOLVED:
            resolved.append(row.id)
    if resolved:  # one before it of the same fault may have ended while its hook was disabled
        replays.replay_unsent_resolves(connection, to_us(now), incident_ids=resolved)
    return bool(plan.steps)


def _write_incident(connection: Connection, context: Context, step: Step, *, now: datetime) -> IncidentRow | None:
    """Write the incident after a step, and the alerts that enter it; None where another replica opened it."""
    if step.incident_id is None:
        row = _open_incident(connection, context.check, step, now=now)
        if row is None:
            return None
    else:
        row = context.rows[step.incident_id]
        changes: dict[str, object] = {} if step.severity == row.severity else {"severity": step.severity}
        if step.type is TransitionType.UPDATED:
            changes["updated_at"] = to_us(now)
        if step.type is TransitionType.RESOLVED:
            changes["resolved_at"] = to_us(now)
        if changes:
            incidents.update_incident(connection, row.id, **changes)
    if step.joining:
        incidents.enter_incident(connection, step.joining, row)
    if step.type in {TransitionType.ESCALATED, TransitionType.UPDATED}:
        incidents.clear_acknowledgements(connection, row.id)
    elif step.type is None and step.joining:
        incidents.share_acknowledgement(connection, row.id, step.joining)
    return row


def _open_incident(connection: Connection, check: Definition, step: Step, *, now: datetime) -> IncidentRow | None:
    assert step.alert_id is not None  # noqa: S101 - an incident is opened by an alert
    key = _free_key(connection, check, step.incident_class)
    values = {
        "check_id": check.id,
        "incident_class": step.incident_class,
        "dedupe_key": key,
        "severity": step.severity,
        "alert_id": step.alert_id,
        "opened_at": to_us(now),
    }
    number = incidents.open_incident(connection, **values)
    if number is None and incidents.end_abandoned(connection, check.id, step.incident_class, key, at=to_us(now)):
        number = incidents.open_incident(connection, **values)
    return None if number is None else incidents.find_incident(connection, number)


def _free_key(connection: Connection, check: Definition, incident_class: IncidentClass) -> str:
    """Key of an incident about to open that no incident of another class is open under.

    Receivers would take a second one under the same key for the first. Read before the row is written: of two replicas
    one opens the incident under either key, see `uq_incidents_open`.
    """
    taken = {
        row.dedupe_key
        for row in incidents.open_incidents(connection, check.id, hold=False)
        if row.incident_class != incident_class
    }
    key, other = dedupe_keys(check.slug, incident_class)
    return other if key in taken else key


def _notified_transition(
    context: Context,
    in_progress: Mapping[int, AlertInProgress],
    step: Step,
    row: IncidentRow,
    remind: Callable[[int, IncidentRow], int] | None,
) -> int | None:
    """Id of the transition a notification is about; None where none is sent."""
    if step.type is None or step.alert_id is None:
        return None
    if step.type is TransitionType.REMINDED:
        assert remind is not None  # noqa: S101 - else none is planned
        return remind(step.alert_id, row)
    if step.type is TransitionType.RESOLVED:
        return in_progress[step.alert_id].transition_id
    return context.newest_notifiable(step.alert_id).id


def _record_suppressions(
    connection: Connection,
    context: Context,
    in_progress: Mapping[int, AlertInProgress],
    step: Step,
    transition_id: int | None,
) -> None:
    """Cancel deliveries that are not sent any more, and record why transitions are not sent, or that they are now."""
    if step.cancel:
        outbox.cancel_deliveries(connection, step.cancel, step.reason)
    for alert_id, why in step.suppressed.items():
        one = in_progress[alert_id]
        if one.change is TransitionType.RESOLVED and one.transition_id is not None:
            alerts.suppress(connection, one.transition_id, why)
        else:
            alerts.suppress(connection, context.newest_notifiable(alert_id).id, why)
    if transition_id is not None and step.type in NON_REPEATING:
        alerts.release(connection, transition_id)


def _enqueue(
    connection: Connection,
    in_progress: Mapping[int, AlertInProgress],
    step: Step,
    row: IncidentRow,
    transition_id: int,
    *,
    now: datetime,
    hold_until: datetime | None,
) -> None:
    at = to_us(now)
    assert step.alert_id is not None  # noqa: S101 - the alert of the transition
    fresh = in_progress[step.alert_id].change is not None  # an older change was diagnosed already
    is_held = hold_until is not None and fresh and step.type in NON_REPEATING
    next_attempt_at = max(at, to_us(hold_until)) if is_held and hold_until is not None else at
    new = partial(new_delivery, row.id, row.alert_id, transition_id=transition_id, change=step.type, at=at)
    rows = [replace(new(hook), next_attempt_at=next_attempt_at) for hook in step.send]
    rows += [replace(new(hook), state=DeliveryState.DEAD, reason=_DEFERRED) for hook in step.deferred_hooks]
    outbox.enqueue_deliveries(connection, rows)


def new_delivery(
    incident_id: int, alert_id: int | None, hook_id: int, *, transition_id: int, change: TransitionType | None, at: int
) -> NewDelivery:
    """Pending delivery of a transition to a hook, to be sent at once."""
    return NewDelivery(
        hook_id=hook_id,
        alert_id=alert_id,
        transition_id=transition_id,
        incident_id=incident_id,
        # With the time in it, for receivers of several installations or of a new one.
        message_id=f"msg_{at}_{transition_id}_{hook_id}",
        type=f"{NEWS_PREFIX}{change}",
        created_at=at,
        next_attempt_at=at,
    )
