"""Notifications of a check's incidents: writes the incidents, their deliveries, or why a change is not sent.

It runs inside the transaction that changed the alerts; `plan_notifications` of the domain decides, from rows.
Then acknowledging an alert, which receivers that support it are sent; at the end the data of a notice.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from app.alerts import store as alerts
from app.alerts.domain.advice import alert_advice
from app.alerts.domain.incidents import incident_title
from app.alerts.domain.rules import watches_answers
from app.alerts.domain.state import (
    NON_REPEATING,
    OPEN,
    IncidentClass,
    Member,
    OpenIncident,
    PastDelivery,
    Recipients,
    Step,
    Suppression,
    class_of,
    dedupe_keys,
    is_about_canaries,
    plan_notifications,
    reminder_due,
)
from app.alerts.domain.summaries import AlertFacts, alert_summary, answer_changes_text
from app.alerts.domain.views import AlertState, ChangedCanary, TransitionType, all_lost_text
from app.alerts.service.evidence import FleetEvidence
from app.alerts.service.shown_alerts import Links, explained, facts_at, filled_links
from app.alerts.silences.service import silence_members, silences_of
from app.alerts.store import AlertRow
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.errors import ConflictError, NotFoundError
from app.base.texts import LATENCY_NAMES
from app.base.values import DeliveryState, RuleKind, Severity, Value, field, replace
from app.base.views import rounded_or_none, time_text, view_of
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.store import Definition
from app.hooks import store as outbox
from app.hooks.domain import ACKNOWLEDGING, NoticeAlert, NoticeData
from app.hooks.store import DeliveryRow

NEWS_PREFIX = "alert."
"""Of the types of deliveries of an incident, before that of the transition."""
_NO_RECIPIENTS = Recipients(hooks=())


def member_of(row: AlertRow, opened_run_id: int | None = None) -> Member:
    """Return the alert of a row, without a change; `opened_run_id`: the run that opened it, for a decision."""
    return Member(
        alert_id=row.id,
        rule=row.rule_key,
        kind=RuleKind(row.kind),
        severity=Severity(row.severity),
        state=AlertState(row.state),
        opened_at=from_us(row.opened_at) if row.opened_at is not None else None,
        opened_run_id=opened_run_id,
        acknowledged=row.acknowledged_at is not None,
        incident_id=row.incident_id,
    )


class Context(Value):
    """All unresolved and just resolved alerts of a check, its open incidents, its hooks."""

    check: Definition
    members: Mapping[int, Member] = field(default_factory=dict)
    """By the id of the alert."""
    incidents: Mapping[int, OpenIncident] = field(default_factory=dict)
    """By id."""
    recipients: Recipients = _NO_RECIPIENTS

    @property
    def remind_every(self) -> timedelta | None:
        """Time from the last message to a reminder; None = never."""
        return self.check.read(CheckDocument).remind_after

    def plan(self, now: datetime, *, remind: bool = False) -> list[Step]:
        """Return a step per incident that changes; `remind`: with reminders."""
        every = self.remind_every if remind else None
        return plan_notifications(
            [*self.members.values()], [*self.incidents.values()], self.recipients, now=now, remind_every=every
        )

    def reminder_due(self, alert_id: int) -> datetime | None:
        """When the next reminder of the incident of an alert is due, if nothing changes."""
        number = self.members[alert_id].incident_id
        inside = [one for one in self.members.values() if one.incident_id == number]
        incident = None if number is None else self.incidents.get(number)
        return None if incident is None else reminder_due(inside, incident.deliveries, self.remind_every)


def load_context(
    connection: Connection, check: Definition, in_progress: Mapping[int, Member], *, now: datetime, hold: bool
) -> Context:
    """Read the context; `hold` locks incidents, and keeps workers from claiming their deliveries."""
    if not any(one.change or one.state in OPEN for one in in_progress.values()):
        return Context(check=check)
    newest = alerts.newest_transitions(connection, in_progress, NON_REPEATING)
    entered = {one.incident_id for one in in_progress.values()}
    incidents = [one for one in alerts.open_incidents(connection, check.id, hold=hold) if one.id in entered]
    past = {one.id: outbox.deliveries_of_incident(connection, one.id, hold=hold) for one in incidents}
    named = [catalog.find_definition(connection, "hook", slug) for slug in check.body["hooks"]]
    own = {hook.id: hook for hook in named if hook is not None}
    others = {row.hook_id for deliveries in past.values() for row in deliveries} - own.keys()
    hooks = {**own, **{hook_id: catalog.definition_by_id(connection, hook_id) for hook_id in others}}
    members = silence_members(silences_of(connection, check), in_progress.values(), now)
    return Context(
        check=check,
        members={one.alert_id: _with_news(one, *newest.get(one.alert_id, (None, None))) for one in members},
        incidents={one.id: replace(one, deliveries=list(map(_past_delivery, past[one.id]))) for one in incidents},
        recipients=Recipients(
            hooks=tuple(own),
            unreachable=frozenset(
                hook.id
                for hook in hooks.values()
                # One archived in this very change still gets the resolves of that change.
                if hook.disabled_reason is not None or (hook.archived_at or to_us(now)) < to_us(now)
            ),
            disabled=frozenset(hook.id for hook in hooks.values() if hook.disabled_reason and hook.archived_at is None),
        ),
    )


def _with_news(member: Member, news_id: int | None, suppressed: str | None) -> Member:
    """Return an alert with its newest change worth a notification; a release without incidents had other reasons."""
    known = suppressed if suppressed in set(Suppression) else None
    return replace(member, news_id=news_id, suppression=None if known is None else Suppression(known))


def _past_delivery(row: DeliveryRow) -> PastDelivery:
    return PastDelivery(
        id=row.id,
        hook=row.hook_id,
        type=TransitionType(row.type.removeprefix(NEWS_PREFIX)),
        state=DeliveryState(row.state),
        attempts=max(row.attempts, row.body is not None),  # a replay resets the count
        written_at=from_us(row.created_at),
    )


_DEFERRED = "The hook is disabled; this is sent once it is saved again."


def enqueue_notifications(
    connection: Connection,
    check: Definition,
    in_progress: Mapping[int, Member],
    *,
    now: datetime,
    hold_until: datetime | None = None,
    remind: Callable[[int, OpenIncident], int] | None = None,
) -> bool:
    """Write the incidents of a check, their deliveries, and why there are none; True where there may be deliveries.

    `in_progress`: every unresolved alert of the check by its id, and those just resolved. Notifications of a fault are
    not sent before `hold_until`, where given: it is still being diagnosed. `remind` appends the transition of a
    reminder about an alert and returns its id; None = no reminders.
    """
    strays = [
        number
        for number, one in in_progress.items()
        if one.incident_id is None and (one.change is not None or one.state in OPEN)
    ]
    in_progress = dict(in_progress)
    for alert_id, incident_id in adopt_announced(connection, check.id, strays).items():
        in_progress[alert_id] = replace(in_progress[alert_id], incident_id=incident_id)
    context = load_context(connection, check, in_progress, now=now, hold=True)
    for one in context.members.values():
        if one.silence is not None and one.change in NON_REPEATING and one.transition_id is not None:
            alerts.suppress(connection, one.transition_id, Suppression.SILENCED, silence=one.silence)
    resolved: list[int] = []
    steps = context.plan(now, remind=remind is not None)
    for step in steps:
        incident = _write_incident(connection, context, step, now=now)
        if incident is None:
            continue  # another replica has just opened one: the next tick lets the alerts enter it
        transition_id = _notified_transition(context, step, incident, remind)
        _record_suppressions(connection, context, step, transition_id)
        if transition_id is not None:
            _enqueue(connection, context, step, incident, transition_id, now=now, hold_until=hold_until)
        if step.type is TransitionType.RESOLVED:
            resolved.append(incident.id)
    if resolved:  # one before it of the same fault may have ended while its hook was disabled
        outbox.replay_unsent_resolves(connection, to_us(now), incident_ids=resolved)
    return bool(steps)


def _write_incident(connection: Connection, context: Context, step: Step, *, now: datetime) -> OpenIncident | None:
    """Write the incident after a step, and the alerts that enter it; None where another replica opened it."""
    if step.incident_id is None:
        incident = _open_incident(connection, context.check, step, now=now)
        if incident is None:
            return None
    else:
        incident = context.incidents[step.incident_id]
        changes: dict[str, object] = {} if step.severity is incident.severity else {"severity": step.severity}
        if step.type is TransitionType.UPDATED:
            changes["updated_at"] = to_us(now)
        if step.type is TransitionType.RESOLVED:
            changes["resolved_at"] = to_us(now)
        if changes:
            alerts.update_incident(connection, incident.id, **changes)
    if step.joining:
        alerts.enter_incident(connection, step.joining, incident.id, incident.dedupe_key)
    if step.type in {TransitionType.ESCALATED, TransitionType.UPDATED}:
        alerts.clear_acknowledgements(connection, incident.id)
    elif step.type is None and step.joining:
        alerts.share_acknowledgement(connection, incident.id, step.joining)
    return incident


def _open_incident(connection: Connection, check: Definition, step: Step, *, now: datetime) -> OpenIncident | None:
    assert step.alert_id is not None  # noqa: S101 - an incident is opened by an alert
    key, at = _free_key(connection, check, step.incident_class), to_us(now)
    values: dict[str, Any] = {
        "incident_class": step.incident_class,
        "dedupe_key": key,
        "severity": step.severity,
        "alert_id": step.alert_id,
    }
    insert = partial(alerts.open_incident, connection, check_id=check.id, opened_at=at, **values)
    number = insert()
    if number is None and alerts.end_abandoned(connection, check.id, step.incident_class, key, at=at):
        number = insert()
    return None if number is None else OpenIncident(id=number, opened_at=now, **values)


def _free_key(connection: Connection, check: Definition, incident_class: IncidentClass) -> str:
    """Key of an incident about to open that no incident of another class is open under.

    Receivers would take a second one under the same key for the first. Read before the row is written: of two replicas
    one opens the incident under either key, see `uq_incidents_open`.
    """
    taken = {
        row.dedupe_key
        for row in alerts.open_incidents(connection, check.id, hold=False)
        if row.incident_class != incident_class
    }
    key, other = dedupe_keys(check.slug, incident_class)
    return other if key in taken else key


def _notified_transition(
    context: Context, step: Step, incident: OpenIncident, remind: Callable[[int, OpenIncident], int] | None
) -> int | None:
    """Id of the transition a notification is about; None where none is sent."""
    if step.type is None or step.alert_id is None:
        return None
    if step.type is TransitionType.REMINDED:
        assert remind is not None  # noqa: S101 - else none is planned
        return remind(step.alert_id, incident)
    return context.members[step.alert_id].reported_id


def _record_suppressions(connection: Connection, context: Context, step: Step, transition_id: int | None) -> None:
    """Cancel deliveries that are not sent any more, and record why transitions are not sent, or that they are now."""
    if step.cancel:
        outbox.cancel_deliveries(connection, step.cancel)
    for alert_id, why in step.suppressed.items():
        if (reported := context.members[alert_id].reported_id) is not None:
            alerts.suppress(connection, reported, why)
    if transition_id is not None and step.type in NON_REPEATING:
        alerts.release(connection, transition_id)


def _enqueue(
    connection: Connection,
    context: Context,
    step: Step,
    incident: OpenIncident,
    transition_id: int,
    *,
    now: datetime,
    hold_until: datetime | None,
) -> None:
    at = to_us(now)
    assert step.alert_id is not None  # noqa: S101 - the alert of the transition
    fresh = context.members[step.alert_id].change is not None  # an older change was diagnosed already
    is_held = hold_until is not None and fresh and step.type in NON_REPEATING
    next_attempt_at = max(at, to_us(hold_until)) if is_held and hold_until is not None else at
    enqueue = partial(_enqueue_change, connection, transition_id=transition_id, incident_id=incident.id, at=at)
    enqueue(step.send, step.type, alert_id=incident.alert_id, next_attempt_at=next_attempt_at)
    enqueue(step.deferred_hooks, step.type, alert_id=incident.alert_id, dead_reason=_DEFERRED)


def _enqueue_change(
    connection: Connection,
    hook_ids: Sequence[int],
    change: TransitionType | None,
    *,
    at: int,
    next_attempt_at: int | None = None,
    dead_reason: str | None = None,
    **ids: int | None,
) -> None:
    """Enqueue the deliveries of a transition to hooks; `ids`: of the transition, the incident and its first alert."""
    outbox.enqueue_deliveries(
        connection,
        hook_ids,
        message=f"msg_{at}_{ids['transition_id']}",  # the time is for receivers of several or of new installations
        type=f"{NEWS_PREFIX}{change}",
        at=at,
        next_attempt_at=next_attempt_at,
        dead_reason=dead_reason,
        **ids,
    )


def adopt_announced(connection: Connection, check_id: int, alert_ids: Collection[int]) -> dict[int, int]:
    """Create incidents for alerts of a check that were announced without one; returns the incident ids by alert id.

    The caller holds the alerts, see `store.open_alerts`, or their check.
    """
    adopted = {}
    for alert_id in alerts.announced_without(connection, alert_ids):
        alert = alerts.find_alert(connection, alert_id)
        assert alert is not None  # noqa: S101 - the delivery's foreign key
        adopted[alert_id] = (
            alert.incident_id if alert.incident_id is not None else _adopted(connection, check_id, alert)
        )
        alerts.adopt_alert(connection, alert_id, adopted[alert_id])
    return adopted


def _adopted(connection: Connection, check_id: int, alert: AlertRow) -> int:
    """Open an incident for an alert; returns its id, or that of the open one with the same key."""
    resolved_at = alert.resolved_at or alert.created_at
    incident_class = class_of(RuleKind(alert.kind))
    number = alerts.open_incident(
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
    there = alerts.open_incidents(connection, check_id, hold=True)
    mine = (incident_class, alert.dedupe_key)
    return next(one.id for one in there if (one.incident_class, one.dedupe_key) == mine)


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
                _enqueue_acknowledgement(connection, alert.incident_id, transition_id, at=at)
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


def _enqueue_acknowledgement(connection: Connection, incident_id: int, transition_id: int, *, at: int) -> None:
    """Enqueue deliveries to the hooks that were notified of the incident and support acknowledgements."""
    past = outbox.deliveries_of_incident(connection, incident_id, hold=True)
    reached = {row.hook_id: row.alert_id for row in past if row.attempts > 0 or row.body is not None}
    for hook in [catalog.definition_by_id(connection, hook_id) for hook_id in sorted(reached)]:
        if hook.body["kind"] in ACKNOWLEDGING and hook.archived_at is None and hook.disabled_reason is None:
            _enqueue_change(
                connection,
                [hook.id],
                TransitionType.ACKNOWLEDGED,
                transition_id=transition_id,
                incident_id=incident_id,
                alert_id=reached[hook.id],
                at=at,
            )


# --- the data of a notice ------------------------------------------------------------------------------------


def notice_data(connection: Connection, incident_id: int, transition_id: int, kind: str, links: Links) -> NoticeData:
    """Return the data of an incident; `rule`, measure, value and canaries are of the alert of the transition."""
    incident = alerts.find_incident(connection, incident_id)
    assert incident is not None  # noqa: S101 - it goes with its deliveries
    transition = alerts.find_transition(connection, transition_id)
    alert = alerts.find_alert(connection, transition.alert_id)
    assert alert is not None  # noqa: S101 - the transition's foreign key
    # An opening or escalation has its severity of then, however late it is sent; it never falls within an incident.
    severity = transition.severity if kind in _GRAVE_AS_ITS_TRANSITION else incident.severity
    check = catalog.definition_by_id(connection, alert.check_id)
    facts, run, explanation = facts_at(connection, alert, transition)
    evidence = transition.evidence
    about_canaries = is_about_canaries(alert.kind, evidence.get("measure"), evidence.get("answers"))
    listed = transition.evidence.get("canaries", []) if about_canaries else []
    degraded = [_worst(canary, explanation) for canary in listed]
    degraded.sort(key=lambda canary: canary["persistent"] is False)  # canaries that were healthy on retry come last
    bad = kind != "alert.resolved"
    is_measured = alert.kind != RuleKind.REGRESSION  # the evidence of a detector is no measure
    # The notice is about the incident, which may be older than the alert of the transition.
    facts = replace(facts, opened_at=from_us(incident.opened_at))
    of_incident = replace(facts, change=TransitionType(kind.removeprefix("alert.")))
    return {
        "incident_id": str(incident.id),
        "class": incident.incident_class,
        "alerts": [
            view_of(NoticeAlert, one, alert_id=str(one.id), rule=one.rule_key)
            for one in alerts.alerts_of_incident(connection, incident_id)
        ],
        "alert_id": str(incident.alert_id),
        "dedupe_key": incident.dedupe_key,
        "severity": severity,
        "title": incident_title(of_incident),
        "summary": alert_summary(facts),
        "advice": alert_advice(facts) or None,
        "lost": (all_lost_text(degraded, transition.evidence.get("changed")) or None) if bad else None,
        "reason": transition.reason,
        "check": alert.check,
        "suite": check.body["suite"],
        "retriever": check.body["retriever"],
        "rule": alert.rule_key,
        "kind": alert.kind,
        "scope": alert.scope,
        "opened_at": time_text(incident.opened_at),
        "resolved_at": time_text(incident.resolved_at),
        "run_id": str(run.id) if run is not None else None,
        "health_score": rounded_or_none(run.aggregates.get("health_score")) if run is not None else None,
        "coverage": rounded_or_none(run.aggregates.get("coverage")) if run is not None else None,
        "found": facts.found,
        "measure": LATENCY_NAMES[facts.percentile]
        if alert.kind in {RuleKind.LATENCY, RuleKind.SLOWER}
        else transition.evidence.get("measure"),
        "value": rounded_or_none(facts.value) if is_measured else None,
        "corrected": facts.corrected,
        "beside": facts.beside,
        "uncalibrated": facts.uncalibrated,
        "self_judged": facts.self_judged,
        "pooled_recall": list(facts.pooled_recall),
        "threshold": rounded_or_none(facts.threshold) if is_measured else None,
        "baseline": rounded_or_none(facts.baseline) if is_measured else None,
        "degraded_queries": [canary["query"] for canary in degraded],
        "degraded": degraded,
        "degraded_total": run.degraded if run is not None else None,
        "changed_total": transition.evidence.get("changed") if about_canaries else None,
        "failing_before": transition.evidence.get("failing_before") if about_canaries else None,
        "recovered_on_retry": facts.changed.recovered_on_retry if facts.changed is not None and bad else None,
        "causes": _causes(facts) if bad else None,
        "answers": facts.answers if bad else None,
        "fleet": explanation.fleet_view if explanation is not None and bad else None,
        "since": facts.since if bad else None,
        "links": filled_links(links, alert, transition.run_id),
    }


def _causes(facts: AlertFacts) -> str | None:
    """Why canaries changed, or what changed with the generated answers, in one phrase; None = unknown."""
    if watches_answers(facts.kind, facts.measure):
        return None if facts.answers is None or not facts.answers["worse"] else answer_changes_text(facts.answers)
    return None if facts.changed is None else facts.changed.cause or None


_LONGEST_QUERY = 300
_GRAVE_AS_ITS_TRANSITION = frozenset({"alert.opened", "alert.escalated"})


def _worst(canary: ChangedCanary, explanation: FleetEvidence | None) -> ChangedCanary:
    """One canary with its cause, as a notice has it."""
    shown: ChangedCanary = {"lost": [], "lost_total": 0, **explained(canary, explanation)}
    return {**shown, "query": canary["query"][:_LONGEST_QUERY]}
