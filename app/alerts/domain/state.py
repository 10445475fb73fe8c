"""Alert states: when a rule opens, escalates and resolves its alert, decided from rows alone.

Below: the alert for a check without runs (`no_data`), the incidents that alerts form, what will open or close an alert
next, and views. How a rule judges one run is in `rules`, which notifications follow in `incidents`, and their words in
`summaries`. A decision depends on nothing but its arguments, so a restart, a reload or another replica decides alike.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import takewhile
from types import MappingProxyType
from typing import Final, cast

from typing_extensions import TypedDict

from app.alerts.domain import BoundSides, FleetView, RuleEvidence, StoredEvidence
from app.alerts.domain.rules import Condition, SlowerLimits
from app.base.schedules import Schedule, next_due
from app.base.texts import counted, named_text, plural
from app.base.values import Bound, DeliveryState, Percentile, Rule, RuleKind, RunStatus, Severity, TimeText, Verdict


class AlertState(StrEnum):
    """State of an alert. `ok` and `pending` are not alerts yet: nothing was opened."""

    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    RESOLVED = "resolved"


OPEN: Final = frozenset({AlertState.FIRING, AlertState.RECOVERING})


class TransitionType(StrEnum):
    """What can happen to an alert; each is an appended row."""

    OPENED = "opened"
    ESCALATED = "escalated"
    UPDATED = "updated"
    """The detector names further canaries."""
    ACKNOWLEDGED = "acknowledged"
    REMINDED = "reminded"
    RESOLVED = "resolved"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
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
    suppression: Suppression | None = None
    """Why its newest notification was not sent, by the transition's row."""
    acknowledged: bool = False
    silence: str | None = None
    """The slug of the silence that matches it now."""
    incident_id: int | None = None
    """The incident it entered."""

    @property
    def is_notifiable(self) -> bool:
        """Whether it fires and is not silenced."""
        return self.state is AlertState.FIRING and self.silence is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """New state of an alert, and why. `transitions` are appended in this order, at `at`."""

    state: AlertState
    severity: Severity | None
    """That of the alert, or while pending that of the newest run; None when ok."""
    transitions: tuple[TransitionType, ...]
    reason: str
    """A sentence for people."""
    evidence: StoredEvidence = field(default_factory=StoredEvidence)
    """The runs and bounds that were evaluated."""
    at: datetime


def decide(rule: Rule, window: Sequence[Observation], alert: Member | None, now: datetime) -> Decision:
    """Return the new state of a rule's alert after a run has ended.

    `window`: ended runs of the check, oldest first, all judged by the rule as it is now, the run that just ended
    last: at least its last `window_length(rule)` measured ones. `alert`: the unresolved alert, if there is one.

    A run that measured nothing for the rule changes nothing. Otherwise an alert opens on a bad run that makes at
    least N of the last M measured runs bad. Its severity is the worst that reaches N by itself (warning counts
    critical runs too); while open it can rise, an `escalated`, but never falls. It resolves on the Kth good run in a
    row since it opened; a run that is neither bad nor beyond the margin ends such a row without putting a recovering
    alert back to firing, a bad one does both. Where the detector counts the good runs, one makes the alert recovering
    and the detector resolves it.
    """
    if rule.kind is RuleKind.NO_DATA:
        raise ValueError("no_data is decided by decide_no_data: it is about runs that never came.")
    recent = [one.condition for one in window if one.condition.measured][-rule.open_of :]
    current = window[-1].condition if window and window[-1].condition.measured else None
    worst = _worst_reached(rule, recent)
    if alert is None or alert.state not in OPEN:
        step = _decide_unopened(rule, current, recent, worst)
        good = 0
    else:
        since = [one.condition for one in _runs_after_opening(alert, window) if one.condition.measured]
        good = good_runs(alert, window)
        step = _decide_open(rule, alert, current if since else None, worst, good)
    state, severity, transitions, why = step
    newest_reason = window[-1].condition.reason if window else "no run has ended yet"
    return Decision(
        state=state,
        severity=severity,
        transitions=transitions,
        reason=f"{newest_reason}; {why}.",
        evidence=_evidence(rule, window, good),
        at=now,
    )


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


def retire(alert: Member, why: Retirement, now: datetime) -> Decision:
    """Return resolved, for an alert whose rule or check is gone; `ok` for one that is only pending."""
    opened = alert.state in OPEN
    return Decision(
        state=AlertState.RESOLVED if opened else AlertState.OK,
        severity=alert.severity if opened else None,
        transitions=(TransitionType.RESOLVED,) if opened else (),
        reason=f"{why}: {RETIRED[why]}.",
        evidence={"cause": why.value},
        at=now,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A check of which nothing completed for too long."""

    since: datetime
    """When it last completed, or was created."""
    deadline: datetime
    """The second scheduled instant after that."""
    ever: bool
    """Whether it completed at all."""


def is_completed(status: RunStatus) -> bool:
    """Whether a run of this status was carried out, if only in part and whatever its verdict.

    Failed probes are the subject of `probe_errors`. A run that could not be executed is no data.
    """
    return status in {RunStatus.FINISHED, RunStatus.PARTIAL}


def no_data_due(
    schedule: Schedule, last_completed: datetime | None, now: datetime, created_at: datetime
) -> Overdue | None:
    """Return the missed deadline where no run completed by the second-next scheduled instant, else None.

    The quiet weekend of a cron has no scheduled instants. `created_at`: since when the check is enabled in this form.
    `last_completed`: when the newest run that `is_completed` ended.
    """
    expected = no_data_expected(schedule, last_completed, created_at)
    return None if now < expected.deadline else expected


def no_data_expected(schedule: Schedule, last_completed: datetime | None, created_at: datetime) -> Overdue:
    """Deadline by which a run has to complete, or else the check is overdue; see `no_data_due`."""
    since = created_at if last_completed is None else max(created_at, last_completed)
    deadline = next_due(schedule, next_due(schedule, since))
    return Overdue(since=since, deadline=deadline, ever=last_completed is not None)


def decide_no_data(overdue: Overdue | None, alert: Member | None, now: datetime) -> Decision:
    """Return the new state of the `no_data` alert at a tick, or (with None) when a run completes.

    It opens at once and resolves at once: the two scheduled instants are its window, so N of M does not apply.
    """
    opened = alert is not None and alert.state in OPEN
    if overdue is None:
        return Decision(
            state=AlertState.RESOLVED if opened else AlertState.OK,
            severity=alert.severity if alert is not None and opened else None,
            transitions=(TransitionType.RESOLVED,) if opened else (),
            reason="A run has completed.",
            at=now,
        )
    last = f"since {overdue.since:%Y-%m-%d %H:%M:%S} UTC" if overdue.ever else "since the check was created"
    deadline = f"{overdue.deadline:%Y-%m-%d %H:%M:%S} UTC"
    return Decision(
        state=AlertState.FIRING,
        severity=Severity.CRITICAL,
        transitions=() if opened else (TransitionType.OPENED,),
        reason=f"No run has completed {last}; the second scheduled one was due at {deadline}.",
        evidence={"since": overdue.since.isoformat(), "deadline": overdue.deadline.isoformat(), "ever": overdue.ever},
        at=now,
    )


_Step = tuple[AlertState, Severity | None, tuple[TransitionType, ...], str]


def _decide_unopened(
    rule: Rule, current: Condition | None, recent: Sequence[Condition], worst: Severity | None
) -> _Step:
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


def _decide_open(rule: Rule, alert: Member, current: Condition | None, worst: Severity | None, good: int) -> _Step:
    if current is None:
        return alert.state, alert.severity, (), f"this run changes nothing, the alert is {alert.state}"
    if current.severity is not None:
        if worst is Severity.CRITICAL and alert.severity is Severity.WARNING:
            why = f"critical in at least {rule.open_bad} of the last {rule.open_of} {_runs(rule)}"
            return AlertState.FIRING, worst, (TransitionType.ESCALATED,), why
        return AlertState.FIRING, alert.severity, (), "the alert is firing"
    if good >= rule.close:
        counts = rule.kind is not RuleKind.REGRESSION  # there the detector counts
        why = f"{good} good {plural(good, 'run')} in a row, enough to resolve" if counts else "the alert is resolved"
        return AlertState.RESOLVED, alert.severity, (TransitionType.RESOLVED,), why
    if good or current.recovering:
        counted = f"{good} good {plural(good, 'run')} in a row, {rule.close} resolve"
        return AlertState.RECOVERING, alert.severity, (), counted if good else "the alert is recovering"
    return alert.state, alert.severity, (), f"neither bad nor good enough to count, the alert is {alert.state}"


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
        "window": [
            {
                "run_id": one.run_id,
                "at": one.at.isoformat(),
                "value": one.condition.value,
                "threshold": one.condition.threshold,
                "baseline": one.condition.baseline,
                "severity": one.condition.severity,
                "good": one.condition.good_beyond_margin,
            }
            for one in judged
        ],
    }
    if rule.kind is RuleKind.LATENCY:
        found["percentile"] = rule.percentile or Percentile.P95
    if rule.kind is RuleKind.SLOWER:
        limits = SlowerLimits.of(rule.factor, rule.rise)
        found |= {"percentile": Percentile.P50, "factor": limits.factor, "rise": limits.rise}
    failure = window[-1].condition.failure if window else None
    if failure is not None:
        found["failure"] = failure.as_json()
    return found


def _bound_evidence(bound: Bound | None) -> BoundSides | None:
    if bound is None:
        return None
    sides = {"below": bound.below, "above": bound.above, "by": bound.by}
    return cast("BoundSides", {name: value for name, value in sides.items() if value is not None})


def _runs(rule: Rule) -> str:
    return "runs" if rule.kind is RuleKind.PROBE_ERRORS else "measured runs"


NON_REPEATING: Final = frozenset({TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.UPDATED})
"""Changes of an alert that are worth one notification; where it is withheld, it is sent later or by another."""
TRIGGERS: Final = NON_REPEATING | {TransitionType.REMINDED}
"""Notifications of a fault; the others mean nothing to a receiver that got none of these."""


class IncidentClass(StrEnum):
    """Kind of fault: alerts of one check and class that are open together are one incident."""

    OUTAGE = "outage"
    LATENCY = "latency"
    QUALITY = "quality"


_CLASSES: Final[Mapping[RuleKind, IncidentClass]] = MappingProxyType(
    {
        RuleKind.PROBE_ERRORS: IncidentClass.OUTAGE,
        RuleKind.NO_DATA: IncidentClass.OUTAGE,
        RuleKind.LATENCY: IncidentClass.LATENCY,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDelivery:
    """A delivery written for an incident before."""

    id: int
    hook: int
    type: TransitionType
    state: DeliveryState
    attempts: int
    """Attempts begun: one under way counts, the receiver may have taken it."""
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncident:
    """An unresolved incident, by its row."""

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


def still_firing(reason: str, since: datetime, now: datetime) -> str:
    """Text of a reminder: for how long an incident has been open, and why."""
    minutes = max(int((now - since).total_seconds() // 60), 0)
    days, hours = divmod(minutes // 60, 24)
    spans = ((days, "day"), (hours, "hour"), (minutes % 60, "minute"))
    length = " and ".join([counted(count, unit) for count, unit in spans if count][:2])
    return f"Still firing{f' after {length}' if length else ''}: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The next change of a rule's alert. Exactly one of the two sentences is set."""

    to_open: str | None = None
    to_close: str | None = None
    bad_runs_to_open: int | None = None
    """Bad runs in a row that would open it; None where it is not opened by runs."""
    good_runs_to_close: int | None = None


def outlook(rule: Rule, window: Sequence[Observation], alert: Member | None, unmeasured: Sequence[str] = ()) -> Outlook:
    """Return what would open a rule's alert or, where it is open, close it. `window`: as in `decide`.

    `unmeasured`: keys of the canaries, degraded when it opened, that the newest run did not measure: no run that leaves
    them out resolves it, however good it is.
    """
    if alert is None or alert.state not in OPEN:
        return _opening(rule, window)
    closing = _closing(rule, window, alert)
    if not unmeasured:
        return closing
    be, which = ("is", "the canary was") if len(unmeasured) == 1 else ("are", "they were")
    names = named_text(unmeasured)
    awaited = f"It does not resolve before {names} {be} measured again: {which} degraded when it opened."
    return replace(closing, to_close=f"{closing.to_close} {awaited}")


def _opening(rule: Rule, window: Sequence[Observation]) -> Outlook:
    if rule.kind is RuleKind.NO_DATA:
        return Outlook(to_open="It opens when no run has completed by the second scheduled time after the last run.")
    if rule.kind is RuleKind.REGRESSION:
        return Outlook(to_open="It opens when the detector raises an alarm, which weighs all canaries over many runs.")
    bad = [one.condition.severity is not None for one in window if one.condition.measured][-rule.open_of :]
    needed = next(
        more for more in range(1, rule.open_bad + 1) if sum([*bad, *[True] * more][-rule.open_of :]) >= rule.open_bad
    )
    if rule.open_of == 1:
        return Outlook(to_open="It opens at once, with the first bad run.", bad_runs_to_open=needed)
    runs = "run" if rule.kind is RuleKind.PROBE_ERRORS else "measured run"
    bad_text = f"{sum(bad)} of the last {counted(len(bad), runs)} {'was' if sum(bad) == 1 else 'were'} bad"
    rows = "in a row " if needed > 1 else ""
    return Outlook(
        to_open=(
            f"It opens when {rule.open_bad} of {rule.open_of} are bad; {bad_text}, "
            f"so {counted(needed, 'more bad run')} {rows}would open it."
        ),
        bad_runs_to_open=needed,
    )


def _closing(rule: Rule, window: Sequence[Observation], alert: Member) -> Outlook:
    if rule.kind is RuleKind.NO_DATA:
        return Outlook(to_close="It resolves when a run completes, whatever its verdict.", good_runs_to_close=1)
    if rule.kind is RuleKind.REGRESSION:
        times = counted(rule.detector_close, "good run")
        return Outlook(to_close=f"It resolves when the detector ends its alarm, after {times} in a row.")
    good = good_runs(alert, window)
    needed = max(rule.close - good, 1)
    margin = f", beyond the margin of {rule.margin:g}" if rule.margin else ""
    return Outlook(
        to_close=(
            f"It resolves after {counted(rule.close, 'good run')}{' in a row' if rule.close > 1 else ''}{margin}; "
            f"{good} {plural(good, 'run')} {'was' if good == 1 else 'were'} good in a row so far."
        ),
        good_runs_to_close=needed,
    )


def recovery_state(verdict: str | None, alerts: Mapping[str, int]) -> str | None:
    """Return what a check is while its newest run is healthy and alerts are open, `recovering` or `firing`; else None.

    `alerts`: unresolved ones by state and severity, such as `firing critical`.
    """
    states = {name.partition(" ")[0] for name, count in alerts.items() if count} & {str(state) for state in OPEN}
    if verdict != Verdict.HEALTHY or not states:
        return None
    return str(AlertState.FIRING if AlertState.FIRING in states else AlertState.RECOVERING)


def recovery_text(open_alerts: Sequence[tuple[AlertState, int | None]], unmeasured: Sequence[str] = ()) -> str:
    """Sentence on the open alerts of a check whose newest run is healthy, with the good runs each still needs.

    None: it is the detector that ends it. `unmeasured`: canaries that have to be measured before.
    """
    one = len(open_alerts) == 1
    begin = "Recovering" if all(state is AlertState.RECOVERING for state, _ in open_alerts) else "Healthy in this run"
    still = f"{counted(len(open_alerts), 'alert')} {'is' if one else 'are'} still open"
    needed = [runs for _, runs in open_alerts if runs is not None]
    after = f"after {counted(max(needed), 'more good run')}" if needed else ""
    detector = "when the detector ends its alarm" if len(needed) < len(open_alerts) else ""
    ends = " and ".join(filter(None, (after, detector)))
    awaited = f", but not before {named_text(unmeasured)} {'is' if len(unmeasured) == 1 else 'are'} measured"
    return f"{begin}: {still}, and {'resolves' if one else 'resolve'} {ends}{awaited if unmeasured else ''}."


class TransitionView(TypedDict):
    """A change of an alert."""

    at: TimeText
    type: TransitionType
    severity: Severity
    reason: str
    run_id: str | None
    suppressed: str | None
    """Why it was not sent."""
    silence: str | None
    evidence: RuleEvidence
    """The evaluated numbers; each kind of rule has evidence of its own."""


class AlertFields(TypedDict):
    """An alert without its transitions."""

    id: str
    check: str
    rule: str
    kind: RuleKind
    scope: str
    severity: Severity
    state: AlertState
    opened_at: TimeText | None
    resolved_at: TimeText | None
    acknowledged_at: TimeText | None
    acknowledged_by: str | None
    reason: str
    evidence: RuleEvidence
    since_run: str | None
    incident_id: str | None
    dedupe_key: str


class AlertView(AlertFields):
    """An alert with its transitions, the oldest first."""

    transitions: list[TransitionView]


class ExplainedTransition(TransitionView):
    """A change of an alert with what its changed canaries have in common."""

    fleet: FleetView | None
