"""Inputs of a check's notification plan, read from rows: its alerts, open incidents, hooks and silences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.alerts.domain.alert_state import OPEN, AlertState, TransitionType
from app.alerts.domain.incidents import (
    NON_REPEATING,
    IncidentClass,
    Member,
    OpenIncident,
    PastDelivery,
    Recipients,
    Suppression,
)
from app.alerts.domain.notification_plan import Plan, plan_notifications, reminder_due
from app.alerts.silences import service as silencing
from app.alerts.store import alerts, incidents
from app.alerts.store.alerts import AlertRow, TransitionRow
from app.alerts.store.incidents import IncidentRow
from app.base.db.engine import Connection, from_us, to_us
from app.base.values import DeliveryState, RuleKind, Severity
from app.catalog.documents.documents import CheckDocument
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.hooks.store import outbox
from app.hooks.store.outbox import DeliveryRow

NEWS_PREFIX = "alert."
"""Of the types of deliveries of an incident, before that of the transition."""
_NO_RECIPIENTS = Recipients(hooks=())


@dataclass(slots=True, kw_only=True)
class AlertInProgress:
    """An unresolved alert of a check, or one just resolved, with its latest change."""

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
        """Return the alert of a row, without a change."""
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
    """All unresolved and just resolved alerts of a check, its open incidents, its hooks."""

    check: Definition
    members: Sequence[Member] = ()
    transitions: Mapping[int, Sequence[TransitionRow]] = field(default_factory=dict)
    """Of each alert, oldest first."""
    incidents: Sequence[OpenIncident] = ()
    rows: Mapping[int, IncidentRow] = field(default_factory=dict)
    recipients: Recipients = _NO_RECIPIENTS
    hooks: Mapping[int, Definition] = field(default_factory=dict)

    @property
    def remind_every(self) -> timedelta | None:
        """Time from the last message to a reminder; None = never."""
        return CheckDocument.model_validate(self.check.body).remind_after

    def plan(self, now: datetime, *, remind: bool = False) -> Plan:
        """Return the notification plan; `remind`: with reminders."""
        every = self.remind_every if remind else None
        return plan_notifications(self.members, self.incidents, self.recipients, now=now, remind_every=every)

    def suppression(self, alert_id: int) -> Suppression | None:
        """Why notifications of an open alert are suppressed now."""
        return Suppression.SILENCED if self.member(alert_id).silence is not None else None

    def reminder_due(self, alert_id: int) -> datetime | None:
        """When the next reminder of the incident of an alert is due, if nothing changes."""
        number = self.member(alert_id).incident_id
        inside = [one for one in self.members if one.incident_id == number]
        incident = next((one for one in self.incidents if one.id == number), None)
        return None if incident is None else reminder_due(inside, incident.deliveries, self.remind_every)

    def member(self, alert_id: int) -> Member:
        """Return the alert in progress with this id."""
        return next(one for one in self.members if one.alert_id == alert_id)

    def newest_notifiable(self, alert_id: int) -> TransitionRow:
        """Return the newest transition of an alert that deserves a notification."""
        return next(row for row in reversed(self.transitions[alert_id]) if row.type in NON_REPEATING)


def load_context(
    connection: Connection,
    check: Definition,
    in_progress: Mapping[int, AlertInProgress],
    *,
    now: datetime,
    hold: bool,
) -> Context:
    """Read the context; `hold` locks incidents, and keeps workers from claiming their deliveries."""
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
    """Why a transition was not sent; None for reasons of releases without incidents."""
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
                type=TransitionType(one.type.removeprefix(NEWS_PREFIX)),
                state=DeliveryState(one.state),
                attempts=max(one.attempts, one.body is not None),  # a replay resets the count
                written_at=from_us(one.created_at),
            )
            for one in past
        ],
    )


def _is_unreachable(hook: Definition, now: datetime) -> bool:
    # A hook archived in this very change still gets the resolves of that change.
    archived = hook.archived_at is not None and hook.archived_at < to_us(now)
    return archived or hook.disabled_reason is not None


def _require_hook(connection: Connection, slug: str) -> Definition:
    hook = definitions.find_definition(connection, "hook", slug)
    assert hook is not None  # noqa: S101 - a check is only saved with hooks that exist, and nothing is deleted
    return hook
