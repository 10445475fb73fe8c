"""Alerts and incidents: when a rule opens, escalates and resolves its alert, and which notifications follow.

First the alert of one rule; those that no run decides are in `between_runs`. Below incidents, which people hear of: the
alerts of one check and class that are open together. What each of their steps sends:

    (none) --first alert that fires and is not silenced--> open        alert.opened
    open   --an alert graver than the incident-----------> open        alert.escalated, the severity never falls
    open   --a critical alert joins or rises beside
             another, or culprits are named--------------> open        alert.updated, at most once per UPDATE_EVERY
    open   --nothing new, not acknowledged---------------> open        alert.reminded, every `remind` of the check
    open   --its last alert resolves---------------------> resolved    alert.resolved

Silenced alerts neither open nor enter an incident; those that fire when the silence ends do. A decision depends on
nothing but its arguments, which are rows, so a restart, a reload or another replica decides alike. How a rule judges
one run is in `rules`, the words of all this in `summaries`; how a delivery is sent and retried, in `hooks.domain`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from types import MappingProxyType
from typing import Final, cast

from app.alerts.domain.conditions import (
    Condition,
    SlowerLimits,
)
from app.alerts.domain.rules import BETWEEN_RUNS, watches_answers
from app.alerts.domain.views import (
    AlertState,
    AnswerChange,
    BoundSides,
    StoredEvaluation,
    StoredEvidence,
    TransitionType,
    WorseAnswers,
)
from app.base.texts import counted, named_text, plural
from app.base.values import (
    ANSWER_MEASURES,
    ANSWERED_RATIO,
    DEGRADED_SHARE,
    Bound,
    Category,
    DeliveryState,
    Percentile,
    Rule,
    RuleKind,
    RunStatus,
    Severity,
    Value,
    field,
    judged_name,
    replace,
)

OPEN: Final = frozenset({AlertState.FIRING, AlertState.RECOVERING})
NON_REPEATING: Final = frozenset({TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.UPDATED})
"""Changes of an alert that are worth one notification; where it is withheld, it is sent later or by another."""
TRIGGERS: Final = NON_REPEATING | {TransitionType.REMINDED}
"""Notifications of a fault; the others mean nothing to a receiver that got none of these."""


class Retirement(StrEnum):
    """Why an alert resolves without a good run."""

    RULE_REMOVED = "rule_removed"
    CHECK_ARCHIVED = "check_archived"
    CHECK_DISABLED = "check_disabled"
    BASELINE_ACCEPTED = "baseline_accepted"
    CANARIES_RETIRED = "canaries_retired"
    SUITE_CHANGED = "suite_changed"


RETIRED: Final = {
    Retirement.RULE_REMOVED: "the rule was removed from the check",
    Retirement.CHECK_ARCHIVED: "the check was archived",
    Retirement.CHECK_DISABLED: "the check was disabled",
    Retirement.BASELINE_ACCEPTED: "baseline accepted, the present is the new normal",
    Retirement.CANARIES_RETIRED: "its canaries are no longer in the suite",
    Retirement.SUITE_CHANGED: "the check has another suite since",
}
"""Why, as part of a sentence."""


class Observation(Value):
    """One ended run, judged by the current rule; `at` is when it ended."""

    run_id: int
    at: datetime
    condition: Condition


class Suppression(StrEnum):
    """Why a change of an alert has no notification of its own."""

    SILENCED = "silenced"
    INCIDENT_OPEN = "incident_open"
    """Its incident was open already, and the change does not justify another message."""
    RECENT_UPDATE = "recent_update"
    """The incident was updated within the hour; the next notification carries it."""


class Member(Value):
    """An unresolved alert of the check as it is stored or after a decision, or one just resolved."""

    alert_id: int
    rule: str
    kind: RuleKind
    severity: Severity
    state: AlertState
    opened_at: datetime | None = None
    """None while pending."""
    opened_run_id: int | None = None
    """The run that opened it, for a decision; runs have ids in the order they were carried out."""
    change: TransitionType | None = None
    """What just happened to it, None = no change."""
    transition_id: int | None = None
    """The transition of that."""
    news_id: int | None = None
    """Its newest transition worth a notification."""
    suppression: Suppression | None = None
    """Why that was not sent, by its row."""
    acknowledged: bool = False
    silence: str | None = None
    """The slug of the silence that matches it now."""
    incident_id: int | None = None
    """The incident it entered."""

    @property
    def is_notifiable(self) -> bool:
        """Whether it fires and is not silenced."""
        return self.state is AlertState.FIRING and self.silence is None

    @property
    def reported_id(self) -> int | None:
        """The transition that a notification about it reports: its resolve, else the newest worth one."""
        return self.transition_id if self.change is TransitionType.RESOLVED else self.news_id


class Decision(Value):
    """New state of an alert, and why. `transitions` are appended in this order."""

    state: AlertState
    severity: Severity | None
    """That of the alert, or while pending that of the newest run; None when ok."""
    transitions: tuple[TransitionType, ...]
    reason: str
    """A sentence for people."""
    evidence: StoredEvidence = field(default_factory=StoredEvidence)
    """The runs and bounds that were evaluated."""


def decide(rule: Rule, window: Sequence[Observation], alert: Member | None, *, awaited: Sequence[str] = ()) -> Decision:
    """Return the new state of a rule's alert after a run has ended.

    `window`: ended runs of the check, oldest first, all judged by the rule as it is now, the run that just ended
    last: at least its last `window_length(rule)` measured ones. `alert`: the unresolved alert, if there is one.
    `awaited`: the keys of the canaries, degraded when it opened, that the run that just ended did not measure.

    A run that measured nothing for the rule changes nothing. Otherwise an alert opens on a bad run that makes at
    least N of the last M measured runs bad. Its severity is the worst that reaches N by itself (warning counts
    critical runs too); while open it can rise, an `escalated`, but never falls. It resolves on the Kth good run in a
    row since it opened; a run that is neither bad nor beyond the margin ends such a row without putting a recovering
    alert back to firing, a bad one does both. Where the detector counts the good runs, one makes the alert recovering
    and the detector resolves it. None resolves while canaries are awaited: it is recovering then.
    """
    if rule.kind in BETWEEN_RUNS:
        raise ValueError(f"{rule.kind} is decided by decide_no_data or decide_plant: no run tells of it.")
    recent = [one.condition for one in window if one.condition.measured][-rule.open_of :]
    current = window[-1].condition if window and window[-1].condition.measured else None
    worst = _worst_reached(rule, recent)
    if alert is None or alert.state not in OPEN:
        step = _decide_unopened(rule, current, recent, worst)
        good = 0
    else:
        since = [one.condition for one in _runs_after_opening(alert, window) if one.condition.measured]
        good = good_runs(alert, window)
        step = _decide_open(rule, alert, current if since else None, worst, good, awaited)
    state, severity, transitions, why = step
    newest_reason = window[-1].condition.reason if window else "no run has ended yet"
    if alert is None or alert.state not in OPEN:
        newest_reason = newest_reason.replace(UNDECIDED, _UNDECIDED_UNOPENED)
    return Decision(
        state=state,
        severity=severity,
        transitions=transitions,
        reason=f"{newest_reason}; {why}.",
        evidence=_evidence(rule, window, good),
    )


UNDECIDED: Final = "so a regression cannot be judged as over; accept the present as normal once it is"
"""What is said of a run where the detector began anew while its alert was open."""
_UNDECIDED_UNOPENED: Final = "so a regression cannot be judged before a baseline is learned"
"""The same where none was: there is nothing to be over, or to accept."""


def first_of_bad_runs(window: Sequence[Observation], run_id: int) -> tuple[int, bool]:
    """Id of the first of the bad runs in a row that lead to this one, and whether the window has a good one before it.

    `window`: observations as `decide` takes them; those that measured nothing for the rule are no part of a row.
    """
    earlier = [one for one in window if one.run_id < run_id and one.condition.measured]
    in_a_row = list(takewhile(lambda one: one.condition.severity is not None, reversed(earlier)))
    return (in_a_row[-1].run_id if in_a_row else run_id), len(in_a_row) < len(earlier)


def good_runs(alert: Member, window: Sequence[Observation]) -> int:
    """Return the number of good runs in a row at the end of the window, since the alert opened."""
    measured = [one.condition for one in _runs_after_opening(alert, window) if one.condition.measured]
    return sum(1 for _ in takewhile(lambda one: one.good_beyond_margin, reversed(measured)))


def window_length(rule: Rule) -> int:
    """Return the number of the last measured runs that `decide` needs."""
    return max(rule.open_of, rule.close)


def retire(alert: Member, why: Retirement) -> Decision:
    """Return resolved, for an alert whose rule or check is gone; `ok` for one that is only pending."""
    opened = alert.state in OPEN
    return Decision(
        state=AlertState.RESOLVED if opened else AlertState.OK,
        severity=alert.severity if opened else None,
        transitions=(TransitionType.RESOLVED,) if opened else (),
        reason=f"{why}: {RETIRED[why]}.",
        evidence={"cause": why.value},
    )


ABOUT_CANARIES: Final = frozenset(
    {RuleKind.THRESHOLD, RuleKind.DROP, RuleKind.GUARD, RuleKind.REGRESSION, RuleKind.CANARY, RuleKind.LEAK}
)
"""Kinds that watch how canaries do; the others watch requests, and go on whatever is asked."""


def has_subject(
    rule: Rule, keys: Collection[str], categories: Collection[Category], expecting: Collection[Category]
) -> bool:
    """Whether a suite has a canary that a rule is about: of its key, its category, or expecting a chunk.

    `categories` are those of its canaries, `expecting` those of the ones that expect a chunk. True for the kinds that
    are not about canaries.
    """
    if rule.kind not in ABOUT_CANARIES:
        return True
    if rule.canary is not None:
        return rule.canary in keys
    category = Category.NEGATIVE if rule.measure == ANSWERED_RATIO else rule.category
    watched = expecting if watches_expected(rule) else categories
    return bool(watched) if category is None else category in watched


def watches_expected(rule: Rule) -> bool:
    """Whether what a rule watches is undefined of canaries without an expected chunk."""
    if rule.kind not in ABOUT_CANARIES or rule.canary is not None:
        return False
    return rule.kind in {RuleKind.REGRESSION, RuleKind.GUARD} or rule.measure not in _OF_ANY_CANARY


_OF_ANY_CANARY: Final = frozenset({None, "health_score", DEGRADED_SHARE, ANSWERED_RATIO, *ANSWER_MEASURES})
"""Measures that canaries without an expected chunk may have."""


def is_completed(status: RunStatus) -> bool:
    """Whether a run of this status was carried out, if only in part and whatever its verdict.

    Failed probes are the subject of `probe_errors`. A run that could not be executed is no data.
    """
    return status in {RunStatus.FINISHED, RunStatus.PARTIAL}


_Change = tuple[AlertState, Severity | None, tuple[TransitionType, ...], str]


def _decide_unopened(
    rule: Rule, current: Condition | None, recent: Sequence[Condition], worst: Severity | None
) -> _Change:
    """Return the new state where nothing is open: only a bad run can open it, whatever older ones were."""
    bad = sum(one.severity is not None for one in recent)
    at_once = rule.open_of == 1 or (current is not None and current.at_once)
    count = "the last measured run was bad" if at_once else f"bad in {bad} of the last {len(recent)} {_runs(rule)}"
    if current is None or current.severity is None:
        waiting = current is None and bool(recent) and recent[-1].severity is not None
        if waiting:
            return AlertState.PENDING, recent[-1].severity, (), f"this run changes nothing, {count}"
        return AlertState.OK, None, (), "nothing is open"
    if worst is None:
        return AlertState.PENDING, current.severity, (), f"{count}, an alert opens at {rule.open_bad} of {rule.open_of}"
    why = f"opens a {worst} alert"
    if not at_once:
        why = f"{count}, which {why}"
    elif rule.kind is not RuleKind.REGRESSION:  # what the detector opens took many runs
        why += " at once"
    return AlertState.FIRING, worst, (TransitionType.OPENED,), why


def _decide_open(
    rule: Rule, alert: Member, current: Condition | None, worst: Severity | None, good: int, awaited: Sequence[str]
) -> _Change:
    if current is None:
        return alert.state, alert.severity, (), f"this run changes nothing, the alert is {alert.state}"
    if current.severity is not None:
        if worst is Severity.CRITICAL and alert.severity is Severity.WARNING:
            why = f"critical in at least {rule.open_bad} of the last {rule.open_of} {_runs(rule)}"
            return AlertState.FIRING, worst, (TransitionType.ESCALATED,), why
        return AlertState.FIRING, alert.severity, (), "the alert is firing"
    if good >= rule.close:
        return _resolve_alert(rule, alert, good, awaited)
    if good or current.recovering:
        counted = f"{good} good {plural(good, 'run')} in a row, {rule.close} resolve"
        return AlertState.RECOVERING, alert.severity, (), counted if good else "the alert is recovering"
    return alert.state, alert.severity, (), f"neither bad nor good enough to count, the alert is {alert.state}"


def _resolve_alert(rule: Rule, alert: Member, good: int, awaited: Sequence[str]) -> _Change:
    """Return resolved, or recovering while canaries are awaited."""
    if awaited:
        why = f"not resolved: {named_text(awaited)}, degraded when it opened, not measured in this run"
        return AlertState.RECOVERING, alert.severity, (), why
    counts = rule.kind is not RuleKind.REGRESSION  # there the detector counts
    why = f"{good} good {plural(good, 'run')} in a row, enough to resolve" if counts else "the alert is resolved"
    return AlertState.RESOLVED, alert.severity, (TransitionType.RESOLVED,), why


def _worst_reached(rule: Rule, recent: Sequence[Condition]) -> Severity | None:
    """Return the worst severity that N of the runs reach by themselves, or the newest one where it opens at once."""
    if sum(one.severity is Severity.CRITICAL for one in recent) >= rule.open_bad:
        return Severity.CRITICAL
    bad = sum(one.severity is not None for one in recent)
    at_once = bool(recent) and recent[-1].at_once
    return Severity.WARNING if at_once or bad >= rule.open_bad else None


def _runs_after_opening(alert: Member, window: Sequence[Observation]) -> Sequence[Observation]:
    """Return the runs after the one that opened the alert, by id: the clocks of replicas may differ."""
    if alert.opened_run_id is not None:
        return [one for one in window if one.run_id > alert.opened_run_id]
    return [one for one in window if alert.opened_at is None or one.at > alert.opened_at]


def is_interrupted(first_run: int | None, evidence: StoredEvidence) -> bool:
    """Whether a run after the first bad one of an alert was good and a later one bad, as far as evidence tells.

    So does a run of which nothing was judged: its answers are not known to be bad.
    """
    window, bad = evidence.get("window") or (), bad_runs_of(evidence)
    last = max(bad, default=0)
    good = [int(one["run_id"]) for one in window if one["severity"] is None]
    between = any((first_run or last) < run_id < last for run_id in good)
    return between or len(window) > len(good) + len(bad) or bool(evidence.get("interrupted"))


def bad_runs_of(evidence: StoredEvidence) -> list[int]:
    """Return the bad runs that evidence tells of, but for those in which a judge said nothing: they have no value."""
    needs_value = judged_name(evidence.get("measure")) is not None
    bad = [one for one in evidence.get("window") or () if one["severity"] is not None]
    return [int(one["run_id"]) for one in bad if one["value"] is not None or not needs_value]


def is_corrected(evidence: StoredEvidence) -> bool:
    """Whether labels of people count in the newest run that evidence tells of."""
    return bool((window := evidence.get("window")) and window[-1].get("corrected"))


def _evidence(rule: Rule, window: Sequence[Observation], good: int) -> StoredEvidence:
    """Return the evaluated runs and bounds and, for a rule about failed probes, why most of the newest run failed."""
    judged = [one for one in window if one.condition.measured][-window_length(rule) :]
    recent = judged[-rule.open_of :]
    bad = [one for one in recent if one.condition.severity is not None]
    found: StoredEvidence = {
        "measure": rule.measure,
        "category": rule.category,
        "warning": _bound_evidence(rule.warning),
        "critical": _bound_evidence(rule.critical),
        "failed_share": rule.failed_share,
        "margin": rule.margin,
        "open": {"bad": rule.open_bad, "of": rule.open_of},
        "close": rule.close,
        "bad": len(bad),
        "critical_runs": sum(one.condition.severity is Severity.CRITICAL for one in bad),
        "of": len(recent),
        "good_in_a_row": good,
        "first_bad_run": (bad[0].condition.since_run or bad[0].run_id) if bad else None,
        "window": [_evaluation(one) for one in judged],
    }
    if rule.kind is RuleKind.LATENCY:
        found["percentile"] = rule.percentile or Percentile.P95
    if rule.kind is RuleKind.SLOWER:
        limits = SlowerLimits.of(rule.factor, rule.rise)
        found |= {"percentile": Percentile.P50, "factor": limits.factor, "rise": limits.rise}
    if any(one.condition.uncalibrated for one in (judged or window)[-1:]):
        found["uncalibrated"] = True
    failure = window[-1].condition.failure if window else None
    if failure is not None:
        found["failure"] = failure.as_json()
    return found


def _evaluation(one: Observation) -> StoredEvaluation:
    found: StoredEvaluation = {
        "run_id": one.run_id,
        "at": one.at.isoformat(),
        "value": one.condition.value,
        "threshold": one.condition.threshold,
        "baseline": one.condition.baseline,
        "corrected": one.condition.corrected,
        "severity": one.condition.severity,
        "good": one.condition.good_beyond_margin,
    }
    if one.condition.beside is not None:
        found["beside"] = one.condition.beside
    if one.condition.rated:
        found["rated"] = one.condition.rated
    if one.condition.unjudged:
        found["unjudged"] = one.condition.unjudged
    if one.condition.uncalibrated:
        found["uncalibrated"] = True
    return found


def _bound_evidence(bound: Bound | None) -> BoundSides | None:
    if bound is None:
        return None
    sides = {"below": bound.below, "above": bound.above, "by": bound.by}
    return cast("BoundSides", {name: value for name, value in sides.items() if value is not None})


def _runs(rule: Rule) -> str:
    return "runs" if rule.kind is RuleKind.PROBE_ERRORS else "measured runs"


COMPARING: Final = frozenset({RuleKind.REGRESSION, RuleKind.DROP, RuleKind.GUARD, RuleKind.SLOWER, RuleKind.INDEX})
"""Kinds of rules that compare with the baseline: whoever accepts the present as normal ends their alerts."""
NOT_ABOUT_CANARIES: Final = BETWEEN_RUNS | {
    RuleKind.PROBE_ERRORS,
    RuleKind.LATENCY,
    RuleKind.SLOWER,
    RuleKind.INDEX,
}
"""Kinds of rules whose alerts list no canaries."""


def is_about_canaries(kind: str, measure: str | None, answers: WorseAnswers | None) -> bool:
    """Whether an alert is about what canaries retrieve: by its rule, or as a reason why generated answers got worse."""
    if not watches_answers(kind, measure):
        return kind not in NOT_ABOUT_CANARIES
    return answers is not None and AnswerChange.RETRIEVAL in answers["changes"]


class IncidentClass(StrEnum):
    """Kind of fault: alerts of one check and class that are open together are one incident."""

    OUTAGE = "outage"
    LATENCY = "latency"
    QUALITY = "quality"
    LEAK = "leak"
    INDEXING = "indexing"


_CLASSES: Final[Mapping[RuleKind, IncidentClass]] = MappingProxyType(
    {
        RuleKind.PROBE_ERRORS: IncidentClass.OUTAGE,
        RuleKind.NO_DATA: IncidentClass.OUTAGE,
        RuleKind.LATENCY: IncidentClass.LATENCY,
        RuleKind.LEAK: IncidentClass.LEAK,
        RuleKind.PLANT: IncidentClass.INDEXING,
        RuleKind.INDEX: IncidentClass.INDEXING,
        RuleKind.SLOWER: IncidentClass.LATENCY,
    }
)


def class_of(kind: RuleKind) -> IncidentClass:
    """Class of the incidents that alerts of a rule of this kind belong to."""
    return _CLASSES.get(kind, IncidentClass.QUALITY)


def dedupe_keys(check: str, incident_class: IncidentClass) -> tuple[str, str]:
    """Keys under which receivers deduplicate incidents of the class: the usual one, and one while that is taken.

    A rule of a release without incidents may have the name of a class: its alert was announced under that class's key.
    No rule's own key has a slash in it, and a slug at most 64 plain characters: PagerDuty's limit is 255.
    """
    key = f"coalmine/{check}/{incident_class}"
    return key, f"{key}/2"


class PastDelivery(Value):
    """A delivery written for an incident before."""

    id: int
    hook: int
    type: TransitionType
    state: DeliveryState
    attempts: int
    """Attempts begun: one under way counts, the receiver may have taken it."""
    written_at: datetime | None = None


class OpenIncident(Value):
    """An unresolved incident, by its row."""

    id: int
    incident_class: IncidentClass
    dedupe_key: str
    """What receivers know it by."""
    alert_id: int
    """Its first alert."""
    severity: Severity
    opened_at: datetime
    updated_at: datetime | None = None
    """When its last `alert.updated` was written."""
    deliveries: Sequence[PastDelivery] = ()


class Recipients(Value):
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


UPDATE_EVERY: Final = timedelta(hours=1)
"""Least time between two `alert.updated` of an incident."""
_LEAD_ORDER: Final = (RuleKind.PROBE_ERRORS, RuleKind.NO_DATA, RuleKind.EMBEDDING, RuleKind.REGRESSION, RuleKind.DROP)
"""Of equally grave alerts, one that names the cause or the canaries leads the notification."""
_OUTSTANDING: Final = frozenset({Suppression.SILENCED, Suppression.RECENT_UPDATE})
"""Suppressions of changes that are sent later if the alert still fires."""


class Step(Value):
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


def _lead(candidates: Sequence[Member]) -> Member:
    """Return the alert a notification is about."""
    return min(candidates, key=lambda one: lead_order(one.severity, one.kind, one.alert_id))


def lead_order(severity: str, kind: RuleKind, alert_id: int) -> tuple[bool, int, int]:
    """Return the order of alerts of which one leads the others: the gravest, then by `_LEAD_ORDER`, then the oldest."""
    place = _LEAD_ORDER.index(kind) if kind in _LEAD_ORDER else len(_LEAD_ORDER)
    return severity != Severity.CRITICAL, place, alert_id


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


def reminder_due(
    members: Sequence[Member], deliveries: Sequence[PastDelivery], every: timedelta | None
) -> datetime | None:
    """When the next reminder of an incident is due if nothing changes; None = never."""
    if every is None or not any(map(_calls_for_reminder, members)):
        return None
    written = [one.written_at for one in _triggers(deliveries) if one.written_at is not None]
    return max(written) + every if written else None


def _calls_for_reminder(one: Member) -> bool:
    return one.is_notifiable and not one.acknowledged and one.change is None


def _suppress_others(others: Iterable[Member], lead: Member) -> dict[int, Suppression]:
    """Suppressions of the alerts that the notification about the lead covers too."""
    return {one.alert_id: Suppression.INCIDENT_OPEN for one in others if one is not lead}


def still_firing(reason: str, since: datetime, now: datetime) -> str:
    """Text of a reminder: for how long an incident has been open, and why."""
    minutes = max(int((now - since).total_seconds() // 60), 0)
    days, hours = divmod(minutes // 60, 24)
    spans = ((days, "day"), (hours, "hour"), (minutes % 60, "minute"))
    length = " and ".join([counted(count, unit) for count, unit in spans if count][:2])
    return f"Still firing{f' after {length}' if length else ''}: {reason}"
