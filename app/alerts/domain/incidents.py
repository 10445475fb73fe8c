"""Incidents: which notifications follow for all alerts of one check together, and what a silence keeps back.

An incident is (check, class). Its states and what each step sends:

    (none) --first alert that fires and is not silenced--> open        alert.opened
    open   --an alert graver than the incident-----------> open        alert.escalated, the severity never falls
    open   --a critical alert joins or rises beside
             another, or culprits are named--------------> open        alert.updated, at most once per UPDATE_EVERY
    open   --nothing new, not acknowledged---------------> open        alert.reminded, every `remind` of the check
    open   --its last alert resolves---------------------> resolved    alert.resolved

Silenced alerts neither open nor enter an incident; those that fire when the silence ends do. All of it is decided from
rows alone. How an alert changes is decided in `state`; how one delivery is sent and retried, in `hooks.domain`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from app.alerts.domain.state import (
    NON_REPEATING,
    OPEN,
    TRIGGERS,
    IncidentClass,
    Member,
    OpenIncident,
    PastDelivery,
    Recipients,
    Suppression,
    TransitionType,
    class_of,
)
from app.base.values import DeliveryState, RuleKind, Severity

UPDATE_EVERY: Final = timedelta(hours=1)
"""Least time between two `alert.updated` of an incident."""
_LEAD_ORDER: Final = (RuleKind.PROBE_ERRORS, RuleKind.NO_DATA, RuleKind.EMBEDDING, RuleKind.REGRESSION, RuleKind.DROP)
"""Of equally grave alerts, one that names the cause or the canaries leads the notification."""
_OUTSTANDING: Final = frozenset({Suppression.SILENCED, Suppression.RECENT_UPDATE})
"""Suppressions of changes that are sent later if the alert still fires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Changes of one incident: alerts that enter it, one notification at most, and why."""

    incident_id: int | None
    """None = it is opened by this step."""
    incident_class: IncidentClass
    severity: Severity
    """That of the incident after the step."""
    type: TransitionType | None = None
    """Type of the notification; None = none is sent."""
    alert_id: int | None = None
    """The alert whose newest transition the notification is about; None = none is sent."""
    joining: tuple[int, ...] = ()
    """Alerts that enter the incident."""
    suppressed: Mapping[int, Suppression] = field(default_factory=dict)
    """To be recorded with the newest transition of these alerts."""
    send: tuple[int, ...] = ()
    """Hooks that get a delivery."""
    deferred_hooks: tuple[int, ...] = ()
    """Disabled hooks that may have got a trigger: their resolve waits until they are enabled."""
    cancel: tuple[int, ...] = ()
    """Deliveries never attempted that are no longer sent."""
    reason: str
    """A sentence for people."""


def plan_notifications(
    members: Sequence[Member],
    incidents: Sequence[OpenIncident],
    recipients: Recipients,
    *,
    now: datetime,
    remind_every: timedelta | None = None,
) -> list[Step]:
    """Notifications for all unresolved and just resolved alerts of one check together, a step per incident.

    `incidents`: those of the check that are open. At most one of a class, but for those that were made of alerts of
    before there were incidents: new alerts enter the oldest that goes on. `remind_every`: None = no reminders.
    """
    steps: list[Step] = []
    for incident_class in IncidentClass:
        of_class = [one for one in members if class_of(one.kind) is incident_class]
        entering = [one for one in of_class if one.incident_id is None and one.is_notifiable]
        running = sorted((one for one in incidents if one.incident_class is incident_class), key=lambda one: one.id)
        inside = {one.id: [each for each in of_class if each.incident_id == one.id] for one in running}
        going_on = [one for one in running if any(each.state in OPEN for each in inside[one.id])]
        host = next(iter([*going_on, *running]), None)  # the oldest with an open alert, else the oldest
        for incident in running:
            joining = entering if incident is host else []
            step = _step(incident, inside[incident.id], joining, recipients, now=now, remind_every=remind_every)
            steps += [step] if step is not None else []
        if host is None and entering:
            steps.append(_open_step(incident_class, entering, recipients))
    return steps


def reminder_due(
    members: Sequence[Member], deliveries: Sequence[PastDelivery], every: timedelta | None
) -> datetime | None:
    """When the next reminder of an incident is due if nothing changes; None = never."""
    if every is None or not any(map(_calls_for_reminder, members)):
        return None
    written = [one.written_at for one in _triggers(deliveries) if one.written_at is not None]
    return max(written) + every if written else None


def _open_step(incident_class: IncidentClass, entering: Sequence[Member], recipients: Recipients) -> Step:
    lead = _lead(entering)
    joining = tuple(one.alert_id for one in entering)
    quiet = Step(incident_id=None, incident_class=incident_class, severity=lead.severity, joining=joining, reason="")
    return _notification(quiet, TransitionType.OPENED, lead, entering, recipients.reachable)


def _step(
    incident: OpenIncident,
    members: Sequence[Member],
    joining: Sequence[Member],
    recipients: Recipients,
    *,
    now: datetime,
    remind_every: timedelta | None,
) -> Step | None:
    """Step of an open incident; None = nothing changes."""
    if not joining and not any(one.state in OPEN for one in members):
        return _resolve(incident, members, recipients)
    notifiable = [one for one in (*members, *joining) if one.is_notifiable]
    is_critical = incident.severity is Severity.CRITICAL
    graver = [one for one in notifiable if one.severity is Severity.CRITICAL and not is_critical]
    news = [
        *(
            one
            for one in members
            if one.is_notifiable and (one.change in NON_REPEATING or one.suppression in _OUTSTANDING)
        ),
        *(one for one in joining if one.severity is Severity.CRITICAL),
    ]
    covered = [*joining, *(one for one in members if one.change is TransitionType.RESOLVED)]
    quiet = Step(
        incident_id=incident.id,
        incident_class=incident.incident_class,
        severity=incident.severity,
        joining=tuple(one.alert_id for one in joining),
        suppressed={one.alert_id: Suppression.INCIDENT_OPEN for one in covered},
        reason="Not sent: its incident is open already.",
    )
    if graver:
        lead = _lead(graver)
        step = _notification(quiet, TransitionType.ESCALATED, lead, news, recipients.reachable)
        return replace(step, severity=lead.severity)
    if news and (incident.updated_at is None or incident.updated_at + UPDATE_EVERY <= now):
        return _notification(quiet, TransitionType.UPDATED, _lead(news), news, recipients.reachable)
    due = reminder_due(members, incident.deliveries, remind_every)
    if not news and not joining and due is not None and due <= now:
        waiting = {one.hook for one in incident.deliveries if one.state is DeliveryState.PENDING}
        if hooks := tuple(hook for hook in recipients.reachable if hook not in waiting):
            lead = _lead([one for one in members if _calls_for_reminder(one)])
            return _notification(quiet, TransitionType.REMINDED, lead, news, hooks)
    recent = [one.alert_id for one in news if one.suppression is not Suppression.RECENT_UPDATE]
    if not covered and not recent:
        return None
    return replace(quiet, suppressed={**quiet.suppressed, **dict.fromkeys(recent, Suppression.RECENT_UPDATE)})


def _notification(
    quiet: Step, change: TransitionType, lead: Member, news: Iterable[Member], hooks: tuple[int, ...]
) -> Step:
    """Return a step with a notification about an alert, which covers the others that are news too."""
    suppressed = {**quiet.suppressed, **_suppress_others(news, lead)}
    suppressed.pop(lead.alert_id, None)
    return replace(
        quiet,
        type=change,
        alert_id=lead.alert_id,
        suppressed=suppressed,
        send=hooks,
        reason="Sent to the hooks of the check." if hooks else "Not sent: the check has no hook that is enabled.",
    )


def _calls_for_reminder(one: Member) -> bool:
    return one.is_notifiable and not one.acknowledged and one.change is None


def _suppress_others(others: Iterable[Member], lead: Member) -> dict[int, Suppression]:
    """Suppressions of the alerts that the notification about the lead covers too."""
    return {one.alert_id: Suppression.INCIDENT_OPEN for one in others if one is not lead}


def _lead(candidates: Sequence[Member]) -> Member:
    """Return the alert a notification is about: the gravest, then by `_LEAD_ORDER`, then the oldest."""

    def order(one: Member) -> tuple[bool, int, int]:
        place = _LEAD_ORDER.index(one.kind) if one.kind in _LEAD_ORDER else len(_LEAD_ORDER)
        return one.severity is not Severity.CRITICAL, place, one.alert_id

    return min(candidates, key=order)


def _resolve(incident: OpenIncident, members: Sequence[Member], recipients: Recipients) -> Step | None:
    """Step that sends the resolve where a trigger may have arrived, and cancels deliveries never attempted."""
    ended = [one for one in members if one.change is TransitionType.RESOLVED]
    if not ended:
        return None
    triggers = _triggers(incident.deliveries)
    reached = {one.hook for one in triggers if one.attempts > 0}
    unsent = tuple(one.id for one in triggers if one.state is DeliveryState.PENDING and one.attempts == 0)
    hooks = tuple(dict.fromkeys(one.hook for one in triggers if one.hook in reached))
    send = tuple(hook for hook in hooks if hook not in recipients.unreachable)
    deferred = tuple(hook for hook in hooks if hook in recipients.disabled)
    if send:
        reason = "Sent to every hook that may have got a message of the incident."
    elif deferred:
        reason = "Not sent yet: the hooks that got the trigger are disabled; they get the resolve once saved again."
    elif reached:
        reason = "Not sent: the hooks that got the trigger are disabled or gone."
    elif unsent:
        reason = "Cancelled together with the trigger, which had not been tried yet."
    else:
        reason = "Not sent: the incident was never announced."
    first = next((one for one in ended if one.alert_id == incident.alert_id), None)
    lead = first or _lead(ended)
    return Step(
        incident_id=incident.id,
        incident_class=incident.incident_class,
        severity=incident.severity,
        type=TransitionType.RESOLVED,
        alert_id=lead.alert_id,
        suppressed=_suppress_others(ended, lead),
        send=send,
        deferred_hooks=deferred,
        cancel=unsent,
        reason=reason,
    )


def _triggers(deliveries: Iterable[PastDelivery]) -> list[PastDelivery]:
    """Return the deliveries of a fault that were sent or still are to be."""
    return [one for one in deliveries if one.type in TRIGGERS and one.state is not DeliveryState.CANCELLED]
