"""What a verdict means for people: alerts opened and resolved; notifications writes incidents and their deliveries.

Called inside the transaction that ends a run (or changes a definition), so that a verdict, its alert and its
deliveries are written together or not at all. The deciding is done in the domain, from rows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from app.domain.alerts.alert_state import (
    OPEN,
    AlertState,
    Decision,
    OpenAlert,
    Overdue,
    Retirement,
    TransitionType,
    completes,
    decide,
    decide_no_data,
    retire,
)
from app.domain.alerts.incidents import NON_REPEATING, class_of, dedupe_key, still_firing
from app.domain.alerts.summary import NOT_ABOUT_CANARIES
from app.domain.counts import counted
from app.domain.model import Percentile, Rule, RuleKind, RunStatus, Severity
from app.domain.probing.probe_failures import url_address
from app.formats.alerts.rule_documents import rules_in_force
from app.formats.catalog.documents import CheckDocument
from app.services.alerts import notifications, rule_facts
from app.services.alerts.changed_canaries import ChangedList, changed_keys, list_changed
from app.services.alerts.notifications import AlertInProgress
from app.services.catalog.suite_snapshots import load_suite
from app.services.detection.detector_reports import CULPRITS
from app.store.alerts import alerts
from app.store.alerts.alerts import AlertRow
from app.store.alerts.incidents import IncidentRow
from app.store.catalog import definitions
from app.store.catalog.definitions import Definition
from app.store.detection import detectors
from app.store.engine import Connection, Store, from_us, to_us
from app.store.runs import results

_NAMED = 5


def after_run(
    connection: Connection, check_id: int, run_id: int, *, now: datetime, hold_until: datetime | None = None
) -> bool:
    """Let every rule of the check look at the run that just ended, and tell of what changes.

    Returns whether there may be something to deliver.

    News of something wrong is not sent before `hold_until`, where given: more is being found out about it.
    """
    check = definitions.definition_by_id(connection, check_id)
    evaluation = _Evaluation(connection, check, run_id, now)
    gone = _gone(check)
    if gone is not None:  # archived or disabled while the run was under way: its verdict stands, nobody is called
        evaluation.retire_others([], gone)
        return evaluation.announce()
    rules = _rules(check)
    seen = rule_facts.gather(connection, check_id, rules, unresolved=evaluation.unresolved())
    completed = seen.newest is not None and completes(RunStatus(seen.newest.status))
    for rule in rules:
        alert = evaluation.open_alert(rule)
        if rule.kind is not RuleKind.NO_DATA:
            evaluation.apply(rule, alert, decide(rule, seen.of(rule), evaluation.as_open(alert), now))
        elif completed:
            evaluation.apply(rule, alert, decide_no_data(None, evaluation.as_open(alert), now))
    evaluation.retire_others(rules, Retirement.RULE_REMOVED)
    return evaluation.announce(hold_until=hold_until)


def may_open_no_data(connection: Connection, check: Definition) -> bool:
    """Whether a check has a rule for silence, and no alert of it yet; reads alone."""
    rule = _no_data_rule(check)
    return rule is not None and all(
        row.rule_key != rule.key or row.state not in OPEN
        for row in alerts.open_alerts(connection, check.id, hold=False)
    )


def open_no_data(connection: Connection, check_id: int, overdue: Overdue, *, now: datetime) -> bool:
    """Open the `no_data` alert of a check of which nothing completed for too long; True where it was not open yet."""
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
    evaluation.announce()
    return True


def _no_data_rule(check: Definition) -> Rule | None:
    """Return the rule of a check for silence; None = it has none, or is archived or disabled."""
    if _gone(check) is not None:
        return None
    return next((rule for rule in _rules(check) if rule.kind is RuleKind.NO_DATA), None)


def checks_at_tick(store: Store) -> set[int]:
    """Give the ids of the checks `at_tick` may have something to do for."""
    with store.read() as connection:
        return alerts.firing_checks(connection)


def at_tick(store: Store, check_id: int, *, now: datetime) -> bool:
    """Tell what a silence kept back until now, and remind people of what still fires; True where anything was told."""
    with store.read() as connection:
        check = definitions.definition_by_id(connection, check_id)
        if not _is_time(connection, check, now):
            return False
        _load_suite(connection, check_id)
    with store.write() as connection:
        definitions.lock_definition(connection, check_id)  # a run may be ending just now; and see it all anew
        check = definitions.definition_by_id(connection, check_id)
        if not _is_time(connection, check, now):
            return False
        newest = results.newest_ended(connection, check_id)
        evaluation = _Evaluation(connection, check, newest.id if newest is not None else None, now)
        evaluation.announce(remind=True)
        return True


def _load_suite(connection: Connection, check_id: int) -> None:
    """Have the suite of the newest run at hand, whose canaries a reminder names within the transaction that follows."""
    run = results.newest_ended(connection, check_id)
    if run is not None and run.suite_version_id is not None:
        load_suite(connection, run.suite_version_id)


def _is_time(connection: Connection, check: Definition, now: datetime) -> bool:
    if _gone(check) is not None:
        return False
    unresolved = {row.id: AlertInProgress.of(row) for row in alerts.open_alerts(connection, check.id, hold=False)}
    context = notifications.load_context(connection, check, unresolved, now=now, hold=False)
    return bool(context.plan(now, remind=True).steps)


def follow_definitions(connection: Connection, *, now: datetime) -> None:
    """Resolve the alerts of checks and rules that are no longer there."""
    for check_id in alerts.unresolved_checks(connection):
        check = definitions.definition_by_id(connection, check_id)
        evaluation = _Evaluation(connection, check, None, now)
        gone = _gone(check)
        evaluation.retire_others(_rules(check) if gone is None else [], gone or Retirement.RULE_REMOVED)
        evaluation.announce()


def accept_baseline(connection: Connection, check: Definition, *, now: datetime) -> None:
    """Resolve the alerts of a check that compare with a baseline: the present was accepted as the new one."""
    evaluation = _Evaluation(connection, check, None, now)
    comparing = {RuleKind.REGRESSION, RuleKind.DROP, RuleKind.GUARD}
    others = [rule for rule in _rules(check) if rule.kind not in comparing]
    evaluation.retire_others(others, Retirement.BASELINE_ACCEPTED)
    evaluation.announce()


class _Evaluation:
    """One evaluation of a check's alerts: decisions are applied one by one, then announced together."""

    def __init__(self, connection: Connection, check: Definition, run_id: int | None, now: datetime) -> None:
        self._connection = connection
        self._check = check
        self._run_id = run_id
        self._now = now
        self._rows = {row.rule_key: row for row in alerts.open_alerts(connection, check.id)}
        self._opening_runs = alerts.opening_runs(connection, [row.id for row in self._rows.values()])
        self._in_progress = {row.id: AlertInProgress.of(row) for row in self._rows.values()}
        self._lists: dict[tuple[int | None, str | None, str | None], ChangedList] = {}

    def unresolved(self) -> Collection[str]:
        """Give the keys of the rules with an unresolved alert, pending ones included."""
        return self._rows.keys()

    def open_alert(self, rule: Rule) -> AlertRow | None:
        """Give the unresolved alert of a rule, pending ones included."""
        return self._rows.get(rule.key)

    def as_open(self, alert: AlertRow | None) -> OpenAlert | None:
        """Give an alert as decisions want it."""
        return as_open(alert, self._opening_runs.get(alert.id)) if alert is not None else None

    def apply(self, rule: Rule, alert: AlertRow | None, decision: Decision) -> None:
        """Write what a decision changes."""
        decision = self._with_beginning(rule, decision)
        if decision.state is AlertState.OK:
            if alert is not None:
                alerts.delete_alert(self._connection, alert.id)
                self._in_progress.pop(alert.id, None)
            return
        alert_id = self._begun(rule, decision) if alert is None else self._changed(alert, decision)
        if alert_id is None or decision.severity is None:
            return  # another replica was faster; what it wrote stands
        one = AlertInProgress(
            id=alert_id,
            rule=rule.key,
            kind=rule.kind,
            severity=decision.severity,
            state=decision.state,
            acknowledged=alert is not None and alert.acknowledged_at is not None,
            incident_id=alert.incident_id if alert is not None else None,
        )
        culprits = self._culprits() if rule.kind is RuleKind.REGRESSION and decision.state in OPEN else []
        reason = decision.reason
        changes = decision.transitions
        # While it recovers nobody would hear of it; if it fires again they are still new.
        if not changes and decision.state is AlertState.FIRING and (further := self._newly_named(alert, culprits)):
            changes = (TransitionType.UPDATED,)
            reason = f"{_named(further)}; {reason}"
        evidence = (
            {**decision.evidence, "culprits": culprits} if rule.kind is RuleKind.REGRESSION else decision.evidence
        )
        for change in changes:
            first_run = decision.evidence.get("first_bad_run") if alert is None else alert.first_run
            if alert is not None and alert.opened_at is None:
                first_run = decision.evidence.get("first_bad_run")
            listed = self._canaries(rule.kind, scope_of(rule), first_run, decision.evidence)
            listed |= self._source(rule.kind, rule.percentile, first_run)
            one.change = change
            one.transition_id = self._append(alert_id, change, decision.severity, reason, {**evidence, **listed})
        self._in_progress[alert_id] = one

    def _with_beginning(self, rule: Rule, decision: Decision) -> Decision:
        """Complete a decision that opens an alert with the run its fault began in, before the window or the rule."""
        first = decision.evidence.get("first_bad_run")
        if TransitionType.OPENED not in decision.transitions or first is None:
            return decision
        began = rule_facts.fault_began(self._connection, self._check.id, rule, first)
        return replace(decision, evidence={**decision.evidence, "first_bad_run": began})

    def _culprits(self) -> list[str]:
        """Give the keys of the canaries the detector names on this run."""
        return detectors.culprits_of(self._connection, self._run_id) if self._run_id is not None else []

    def _newly_named(self, alert: AlertRow | None, culprits: Sequence[str]) -> list[str]:
        """Give the culprits that no transition of an open alert named or counted as changed; none where none could.

        None either where the last of them named as many as are kept: of so many others are the strongest in each run.
        """
        if alert is None or alert.state not in OPEN or not culprits:
            return []
        before = [
            row
            for row in alerts.list_transitions(self._connection, [alert.id])[alert.id]
            if row.type in NON_REPEATING and "culprits" in row.evidence
        ]
        if not before or len(before[-1].evidence["culprits"]) >= CULPRITS:
            return []
        named = {key for row in before for key in row.evidence["culprits"]}
        if named.issuperset(culprits):
            return []
        runs = [(row.run_id, alert.first_run) for row in before if row.run_id is not None]
        named |= changed_keys(self._connection, runs)
        return [key for key in culprits if key not in named]

    def _remind(self, alert_id: int, incident: IncidentRow) -> int:
        """Append that people are reminded of an incident, to the alert that speaks for it."""
        row = next(row for row in self._rows.values() if row.id == alert_id)
        reason = still_firing(row.reason, from_us(incident.opened_at), self._now)
        listed = self._canaries(RuleKind(row.kind), row.scope, row.first_run, row.evidence)
        listed |= self._source(RuleKind(row.kind), row.evidence.get("percentile"), row.first_run)
        evidence = {**row.evidence, **listed}
        return self._append(alert_id, TransitionType.REMINDED, Severity(row.severity), reason, evidence)

    def _append(
        self, alert_id: int, change: TransitionType, severity: Severity, reason: str, evidence: Mapping[str, Any]
    ) -> int:
        return alerts.append_transition(
            self._connection,
            alert_id=alert_id,
            at=to_us(self._now),
            type=change,
            severity=severity,
            reason=reason,
            run_id=self._run_id,
            evidence=evidence,
        )

    def retire_others(self, rules: Sequence[Rule], why: Retirement) -> None:
        """Resolve the alerts of rules that are not among these."""
        keys = {rule.key for rule in rules}
        for row in self._rows.values():
            if row.rule_key in keys:
                continue
            gone = Rule(key=row.rule_key, kind=RuleKind(row.kind))
            opened = self.as_open(row)
            if opened is not None:
                self.apply(gone, row, retire(opened, why, self._now))

    def announce(self, *, hold_until: datetime | None = None, remind: bool = False) -> bool:
        """Write incidents and the deliveries of all that changed, or why there are none; see `notifications`."""
        return notifications.enqueue_notifications(
            self._connection,
            self._check,
            self._in_progress,
            now=self._now,
            hold_until=hold_until,
            remind=self._remind if remind else None,
        )

    def _begun(self, rule: Rule, decision: Decision) -> int | None:
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
            evidence=dict(decision.evidence),
            dedupe_key=dedupe_key(self._check.slug, class_of(rule.kind)),
            first_run=decision.evidence.get("first_bad_run"),
            created_at=to_us(self._now),
            opened_at=to_us(self._now) if opened else None,
        )

    def _changed(self, alert: AlertRow, decision: Decision) -> int | None:
        values: dict[str, Any] = {
            "state": decision.state,
            "severity": decision.severity,
            "reason": decision.reason,
            "evidence": dict(decision.evidence),
        }
        if TransitionType.ESCALATED in decision.transitions:  # what somebody has seen was milder than this
            values |= {"acknowledged_at": None, "acknowledged_by": None}
        if decision.state in OPEN and alert.opened_at is None:
            values["opened_at"] = to_us(self._now)
            values["first_run"] = decision.evidence.get("first_bad_run")
        if decision.state is AlertState.RESOLVED:
            values["resolved_at"] = to_us(self._now)
        return alert.id if alerts.update_alert(self._connection, alert.id, was=alert.state, **values) else None

    def _canaries(self, kind: RuleKind, scope: str, first_run: int | None, about: Mapping[str, Any]) -> dict[str, Any]:
        """Write down which canaries changed since an alert began, where its rule is about canaries."""
        if self._run_id is None or kind in NOT_ABOUT_CANARIES:
            return {"canaries": []}
        key = (first_run, about.get("category"), scope if kind is RuleKind.CANARY else None)
        if key not in self._lists:
            _, category, canary = key
            found = list_changed(self._connection, self._run_id, first_run, category=category, canary=canary)
            self._lists[key] = found
        found = self._lists[key]
        return {"canaries": found.canaries, "changed": found.changed, "failing_before": found.failing_before}

    def _source(self, kind: RuleKind, percentile: str | None, first_run: int | None) -> dict[str, Any]:
        """Write down which retriever is slow or fails, where the rule is about that."""
        if kind is RuleKind.LATENCY:
            return self._slowness(Percentile(percentile or Percentile.P95), first_run)
        return {"retriever": self._check.body["retriever"]} if kind is RuleKind.PROBE_ERRORS else {}

    def _slowness(self, percentile: Percentile, first_run: int | None) -> dict[str, Any]:
        """Write down who is slow, by name and address, and how long answers took before the first bad run."""
        slug = self._check.body["retriever"]
        retriever = definitions.find_definition(self._connection, "retriever", slug)
        address = None if retriever is None else url_address(retriever.body["url"], retriever.body.get("options") or {})
        usual = (
            None
            if first_run is None
            else rule_facts.usual_latency(self._connection, self._check.id, percentile, first_run)
        )
        return {"usual": usual, "retriever": f"{slug} at {address}" if address else slug}


def _named(keys: Sequence[str]) -> str:
    """Say which canaries are named now, the first of them by key."""
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return f"{counted(len(keys), 'further canary')} named: {', '.join(keys[:_NAMED])}{more}"


def _gone(check: Definition) -> Retirement | None:
    """Say why nothing of a check is alerted on any more; None = it is watched."""
    if check.archived_at is not None:
        return Retirement.CHECK_ARCHIVED
    return None if check.body["enabled"] else Retirement.CHECK_DISABLED


def _rules(check: Definition) -> tuple[Rule, ...]:
    return rules_in_force(CheckDocument.model_validate(check.body).rules)


def as_open(row: AlertRow, opened_run_id: int | None) -> OpenAlert:
    """Give an alert, with the run that opened it, as decisions want it."""
    return OpenAlert(
        state=AlertState(row.state),
        severity=Severity(row.severity),
        opened_at=from_us(row.opened_at) if row.opened_at is not None else None,
        opened_run_id=opened_run_id,
    )


def scope_of(rule: Rule) -> str:
    """Name the part of a check a rule is about: a canary, a category, or with nothing the whole of it."""
    return rule.canary or (str(rule.category) if rule.category is not None else "")
