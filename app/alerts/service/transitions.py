"""Alerts of a check opened, updated and resolved: after a run, at a tick, and when definitions change.

Called inside the transaction that ends a run (or changes a definition), so that a verdict, its alert and its
deliveries are written together or not at all. The domain decides, from rows.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from app.alerts import store as alerts
from app.alerts.documents import rules_in_force
from app.alerts.domain.evidence import ListedCanaries, StoredEvidence
from app.alerts.domain.rules import ABOUT_CANARIES, has_subject, watches_answers
from app.alerts.domain.state import (
    NON_REPEATING,
    OPEN,
    AlertState,
    Decision,
    Member,
    Overdue,
    Retirement,
    TransitionType,
    class_of,
    decide,
    decide_no_data,
    dedupe_key,
    is_completed,
    retire,
    still_firing,
)
from app.alerts.domain.telling import NOT_ABOUT_CANARIES
from app.alerts.service import facts as rule_facts
from app.alerts.service import notifications
from app.alerts.service.evidence import changed_keys, list_changed
from app.alerts.service.facts import Facts, with_confirmed
from app.alerts.service.notifications import load_context, member_of
from app.alerts.store import AlertRow, IncidentRow
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.texts import counted, named_text
from app.base.values import Percentile, Rule, RuleKind, RunStatus, Severity
from app.catalog import store as catalog
from app.catalog.documents.documents import CheckDocument
from app.catalog.domain import labelled, recall_label
from app.catalog.service.snapshots import is_self_judged, load_suite
from app.catalog.store import Definition
from app.detection import store as detectors
from app.detection.service import baselines
from app.detection.service.baselines import CULPRITS
from app.records.store import results
from app.records.store.results import RunRow
from app.retrievers.domain.probes import url_address
from app.scoring.suites import UnusableSuiteError


def after_run(
    connection: Connection, check_id: int, run_id: int, *, now: datetime, hold_until: datetime | None = None
) -> bool:
    """Evaluate every rule of the check after a run, and write what changes; True where there may be deliveries.

    Notifications of a fault are not sent before `hold_until`, where given: it is still being diagnosed.
    """
    check = catalog.definition_by_id(connection, check_id)
    evaluation = _Evaluation(connection, check, run_id, now)
    retirement = _retirement_of(check)
    if (
        retirement is not None
    ):  # archived or disabled while the run was under way: its verdict stays, without notifications
        evaluation.retire_others([], retirement)
        return evaluation.notify()
    rules = with_confirmed(connection, CheckDocument.model_validate(check.body), _rules(check))
    facts = rule_facts.load_facts(connection, check_id, rules, unresolved=evaluation.rows.keys())
    completed = facts.newest is not None and is_completed(RunStatus(facts.newest.status))
    swapped = evaluation.of_other_suites(facts.newest)
    evaluation.retire(swapped, Retirement.SUITE_CHANGED)
    retired = evaluation.without_canaries(rules, facts) - swapped
    evaluation.retire(retired, Retirement.CANARIES_RETIRED)
    gone = swapped | retired
    for rule in rules:
        if rule.key in gone:
            continue
        alert = evaluation.rows.get(rule.key)
        if rule.kind is not RuleKind.NO_DATA:
            decision = decide(rule, facts.of(rule), evaluation.as_open(alert), now)
            evaluation.apply(rule, alert, evaluation.without_unmeasured(rule, decision, facts.newest))
        elif completed:
            evaluation.apply(rule, alert, decide_no_data(None, evaluation.as_open(alert), now))
    evaluation.retire_others(rules, Retirement.RULE_REMOVED)
    return evaluation.notify(hold_until=hold_until)


def after_answers(connection: Connection, check_id: int, run_id: int, *, now: datetime) -> bool:
    """Evaluate the rules on generated answers, which come after their run; True where there may be deliveries."""
    check = catalog.definition_by_id(connection, check_id)
    watching = [] if _retirement_of(check) is not None else [one for one in _rules(check) if watches_answers(one)]
    if not watching:
        return False
    rules = with_confirmed(connection, CheckDocument.model_validate(check.body), watching)
    evaluation = _Evaluation(connection, check, run_id, now)
    facts = rule_facts.load_facts(connection, check_id, rules, unresolved=evaluation.rows.keys())
    for rule in rules:
        alert = evaluation.rows.get(rule.key)
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
    check = catalog.definition_by_id(connection, check_id)
    rule = _no_data_rule(check)
    if rule is None:
        return False
    evaluation = _Evaluation(connection, check, None, now)
    alert = evaluation.rows.get(rule.key)
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
        check = catalog.definition_by_id(connection, check_id)
        if not _has_notifications(connection, check, now):
            return False
        run = results.newest_ended(connection, check_id)
        if run is not None and run.suite_version_id is not None:  # cached: a reminder names its canaries when it writes
            load_suite(connection, run.suite_version_id)
    with store.write() as connection:
        catalog.lock_definition(connection, check_id)  # a run may be ending now: read again
        check = catalog.definition_by_id(connection, check_id)
        if not _has_notifications(connection, check, now):
            return False
        newest = results.newest_ended(connection, check_id)
        evaluation = _Evaluation(connection, check, newest.id if newest is not None else None, now)
        evaluation.notify(remind=True)
        return True


def _has_notifications(connection: Connection, check: Definition, now: datetime) -> bool:
    if _retirement_of(check) is not None:
        return False
    unresolved = {row.id: member_of(row) for row in alerts.open_alerts(connection, check.id, hold=False)}
    context = load_context(connection, check, unresolved, now=now, hold=False)
    return bool(context.plan(now, remind=True).steps)


def follow_definitions(connection: Connection, *, now: datetime) -> None:
    """Resolve the alerts of checks and rules that are gone."""
    for check_id in alerts.unresolved_checks(connection):
        check = catalog.definition_by_id(connection, check_id)
        evaluation = _Evaluation(connection, check, None, now)
        retirement = _retirement_of(check)
        evaluation.retire_others(_rules(check) if retirement is None else [], retirement or Retirement.RULE_REMOVED)
        evaluation.notify()


def accept_baseline(store: Store, slug: str, *, by: str, note: str | None, now: datetime) -> None:
    """Call the present the new normal: accounts begin anew, alerts that compare with a baseline resolve at once.

    Nothing up to the newest ended run is learned of any more. Raises NotFoundError, and ConflictError for a check that
    is archived or of which nothing ended yet.
    """
    comparing = {RuleKind.REGRESSION, RuleKind.DROP, RuleKind.GUARD, RuleKind.SLOWER}
    with store.write() as connection:
        check = baselines.begin_anew(connection, slug, by=by, note=note, now=now)
        evaluation = _Evaluation(connection, check, None, now)
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
        self.rows = {row.rule_key: row for row in alerts.open_alerts(connection, check.id)}
        """Unresolved alerts by the keys of their rules, pending ones included."""
        self._opening_runs = alerts.opening_runs(connection, [row.id for row in self.rows.values()])
        self._in_progress = {row.id: member_of(row) for row in self.rows.values()}
        self._evidence = TransitionEvidence(connection, check, run_id)

    def as_open(self, alert: AlertRow | None) -> Member | None:
        """Input of a decision about an alert."""
        return member_of(alert, self._opening_runs.get(alert.id)) if alert is not None else None

    def without_unmeasured(self, rule: Rule, decision: Decision, run: RunRow | None) -> Decision:
        """Return a decision that resolves nothing while a canary, degraded when the alert opened, is not measured."""
        row = self.rows.get(rule.key)
        if row is None or run is None or decision.state is not AlertState.RESOLVED:
            return decision
        keys = self._evidence.awaited(rule, self._opening_runs.get(row.id), run)
        if not keys:
            return decision
        why = f"not resolved: {named_text(keys)}, degraded when it opened, not measured in this run"
        reason = f"{decision.reason.rpartition('; ')[0]}; {why}."
        return replace(decision, state=AlertState.RECOVERING, transitions=(), reason=reason)

    def of_other_suites(self, run: RunRow | None) -> set[str]:
        """Keys of the rules whose alert is about canaries of another suite than that of a run."""
        about = [row for row in self.rows.values() if RuleKind(row.kind) in ABOUT_CANARIES]
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
                and (named := self._evidence.named_so_far(self.rows.get(rule.key)))
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
        member = Member(
            alert_id=alert_id,
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
                if further:
                    reason = f"{counted(len(further), 'further canary')} named: {named_text(further)}; {reason}"
        is_unopened = alert is None or alert.opened_at is None
        first_run = evidence.get("first_bad_run") if alert is None or is_unopened else alert.first_run
        for change in changes:
            about = self._evidence.build(rule.kind, scope_of(rule), first_run, evidence)
            transition_id = self._append(alert_id, change, decision.severity, reason, about)
            member = replace(member, change=change, transition_id=transition_id)
        self._in_progress[alert_id] = member

    def _with_first_bad_run(self, rule: Rule, decision: Decision) -> Decision:
        """Return a decision that opens an alert with the first bad run of its fault, even before the window."""
        first = decision.evidence.get("first_bad_run")
        if TransitionType.OPENED not in decision.transitions or first is None:
            return decision
        began = rule_facts.first_bad_run(self._connection, self._check.id, rule, first)
        return replace(decision, evidence={**decision.evidence, "first_bad_run": began})

    def _remind(self, alert_id: int, incident: IncidentRow) -> int:
        """Append the transition of a reminder to the alert that leads the incident; returns its id."""
        row = next(row for row in self.rows.values() if row.id == alert_id)
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
        self.retire(self.rows.keys() - {rule.key for rule in rules}, why)

    def retire(self, keys: Collection[str], why: Retirement) -> None:
        """Resolve the alerts of the rules with these keys."""
        for row in self.rows.values():
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


def scope_of(rule: Rule) -> str:
    """Part of a check a rule is about: a canary, a category, or empty for the whole check."""
    return rule.canary or (str(rule.category) if rule.category is not None else "")


class TransitionEvidence:
    """Evidence of the transitions of one check at one run; each list of canaries is read once."""

    def __init__(self, connection: Connection, check: Definition, run_id: int | None) -> None:
        self._connection = connection
        self._check = check
        self._run_id = run_id
        self._lists: dict[tuple[int | None, str | None, str | None], ListedCanaries] = {}

    def build(self, kind: RuleKind, scope: str, first_run: int | None, evaluated: StoredEvidence) -> StoredEvidence:
        """Evidence of a transition: what the rule evaluated, the changed canaries, and the retriever at fault."""
        evidence: StoredEvidence = {**evaluated, **self._canaries(kind, scope, first_run, evaluated)}
        if recall_label(evaluated.get("measure") or "", self_judged=True) and self._is_self_judged():
            evidence["self_judged"] = True
        if kind is RuleKind.LATENCY:
            percentile = Percentile(evaluated.get("percentile") or Percentile.P95)
            evidence["usual"] = (
                None
                if first_run is None
                else rule_facts.usual_latency(self._connection, self._check.id, percentile, first_run)
            )
            evidence["retriever"] = self._slow_retriever()
        elif kind is RuleKind.SLOWER:
            evidence["retriever"] = self._slow_retriever()
        elif kind is RuleKind.PROBE_ERRORS:
            evidence["retriever"] = self._check.body["retriever"]
        return evidence

    def awaited(self, rule: Rule, opening_run: int | None, run: RunRow | None) -> list[str]:
        """Keys of the canaries that a run has to measure before the alert of a rule may resolve; () = it has.

        They are those of its category that the opening run degraded, `run` did not measure, and the suite still has.
        """
        watches = rule.kind in {RuleKind.THRESHOLD, RuleKind.DROP, RuleKind.GUARD, RuleKind.REGRESSION}
        if run is None or not watches or not run.failed:
            return []
        opened = results.find_run(self._connection, opening_run) if opening_run is not None else None
        if opened is None or opened.suite_version_id is None or run.suite_version_id is None:
            return []
        then, now = (
            load_suite(self._connection, version) for version in (opened.suite_version_id, run.suite_version_id)
        )
        degraded = {then.canaries[place].key for place in opened.degraded_places}
        failed, _ = results.unmeasured_at(self._connection, [run.id]).get(run.id, ((), ()))
        unmeasured = [now.canaries[place] for place in sorted(failed)]
        return [one.key for one in unmeasured if one.key in degraded and rule.category in {None, one.category}]

    def culprits(self) -> list[str]:
        """Keys of the canaries the detector names on this run."""
        return detectors.culprits_of(self._connection, self._run_id) if self._run_id is not None else []

    def named_so_far(self, alert: AlertRow | None) -> set[str]:
        """Keys of all canaries that the transitions of an open alert name as culprits; empty where none does."""
        if alert is None or alert.state not in OPEN:
            return set()
        rows = alerts.list_transitions(self._connection, [alert.id])[alert.id]
        return {key for row in rows for key in row.evidence.get("culprits", ())}

    def new_culprits(self, alert: AlertRow | None, culprits: Sequence[str]) -> list[str]:
        """Culprits that no transition of an open alert named or counted as changed.

        None where the last of them named as many as are stored: beyond that the strongest differ from run to run.
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

    def _canaries(self, kind: RuleKind, scope: str, first_run: int | None, evaluated: StoredEvidence) -> ListedCanaries:
        if self._run_id is None or kind in NOT_ABOUT_CANARIES:
            return {"canaries": []}
        key = (first_run, evaluated.get("category"), scope if kind is RuleKind.CANARY else None)
        if key not in self._lists:
            _, category, canary = key
            self._lists[key] = list_changed(self._connection, self._run_id, first_run, category=category, canary=canary)
        return self._lists[key]

    def _is_self_judged(self) -> bool:
        """Whether the recall of the run is over judgments of the retriever's own first hits alone."""
        run = results.find_runs(self._connection, {self._run_id}).get(self._run_id) if self._run_id else None
        if run is None or run.suite_version_id is None:
            return False
        sources, body = load_suite(self._connection, run.suite_version_id).judgment_sources, self._check.body
        return is_self_judged(self._connection, sources, body["retriever"], depth=body["fetch_k"])

    def _slow_retriever(self) -> str:
        """Name of the retriever, with its address where it is known."""
        slug = self._check.body["retriever"]
        retriever = catalog.find_definition(self._connection, "retriever", slug)
        address = None if retriever is None else url_address(retriever.body["url"], retriever.body.get("options") or {})
        return f"{slug} at {address}" if address else slug


def with_label(reason: str, evidence: StoredEvidence) -> str:
    """Return the sentence of a rule with the label beside recall that is self-judged."""
    measure = evidence.get("measure")
    if not measure or not evidence.get("self_judged"):
        return reason
    return reason.replace(measure, labelled(measure, self_judged=True), 1)
