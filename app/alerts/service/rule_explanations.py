"""Explanations of rules: for every rule of a check its last evaluation, its alert, the next change, and silences."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from app.alerts.documents.rule_documents import rules_in_force
from app.alerts.domain.alert_state import (
    OPEN,
    AlertState,
    Decision,
    Observation,
    OpenAlert,
    Overdue,
    decide,
    decide_no_data,
    no_data_expected,
)
from app.alerts.domain.outlook import outlook
from app.alerts.domain.views import CheckAlerting, HookState, RuleExplanation, RuleNews, RuleOutlook, RuleState
from app.alerts.service import alert_views, rule_facts
from app.alerts.service.judge_rules import with_confirmed
from app.alerts.service.notification_context import AlertInProgress, Context, load_context
from app.alerts.service.transition_evidence import TransitionEvidence
from app.alerts.service.transitions import as_open, scope_of
from app.alerts.silences import service as silencing
from app.alerts.silences.domain import Silence, active_until, matches, next_change
from app.alerts.store import alerts
from app.alerts.store.alerts import AlertRow
from app.base.db.engine import Connection, Store, from_us
from app.base.values import Rule, RuleKind, Severity, Verdict
from app.catalog.documents.documents import CheckDocument
from app.catalog.service.lookup import last_completed, schedule_of
from app.catalog.service.references import require
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.records import documents as shapes

UNKNOWN: Final = "unknown"
"""The state of a rule that was never measured on a run."""
_SUPPRESSED: Final = "A silence suppresses it; what still fires at its end is notified then."


def explain(store: Store, slug: str, *, now: datetime) -> CheckAlerting:
    """Return the evaluation of every rule in force of a check, with its alert. Raises NotFoundError."""
    with store.read() as connection:
        check = require(definitions.find_definition(connection, "check", slug), f"check '{slug}'")
        document = CheckDocument.model_validate(check.body)
        rules = with_confirmed(connection, document, rules_in_force(document.rules))
        rows = {row.rule_key: row for row in alerts.open_alerts(connection, check.id, hold=False)}
        facts = rule_facts.load_facts(connection, check.id, rules, unresolved=rows.keys())
        in_progress = {row.id: AlertInProgress.of(row) for row in rows.values()}
        context = load_context(connection, check, in_progress, now=now, hold=False)
        opened_by = alerts.opening_runs(connection, list(in_progress))
        silences = silencing.in_force(connection)
        evidence = TransitionEvidence(connection, check, facts.newest.id if facts.newest is not None else None)
        rules_explained: list[RuleExplanation] = []
        for rule in rules:
            row = rows.get(rule.key)
            alert = as_open(row, opened_by.get(row.id)) if row is not None else None
            window = facts.of(rule) if rule.kind is not RuleKind.NO_DATA else []
            opening = opened_by.get(row.id) if row is not None and row.state in OPEN else None
            unmeasured = evidence.awaited(rule, opening, facts.newest)
            overdue = _deadline(connection, check, now) if rule.kind is RuleKind.NO_DATA else None
            decision = _decide(rule, window, overdue, alert, now)
            has_data = overdue.ever if overdue is not None else any(one.condition.measured for one in window)
            rules_explained.append(
                {
                    **_rule_state(rule, decision, row, has_data=has_data),
                    **_rule_outlook(rule, window, alert, overdue, unmeasured),
                    **_notification_state(rule, check, row, context, silences, decision, now),
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
            "hooks": [_hook(connection, name) for name in document.hooks],
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


def _rule_state(rule: Rule, decision: Decision | None, row: AlertRow | None, *, has_data: bool) -> RuleState:
    """Last evaluation of a rule and its alert; the state is unknown, never ok, where it has no data."""
    evidence = decision.evidence if decision is not None else {}
    # The stored reason of the alert; without one, that of the same runs now.
    reason = (
        row.reason
        if row is not None
        else decision.reason
        if decision is not None
        else _reason_without_runs(rule, has_data=has_data)
    )
    return {
        "rule": rule.key,
        "kind": rule.kind,
        "scope": scope_of(rule),
        "state": AlertState(row.state) if row is not None else AlertState.OK if has_data else UNKNOWN,
        "severity": Severity(row.severity) if row is not None else None,
        "alert_id": str(row.id) if row is not None else None,
        "incident_id": str(row.incident_id) if row is not None and row.incident_id is not None else None,
        "opened_at": shapes.time_text(row.opened_at) if row is not None else None,
        "acknowledged_at": shapes.time_text(row.acknowledged_at) if row is not None else None,
        "acknowledged_by": row.acknowledged_by if row is not None else None,
        "reason": reason,
        "evidence": alert_views.evidence(evidence),
    }


def _reason_without_runs(rule: Rule, *, has_data: bool) -> str:
    if rule.kind is not RuleKind.NO_DATA:
        return "No run has ended yet."
    return "Runs complete when they should." if has_data else "No run has completed yet."


def _rule_outlook(
    rule: Rule,
    window: Sequence[Observation],
    alert: OpenAlert | None,
    overdue: Overdue | None,
    unmeasured: Sequence[str],
) -> RuleOutlook:
    ahead = outlook(rule, window, alert, unmeasured)
    return {
        "to_open": ahead.to_open,
        "to_close": ahead.to_close,
        "bad_runs_to_open": ahead.bad_runs_to_open,
        "good_runs_to_close": ahead.good_runs_to_close,
        "unmeasured": list(unmeasured),
        "deadline": shapes.time_text(overdue.deadline) if overdue is not None and ahead.to_open else None,
    }


def _notification_state(
    rule: Rule,
    check: Definition,
    row: AlertRow | None,
    context: Context,
    silences: Sequence[Silence],
    decision: Decision | None,
    now: datetime,
) -> RuleNews:
    severity = Severity(row.severity) if row is not None else decision.severity if decision is not None else None
    matching = [
        silence
        for silence in silences
        if any(
            matches(silence, silencing.subject_of(check, rule.key, one))
            for one in ([severity] if severity is not None else list(Severity))
        )
    ]
    is_open = row is not None and AlertState(row.state) in OPEN
    suppression = context.suppression(row.id) if row is not None and is_open else None
    due = context.reminder_due(row.id) if row is not None and is_open else None
    return {
        "held_back": str(suppression) if suppression is not None else None,
        "held_back_reason": None if suppression is None else _SUPPRESSED,
        "silences": [
            {
                "slug": silence.slug,
                "active": active_until(silence, now) is not None,
                "until": shapes.time_text(active_until(silence, now)),
                "next_change": shapes.time_text(next_change(silence, now)),
            }
            for silence in matching
            if active_until(silence, now) is not None or next_change(silence, now) is not None
        ],
        "next_reminder_at": shapes.time_text(due) if due is not None and suppression is None else None,
    }


def _hook(connection: Connection, slug: str) -> HookState:
    hook = definitions.find_definition(connection, "hook", slug)
    return {"slug": slug, "disabled_reason": hook.disabled_reason if hook is not None else None}
