"""Notifications of a check's incidents: their rows, the deliveries that tell of them, or the note why there are none.

Called inside the transaction that changed the alerts. The deciding is done in the domain, from rows; see incidents.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.domain.alerts.alert_state import OPEN, AlertState, TransitionType
from app.domain.alerts.incidents import (
    NON_REPEATING,
    IncidentClass,
    Member,
    OpenIncident,
    PastDelivery,
    Plan,
    Recipients,
    Step,
    Suppression,
    dedupe_keys,
    plan_notifications,
    reminder_due,
)
from app.domain.model import DeliveryState, RuleKind, Severity
from app.formats.catalog.documents import CheckDocument
from app.services.alerts import silencing
from app.services.alerts.incident_adoption import adopt_announced
from app.store.alerts import alerts, incidents
from app.store.alerts.alerts import AlertRow, TransitionRow
from app.store.alerts.incidents import IncidentRow
from app.store.catalog import definitions
from app.store.catalog.definitions import Definition
from app.store.delivery import outbox
from app.store.delivery.outbox import DeliveryRow
from app.store.engine import Connection, from_us, to_us

_TYPE = "alert."
_NOBODY = Recipients(hooks=())
_DEFERRED = "The hook is disabled; this is sent once it is saved again."


@dataclass(slots=True, kw_only=True)
class AlertInProgress:
    """An unresolved alert of a check, or one just resolved, with what has just happened to it."""

    id: int
    rule: str
    kind: RuleKind
    severity: Severity
    state: AlertState
    acknowledged: bool = False
    incident_id: int | None = None
    change: TransitionType | None = None
    transition_id: int | None = None

    @classmethod
    def of(cls, row: AlertRow) -> "AlertInProgress":
        """Read it off its row."""
        return cls(
            id=row.id,
            rule=row.rule_key,
            kind=RuleKind(row.kind),
            severity=Severity(row.severity),
            state=AlertState(row.state),
            acknowledged=row.acknowledged_at is not None,
            incident_id=row.incident_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What is decided about: all unresolved and just resolved alerts of a check, its open incidents, its hooks."""

    check: Definition
    members: Sequence[Member] = ()
    transitions: Mapping[int, Sequence[TransitionRow]] = field(default_factory=dict)
    """Of each alert, oldest first."""
    incidents: Sequence[OpenIncident] = ()
    rows: Mapping[int, IncidentRow] = field(default_factory=dict)
    recipients: Recipients = _NOBODY
    hooks: Mapping[int, Definition] = field(default_factory=dict)

    @property
    def remind_every(self) -> timedelta | None:
        """How long after the last message people are reminded; None = never."""
        return CheckDocument.model_validate(self.check.body).remind_after

    def plan(self, now: datetime, *, remind: bool = False) -> Plan:
        """Decide what is sent; reminders only where asked."""
        every = self.remind_every if remind else None
        return plan_notifications(self.members, self.incidents, self.recipients, now=now, remind_every=every)

    def suppression(self, alert_id: int) -> Suppression | None:
        """Say what keeps news of an open alert back now."""
        return Suppression.SILENCED if self.member(alert_id).silence is not None else None

    def reminder_due(self, alert_id: int) -> datetime | None:
        """Say when people are reminded of the incident of an alert, if nothing changes."""
        number = self.member(alert_id).incident_id
        inside = [one for one in self.members if one.incident_id == number]
        found = next((one for one in self.incidents if one.id == number), None)
        return None if found is None else reminder_due(inside, found.deliveries, self.remind_every)

    def member(self, alert_id: int) -> Member:
        """Return an alert that is in progress."""
        return next(one for one in self.members if one.alert_id == alert_id)

    def newest_news(self, alert_id: int) -> TransitionRow:
        """Return the transition an alert was, or is to be, notified of last."""
        return next(row for row in reversed(self.transitions[alert_id]) if row.type in NON_REPEATING)


def load_context(
    connection: Connection,
    check: Definition,
    in_progress: Mapping[int, AlertInProgress],
    *,
    now: datetime,
    hold: bool,
) -> Context:
    """Read what there is to decide about; `hold` locks incidents, and keeps workers from claiming their deliveries."""
    if not any(one.change or one.state in OPEN for one in in_progress.values()):
        return Context(check=check)
    transitions = alerts.list_transitions(connection, list(in_progress))
    entered = {one.incident_id for one in in_progress.values()}
    rows = {row.id: row for row in incidents.open_incidents(connection, check.id, hold=hold) if row.id in entered}
    past = {number: outbox.deliveries_of_incident(connection, number, hold=hold) for number in rows}
    own = {hook.id: hook for hook in (_require_hook(connection, slug) for slug in check.body["hooks"])}
    others = {row.hook_id for deliveries in past.values() for row in deliveries} - own.keys()
    hooks = {**own, **{hook_id: definitions.definition_by_id(connection, hook_id) for hook_id in others}}
    subjects = [(one.id, one.rule, one.severity) for one in in_progress.values()]
    silenced = silencing.silenced(connection, check, subjects, now)
    return Context(
        check=check,
        members=[
            _member(one, transitions[one.id], silenced[one.id].slug if one.id in silenced else None)
            for one in in_progress.values()
        ],
        transitions=transitions,
        incidents=[_open_incident(row, past[row.id]) for row in rows.values()],
        rows=rows,
        recipients=Recipients(
            hooks=tuple(own),
            unreachable=frozenset(hook.id for hook in hooks.values() if _is_unreachable(hook, now)),
            disabled=frozenset(hook.id for hook in hooks.values() if hook.disabled_reason and hook.archived_at is None),
        ),
        hooks=hooks,
    )


def enqueue_notifications(
    connection: Connection,
    check: Definition,
    in_progress: Mapping[int, AlertInProgress],
    *,
    now: datetime,
    hold_until: datetime | None = None,
    remind: Callable[[int, IncidentRow], int] | None = None,
) -> bool:
    """Write what follows for the incidents of a check: their rows, deliveries, and why there are none.

    Returns whether there may be something to deliver.

    `in_progress`: every unresolved alert of the check by its id, and those just resolved. News of something wrong is
    not sent before `hold_until`, where given: more is being found out about it. `remind` appends the transition of a
    reminder about an alert and gives its id; without it nobody is reminded.
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
    over: list[int] = []
    for step in plan.steps:
        row = _written(connection, context, step, now=now)
        if row is None:
            continue  # another replica has just opened one: the next tick lets the alerts enter it
        transition_id = _transition(context, in_progress, step, row, remind)
        _note(connection, context, in_progress, step, transition_id)
        if transition_id is not None:
            _enqueue(connection, in_progress, step, row, transition_id, now=now, hold_until=hold_until)
        if step.type is TransitionType.RESOLVED:
            over.append(row.id)
    if over:  # one before it of the same fault may have ended while its hook was disabled
        outbox.send_owed(connection, to_us(now), incident_ids=over)
    return bool(plan.steps)


def _written(connection: Connection, context: Context, step: Step, *, now: datetime) -> IncidentRow | None:
    """Write the incident as it is after a step, and the alerts that enter it; None where somebody else opened it."""
    if step.incident_id is None:
        row = _opened(connection, context.check, step, now=now)
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


def _opened(connection: Connection, check: Definition, step: Step, *, now: datetime) -> IncidentRow | None:
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
    """Give the key of an incident about to open: under that of one of another class receivers would hear of no other.

    Read before the row is written: of two replicas one opens the incident under either key, see `uq_incidents_open`.
    """
    taken = {
        row.dedupe_key
        for row in incidents.open_incidents(connection, check.id, hold=False)
        if row.incident_class != incident_class
    }
    key, other = dedupe_keys(check.slug, incident_class)
    return other if key in taken else key


def _transition(
    context: Context,
    in_progress: Mapping[int, AlertInProgress],
    step: Step,
    row: IncidentRow,
    remind: Callable[[int, IncidentRow], int] | None,
) -> int | None:
    """Give the transition a notification is about; None where nothing is sent."""
    if step.type is None or step.alert_id is None:
        return None
    if step.type is TransitionType.REMINDED:
        assert remind is not None  # noqa: S101 - else none is planned
        return remind(step.alert_id, row)
    if step.type is TransitionType.RESOLVED:
        return in_progress[step.alert_id].transition_id
    return context.newest_news(step.alert_id).id


def _note(
    connection: Connection,
    context: Context,
    in_progress: Mapping[int, AlertInProgress],
    step: Step,
    transition_id: int | None,
) -> None:
    """Cancel what is not sent any more, and record with transitions why they are not sent, or that they are now."""
    if step.cancel:
        outbox.cancel_deliveries(connection, step.cancel, step.reason)
    for alert_id, why in step.suppressed.items():
        one = in_progress[alert_id]
        if one.change is TransitionType.RESOLVED and one.transition_id is not None:
            alerts.suppress(connection, one.transition_id, why)
        else:
            alerts.suppress(connection, context.newest_news(alert_id).id, why)
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
    fresh = in_progress[step.alert_id].change is not None  # of an older change all is known that is going to be
    held = hold_until is not None and fresh and step.type in NON_REPEATING
    rows = [
        {
            "hook_id": hook,
            "alert_id": row.alert_id,
            "transition_id": transition_id,
            "incident_id": row.id,
            # With the time in it, for receivers that hear of several installations or of one begun anew.
            "message_id": f"msg_{at}_{transition_id}_{hook}",
            "type": f"{_TYPE}{step.type}",
            "state": DeliveryState.DEAD if hook in step.deferred_hooks else DeliveryState.PENDING,
            "reason": _DEFERRED if hook in step.deferred_hooks else None,
            "created_at": at,
            "next_attempt_at": max(at, to_us(hold_until)) if held and hold_until is not None else at,
            "attempts": 0,
        }
        for hook in (*step.send, *step.deferred_hooks)
    ]
    outbox.enqueue_deliveries(connection, rows)


def _member(one: AlertInProgress, transitions: Sequence[TransitionRow], silence: str | None) -> Member:
    newest = next((row for row in reversed(transitions) if row.type in NON_REPEATING), None)
    return Member(
        alert_id=one.id,
        kind=one.kind,
        severity=one.severity,
        state=one.state,
        change=one.change,
        suppression=_suppression(newest),
        acknowledged=one.acknowledged,
        silence=silence,
        incident_id=one.incident_id,
    )


def _suppression(transition: TransitionRow | None) -> Suppression | None:
    """Read why a transition was not sent; reasons of before there were incidents mean nothing any more."""
    if transition is None or transition.suppressed not in set(Suppression):
        return None
    return Suppression(transition.suppressed)


def _open_incident(row: IncidentRow, past: Sequence[DeliveryRow]) -> OpenIncident:
    return OpenIncident(
        id=row.id,
        incident_class=IncidentClass(row.incident_class),
        alert_id=row.alert_id,
        severity=Severity(row.severity),
        updated_at=from_us(row.updated_at) if row.updated_at is not None else None,
        deliveries=[
            PastDelivery(
                id=one.id,
                hook=one.hook_id,
                type=TransitionType(one.type.removeprefix(_TYPE)),
                state=DeliveryState(one.state),
                attempts=max(one.attempts, one.body is not None),  # replayed: counted anew, but it was begun once
                written_at=from_us(one.created_at),
            )
            for one in past
        ],
    )


def _is_unreachable(hook: Definition, now: datetime) -> bool:
    # One archived in this very change still hears the end of what ends with it.
    archived = hook.archived_at is not None and hook.archived_at < to_us(now)
    return archived or hook.disabled_reason is not None


def _require_hook(connection: Connection, slug: str) -> Definition:
    hook = definitions.find_definition(connection, "hook", slug)
    assert hook is not None  # noqa: S101 - a check is only saved with hooks that exist, and nothing is deleted
    return hook
