"""Explanations of rules: for every rule of a check its last evaluation, its alert, the next change, and silences."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np

from app.alerts import store as alerts
from app.alerts.documents import RuleDocument, rules_in_force, rules_yaml
from app.alerts.domain.conditions import suggested_bound
from app.alerts.domain.rules import COVERAGE, default_rule_key, is_silent_about_quality
from app.alerts.domain.state import (
    OPEN,
    AlertState,
    Decision,
    Observation,
    OpenAlert,
    Overdue,
    decide,
    decide_no_data,
    no_data_expected,
    outlook,
)
from app.alerts.domain.views import CheckAlerting, RuleExplanation, SilenceOutlook
from app.alerts.service import facts as rule_facts
from app.alerts.service import views as alert_views
from app.alerts.service.facts import with_confirmed
from app.alerts.service.notifications import load_context, member_of
from app.alerts.service.transitions import TransitionEvidence, as_open, scope_of
from app.alerts.silences import service as silencing
from app.alerts.silences.domain import Silence, active_until, matches, next_change
from app.base.db.engine import Connection, Store, from_us
from app.base.documents.validation_messages import parse_document
from app.base.values import Bound, Rule, RuleKind, Severity, Verdict
from app.base.vault import Vault
from app.catalog.documents.documents import CheckDocument
from app.catalog.domain.judgments import Use
from app.catalog.service import definitions
from app.catalog.service.references import find_check, last_completed, require, schedule_of
from app.catalog.store import definitions as definition_rows
from app.catalog.store.definitions import Definition
from app.detection import store as detectors
from app.detection.domain.views import BoundLine, NormalRange, SuggestedRule, SuggestedRuleBody, SuggestedRules
from app.detection.service import baselines
from app.records import documents as shapes
from app.records.store import series
from app.scoring.measures import Measure, mean_name

UNKNOWN: Final = "unknown"
"""The state of a rule that was never measured on a run."""
_SUPPRESSED: Final = "A silence suppresses it; what still fires at its end is notified then."


def explain(store: Store, slug: str, *, now: datetime) -> CheckAlerting:
    """Return the evaluation of every rule in force of a check, with its alert. Raises NotFoundError."""
    with store.read() as connection:
        check = require(definition_rows.find_definition(connection, "check", slug), f"check '{slug}'")
        document = CheckDocument.model_validate(check.body)
        rules = with_confirmed(connection, document, rules_in_force(document.rules))
        rows = {row.rule_key: row for row in alerts.open_alerts(connection, check.id, hold=False)}
        facts = rule_facts.load_facts(connection, check.id, rules, unresolved=rows.keys())
        in_progress = {row.id: member_of(row) for row in rows.values()}
        context = load_context(connection, check, in_progress, now=now, hold=False)
        opened_by = alerts.opening_runs(connection, list(in_progress))
        silences = silencing.in_force(connection)
        evidence = TransitionEvidence(connection, check, facts.newest.id if facts.newest is not None else None)
        rules_explained: list[RuleExplanation] = []
        for rule in rules:
            row = rows.get(rule.key)
            opening = opened_by.get(row.id) if row is not None else None
            alert = as_open(row, opening) if row is not None else None
            is_open = alert is not None and alert.state in OPEN
            window = facts.of(rule) if rule.kind is not RuleKind.NO_DATA else []
            unmeasured = evidence.awaited(rule, opening if is_open else None, facts.newest)
            overdue = _deadline(connection, check, now) if rule.kind is RuleKind.NO_DATA else None
            ahead = outlook(rule, window, alert, unmeasured)
            decision = _decide(rule, window, overdue, alert, now)
            has_data = overdue.ever if overdue is not None else any(one.condition.measured for one in window)
            severity = alert.severity if alert is not None else decision.severity if decision is not None else None
            suppression = context.suppression(row.id) if row is not None and is_open else None
            due = context.reminder_due(row.id) if row is not None and is_open and suppression is None else None
            rules_explained.append(
                {
                    "rule": rule.key,
                    "kind": rule.kind,
                    "scope": scope_of(rule),
                    # Unknown, never ok, where it has no data.
                    "state": alert.state if alert is not None else AlertState.OK if has_data else UNKNOWN,
                    "severity": alert.severity if alert is not None else None,
                    "alert_id": str(row.id) if row is not None else None,
                    "incident_id": str(row.incident_id) if row is not None and row.incident_id is not None else None,
                    "opened_at": shapes.time_text(row.opened_at) if row is not None else None,
                    "acknowledged_at": shapes.time_text(row.acknowledged_at) if row is not None else None,
                    "acknowledged_by": row.acknowledged_by if row is not None else None,
                    "reason": row.reason
                    if row is not None
                    else decision.reason
                    if decision is not None
                    else _reason_without_runs(rule, has_data=has_data),
                    "evidence": alert_views.evidence(decision.evidence if decision is not None else {}),
                    "to_open": ahead.to_open,
                    "to_close": ahead.to_close,
                    "bad_runs_to_open": ahead.bad_runs_to_open,
                    "good_runs_to_close": ahead.good_runs_to_close,
                    "unmeasured": unmeasured,
                    "deadline": shapes.time_text(overdue.deadline) if overdue is not None and ahead.to_open else None,
                    "held_back": suppression and str(suppression),
                    "held_back_reason": suppression and _SUPPRESSED,
                    "silences": _matching(silences, check, rule, severity, now),
                    "next_reminder_at": shapes.time_text(due),
                }
            )
        return {
            "check": slug,
            "enabled": document.enabled,
            "newest_run": str(facts.newest.id) if facts.newest is not None else None,
            "verdict": Verdict(facts.newest.verdict)
            if facts.newest is not None and facts.newest.verdict is not None
            else None,
            "rules": rules_explained,
            "disabled_rules": [str(rule.key) for rule in document.rules if not rule.enabled],
            "hooks": [
                {"slug": name, "disabled_reason": hook.disabled_reason if hook is not None else None}
                for name in document.hooks
                for hook in [definition_rows.find_definition(connection, "hook", name)]
            ],
            "remind": document.remind,
        }


def _deadline(connection: Connection, check: Definition, now: datetime) -> Overdue:
    last = last_completed(connection, check, now)
    return no_data_expected(schedule_of(check.body), last, from_us(check.updated_at))


def _decide(
    rule: Rule, window: Sequence[Observation], overdue: Overdue | None, alert: OpenAlert | None, now: datetime
) -> Decision | None:
    """Decision as after the newest run; None where there is no run yet."""
    if overdue is not None:
        return decide_no_data(overdue, alert, now) if now >= overdue.deadline else None
    return decide(rule, window, alert, now) if window else None


def _reason_without_runs(rule: Rule, *, has_data: bool) -> str:
    if rule.kind is not RuleKind.NO_DATA:
        return "No run has ended yet."
    return "Runs complete when they should." if has_data else "No run has completed yet."


def _matching(
    silences: Sequence[Silence], check: Definition, rule: Rule, severity: Severity | None, now: datetime
) -> list[SilenceOutlook]:
    """Silences, on now or later, that match an alert of a rule; of any severity where that is not known."""
    subjects = [silencing.subject_of(check, rule.key, one) for one in ([severity] if severity else list(Severity))]
    return [
        {
            "slug": silence.slug,
            "active": (until := active_until(silence, now)) is not None,
            "until": shapes.time_text(until),
            "next_change": shapes.time_text(change),
        }
        for silence in silences
        if any(matches(silence, subject) for subject in subjects)
        and (change := next_change(silence, now)) is not None  # a silence that is on goes off
    ]


_DEEP: Final = 10


def suggest(store: Store, slug: str) -> SuggestedRules:
    """Bounds that a check has never been below while all was well, with the rules that would watch them.

    Empty, with a note, until a baseline stands. Raises NotFoundError.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        document = CheckDocument.model_validate(check.body)
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


def adopt(store: Store, vault: Vault, slug: str, rule: Mapping[str, Any], *, revision: int, now: datetime) -> None:
    """Add a rule to an API-managed check of this revision, and write out the default that it would replace.

    Raises NotFoundError, FileManagedError, InvalidInputError, and ConflictError where somebody changed the check.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
    body = {**check.body, "rules": [*_written_out(CheckDocument.model_validate(check.body)), rule]}
    definitions.put(store, vault, "check", parse_document(CheckDocument, body), now=now, revision=revision)


def _measures(document: CheckDocument) -> list[str]:
    """Names of the aggregates worth a bound: those of the check's use first, if it has one."""
    cuts = {*document.cutoffs, document.k}
    is_deep = _DEEP in cuts and document.fetch_k >= _DEEP
    deep = [Measure("R", document.k), *([Measure("NDCG", _DEEP)] if is_deep else [])]
    first = () if document.use is Use.GENERAL else document.guide.measures
    return list(dict.fromkeys([*first, COVERAGE, "health_score", *(mean_name(measure) for measure in deep)]))


def _suggestion(
    connection: Connection, source: series.Source, document: CheckDocument, measure: str
) -> SuggestedRule | None:
    usual = usual_range(connection, source, measure)
    below = None if usual is None else suggested_bound(usual.low)
    if usual is None or below is None:
        return None
    rule: SuggestedRuleBody = {"kind": RuleKind.THRESHOLD, "measure": measure, "critical": {"below": below}}
    lines = [RuleDocument.model_validate(one) for one in [*_default(document), rule]]
    return SuggestedRule(
        measure=measure,
        below=below,
        usual_low=usual.low,
        runs=usual.runs,
        rule=rule,
        yaml=rules_yaml(lines),
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
    is_default = is_silent_about_quality([rule.to_domain() for rule in document.rules])
    return [{"kind": str(RuleKind.REGRESSION)}] if is_default else []


def _written_out(document: CheckDocument) -> list[dict[str, Any]]:
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
    detector = detectors.find_detector(connection, source.check_id)
    baseline_id = None if detector is None else detector.baseline_id
    baseline = None if baseline_id is None else detectors.find_baseline(connection, baseline_id)
    if baseline is None:
        return None
    values = series.values_learned(
        connection, source, name, since=baseline.first_run, until=baseline.last_run, limit=_MOST_RUNS
    )
    if not values or len(values) < _ENOUGH * baseline.runs:
        return None
    low, high = np.quantile(values, QUANTILES).tolist()
    return NormalRange(
        low=shapes.rounded(low),
        mean=shapes.rounded(float(np.mean(values))),
        high=shapes.rounded(high),
        runs=len(values),
        first_run=str(baseline.first_run),
        last_run=str(baseline.last_run),
    )


def lines(
    check: Mapping[str, Any], measure: str, category: str | None, normal_range: NormalRange | None
) -> list[BoundLine]:
    """List the bounds of the rules in force on a measure; that of a drop lies below the mean of the normal range."""
    bound_lines: list[BoundLine] = []
    for rule in rules_in_force(CheckDocument.model_validate(check).rules):
        if rule.measure != measure or rule.category != category:
            continue
        for severity, bound in ((Severity.WARNING, rule.warning), (Severity.CRITICAL, rule.critical)):
            line = None if bound is None else _line(rule, severity, bound, normal_range)
            if line is not None:
                bound_lines.append(line)
    return bound_lines


def _line(rule: Rule, severity: Severity, bound: Bound, normal_range: NormalRange | None) -> BoundLine | None:
    if rule.kind is RuleKind.THRESHOLD and bound.below is not None:
        return {"rule": rule.key, "severity": severity, "bad": "below", "value": bound.below}
    if rule.kind is RuleKind.THRESHOLD and bound.above is not None:
        return {"rule": rule.key, "severity": severity, "bad": "above", "value": bound.above}
    if rule.kind is RuleKind.DROP and bound.by is not None and normal_range is not None:
        value = shapes.rounded(normal_range.mean - bound.by)
        return {"rule": rule.key, "severity": severity, "bad": "below", "value": value, "by": bound.by}
    return None
