"""Alerts of a check opened, updated and resolved: after a run, at a tick, and when definitions change.

Called inside the transaction that ends a run (or changes a definition), so that a verdict, its alert and its
deliveries are written together or not at all. The domain decides, from rows.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from app.alerts.documents.rule_documents import rules_in_force
from app.alerts.domain.alert_state import (
    OPEN,
    AlertState,
    Decision,
    OpenAlert,
    Overdue,
    Retirement,
    TransitionType,
    decide,
    decide_no_data,
    is_completed,
    retire,
)
from app.alerts.domain.answer_rules import watches_answers
from app.alerts.domain.evidence import StoredEvidence
from app.alerts.domain.incidents import class_of, dedupe_key, still_firing
from app.alerts.domain.rule_subjects import ABOUT_CANARIES, has_subject
from app.alerts.service import notifications, rule_facts
from app.alerts.service.judge_rules import with_confirmed
from app.alerts.service.notification_context import AlertInProgress, load_context
from app.alerts.service.rule_facts import Facts
from app.alerts.service.transition_evidence import TransitionEvidence, culprits_text, with_label
from app.alerts.store import alerts
from app.alerts.store.alerts import AlertRow
from app.alerts.store.incidents import IncidentRow
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.values import Rule, RuleKind, RunStatus, Severity
from app.catalog.documents.documents import CheckDocument
from app.catalog.domain.suite_snapshot import UnusableSuiteError
from app.catalog.service.suite_snapshots import load_suite
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.records.store import results
from app.records.store.results import RunRow

_NAMED = 5


def after_run(
    connection: Connection, check_id: int, run_id: int, *, now: datetime, hold_until: datetime | None = None
) -> bool:
    """Evaluate every rule of the check after a run, and write what changes; True where there may be deliveries.

    Notifications of a fault are not sent before `hold_until`, where given: it is still being diagnosed.
    """
    check = definitions.definition_by_id(connection, check_id)
    evaluation = _Evaluation(connection, check, run_id, now)
    retirement = _retirement_of(check)
    if (
        retirement is not None
    ):  # archived or disabled while the run was under way: its verdict stays, without notifications
        evaluation.retire_others([], retirement)
        return evaluation.notify()
    rules = with_confirmed(connection, CheckDocument.model_validate(check.body), _rules(check))
    facts = rule_facts.load_facts(connection, check_id, rules, unresolved=evaluation.unresolved())
    completed = facts.newest is not None and is_completed(RunStatus(facts.newest.status))
    swapped = evaluation.of_other_suites(facts.newest)
    evaluation.retire(swapped, Retirement.SUITE_CHANGED)
    retired = evaluation.without_canaries(rules, facts) - swapped
    evaluation.retire(retired, Retirement.CANARIES_RETIRED)
    gone = swapped | retired
    for rule in rules:
        if rule.key in gone:
            continue
        alert = evaluation.open_alert(rule)
        if rule.kind is not RuleKind.NO_DATA:
            decision = decide(rule, facts.of(rule), evaluation.as_open(alert), now)
            evaluation.apply(rule, alert, evaluation.without_unmeasured(rule, decision, facts.newest))
        elif completed:
            evaluation.apply(rule, alert, decide_no_data(None, evaluation.as_open(alert), now))
    evaluation.retire_others(rules, Retirement.RULE_REMOVED)
    return evaluation.notify(hold_until=hold_until)


def after_answers(connection: Connection, check_id: int, run_id: int, *, now: datetime) -> bool:
    """Evaluate the rules on generated answers, which come after their run; True where there may be deliveries."""
    check = definitions.definition_by_id(connection, check_id)
    watching = [] if _retirement_of(check) is not None else [one for one in _rules(check) if watches_answers(one)]
    if not watching:
        return False
    rules = with_confirmed(connection, CheckDocument.model_validate(check.body), watching)
    evaluation = _Evaluation(connection, check, run_id, now)
    facts = rule_facts.load_facts(connection, check_id, rules, unresolved=evaluation.unresolved())
    for rule in rules:
        alert = evaluation.open_alert(rule)
        evaluation.apply(rule, alert, decide(rule, facts.of(rule), evaluation.as_open(alert), now))
    return evaluation.notify()


def may_open_no_data(connection: Connection, check: Definition) -> bool:
    """Whether a check has a `no_data` rule without an open alert; only reads."""
    rule = _no_data_rule(check)
    return rule is not None and all(
        row.rule_key != rule.key or row.state not in OPEN
        for row in alerts.open_alerts(connection, check.id, hold=False)
    )


def open_no_data(connection: Connection, check_id: int, overdue: Overdue, *, now: datetime) -> bool:
    """Open the `no_data` alert of an overdue check; True where it was not open yet."""
    check = definitions.definition_by_id(connection, check_id)
    rule = _no_data_rule(check)
    if rule is None:
        return False
    evaluation = _Evaluation(connection, check, None, now)
    alert = evaluation.open_alert(rule)
    decision = decide_no_data(overdue, evaluation.as_open(alert), now)
    if not decision.transitions:
        return False
    evaluation.apply(rule, alert, decision)
    evaluation.notify()
    return True


def _no_data_rule(check: Definition) -> Rule | None:
    """Return the `no_data` rule of a check; None = it has none, or is archived or disabled."""
    if _retirement_of(check) is not None:
        return None
    return next((rule for rule in _rules(check) if rule.kind is RuleKind.NO_DATA), None)


def checks_at_tick(store: Store) -> set[int]:
    """Return the ids of the checks with a firing alert, the only ones `at_tick` can change."""
    with store.read() as connection:
        return alerts.firing_checks(connection)


def at_tick(store: Store, check_id: int, *, now: datetime) -> bool:
    """Notify of alerts whose silence ended, and remind of those that still fire; True where anything was written."""
    with store.read() as connection:
        check = definitions.definition_by_id(connection, check_id)
        if not _has_notifications(connection, check, now):
            return False
        _load_suite(connection, check_id)
    with store.write() as connection:
        definitions.lock_definition(connection, check_id)  # a run may be ending now: read again
        check = definitions.definition_by_id(connection, check_id)
        if not _has_notifications(connection, check, now):
            return False
        newest = results.newest_ended(connection, check_id)
        evaluation = _Evaluation(connection, check, newest.id if newest is not None else None, now)
        evaluation.notify(remind=True)
        return True


def _load_suite(connection: Connection, check_id: int) -> None:
    """Load the suite of the newest run into the cache: a reminder names its canaries inside the write transaction."""
    run = results.newest_ended(connection, check_id)
    if run is not None and run.suite_version_id is not None:
        load_suite(connection, run.suite_version_id)


def _has_notifications(connection: Connection, check: Definition, now: datetime) -> bool:
    if _retirement_of(check) is not None:
        return False
    unresolved = {row.id: AlertInProgress.of(row) for row in alerts.open_alerts(connection, check.id, hold=False)}
    context = load_context(connection, check, unresolved, now=now, hold=False)
    return bool(context.plan(now, remind=True).steps)


def follow_definitions(connection: Connection, *, now: datetime) -> None:
    """Resolve the alerts of checks and rules that are gone."""
    for check_id in alerts.unresolved_checks(connection):
        check = definitions.definition_by_id(connection, check_id)
        evaluation = _Evaluation(connection, check, None, now)
        retirement = _retirement_of(check)
        evaluation.retire_others(_rules(check) if retirement is None else [], retirement or Retirement.RULE_REMOVED)
        evaluation.notify()


def accept_baseline(connection: Connection, check: Definition, *, now: datetime) -> None:
    """Resolve the alerts of a check that compare with a baseline: the present was accepted as the new one."""
    evaluation = _Evaluation(connection, check, None, now)
    comparing = {RuleKind.REGRESSION, RuleKind.DROP, RuleKind.GUARD, RuleKind.SLOWER}
    others = [rule for rule in _rules(check) if rule.kind not in comparing]
    evaluation.retire_others(others, Retirement.BASELINE_ACCEPTED)
    evaluation.notify()


class _Evaluation:
    """One evaluation of a check's alerts: decisions are applied one by one, then notified together."""

    def __init__(self, connection: Connection, check: Definition, run_id: int | None, now: datetime) -> None:
        self._connection = connection
        self._check = check
        self._run_id = run_id
        self._now = now
        self._rows = {row.rule_key: row for row in alerts.open_alerts(connection, check.id)}
        self._opening_runs = alerts.opening_runs(connection, [row.id for row in self._rows.values()])
        self._in_progress = {row.id: AlertInProgress.of(row) for row in self._rows.values()}
        self._evidence = TransitionEvidence(connection, check, run_id)

    def unresolved(self) -> Collection[str]:
        """Keys of the rules with an unresolved alert, pending ones included."""
        return self._rows.keys()

    def open_alert(self, rule: Rule) -> AlertRow | None:
        """Unresolved alert of a rule, pending ones included."""
        return self._rows.get(rule.key)

    def as_open(self, alert: AlertRow | None) -> OpenAlert | None:
        """Input of a decision about an alert."""
        return as_open(alert, self._opening_runs.get(alert.id)) if alert is not None else None

    def without_unmeasured(self, rule: Rule, decision: Decision, run: RunRow | None) -> Decision:
        """Return a decision that resolves nothing while a canary, degraded when the alert opened, is not measured."""
        row = self._rows.get(rule.key)
        if row is None or run is None or decision.state is not AlertState.RESOLVED:
            return decision
        keys = self._evidence.awaited(rule, self._opening_runs.get(row.id), run)
        if not keys:
            return decision
        more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
        why = f"not resolved: {', '.join(keys[:_NAMED])}{more}, degraded when it opened, not measured in this run"
        reason = f"{decision.reason.rpartition('; ')[0]}; {why}."
        return replace(decision, state=AlertState.RECOVERING, transitions=(), reason=reason)

    def of_other_suites(self, run: RunRow | None) -> set[str]:
        """Keys of the rules whose alert is about canaries of another suite than that of a run."""
        about = [row for row in self._rows.values() if RuleKind(row.kind) in ABOUT_CANARIES]
        opened = [(row.rule_key, self._opening_runs[row.id]) for row in about if row.id in self._opening_runs]
        if run is None or run.suite_version_id is None or not opened:
            return set()
        suites = results.suites_of(self._connection, {run.id, *(run_id for _, run_id in opened)})
        return {key for key, run_id in opened if suites.get(run_id, suites[run.id]) != suites[run.id]}

    def without_canaries(self, rules: Sequence[Rule], facts: Facts) -> set[str]:
        """Keys of the rules of which the suite of the newest run has no canary any more, or none that an alert names.

        The canaries that an alert of the detector names may all be gone while the rest of the suite goes on.
        """
        run = facts.newest
        if run is None or run.suite_version_id is None:
            return set()
        with suppress(UnusableSuiteError):
            suite = load_suite(self._connection, run.suite_version_id)
            gone = {rule.key for rule in rules if not has_subject(rule, suite.canaries)}
            return gone | {
                rule.key
                for rule in rules
                if rule.kind is RuleKind.REGRESSION
                and facts.of(rule)[-1:]
                and facts.of(rule)[-1].condition.severity is None
                and (named := self._evidence.named_so_far(self._rows.get(rule.key)))
                and named.isdisjoint(suite.by_key)
            }
        return set()

    def apply(self, rule: Rule, alert: AlertRow | None, decision: Decision) -> None:
        """Write the changes of a decision: the row of the alert and its transitions."""
        decision = self._with_first_bad_run(rule, decision)
        if decision.state is AlertState.OK:
            if alert is not None:
                alerts.delete_alert(self._connection, alert.id)
                self._in_progress.pop(alert.id, None)
            return
        alert_id = self._insert(rule, decision) if alert is None else self._update(alert, decision)
        if alert_id is None or decision.severity is None:
            return  # another replica wrote it first
        one = AlertInProgress(
            id=alert_id,
            rule=rule.key,
            kind=rule.kind,
            severity=decision.severity,
            state=decision.state,
            acknowledged=alert is not None and alert.acknowledged_at is not None,
            incident_id=alert.incident_id if alert is not None else None,
        )
        evidence, reason, changes = decision.evidence, decision.reason, decision.transitions
        if rule.kind is RuleKind.REGRESSION:
            culprits = self._evidence.culprits() if decision.state in OPEN else []
            evidence = {**evidence, "culprits": culprits}
            # While it recovers nothing is sent; if it fires again they are still new.
            if not changes and decision.state is AlertState.FIRING:
                further = self._evidence.new_culprits(alert, culprits)
                changes = (TransitionType.UPDATED,) if further else ()
                reason = f"{culprits_text(further)}; {reason}" if further else reason
        is_unopened = alert is None or alert.opened_at is None
        first_run = evidence.get("first_bad_run") if alert is None or is_unopened else alert.first_run
        for change in changes:
            about = self._evidence.build(rule.kind, scope_of(rule), first_run, evidence)
            one.change = change
            one.transition_id = self._append(alert_id, change, decision.severity, reason, about)
        self._in_progress[alert_id] = one

    def _with_first_bad_run(self, rule: Rule, decision: Decision) -> Decision:
        """Return a decision that opens an alert with the first bad run of its fault, even before the window."""
        first = decision.evidence.get("first_bad_run")
        if TransitionType.OPENED not in decision.transitions or first is None:
            return decision
        began = rule_facts.first_bad_run(self._connection, self._check.id, rule, first)
        return replace(decision, evidence={**decision.evidence, "first_bad_run": began})

    def _remind(self, alert_id: int, incident: IncidentRow) -> int:
        """Append the transition of a reminder to the alert that leads the incident; returns its id."""
        row = next(row for row in self._rows.values() if row.id == alert_id)
        reason = still_firing(row.reason, from_us(incident.opened_at), self._now)
        evidence = self._evidence.build(RuleKind(row.kind), row.scope, row.first_run, row.evidence)
        return self._append(alert_id, TransitionType.REMINDED, Severity(row.severity), reason, evidence)

    def _append(
        self, alert_id: int, change: TransitionType, severity: Severity, reason: str, evidence: StoredEvidence
    ) -> int:
        return alerts.append_transition(
            self._connection,
            alert_id=alert_id,
            at=to_us(self._now),
            type=change,
            severity=severity,
            reason=with_label(reason, evidence),
            run_id=self._run_id,
            evidence=evidence,
        )

    def retire_others(self, rules: Sequence[Rule], why: Retirement) -> None:
        """Resolve the alerts of rules that are not among these."""
        self.retire(self._rows.keys() - {rule.key for rule in rules}, why)

    def retire(self, keys: Collection[str], why: Retirement) -> None:
        """Resolve the alerts of the rules with these keys."""
        for row in self._rows.values():
            opened = self.as_open(row) if row.rule_key in keys else None
            if opened is not None:
                gone = Rule(key=row.rule_key, kind=RuleKind(row.kind))
                self.apply(gone, row, retire(opened, why, self._now))

    def notify(self, *, hold_until: datetime | None = None, remind: bool = False) -> bool:
        """Write the incidents and deliveries of all changes, or why there are none; see `notifications`."""
        return notifications.enqueue_notifications(
            self._connection,
            self._check,
            self._in_progress,
            now=self._now,
            hold_until=hold_until,
            remind=self._remind if remind else None,
        )

    def _insert(self, rule: Rule, decision: Decision) -> int | None:
        opened = decision.state in OPEN
        return alerts.insert_alert(
            self._connection,
            check_id=self._check.id,
            rule_key=rule.key,
            kind=rule.kind,
            scope=scope_of(rule),
            severity=decision.severity,
            state=decision.state,
            reason=decision.reason,
            evidence=decision.evidence,
            dedupe_key=dedupe_key(self._check.slug, class_of(rule.kind)),
            first_run=decision.evidence.get("first_bad_run"),
            created_at=to_us(self._now),
            opened_at=to_us(self._now) if opened else None,
        )

    def _update(self, alert: AlertRow, decision: Decision) -> int | None:
        values: dict[str, object] = {
            "state": decision.state,
            "severity": decision.severity,
            "reason": decision.reason,
            "evidence": decision.evidence,
        }
        if TransitionType.ESCALATED in decision.transitions:  # the acknowledged alert was milder
            values |= {"acknowledged_at": None, "acknowledged_by": None}
        if decision.state in OPEN and alert.opened_at is None:
            values["opened_at"] = to_us(self._now)
            values["first_run"] = decision.evidence.get("first_bad_run")
        if decision.state is AlertState.RESOLVED:
            values["resolved_at"] = to_us(self._now)
        return alert.id if alerts.update_alert(self._connection, alert.id, was=alert.state, **values) else None


def _retirement_of(check: Definition) -> Retirement | None:
    """Why the alerts of a check are resolved; None = it is enabled."""
    if check.archived_at is not None:
        return Retirement.CHECK_ARCHIVED
    return None if check.body["enabled"] else Retirement.CHECK_DISABLED


def _rules(check: Definition) -> tuple[Rule, ...]:
    return rules_in_force(CheckDocument.model_validate(check.body).rules)


def as_open(row: AlertRow, opened_run_id: int | None) -> OpenAlert:
    """Input of a decision about an alert, with the run that opened it."""
    return OpenAlert(
        state=AlertState(row.state),
        severity=Severity(row.severity),
        opened_at=from_us(row.opened_at) if row.opened_at is not None else None,
        opened_run_id=opened_run_id,
    )


def scope_of(rule: Rule) -> str:
    """Part of a check a rule is about: a canary, a category, or empty for the whole check."""
    return rule.canary or (str(rule.category) if rule.category is not None else "")
