"""Why did this alert, or not? For every rule of a check: what it sees, where its alert is, what is next, who hears."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from app.domain.alerts.alert_state import (
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
from app.domain.alerts.incidents import Suppression
from app.domain.alerts.outlook import outlook
from app.domain.alerts.silences import Silence, active_until, matches, next_change
from app.domain.alerts.views import CheckAlerting, HookState, RuleExplanation, RuleNews, RuleOutlook, RuleState
from app.domain.model import Rule, RuleKind, Severity, Verdict
from app.formats.alerts.rule_documents import rules_in_force
from app.formats.catalog.documents import CheckDocument
from app.formats.history import shapes
from app.services.alerts import alert_views, notifications, rule_facts, silencing
from app.services.alerts.notifications import AlertInProgress, Context
from app.services.alerts.transitions import as_open, scope_of
from app.services.catalog.references import require
from app.services.lookup import last_completed, schedule_of
from app.store.alerts import alerts
from app.store.alerts.alerts import AlertRow
from app.store.catalog import definitions
from app.store.catalog.definitions import Definition
from app.store.engine import Connection, Store, from_us

UNKNOWN: Final = "unknown"
"""The state of a rule without an alert that has seen no run that says anything about it."""


def explain(store: Store, slug: str, *, now: datetime) -> CheckAlerting:
    """Say of every rule in force of a check why its alert is where it is. Raises NotFoundError."""
    with store.read() as connection:
        check = require(definitions.find_definition(connection, "check", slug), f"check '{slug}'")
        document = CheckDocument.model_validate(check.body)
        rules = rules_in_force(document.rules)
        rows = {row.rule_key: row for row in alerts.open_alerts(connection, check.id, hold=False)}
        seen = rule_facts.gather(connection, check.id, rules, unresolved=rows.keys())
        in_progress = {row.id: AlertInProgress.of(row) for row in rows.values()}
        context = notifications.load_context(connection, check, in_progress, now=now, hold=False)
        opened_by = alerts.opening_runs(connection, list(in_progress))
        silences = silencing.in_force(connection)
        explained: list[RuleExplanation] = []
        for rule in rules:
            row = rows.get(rule.key)
            alert = as_open(row, opened_by.get(row.id)) if row is not None else None
            window = seen.of(rule) if rule.kind is not RuleKind.NO_DATA else []
            overdue = _expected(connection, check, now) if rule.kind is RuleKind.NO_DATA else None
            decision = _decided(rule, window, overdue, alert, now)
            known_of = overdue.ever if overdue is not None else any(one.condition.measured for one in window)
            explained.append(
                {
                    **_rule(rule, decision, row, seen=known_of),
                    **_next(rule, window, alert, overdue),
                    **_told(rule, check, row, context, silences, decision, now),
                }
            )
        return {
            "check": slug,
            "enabled": document.enabled,
            "newest_run": str(seen.newest.id) if seen.newest is not None else None,
            "verdict": Verdict(seen.newest.verdict)
            if seen.newest is not None and seen.newest.verdict is not None
            else None,
            "rules": explained,
            "disabled_rules": [str(rule.key) for rule in document.rules if not rule.enabled],
            "hooks": [_hook(connection, name) for name in document.hooks],
            "remind": document.remind,
        }


def _expected(connection: Connection, check: Definition, now: datetime) -> Overdue:
    last = last_completed(connection, check, now)
    return no_data_expected(schedule_of(check.body), last, from_us(check.updated_at))


def _decided(
    rule: Rule, window: Sequence[Observation], overdue: Overdue | None, alert: OpenAlert | None, now: datetime
) -> Decision | None:
    """Decide as the newest run did; None where there is nothing to decide about yet."""
    if overdue is not None:
        return decide_no_data(overdue, alert, now) if now >= overdue.deadline else None
    return decide(rule, window, alert, now) if window else None


def _rule(rule: Rule, decision: Decision | None, row: AlertRow | None, *, seen: bool) -> RuleState:
    """Say what the rule sees and where its alert is; of what it has never `seen` nothing is said to be ok."""
    evidence = decision.evidence if decision is not None else {}
    # What was written when it happened; else what the same runs say now, for nothing is kept of what is well.
    reason = row.reason if row is not None else decision.reason if decision is not None else _quiet(rule, seen=seen)
    return {
        "rule": rule.key,
        "kind": rule.kind,
        "scope": scope_of(rule),
        "state": AlertState(row.state) if row is not None else AlertState.OK if seen else UNKNOWN,
        "severity": Severity(row.severity) if row is not None else None,
        "alert_id": str(row.id) if row is not None else None,
        "incident_id": str(row.incident_id) if row is not None and row.incident_id is not None else None,
        "opened_at": shapes.time_text(row.opened_at) if row is not None else None,
        "acknowledged_at": shapes.time_text(row.acknowledged_at) if row is not None else None,
        "acknowledged_by": row.acknowledged_by if row is not None else None,
        "reason": reason,
        "evidence": alert_views.evidence(evidence),
    }


def _quiet(rule: Rule, *, seen: bool) -> str:
    if rule.kind is not RuleKind.NO_DATA:
        return "No run has ended yet."
    return "Runs complete when they should." if seen else "No run has completed yet."


def _next(rule: Rule, window: Sequence[Observation], alert: OpenAlert | None, overdue: Overdue | None) -> RuleOutlook:
    """Say what would open its alert, or close it."""
    ahead = outlook(rule, window, alert)
    return {
        "to_open": ahead.to_open,
        "to_close": ahead.to_close,
        "bad_runs_to_open": ahead.bad_runs_to_open,
        "good_runs_to_close": ahead.good_runs_to_close,
        "deadline": shapes.time_text(overdue.deadline) if overdue is not None and ahead.to_open else None,
    }


def _told(
    rule: Rule,
    check: Definition,
    row: AlertRow | None,
    context: Context,
    silences: Sequence[Silence],
    decision: Decision | None,
    now: datetime,
) -> RuleNews:
    """Say what keeps news of it back now, and when people are reminded."""
    severity = Severity(row.severity) if row is not None else decision.severity if decision is not None else None
    about = [
        silence
        for silence in silences
        if any(
            matches(silence, silencing.subject_of(check, rule.key, one))
            for one in ([severity] if severity is not None else list(Severity))
        )
    ]
    is_open = row is not None and AlertState(row.state) in OPEN
    kept = context.suppression(row.id) if row is not None and is_open else None
    due = context.reminder_due(row.id) if row is not None and is_open else None
    return {
        "held_back": str(kept) if kept is not None else None,
        "held_back_reason": _suppression_reason(kept),
        "silences": [
            {
                "slug": silence.slug,
                "active": active_until(silence, now) is not None,
                "until": shapes.time_text(active_until(silence, now)),
                "next_change": shapes.time_text(next_change(silence, now)),
            }
            for silence in about
            if active_until(silence, now) is not None or next_change(silence, now) is not None
        ],
        "next_reminder_at": shapes.time_text(due) if due is not None and kept is None else None,
    }


def _suppression_reason(kept: Suppression | None) -> str | None:
    """Say in a sentence what keeps news of an alert back."""
    return None if kept is None else "A silence keeps it back; what still fires when it is over is told then."


def _hook(connection: Connection, slug: str) -> HookState:
    hook = definitions.find_definition(connection, "hook", slug)
    return {"slug": slug, "disabled_reason": hook.disabled_reason if hook is not None else None}
