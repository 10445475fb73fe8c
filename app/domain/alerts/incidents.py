"""Incidents: what people hear of. Decides, for the alerts of one check together, which notifications are sent.

An incident is (check, class). Its states, each step decided from rows alone:

    (none) --first alert that fires and is not silenced--> open        alert.opened
    open   --an alert graver than the incident-----------> open        alert.escalated, the severity never falls
    open   --a critical alert joins or rises beside
             another, or culprits are named--------------> open        alert.updated, at most once per UPDATE_EVERY
    open   --nothing new, nobody acknowledged------------> open        alert.reminded, every `remind` of the check
    open   --its last alert resolves---------------------> resolved    alert.resolved

Silenced alerts neither open nor enter an incident; those that fire when the silence ends do. What changed in an alert
was decided in alerting; how one delivery is tried and retried stands in delivering.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from app.domain.alerts.alert_state import OPEN, AlertState, TransitionType
from app.domain.counts import counted
from app.domain.model import DeliveryState, RuleKind, Severity

UPDATE_EVERY: Final = timedelta(hours=1)
"""At most one `alert.updated` of an incident in so long."""
NON_REPEATING: Final = frozenset({TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.UPDATED})
"""Changes of an alert that are worth one notification; where it is withheld, it is sent later or by another."""
TRIGGERS: Final = NON_REPEATING | {TransitionType.REMINDED}
"""What tells a receiver that something is wrong; the rest means nothing to one that got none of these."""


class IncidentClass(StrEnum):
    """What kind of fault it is: alerts of one check and class that are open together are one incident."""

    OUTAGE = "outage"
    LATENCY = "latency"
    QUALITY = "quality"


_CLASSES: Final[Mapping[RuleKind, IncidentClass]] = MappingProxyType(
    {
        RuleKind.PROBE_ERRORS: IncidentClass.OUTAGE,
        RuleKind.NO_DATA: IncidentClass.OUTAGE,
        RuleKind.LATENCY: IncidentClass.LATENCY,
    }
)
_MOST_TELLING: Final = (RuleKind.PROBE_ERRORS, RuleKind.NO_DATA, RuleKind.EMBEDDING, RuleKind.REGRESSION, RuleKind.DROP)
"""Of alerts that are equally grave, those that name the cause or the canaries speak for the incident."""


def class_of(kind: RuleKind) -> IncidentClass:
    """Return the class of the incidents that alerts of a rule of this kind belong to."""
    return _CLASSES.get(kind, IncidentClass.QUALITY)


def dedupe_key(check: str, incident_class: IncidentClass) -> str:
    """Return the key receivers know an incident by: the same for each incident of the check and class.

    A slug has at most 64 plain characters, so the key is far below PagerDuty's limit of 255.
    """
    return f"coalmine/{check}/{incident_class}"


def dedupe_keys(check: str, incident_class: IncidentClass) -> tuple[str, str]:
    """Return the key of incidents of the class, and the one that is used while receivers know another fault by it.

    A rule of a release without incidents may be called as a class is: its alert was announced under that class's key.
    No rule's own key has a slash in it.
    """
    key = dedupe_key(check, incident_class)
    return key, f"{key}/2"


class Suppression(StrEnum):
    """Why a change of an alert has no notification of its own."""

    SILENCED = "silenced"
    INCIDENT_OPEN = "incident_open"
    """Its incident was open already, and nothing about it calls for another message."""
    RECENT_UPDATE = "recent_update"
    """The incident was updated within the hour; the next notification carries it."""


_OUTSTANDING: Final = frozenset({Suppression.SILENCED, Suppression.RECENT_UPDATE})
"""Suppressions of what is sent later if it still fires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDelivery:
    """A delivery written for an incident before."""

    id: int
    hook: int
    type: TransitionType
    state: DeliveryState
    attempts: int
    """How many were begun: one under way counts, the receiver may have taken it."""
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An unresolved alert of the check as it stands after a decision, or one just resolved."""

    alert_id: int
    kind: RuleKind
    severity: Severity
    state: AlertState
    change: TransitionType | None = None
    """What just happened to it, None if it only stands as it did."""
    suppression: Suppression | None = None
    """Why its newest notification was not sent, as the transition's row says."""
    acknowledged: bool = False
    silence: str | None = None
    """The slug of the silence that is on for it now."""
    incident_id: int | None = None
    """The incident it entered."""

    @property
    def speaks(self) -> bool:
        """Whether it fires and no silence keeps it back."""
        return self.state is AlertState.FIRING and self.silence is None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncident:
    """An incident that is not over, as its row says."""

    id: int
    incident_class: IncidentClass
    alert_id: int
    """Its first alert."""
    severity: Severity
    updated_at: datetime | None = None
    """When its last `alert.updated` was written."""
    deliveries: Sequence[PastDelivery] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipients:
    """The hooks of the check, in order, and which hooks get nothing."""

    hooks: Sequence[int]
    unreachable: Collection[int] = ()
    """Disabled or gone."""
    disabled: Collection[int] = ()
    """Those of the unreachable that may be back."""

    @property
    def reachable(self) -> tuple[int, ...]:
        """The hooks of the check that are in force."""
        return tuple(hook for hook in self.hooks if hook not in self.unreachable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be written for one incident: alerts that enter it, one notification at most, and why."""

    incident_id: int | None
    """None = it is opened by this step."""
    incident_class: IncidentClass
    severity: Severity
    """That of the incident after the step."""
    type: TransitionType | None = None
    """What is sent; None = nothing, alerts only enter or are noted."""
    alert_id: int | None = None
    """The alert whose newest transition the notification is about; None = nothing is sent."""
    joining: tuple[int, ...] = ()
    """Alerts that enter the incident."""
    suppressed: Mapping[int, Suppression] = field(default_factory=dict)
    """To be recorded with the newest transition of these alerts."""
    send: tuple[int, ...] = ()
    """Hooks that get a delivery."""
    deferred_hooks: tuple[int, ...] = ()
    """Disabled hooks that may have got a trigger: their resolve waits until they are enabled."""
    cancel: tuple[int, ...] = ()
    """Deliveries never attempted that are no longer to be sent."""
    reason: str
    """A sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What follows for a check: a step per incident, and the alerts that a silence keeps out of any."""

    steps: tuple[Step, ...] = ()
    silenced: Mapping[int, str] = field(default_factory=dict)
    """The slug of the silence, by alerts that just changed and whose change it keeps back."""


def plan_notifications(
    members: Sequence[Member],
    incidents: Sequence[OpenIncident],
    recipients: Recipients,
    *,
    now: datetime,
    remind_every: timedelta | None = None,
) -> Plan:
    """Decide what is sent for all unresolved and just resolved alerts of one check together.

    `incidents`: those of the check that are open. At most one of a class, but for those that were made of alerts of
    before there were incidents: new alerts enter the oldest that goes on. `remind_every`: None = no reminders.
    """
    steps: list[Step] = []
    for incident_class in IncidentClass:
        of_class = [one for one in members if class_of(one.kind) is incident_class]
        entering = [one for one in of_class if one.incident_id is None and one.speaks]
        running = sorted((one for one in incidents if one.incident_class is incident_class), key=lambda one: one.id)
        inside = {one.id: [each for each in of_class if each.incident_id == one.id] for one in running}
        host = _host(running, inside)
        for incident in running:
            joining = entering if incident is host else []
            step = _step(incident, inside[incident.id], joining, recipients, now=now, remind_every=remind_every)
            steps += [step] if step is not None else []
        if host is None and entering:
            steps.append(_opening(incident_class, entering, recipients))
    silenced = {one.alert_id: one.silence for one in members if one.change in NON_REPEATING and one.silence is not None}
    return Plan(steps=tuple(steps), silenced=silenced)


def reminder_due(
    members: Sequence[Member], deliveries: Sequence[PastDelivery], every: timedelta | None
) -> datetime | None:
    """Return when people are to be reminded of an incident if nothing changes; None = they are not."""
    if every is None or not any(map(_calls_for_reminder, members)):
        return None
    written = [one.written_at for one in _triggers(deliveries) if one.written_at is not None]
    return max(written) + every if written else None


def still_firing(reason: str, since: datetime, now: datetime) -> str:
    """Say in a reminder for how long an incident has been open, and why."""
    minutes = max(int((now - since).total_seconds() // 60), 0)
    days, hours = divmod(minutes // 60, 24)
    spans = ((days, "day"), (hours, "hour"), (minutes % 60, "minute"))
    length = " and ".join([counted(count, unit) for count, unit in spans if count][:2])
    return f"Still firing{f' after {length}' if length else ''}: {reason}"


def _host(running: Sequence[OpenIncident], inside: Mapping[int, Sequence[Member]]) -> OpenIncident | None:
    """Return the incident that alerts of the class enter: the oldest that goes on, else the oldest."""
    going_on = [one for one in running if any(each.state in OPEN for each in inside[one.id])]
    return next(iter([*going_on, *running]), None)


def _opening(incident_class: IncidentClass, entering: Sequence[Member], recipients: Recipients) -> Step:
    lead = _lead(entering)
    hooks = recipients.reachable
    return Step(
        incident_id=None,
        incident_class=incident_class,
        severity=lead.severity,
        type=TransitionType.OPENED,
        alert_id=lead.alert_id,
        joining=tuple(one.alert_id for one in entering),
        suppressed=_carried(entering, lead),
        send=hooks,
        reason="Sent to the hooks of the check." if hooks else "Not sent: the check has no hook that is enabled.",
    )


def _step(
    incident: OpenIncident,
    members: Sequence[Member],
    joining: Sequence[Member],
    recipients: Recipients,
    *,
    now: datetime,
    remind_every: timedelta | None,
) -> Step | None:
    """Decide about an open incident; None = nothing changes."""
    if not joining and not any(one.state in OPEN for one in members):
        return _resolve(incident, members, recipients)
    audible = [one for one in (*members, *joining) if one.speaks]
    graver = [one for one in audible if _is_graver(one.severity, incident.severity)]
    news = [*filter(_is_news, members), *(one for one in joining if one.severity is Severity.CRITICAL)]
    noted = {one.alert_id: Suppression.INCIDENT_OPEN for one in joining}
    noted |= {one.alert_id: Suppression.INCIDENT_OPEN for one in members if one.change is TransitionType.RESOLVED}
    entered = tuple(one.alert_id for one in joining)
    if graver:
        return _notification(incident, TransitionType.ESCALATED, _lead(graver), entered, news, noted, recipients)
    if news and (incident.updated_at is None or incident.updated_at + UPDATE_EVERY <= now):
        return _notification(incident, TransitionType.UPDATED, _lead(news), entered, news, noted, recipients)
    due = reminder_due(members, incident.deliveries, remind_every)
    if not news and not joining and due is not None and due <= now:
        lead = _lead([one for one in members if _calls_for_reminder(one)])
        step = _notification(incident, TransitionType.REMINDED, lead, entered, news, noted, recipients)
        if step.send:
            return step
    noted |= {
        one.alert_id: Suppression.RECENT_UPDATE for one in news if one.suppression is not Suppression.RECENT_UPDATE
    }
    if not noted and not joining:
        return None
    return Step(
        incident_id=incident.id,
        incident_class=incident.incident_class,
        severity=incident.severity,
        joining=entered,
        suppressed=noted,
        reason="Not sent: its incident is open already.",
    )


def _notification(
    incident: OpenIncident,
    change: TransitionType,
    lead: Member,
    entered: tuple[int, ...],
    news: Iterable[Member],
    noted: Mapping[int, Suppression],
    recipients: Recipients,
) -> Step:
    hooks = recipients.reachable
    if change is TransitionType.REMINDED:
        hooks = _without_pending(incident.deliveries, hooks)
    suppressed = {**noted, **_carried(news, lead)}
    suppressed.pop(lead.alert_id, None)
    return Step(
        incident_id=incident.id,
        incident_class=incident.incident_class,
        severity=lead.severity if change is TransitionType.ESCALATED else incident.severity,
        type=change,
        alert_id=lead.alert_id,
        joining=entered,
        suppressed=suppressed,
        send=hooks,
        reason="Sent to the hooks of the check." if hooks else "Not sent: the check has no hook that is enabled.",
    )


def _is_graver(severity: Severity, than: Severity) -> bool:
    return severity is Severity.CRITICAL and than is not Severity.CRITICAL


def _is_news(one: Member) -> bool:
    """Whether a member of an incident has a change that was not sent yet, and that nothing but time keeps back."""
    return one.speaks and (one.change in NON_REPEATING or one.suppression in _OUTSTANDING)


def _calls_for_reminder(one: Member) -> bool:
    return one.speaks and not one.acknowledged and one.change is None


def _carried(others: Iterable[Member], lead: Member) -> dict[int, Suppression]:
    """Note of those a notification tells of besides the one it is about that they get none of their own."""
    return {one.alert_id: Suppression.INCIDENT_OPEN for one in others if one is not lead}


def _lead(candidates: Sequence[Member]) -> Member:
    """Return the alert that speaks for the others: the gravest, then the most telling, then the oldest."""

    def order(one: Member) -> tuple[bool, int, int]:
        telling = _MOST_TELLING.index(one.kind) if one.kind in _MOST_TELLING else len(_MOST_TELLING)
        return one.severity is not Severity.CRITICAL, telling, one.alert_id

    return min(candidates, key=order)


def _without_pending(deliveries: Sequence[PastDelivery], hooks: Sequence[int]) -> tuple[int, ...]:
    """Return the hooks to which nothing about the incident is still on its way."""
    waiting = {one.hook for one in deliveries if one.state is DeliveryState.PENDING}
    return tuple(hook for hook in hooks if hook not in waiting)


def _resolve(incident: OpenIncident, members: Sequence[Member], recipients: Recipients) -> Step | None:
    """Send the resolve where a trigger may have arrived; cancel what was never attempted."""
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
        suppressed=_carried(ended, lead),
        send=send,
        deferred_hooks=deferred,
        cancel=unsent,
        reason=reason,
    )


def _triggers(deliveries: Iterable[PastDelivery]) -> list[PastDelivery]:
    """Return the deliveries that told, or are about to tell, that something is wrong."""
    return [one for one in deliveries if one.type in TRIGGERS and one.state is not DeliveryState.CANCELLED]
