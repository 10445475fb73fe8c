"""Explanations: why each rule of a check alerts or not, rules suggested for it, and what the page of an alert shows.

Also here: the range in which a measure usually lies, the bounds that charts draw, and the latency before and during an
alert. It only reads.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal

import numpy as np
from typing_extensions import TypedDict

from app.alerts import store as alerts
from app.alerts.documents import RuleDocument, rules_yaml
from app.alerts.domain.advice import alert_advice
from app.alerts.domain.between_runs import Overdue, decide_no_data, no_data_expected
from app.alerts.domain.incidents import incident_title, outlook
from app.alerts.domain.rules import BETWEEN_RUNS, default_rule_key, is_silent_about_quality, watches_answers
from app.alerts.domain.state import (
    ABOUT_CANARIES,
    COMPARING,
    OPEN,
    TRIGGERS,
    Decision,
    Member,
    Observation,
    Suppression,
    decide,
    is_about_canaries,
    watches_expected,
)
from app.alerts.domain.summaries import alert_summary
from app.alerts.domain.views import (
    AlertState,
    BoundLine,
    EvaluatedRun,
    NormalRange,
    RuleEvidence,
    SuggestedRule,
    SuggestedRuleBody,
    SuggestedRules,
    TransitionType,
    all_lost_text,
)
from app.alerts.service import shown_alerts
from app.alerts.service import transitions as alert_transitions
from app.alerts.service.evidence import TransitionEvidence, list_changed, load_fleet
from app.alerts.service.notifications import Context, load_context, member_of
from app.alerts.service.shown_alerts import (
    AlertDetail,
    AlertLine,
    Links,
    explained_by_alert,
    filled_links,
    recovery_summary,
    standing_facts,
)
from app.alerts.service.transitions import scope_of
from app.alerts.silences.documents import SilenceDocument
from app.alerts.silences.service import silences_of
from app.alerts.store import AlertRow, TransitionRow
from app.base.db.engine import Connection, Store, from_us
from app.base.errors import NotFoundError
from app.base.texts import measure_words
from app.base.values import (
    COVERAGE,
    Bound,
    Canary,
    Percentile,
    Rule,
    RuleKind,
    Severity,
    TimeText,
    Value,
    Verdict,
    replace,
)
from app.base.views import id_text, rounded, time_text, view_of
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.domain import Use, recall_label
from app.catalog.service.judges import is_self_judged
from app.catalog.service.references import find_check, last_completed, schedule_of, unmeasured_answers
from app.catalog.service.versions import load_check, load_suite
from app.catalog.store import Definition, require
from app.detection import store as detector_rows
from app.detection.service import baselines
from app.detection.service.detectors import run_latencies
from app.plants.store import any_found
from app.records.store import run_rows, series
from app.records.store.run_rows import RunRow
from app.scoring.measures import Measure, mean_name
from app.scoring.run_inputs import UnusableSuiteError

UNKNOWN: Final = "unknown"
"""The state of a rule that was never measured on a run."""
_NO_ALERT: Final = dict.fromkeys(("severity", "opened_at", "acknowledged_at", "acknowledged_by"))
_SUPPRESSED: Final = "A silence suppresses it; what still fires at its end is notified then."


class SilenceOutlook(TypedDict):
    """A silence that matches a rule, now or later."""

    slug: str
    active: bool
    until: TimeText | None
    next_change: TimeText | None


class RuleExplanation(TypedDict):
    """Why a rule alerts or not."""

    rule: str
    kind: RuleKind
    scope: str
    state: AlertState | Literal["unknown"]
    """`unknown`: no run was evaluated yet, or runs have nothing any more of what it watches."""
    severity: Severity | None
    alert_id: str | None
    incident_id: str | None
    opened_at: TimeText | None
    acknowledged_at: TimeText | None
    acknowledged_by: str | None
    reason: str
    """That of the alert; without one, that of the same runs now."""
    evidence: RuleEvidence
    to_open: str | None
    to_close: str | None
    bad_runs_to_open: int | None
    good_runs_to_close: int | None
    unmeasured: list[str]
    """Canaries, degraded when the alert opened, that the newest run did not measure: it does not resolve before."""
    deadline: TimeText | None
    held_back: str | None
    """Why notifications are suppressed."""
    held_back_reason: str | None
    silences: list[SilenceOutlook]
    next_reminder_at: TimeText | None


class HookState(TypedDict):
    """A hook of a check, and why it is disabled."""

    slug: str
    disabled_reason: str | None


class CheckAlerting(TypedDict):
    """Why the rules of a check alert or not."""

    check: str
    enabled: bool
    newest_run: str | None
    verdict: Verdict | None
    rules: list[RuleExplanation]
    disabled_rules: list[str]
    hooks: list[HookState]
    remind: str | None


def explain_rules(store: Store, slug: str, *, now: datetime) -> CheckAlerting:
    """Return the evaluation of every rule in force of a check, with its alert. Raises NotFoundError."""
    with store.read() as connection:
        check = require(catalog.find_definition(connection, "check", slug), f"check '{slug}'")
        document = check.read(CheckDocument)
        rules = document.rules_in_force
        rows = {row.rule_key: row for row in alerts.open_alerts(connection, check.id, hold=False)}
        facts = alert_transitions.load_facts(connection, check.id, rules, unresolved=rows.keys())
        opened_by = alerts.opening_runs(connection, [row.id for row in rows.values()])
        members = {row.id: member_of(row, opened_by.get(row.id)) for row in rows.values()}
        newest = facts.newest
        situation = _Situation(
            check=check,
            rows=rows,
            members=members,
            facts=facts,
            evidence=TransitionEvidence(connection, check, newest.id if newest is not None else None),
            context=load_context(connection, check, members, now=now, hold=False),
            silences=silences_of(connection, check),
            unmeasured=unmeasured_answers(connection, check),
            expects=newest is None or _expects_a_chunk(connection, newest),
            last_completed=last_completed(connection, check, now),
            has_plants=any_found(connection, check.id),
            now=now,
        )
        return {
            "check": slug,
            "enabled": document.enabled,
            "newest_run": None if newest is None else str(newest.id),
            "verdict": Verdict(newest.verdict) if newest is not None and newest.verdict is not None else None,
            "rules": [_explain_rule(rule, situation) for rule in rules],
            "disabled_rules": [str(rule.key) for rule in document.rules if not rule.enabled],
            "hooks": [
                {"slug": name, "disabled_reason": hook.disabled_reason if hook is not None else None}
                for name in document.hooks
                for hook in [catalog.find_definition(connection, "hook", name)]
            ],
            "remind": document.remind,
        }


class _Situation(Value):
    """What is known of a check when its rules are explained."""

    check: Definition
    rows: Mapping[str, AlertRow]
    """Unresolved alerts by the key of their rule."""
    members: Mapping[int, Member]
    """The same as decisions see them, by id."""
    facts: alert_transitions.CheckFacts
    evidence: TransitionEvidence
    context: Context
    silences: Sequence[SilenceDocument]
    unmeasured: Mapping[str, str]
    """By measure of answers, why runs do not have it as things are defined now."""
    expects: bool
    """Whether a canary of the newest run expects a chunk; else rules on what is found have nothing to watch."""
    last_completed: datetime | None
    has_plants: bool
    """Whether a planted document was found."""
    now: datetime


def _explain_rule(rule: Rule, known: _Situation) -> RuleExplanation:
    """Return why one rule alerts or not; its state is unknown, never ok, where it has no data."""
    row = known.rows.get(rule.key)
    alert = known.members[row.id] if row is not None else None
    open_row = row if alert is not None and alert.state in OPEN else None
    overdue, window = None, [] if rule.kind in BETWEEN_RUNS else known.facts.of(rule)
    if rule.kind is RuleKind.NO_DATA:
        schedule, since = schedule_of(known.check.body), from_us(known.check.updated_at)
        overdue = no_data_expected(schedule, known.last_completed, since)
    has_data = overdue.ever if overdue is not None else any(one.condition.measured for one in window)
    has_data = known.has_plants if rule.kind is RuleKind.PLANT else has_data
    opened_by = alert.opened_run_id if alert is not None and open_row is not None else None
    unmeasured = known.evidence.awaited(rule, opened_by, known.facts.newest)
    ahead = outlook(rule, window, alert, unmeasured)
    decision = _decide(rule, window, overdue, alert, known.now)
    judged, told = (alert, row) if alert is not None else (decision, decision)
    reason = told.reason if told is not None else _reason_without_runs(rule, has_data=has_data)
    why = known.unmeasured.get(rule.measure or "")
    if not known.expects and watches_expected(rule):
        why = NOTHING_EXPECTED
    if why is not None and alert is None:
        watched = COVERAGE if rule.measure is None else rule.measure  # the detector and the guard need what it needs
        has_data, reason = False, f"{measure_words(watched)} is not measured: {why}"
        ahead = replace(ahead, to_open=f"It cannot open: {why}.", bad_runs_to_open=None)
    elif why is not None and ahead.to_close is not None:
        ahead = replace(ahead, to_close=f"{ahead.to_close} But {why}.")
    severity = judged.severity if judged is not None else None
    is_silenced = open_row is not None and known.context.members[open_row.id].silence is not None
    due = known.context.reminder_due(open_row.id) if open_row is not None and not is_silenced else None
    return view_of(
        RuleExplanation,
        ahead,
        _NO_ALERT if row is None else row,
        rule=rule.key,
        kind=rule.kind,
        scope=scope_of(rule),
        state=alert.state if alert is not None else AlertState.OK if has_data else UNKNOWN,
        alert_id=id_text(None if row is None else row.id),
        incident_id=id_text(None if row is None else row.incident_id),
        reason=reason,
        evidence=shown_alerts.evidence(decision.evidence if decision is not None else {}),
        unmeasured=unmeasured,
        deadline=time_text(overdue.deadline) if overdue is not None and ahead.to_open else None,
        held_back=str(Suppression.SILENCED) if is_silenced else None,
        held_back_reason=_SUPPRESSED if is_silenced else None,
        silences=_matching(known.silences, rule, severity, known.now),
        next_reminder_at=time_text(due),
    )


NOTHING_EXPECTED: Final = "no canary expects anything"


def nothing_watched(connection: Connection, run: RunRow) -> str:
    """Say, as a clause, that a healthy run measured nothing of what its rules watch of canaries; else empty.

    So it is where no canary expects anything, and no rule is on what such canaries have too, as their answers.
    """
    if run.verdict != Verdict.HEALTHY or not run.measured or run.measured != run.undefined or run.versions is None:
        return ""
    rules = [one for one in load_check(connection, run.versions.check)[0].rules_in_force if one.kind in ABOUT_CANARIES]
    watching = [one for one in rules if one.kind is not RuleKind.LEAK]
    if not watching or not all(map(watches_expected, watching)):
        return ""
    with suppress(UnusableSuiteError):
        if not any(map(_asks_for_something, load_suite(connection, run.versions.suite).canaries)):
            return f"what is retrieved is not measured: {NOTHING_EXPECTED}"
    return ""


def _asks_for_something(canary: Canary) -> bool:
    limits = (canary.max_age_seconds, canary.max_latency_seconds)
    return bool(canary.expects or canary.negative or canary.expect_empty or canary.forbidden or any(limits))


def _expects_a_chunk(connection: Connection, run: RunRow) -> bool:
    if run.suite_version_id is None:
        return True
    try:
        return bool(load_suite(connection, run.suite_version_id).expecting)
    except UnusableSuiteError:
        return True  # it is not known


def _decide(
    rule: Rule, window: Sequence[Observation], overdue: Overdue | None, alert: Member | None, now: datetime
) -> Decision | None:
    """Decision as after the newest run; None where there is no run yet."""
    if overdue is not None:
        return decide_no_data(overdue, alert) if now >= overdue.deadline else None
    return decide(rule, window, alert) if window else None


def _reason_without_runs(rule: Rule, *, has_data: bool) -> str:
    if rule.kind is RuleKind.PLANT:
        return "Planted documents are found, and gone, in time." if has_data else "No planted document was found yet."
    if rule.kind is not RuleKind.NO_DATA:
        return "No run has ended yet."
    return "Runs complete when they should." if has_data else "No run has completed yet."


def _matching(
    silences: Sequence[SilenceDocument], rule: Rule, severity: Severity | None, now: datetime
) -> list[SilenceOutlook]:
    """Silences, on now or later, that match an alert of a rule; of any severity where that is not known."""
    return [
        {
            "slug": silence.slug,
            "active": (until := silence.active_until(now)) is not None,
            "until": time_text(until),
            "next_change": time_text(change),
        }
        for silence in silences
        if any(silence.matches(rule.key, one) for one in ([severity] if severity else Severity))
        and (change := silence.next_change(now)) is not None  # a silence that is on goes off
    ]


_DEEP: Final = 10


def suggest(store: Store, slug: str) -> SuggestedRules:
    """Bounds that a check has never been below while all was well, with the rules that would watch them.

    Empty, with a note, until a baseline stands: after `IDENTICAL_RUNS` or `FULL_RUNS` of `detection.domain.learning`.
    Raises NotFoundError.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        document = check.read(CheckDocument)
        source = series.Source(check_id=check.id)
        suggestions = [_suggestion(connection, source, document, name) for name in _measures(document)]
    warm_up = baselines.show(store, slug).warm_up
    return SuggestedRules(
        check=slug,
        note=None if warm_up is None else warm_up.summary,
        revision=check.revision,
        managed_by=check.managed_by,
        guide=None if document.use is Use.GENERAL else document.guide.sentence,
        rules=[one for one in suggestions if one is not None],
    )


def _measures(document: CheckDocument) -> list[str]:
    """Names of the aggregates worth a bound: those of the check's use first, if it has one."""
    cuts = {*document.cutoffs, document.k}
    is_deep = _DEEP in cuts and document.fetch_k >= _DEEP
    deep = [Measure("R", document.k), *([Measure("NDCG", _DEEP)] if is_deep else [])]
    first = () if document.use is Use.GENERAL else document.guide.measures
    return list(dict.fromkeys([*first, COVERAGE, "health_score", *(mean_name(measure) for measure in deep)]))


_ROOM: Final = 0.02
"""Between the lowest usual value and the bound: what is usual is never bad."""
_DECIMALS: Final = 3


def suggested_bound(usual_low: float) -> float | None:
    """Bound below which a value is bad, to three decimals, rounded down; None where no value could be below it.

    `usual_low`: the 1 % quantile of the baseline's runs, 0 to 1.
    """
    scale = 10**_DECIMALS
    bound = math.floor(round((usual_low - _ROOM) * scale, 6)) / scale
    return bound if bound > 0 else None


def _suggestion(
    connection: Connection, source: series.Source, document: CheckDocument, measure: str
) -> SuggestedRule | None:
    usual = usual_range(connection, source, measure)
    below = None if usual is None else suggested_bound(usual.low)
    if usual is None or below is None:
        return None
    rule: SuggestedRuleBody = {"kind": RuleKind.THRESHOLD, "measure": measure, "critical": {"below": below}}
    rules = [RuleDocument.model_validate(one) for one in [*_default(document), rule]]
    return SuggestedRule(
        measure=measure,
        below=below,
        usual_low=usual.low,
        runs=usual.runs,
        rule=rule,
        yaml=rules_yaml(rules),
        watched_by=_watching(document.rules, measure),
    )


def _watching(rules: Sequence[RuleDocument], measure: str) -> str | None:
    """Key of the rule, disabled or not, that is about a bound of a measure of the whole check; None = there is none."""
    key = default_rule_key(RuleKind.THRESHOLD, measure)
    mine = (
        str(rule.key)
        for rule in rules
        if rule.key == key or (rule.kind is RuleKind.THRESHOLD and rule.measure == measure and rule.category is None)
    )
    return next(mine, None)


def _default(document: CheckDocument) -> list[dict[str, Any]]:
    """Default that a first rule of one's own would replace."""
    is_default = is_silent_about_quality(rule.kind for rule in document.rules)
    return [{"kind": str(RuleKind.REGRESSION)}] if is_default else []


def written_out(document: CheckDocument) -> list[dict[str, Any]]:
    """Return the rules in force of a check as its file would write them."""
    return [*_default(document), *(rule.model_dump(mode="json", by_alias=True) for rule in document.rules)]


QUANTILES: Final = (0.01, 0.99)
"""Of the runs a baseline was learned from: what lies between them is called usual."""
_MOST_RUNS: Final = 1_000
_ENOUGH: Final = 0.5
"""Of these runs, the share that must still be there: what the others had is not known."""


def usual_range(connection: Connection, source: series.Source, name: str) -> NormalRange | None:
    """Say between which values a measure lay in 98 % of the runs the baseline in force was learned from.

    None where nothing has been learned yet, and where too few of these runs are still kept.
    """
    detector = detector_rows.find_detector(connection, source.check_id)
    baseline_id = None if detector is None else detector.baseline_id
    baseline = None if baseline_id is None else detector_rows.find_baseline(connection, baseline_id)
    if baseline is None:
        return None
    values = series.values_learned(
        connection, source, name, since=baseline.first_run, until=baseline.last_run, limit=_MOST_RUNS
    )
    if not values or len(values) < _ENOUGH * baseline.runs:
        return None
    low, high = np.quantile(values, QUANTILES).tolist()
    return NormalRange(
        low=rounded(low),
        mean=rounded(float(np.mean(values))),
        high=rounded(high),
        runs=len(values),
        first_run=str(baseline.first_run),
        last_run=str(baseline.last_run),
    )


def bound_lines(
    check: Definition, measure: str, category: str | None, normal_range: NormalRange | None
) -> list[BoundLine]:
    """List the bounds of the rules in force on a measure; that of a drop lies below the mean of the normal range."""
    lines: list[BoundLine] = []
    for rule in check.read(CheckDocument).rules_in_force:
        if rule.measure != measure or rule.category != category:
            continue
        for severity, bound in ((Severity.WARNING, rule.warning), (Severity.CRITICAL, rule.critical)):
            line = None if bound is None else _line(rule, severity, bound, normal_range)
            if line is not None:
                lines.append(line)
    return lines


def _line(rule: Rule, severity: Severity, bound: Bound, normal_range: NormalRange | None) -> BoundLine | None:
    if rule.kind is RuleKind.THRESHOLD and bound.below is not None:
        return {"rule": rule.key, "severity": severity, "bad": "below", "value": bound.below}
    if rule.kind is RuleKind.THRESHOLD and bound.above is not None:
        return {"rule": rule.key, "severity": severity, "bad": "above", "value": bound.above}
    if rule.kind is RuleKind.DROP and bound.by is not None and normal_range is not None:
        value = rounded(normal_range.mean - bound.by)
        return {"rule": rule.key, "severity": severity, "bad": "below", "value": value, "by": bound.by}
    return None


_BEFORE: Final = 40
"""Runs before the first bad one."""
_MOST: Final = 200
"""Runs of a curve; of a longer alert those around its beginning and the newest are shown."""


class RunLatency(Value):
    """Latency of one run."""

    run_id: str
    at: TimeText
    seconds: float | None
    """None = it was not measured, or the verdict of the run is unknown."""
    after_others: bool = False
    """Whether runs before it are left out."""


class LatencyCurve(Value):
    """Latency of the runs from before an alert to its end, oldest first."""

    percentile: Percentile
    runs: Sequence[RunLatency]
    bounds: Sequence[tuple[Severity, float]]
    """Seconds above which a run is bad, by severity, as evaluated last."""
    baseline: float | None
    """Seconds; None = the rule compares with none."""
    first_run: str | None
    """The first bad run."""


def latency_curve(
    connection: Connection, row: AlertRow, transitions: Sequence[TransitionRow], evaluated: RuleEvidence
) -> LatencyCurve | None:
    """Read the curve of an alert; None where its rule is not about latency. `evaluated`: its last evidence."""
    if row.kind not in {RuleKind.LATENCY, RuleKind.SLOWER}:
        return None
    percentile = Percentile(evaluated.get("percentile") or Percentile.P95)
    window = evaluated.get("window", [])
    judged = [one for one in window if one["threshold"] is not None]
    bounds = [
        (severity, side["above"])
        for severity, side in (
            (Severity.WARNING, evaluated.get("warning")),
            (Severity.CRITICAL, evaluated.get("critical")),
        )
        if side is not None
    ]
    baseline = None
    if row.kind == RuleKind.SLOWER and judged:
        bounds, baseline = [(Severity.WARNING, judged[-1]["threshold"] or 0.0)], judged[-1]["baseline"]
    rows, gap = _runs(connection, row, transitions)
    latencies = run_latencies(connection, [run for run in rows if run.verdict != Verdict.UNKNOWN])
    return LatencyCurve(
        percentile=percentile,
        runs=[
            RunLatency(
                run_id=str(run.id),
                at=time_text(run.finished_at or run.created_at),
                seconds=latencies[run.id][percentile] if run.id in latencies else None,
                after_others=run.id == gap,
            )
            for run in rows
        ],
        bounds=bounds,
        baseline=baseline,
        first_run=id_text(row.first_run),
    )


def _runs(
    connection: Connection, row: AlertRow, transitions: Sequence[TransitionRow]
) -> tuple[list[RunRow], int | None]:
    """Return the runs of the curve, and the one before which others are left out."""
    ends = [one.run_id for one in transitions if one.type == TransitionType.RESOLVED and one.run_id is not None]
    newest = run_rows.ended_runs(connection, row.check_id, before=ends[-1] + 1 if ends else None, limit=_MOST)
    if row.first_run is None or not newest:
        return newest[-_BEFORE:], None
    if newest[0].id <= row.first_run:
        place = next(place for place, run in enumerate(newest) if run.id >= row.first_run)
        return newest[max(place - _BEFORE, 0) :], None
    beginning = run_rows.ended_runs(connection, row.check_id, before=row.first_run + 1, limit=_BEFORE + 1)
    rest = newest[len(beginning) :]
    return [*beginning, *rest], rest[0].id


_MOST_DEGRADED: Final = 10
_TURNS: Final = frozenset({TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.RESOLVED})
"""Changes that follow from the evaluation of a run."""
_MAX_RUNS_BACK: Final = 50
"""Number of runs before the first bad one that are searched for a healthy one."""


class DecisiveRun(EvaluatedRun):
    """A run as evaluated first; `did` has the transitions it caused."""

    did: list[TransitionType]
    after_others: bool
    """Whether runs before it are left out."""
    self_judged: bool
    """Whether its value is recall of which the retriever itself brought up much of what is expected."""


def details(store: Store, alert_id: int, *, links: Links, now: datetime) -> dict[str, Any]:
    """Read what the page of an alert shows of it beside its view, by name. Raises NotFoundError.

    Sentences have no full stop; what is about the present is empty or None for a resolved alert.
    """
    alert = shown_alerts.alert(store, alert_id)
    over = alert["state"] == AlertState.RESOLVED
    rules = [] if over else explain_rules(store, alert["check"], now=now)["rules"]
    with store.read() as connection:
        row = alerts.find_alert(connection, alert_id)
        assert row is not None  # noqa: S101 - notified alerts stay for a year
        check = catalog.definition_by_id(connection, row.check_id)
        opened = [one["evidence"] for one in alert["transitions"] if one["type"] == TransitionType.OPENED]
        evaluated = alert["evidence"]
        if "cause" in evaluated:  # resolved without a run
            earlier = [one["evidence"] for one in alert["transitions"] if "window" in one["evidence"]]
            evaluated = earlier[-1] if earlier else {}
        evaluated_runs = _evaluated_runs(connection, check, alert)
        by_value = watches_answers(row.kind, row.evidence.get("measure"))  # a bad run without one was not judged
        bad = [one for one in evaluated_runs if one["severity"] is not None]
        bad_runs = [one["run_id"] for one in bad if one["value"] is not None or not by_value]
        links_filled = filled_links(links, row, None)
        of_incident = [] if row.incident_id is None else alerts.alerts_of_incident(connection, row.incident_id)
        together = [row, *(one for one in of_incident if one.id != row.id)]
        transitions_by_alert = alerts.list_transitions(connection, [one.id for one in together])
        transitions = transitions_by_alert[row.id]
        rows = [(one, transitions_by_alert[one.id]) for one in together]
        facts = standing_facts(connection, rows)[row.id]
        about_canaries = is_about_canaries(row.kind, facts.measure, facts.answers)
        run_id, first_run = explained_by_alert(rows).get(row.id, (None, row.first_run))
        explanation = load_fleet(connection, run_id, first_run=first_run)
        fleets = [change["fleet"] for change in alert["transitions"] if change["fleet"] is not None]
        fleet = explanation.fleet_view if explanation is not None else fleets[-1] if fleets else None
        degraded = _degraded(connection, row, alert, first_run, over=over) if about_canaries else {**_NO_CANARIES}
        shown = run_rows.find_runs(connection, [int(one["run_id"]) for one in evaluated_runs])
        return {
            "alert": alert,
            "suite": check.body["suite"],
            "retriever": check.body["retriever"],
            "rule": next((one for one in rules if one["alert_id"] == alert["id"]), None),
            "fleet": fleet if about_canaries and not over and row.kind != RuleKind.LEAK else None,
            "summary": alert_summary(facts),
            "recovery": recovery_summary(connection, row, transitions) if over else None,
            "advice": "" if over else alert_advice(facts),
            "lost": "" if over else all_lost_text(degraded["canaries"], degraded["changed"]),
            "evaluated": evaluated,
            "opening": opened[0] if opened and "window" in opened[0] else {},
            "evaluated_runs": evaluated_runs,
            "versions": {str(run.id): run.index_version for run in shown.values()},
            "degraded": degraded,
            "answers": facts.answers,
            "last_good_run": _last_good(connection, row.check_id, [one.first_run for one in together]),
            "newest_bad_run": bad_runs[-1] if bad_runs else alert["since_run"],
            "related": [
                one
                for one in alerts.open_alerts(connection, row.check_id, hold=False)
                if one.id != row.id and (one.incident_id is None or one.incident_id != row.incident_id)
            ],
            "latency": latency_curve(connection, row, transitions, evaluated),
            "incident": together[1:],
            "dashboard": links_filled["dashboard"],
            "runbook": links_filled["runbook"],
        }


def incident_details(store: Store, incident_id: int, *, links: Links, now: datetime) -> dict[str, Any]:
    """Read what the page of an incident shows, by name: `details` of the alert that leads it, and all its alerts.

    `changes` are the transitions of all of them with their rules, oldest first. Raises NotFoundError.
    """
    with store.read() as connection:
        row = alerts.find_incident(connection, incident_id)
        if row is None:
            raise NotFoundError(f"there is no incident '{incident_id}'")
        found = alerts.alerts_of_incident(connection, incident_id)
        transitions = alerts.list_transitions(connection, [one.id for one in found])
        rows = [(one, transitions[one.id]) for one in found]
        facts = standing_facts(connection, rows)
    members = [AlertLine(alert=shown_alerts.alert_shape(*one), summary="") for one in rows]
    lead = found[members.index(min(members, key=lambda one: one.order))]
    changes = [(one.alert["rule"], change) for one in members for change in one.alert["transitions"]]
    return {
        "incident": {
            "id": str(row.id),
            "check": lead.check,
            "severity": row.severity,
            "opened_at": time_text(row.opened_at),
            "resolved_at": time_text(row.resolved_at),
        },
        "title": incident_title(facts[lead.id]),
        "found": facts[lead.id].found,
        "is_acknowledged": all(one.acknowledged_at is not None for one in found if one.state in OPEN),
        "is_comparing": any(one.kind in COMPARING for one in found if one.state in OPEN),
        "members": members,
        "changes": sorted(changes, key=lambda one: one[1]["at"]),
        "details": details(store, lead.id, links=links, now=now),
    }


def _evaluated_runs(connection: Connection, check: Definition, alert: AlertDetail) -> list[DecisiveRun]:
    """Return the runs of the transitions and of the newest evaluation; each with the values of its first evaluation."""
    check_id = check.id
    turns = [change for change in alert["transitions"] if change["type"] in _TURNS]
    windows = [found.get("window", []) for found in (*(one["evidence"] for one in turns), alert["evidence"])]
    runs: dict[int, DecisiveRun] = {}
    for window in windows:
        ids = [int(one["run_id"]) for one in window]
        between = run_rows.ended_runs(connection, check_id, before=ids[0], limit=1) if runs and ids else []
        left_out = bool(between) and between[0].id > max(runs)
        for number, one in zip(ids, window, strict=True):
            evaluated: DecisiveRun = {
                **one,
                "did": [turn["type"] for turn in turns if turn["run_id"] == one["run_id"]],
                "after_others": left_out and number == ids[0],
                "self_judged": False,
            }
            runs.setdefault(number, evaluated)
    if runs and recall_label(alert["evidence"].get("measure") or "", self_judged=True):
        for number, row in run_rows.find_runs(connection, runs.keys()).items():
            if row.suite_version_id is not None:  # judgments may have been adopted between two of them
                shares = load_suite(connection, row.suite_version_id).judgment_shares
                body = check.body
                runs[number]["self_judged"] = is_self_judged(connection, shares, body["retriever"], suite=body["suite"])
    return [runs[number] for number in sorted(runs)]


_NO_CANARIES: Final[Mapping[str, Any]] = {
    "run_id": None,
    "now": False,
    "silent_run": None,
    "changed": None,
    "failing_before": None,
    "canaries": (),
}


def _degraded(
    connection: Connection, row: AlertRow, alert: AlertDetail, first_run: int | None, *, over: bool
) -> dict[str, Any]:
    """Canaries of one run that degraded since before an alert began, the worst first: how many, and of which run.

    `now`: it is the newest run with a verdict; else, as for a resolved alert, it is that of the last notification.
    `silent_run`: the newest run of the check, where its verdict is unknown. `changed`: None for alerts of older
    releases.
    """
    newest = run_rows.newest_ended(connection, row.check_id)
    if over or newest is None:
        triggers = [change for change in alert["transitions"] if change["type"] in TRIGGERS]
        evidence: RuleEvidence = triggers[-1]["evidence"] if triggers else {}
        listed = {name: found for name, found in evidence.items() if name in ("changed", "failing_before", "canaries")}
        return {**_NO_CANARIES, **listed, "run_id": triggers[-1]["run_id"] if triggers else None}
    run = run_rows.newest_known(connection, row.check_id) or newest  # rules do not evaluate an unknown run
    explanation = load_fleet(connection, run.id, first_run=first_run)
    canary = row.scope if row.kind == RuleKind.CANARY else None
    category = row.evidence.get("category")
    is_leak = row.kind == RuleKind.LEAK
    now = list_changed(
        connection, run.id, first_run, category=category, canary=canary, leaking=is_leak, limit=_MOST_DEGRADED
    )
    return {
        **now,
        "run_id": str(run.id),
        "now": True,
        "silent_run": str(newest.id) if run.id != newest.id else None,
        "canaries": [shown_alerts.explained(one, explanation) for one in now["canaries"]],
    }


def _last_good(connection: Connection, check_id: int, first_runs: Iterable[int | None]) -> str | None:
    """Return the last healthy run before the first bad one of all alerts of an incident."""
    first_run = min((one for one in first_runs if one is not None), default=None)
    if first_run is None:
        return None
    before = run_rows.ended_runs(connection, check_id, before=first_run, limit=_MAX_RUNS_BACK)
    return next((str(run.id) for run in reversed(before) if run.verdict == Verdict.HEALTHY), None)
