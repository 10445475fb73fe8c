"""Alerts of a check opened, updated and resolved: after a run, at a tick, and when definitions or the baseline change.

It runs inside the transaction that ends a run (or changes a definition), so that a verdict, its alert and its
deliveries are written together or not at all. `domain.state` decides, from rows. The first half applies the decisions;
the second, from `load_facts` on, only reads: the facts that rules judge, which are the newest ended runs of a check
(`CheckFacts`) with what was measured of each (`RunFacts` of `domain.rules`).
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from app.alerts import store as alerts
from app.alerts.domain.between_runs import Overdue, PlantTrouble, decide_no_data, decide_plant
from app.alerts.domain.conditions import WarmUp
from app.alerts.domain.rules import (
    BETWEEN_RUNS,
    NO_FACTS,
    REPEATED,
    Alarm,
    RepeatedFailures,
    RunFacts,
    condition,
    has_kind,
    named_canaries,
    watches_answers,
    watches_latency,
    watches_recall,
)
from app.alerts.domain.state import (
    ABOUT_CANARIES,
    COMPARING,
    OPEN,
    UNDECIDED,
    Decision,
    Member,
    Observation,
    OpenIncident,
    Retirement,
    class_of,
    decide,
    dedupe_keys,
    first_of_bad_runs,
    has_subject,
    is_completed,
    is_interrupted,
    retire,
    still_firing,
    window_length,
)
from app.alerts.domain.views import AlertState, StoredEvidence, TransitionType
from app.alerts.service import notifications
from app.alerts.service.evidence import TransitionEvidence, read_canaries, read_leaks, with_what_leaked
from app.alerts.service.notifications import load_context, member_of
from app.alerts.store import AlertRow
from app.answers.domain.generated import RunAnswers, rated_texts, unjudged
from app.answers.store.answer_rows import confirmed_of_runs, read_run_answers
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.texts import counted, named_text
from app.base.values import (
    ANSWER_MEASURES,
    Aggregates,
    Rule,
    RuleKind,
    RunStatus,
    Severity,
    Verdict,
    judged_name,
    replace,
)
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service.judges import is_self_judged, pooled_notes
from app.catalog.service.versions import load_suite
from app.catalog.store import Definition
from app.detection import store as detector_rows
from app.detection.domain import Change
from app.detection.service import baselines
from app.detection.service.detectors import run_latencies
from app.detection.store import DetectionRow
from app.index_facts.domain import KnownFact
from app.index_facts.store import known_facts
from app.records.service.past_runs import stored_aggregates
from app.records.store import run_rows
from app.records.store.run_rows import RunRow
from app.retrievers.domain.probes import FailedProbe, summarize_failures
from app.scoring.run_inputs import RunInputs, SuiteSnapshot, UnusableSuiteError
from app.scoring.verdicts import NOT_CARRIED_OUT, drop_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """The newest ended runs of a check with the facts of each, oldest first: as many as every rule needs."""

    runs: Sequence[RunRow]
    run_facts: Mapping[int, RunFacts]
    """Facts beside the aggregates by run id; of unknown runs only what leaked."""
    _judged: dict[str, list[Observation]] = field(default_factory=dict, compare=False, repr=False)
    """Observations by rule key, each judged once."""
    _aggregates: dict[int, Aggregates] = field(default_factory=dict, compare=False, repr=False)
    """By run id: all rules share them."""

    @property
    def newest(self) -> RunRow | None:
        """The run that ended last."""
        return self.runs[-1] if self.runs else None

    def of(self, rule: Rule) -> list[Observation]:
        """Judge the runs by a rule, oldest first. Raises ValueError for `no_data`, which is not judged by runs."""
        if rule.key not in self._judged:
            self._judged[rule.key] = self._judge(rule)
        return self._judged[rule.key]

    def _judge(self, rule: Rule) -> list[Observation]:
        return [
            Observation(
                run_id=row.id,
                at=from_us(row.finished_at or row.created_at),
                condition=condition(
                    rule,
                    self._aggregates_of(row),
                    unknown=row.verdict == Verdict.UNKNOWN,
                    facts=self.run_facts.get(row.id, NO_FACTS),
                ),
            )
            for row in self.runs
            if not _is_void(row)
        ]

    def _aggregates_of(self, row: RunRow) -> Aggregates:
        if row.id not in self._aggregates:
            self._aggregates[row.id] = stored_aggregates(row)
        return self._aggregates[row.id]


def after_run(
    connection: Connection,
    check_id: int,
    run_id: int,
    *,
    now: datetime,
    hold_until: datetime | None = None,
    has_facts: bool = True,
) -> bool:
    """Evaluate every rule of the check after a run, and write what changes; True where there may be deliveries.

    Notifications of a fault are not sent before `hold_until`, where given: it is still being diagnosed. `has_facts`:
    whether the run has facts of the index; of one without, nothing is read for rules that no alert is open by.
    """
    check = catalog.definition_by_id(connection, check_id)
    evaluation = _Evaluation(connection, check, run_id, now)
    retirement = _retirement_of(check)
    if (
        retirement is not None
    ):  # archived or disabled while the run was under way: its verdict stays, without notifications
        evaluation.retire_others([], retirement)
        return evaluation.notify()
    rules = _rules(check)
    judged = [one for one in rules if has_facts or one.kind is not RuleKind.INDEX or one.key in evaluation.rows]
    facts = load_facts(connection, check_id, judged, unresolved=evaluation.rows.keys())
    completed = facts.newest is not None and is_completed(RunStatus(facts.newest.status))
    swapped = evaluation.of_other_suites(facts.newest)
    evaluation.retire(swapped, Retirement.SUITE_CHANGED)
    retired = evaluation.without_canaries(judged, facts) - swapped
    evaluation.retire(retired, Retirement.CANARIES_RETIRED)
    gone = swapped | retired
    for rule in judged:
        if rule.key in gone:
            continue
        if rule.kind not in BETWEEN_RUNS:
            decision = decide(rule, facts.of(rule), evaluation.alert_of(rule.key))
            if decision.state is AlertState.RESOLVED and (awaited := evaluation.awaited(rule, facts.newest)):
                decision = decide(rule, facts.of(rule), evaluation.alert_of(rule.key), awaited=awaited)
            evaluation.apply(rule, decision)
        elif completed and rule.kind is RuleKind.NO_DATA:
            evaluation.apply(rule, decide_no_data(None, evaluation.alert_of(rule.key)))
    evaluation.retire_others(rules, Retirement.RULE_REMOVED)
    return evaluation.notify(hold_until=hold_until)


def after_answers(connection: Connection, check_id: int, run_id: int, *, now: datetime) -> bool:
    """Evaluate the rules on generated answers, which come after their run; True where there may be deliveries."""
    check = catalog.definition_by_id(connection, check_id)
    rules = [one for one in _rules(check) if watches_answers(one.kind, one.measure)]
    if not rules or _retirement_of(check) is not None:
        return False
    evaluation = _Evaluation(connection, check, run_id, now)
    facts = load_facts(connection, check_id, rules, unresolved=evaluation.rows.keys())
    for rule in rules:
        evaluation.apply(rule, decide(rule, facts.of(rule), evaluation.alert_of(rule.key)))
    return evaluation.notify()


def bad_answers(connection: Connection, check: Definition, run: RunRow) -> list[str]:
    """Return what is bad of the generated answers of a run by the rules of its check, each as the reason of its rule.

    That none was judged is not among it: see `generated.unjudged_text`.
    They are rated after the run has ended, so its verdict, which is about retrieval, does not know.
    """
    if not any(rule.get("measure") in ANSWER_MEASURES for rule in check.body.get("rules") or ()):
        return []  # told without reading the document, for lists of checks
    rules = [one for one in _rules(check) if watches_answers(one.kind, one.measure)]
    facts = CheckFacts(runs=[run], run_facts=_read_facts(connection, rules, [run], 0))
    found = [one.condition for rule in rules for one in facts.of(rule)]
    return [one.reason for one in found if one.severity is not None and one.value is not None]


def may_open_no_data(connection: Connection, check: Definition) -> bool:
    """Whether a check has a `no_data` rule without an open alert; only reads."""
    rule = _rule_of(check, RuleKind.NO_DATA)
    return rule is not None and all(
        row.rule_key != rule.key or row.state not in OPEN
        for row in alerts.open_alerts(connection, check.id, hold=False)
    )


def open_no_data(connection: Connection, check_id: int, overdue: Overdue, *, now: datetime) -> bool:
    """Open the `no_data` alert of an overdue check; True where it was not open yet."""
    check = catalog.definition_by_id(connection, check_id)
    rule = _rule_of(check, RuleKind.NO_DATA)
    if rule is None:
        return False
    evaluation = _Evaluation(connection, check, None, now)
    decision = decide_no_data(overdue, evaluation.alert_of(rule.key))
    if not decision.transitions:
        return False
    evaluation.apply(rule, decision)
    evaluation.notify()
    return True


def judge_plant(connection: Connection, check_id: int, trouble: PlantTrouble | None, *, now: datetime) -> bool:
    """Open, escalate or resolve the alert of planted documents; True where there may be deliveries.

    `trouble` None = one was found and gone in time.
    """
    check = catalog.definition_by_id(connection, check_id)
    rule = _rule_of(check, RuleKind.PLANT)
    if rule is None:
        return False
    evaluation = _Evaluation(connection, check, None, now)
    evaluation.apply(rule, decide_plant(trouble, evaluation.alert_of(rule.key)))
    return evaluation.notify()


def _rule_of(check: Definition, kind: RuleKind) -> Rule | None:
    """Return the rule of a kind of a check; None = it has none, or is archived or disabled."""
    if _retirement_of(check) is not None:
        return None
    return next((rule for rule in _rules(check) if rule.kind is kind), None)


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
        run = run_rows.newest_ended(connection, check_id)
        if run is not None and run.suite_version_id is not None:  # cached: a reminder names its canaries when it writes
            load_suite(connection, run.suite_version_id)
    with store.write() as connection:
        catalog.lock_definition(connection, check_id)  # a run may be ending now: read again
        check = catalog.definition_by_id(connection, check_id)
        if not _has_notifications(connection, check, now):
            return False
        newest = run_rows.newest_ended(connection, check_id)
        evaluation = _Evaluation(connection, check, newest.id if newest is not None else None, now)
        evaluation.notify(remind=True)
        return True


def _has_notifications(connection: Connection, check: Definition, now: datetime) -> bool:
    if _retirement_of(check) is not None:
        return False
    unresolved = {row.id: member_of(row) for row in alerts.open_alerts(connection, check.id, hold=False)}
    context = load_context(connection, check, unresolved, now=now, hold=False)
    return bool(context.plan(now, remind=True))


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
    with store.write() as connection:
        check = baselines.begin_anew(connection, slug, by=by, note=note, now=now)
        evaluation = _Evaluation(connection, check, None, now)
        others = [rule for rule in _rules(check) if rule.kind not in COMPARING]
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
        self._in_progress = {row.id: member_of(row, self._opening_runs.get(row.id)) for row in self.rows.values()}
        self._evidence = TransitionEvidence(connection, check, run_id)

    def alert_of(self, key: str) -> Member | None:
        """Return the unresolved alert of the rule with this key."""
        return self._in_progress.get(self.rows[key].id) if key in self.rows else None

    def awaited(self, rule: Rule, run: RunRow | None) -> Sequence[str]:
        """Keys of the canaries, degraded when the alert of the rule opened, that a run did not measure."""
        row = self.rows.get(rule.key)
        return () if row is None else self._evidence.awaited(rule, self._opening_runs.get(row.id), run)

    def of_other_suites(self, run: RunRow | None) -> set[str]:
        """Keys of the rules whose alert is about canaries of another suite than that of a run."""
        about = [row for row in self.rows.values() if RuleKind(row.kind) in ABOUT_CANARIES]
        opened = [(row.rule_key, self._opening_runs[row.id]) for row in about if row.id in self._opening_runs]
        if run is None or run.suite_version_id is None or not opened:
            return set()
        suites = run_rows.suites_of(self._connection, {run.id, *(run_id for _, run_id in opened)})
        return {key for key, run_id in opened if suites.get(run_id, suites[run.id]) != suites[run.id]}

    def without_canaries(self, rules: Sequence[Rule], facts: CheckFacts) -> set[str]:
        """Keys of the rules of which the suite of the newest run has no canary any more, or none that an alert names.

        The canaries that an alert of the detector names may all be gone while the rest of the suite goes on.
        """
        run = facts.newest
        if run is None or run.suite_version_id is None:
            return set()
        with suppress(UnusableSuiteError):
            suite = load_suite(self._connection, run.suite_version_id)
            keys, categories, expecting = suite.by_key.keys(), suite.categories, suite.expecting
            gone = {rule.key for rule in rules if not has_subject(rule, keys, categories, expecting)}
            return gone | {
                rule.key
                for rule in rules
                if rule.kind is RuleKind.REGRESSION
                and facts.of(rule)[-1:]
                and facts.of(rule)[-1].condition.severity is None
                and (named := self._evidence.named_so_far(self.rows.get(rule.key)))
                and named.isdisjoint(keys)
            }
        return set()

    def apply(self, rule: Rule, decision: Decision) -> None:
        """Write the changes of a decision: the row of the alert and its transitions."""
        alert, decision = self.rows.get(rule.key), self._with_first_bad_run(rule, decision)
        if alert is not None and alert.opened_at is not None and is_interrupted(alert.first_run, alert.evidence):
            decision = replace(decision, evidence={**decision.evidence, "interrupted": True})
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
        began = first_bad_run(self._connection, self._check.id, rule, first)
        return replace(decision, evidence={**decision.evidence, "first_bad_run": began})

    def _remind(self, alert_id: int, incident: OpenIncident) -> int:
        """Append the transition of a reminder to the alert that leads the incident; returns its id."""
        row = next(row for row in self.rows.values() if row.id == alert_id)
        reason = still_firing(row.reason, incident.opened_at, self._now)
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
            reason=reason,
            run_id=self._run_id,
            evidence=evidence,
        )

    def retire_others(self, rules: Sequence[Rule], why: Retirement) -> None:
        """Resolve the alerts of rules that are not among these."""
        self.retire(self.rows.keys() - {rule.key for rule in rules}, why)

    def retire(self, keys: Collection[str], why: Retirement) -> None:
        """Resolve the alerts of the rules with these keys."""
        for key in self.rows:
            alert = self.alert_of(key) if key in keys else None
            if alert is not None:
                self.apply(Rule(key=key, kind=alert.kind), retire(alert, why))

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
            dedupe_key=dedupe_keys(self._check.slug, class_of(rule.kind))[0],
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
    return check.read(CheckDocument).rules_in_force


def scope_of(rule: Rule) -> str:
    """Part of a check a rule is about: a canary, a category, or empty for the whole check."""
    return rule.canary or (str(rule.category) if rule.category is not None else "")


_MAX_RUNS = 2_000
_MAX_UNMEASURED_RUNS = 200
_FIRST_LIMIT = 8
_MAX_VOID = 8
"""Runs read for the last ones that were carried out."""
_OTHER_BASELINE = "the run was compared with a baseline that is no longer in force"


def load_facts(
    connection: Connection, check_id: int, rules: Sequence[Rule], *, unresolved: Collection[str] = ()
) -> CheckFacts:
    """Newest ended runs of a check, as many as every rule needs for `window_length` measured ones.

    `unresolved`: the keys of the rules with an alert, pending ones included. A rule may not be measured on runs with a
    verdict (its canary was not measured): for rules with an alert, and those measured on the newest run, the only ones
    that depend on older runs, up to `_MAX_UNMEASURED_RUNS` runs are read; older ones count as never measured.
    """
    run_rules = [rule for rule in rules if rule.kind not in BETWEEN_RUNS]
    rows = _newest_runs(connection, check_id, with_verdict=max((window_length(rule) for rule in run_rules), default=1))
    compared_since = _compared_since(connection, check_id, run_rules)
    facts = CheckFacts(runs=rows, run_facts=_read_facts(connection, run_rules, rows, compared_since))
    facts = _with_recall_label(connection, check_id, _with_newest(connection, facts), run_rules)
    # A rule without an alert that is unmeasured on the newest run opens none, whatever older runs were.
    depending = [
        rule
        for rule in run_rules
        if (judged := facts.of(rule)) and (rule.key in unresolved or judged[-1].condition.measured)
    ]
    facts = _with_older_runs(connection, check_id, facts, depending, compared_since)
    return _with_repeated(connection, check_id, facts, run_rules)


def _newest_runs(connection: Connection, check_id: int, *, with_verdict: int) -> Sequence[RunRow]:
    """Newest ended runs of a check, so many that this number of them has a verdict; from `_MAX_RUNS` on, no more."""
    limit = with_verdict
    while True:
        rows = run_rows.ended_runs(connection, check_id, limit=limit)
        known = sum(row.verdict != Verdict.UNKNOWN for row in rows)
        if known >= with_verdict or len(rows) < limit or limit >= _MAX_RUNS:
            return rows
        limit *= 4


def _with_older_runs(
    connection: Connection, check_id: int, facts: CheckFacts, rules: Sequence[Rule], compared_since: int
) -> CheckFacts:
    """Add older runs until each of the rules was measured on enough of them, `_MAX_UNMEASURED_RUNS` at most."""
    while lacking := [rule for rule in rules if not _is_enough(facts, rule, compared_since)]:
        limit = min(4 * len(facts.runs), _MAX_UNMEASURED_RUNS)
        rows = run_rows.ended_runs(connection, check_id, limit=limit)
        if len(rows) <= len(facts.runs):
            break
        older = _read_facts(connection, lacking, rows[: -len(facts.runs)], compared_since)
        facts = CheckFacts(runs=rows, run_facts={**older, **facts.run_facts})
    return facts


def repeated_failures(
    connection: Connection, check_id: int, run_id: int, keys: Sequence[str], failed: Mapping[int, FailedProbe]
) -> RepeatedFailures | None:
    """Return the canaries that a run and the ones before it did not measure; None where there is none.

    `keys`: those of the run's canaries; `failed`: its failures; both by position. Of a run that could not be carried
    out no canary was measured.
    """
    failures = {keys[place]: failure for place, failure in sorted(failed.items()) if place < len(keys)}
    if not failures:
        return None
    earlier = [
        row for row in run_rows.ended_runs(connection, check_id, before=run_id, limit=_MAX_VOID) if not _is_void(row)
    ]
    earlier = earlier[1 - REPEATED :]
    if len(earlier) < REPEATED - 1:
        return None
    places = run_rows.unmeasured_at(connection, [row.id for row in earlier])
    missed = set(failures)
    for row in earlier:
        if not row.total:
            continue
        asked = _keys_of(connection, row)
        missed &= {asked[place] for place in places.get(row.id, ((), ()))[0] if place < len(asked)}
    if not missed:
        return None
    named = [key for key in failures if key in missed]
    failure = summarize_failures([failures[key] for key in named], len(named))
    return RepeatedFailures(keys=named, since_run=earlier[0].id, failure=failure)


def _keys_of(connection: Connection, row: RunRow) -> Sequence[str]:
    """Return the keys of the canaries of a run; () of a suite that this release cannot read."""
    with suppress(UnusableSuiteError):
        return load_suite(connection, row.suite_version_id).keys if row.suite_version_id is not None else ()
    return ()


def _with_repeated(connection: Connection, check_id: int, facts: CheckFacts, rules: Sequence[Rule]) -> CheckFacts:
    """Add the canaries that were not measured in several runs in a row, where a rule is about them."""
    window = max((window_length(rule) for rule in rules if rule.kind is RuleKind.PROBE_ERRORS), default=0)
    found = dict(facts.run_facts)
    for row in facts.runs[-window:] if window else ():
        if not row.failed or row.verdict == Verdict.UNKNOWN:
            continue
        _, failures = run_rows.probes_of(connection, row.id)
        repeated = repeated_failures(connection, check_id, row.id, _keys_of(connection, row), failures)
        if repeated is not None:
            found[row.id] = replace(found.get(row.id, NO_FACTS), repeated=repeated)
    return CheckFacts(runs=facts.runs, run_facts=found)


def first_bad_run(connection: Connection, check_id: int, rule: Rule, run_id: int) -> int:
    """Id of the first of the bad runs in a row that lead to this one, even from before the rule existed.

    At most `_MAX_RUNS` runs are read: where none of them is good, it is the oldest of them.
    """
    compared_since = _compared_since(connection, check_id, [rule])
    limit = _FIRST_LIMIT
    while True:
        rows = run_rows.ended_runs(connection, check_id, before=run_id, limit=limit)
        earlier = CheckFacts(runs=rows, run_facts=_read_facts(connection, [rule], rows, compared_since))
        first, is_start = first_of_bad_runs(earlier.of(rule), run_id)
        if is_start or len(rows) < limit or limit >= _MAX_RUNS:
            return first
        limit = min(4 * limit, _MAX_RUNS)


def _with_newest(connection: Connection, facts: CheckFacts) -> CheckFacts:
    """Add why most probes of the newest run failed and what leaked: it is the only run of which these are reported."""
    newest = facts.newest
    if newest is None:
        return facts
    found = facts.run_facts.get(newest.id, NO_FACTS)
    if newest.failed:
        _, failures = run_rows.probes_of(connection, newest.id)
        found = replace(found, failure=summarize_failures(failures.values(), newest.total or len(failures)))
    if found.leaks is not None and found.leaks.found:
        found = replace(found, leaks=with_what_leaked(connection, newest, found.leaks))
    return CheckFacts(runs=facts.runs, run_facts={**facts.run_facts, newest.id: found})


def _with_recall_label(connection: Connection, check_id: int, facts: CheckFacts, rules: Sequence[Rule]) -> CheckFacts:
    """Add where the judgments of the newest run came from, the only run whose reasons are shown."""
    newest = facts.newest
    if newest is None or newest.suite_version_id is None or not watches_recall(rules):
        return facts
    body = catalog.definition_by_id(connection, check_id).body
    found = facts.run_facts.get(newest.id, NO_FACTS)
    with suppress(UnusableSuiteError):
        suite = load_suite(connection, newest.suite_version_id)
        found = _labelled(connection, found, suite, slug=body["suite"], retriever=body["retriever"])
    return CheckFacts(runs=facts.runs, run_facts={**facts.run_facts, newest.id: found})


def with_recall_label(connection: Connection, facts: RunFacts, inputs: RunInputs) -> RunFacts:
    """Return the facts of a run with where the judgments of its suite came from, if a rule is about recall."""
    if not watches_recall(inputs.yardstick.rules):
        return facts
    return _labelled(connection, facts, inputs.suite, slug=inputs.suite_slug, retriever=inputs.retriever.slug)


def _labelled(connection: Connection, facts: RunFacts, suite: SuiteSnapshot, *, slug: str, retriever: str) -> RunFacts:
    own = is_self_judged(connection, suite.judgment_shares, retriever, suite=slug)
    return replace(facts, self_judged=own, pooled=pooled_notes(connection, slug, retriever))


def _is_void(row: RunRow) -> bool:
    """Whether a run was cancelled before its start: it is no failure, so no rule counts it."""
    return row.status == RunStatus.FAILED and any(reason.endswith(NOT_CARRIED_OUT) for reason in row.reasons)


def _is_enough(facts: CheckFacts, rule: Rule, compared_since: int) -> bool:
    """Whether a rule was measured on enough of these runs, or cannot have been on older ones."""
    if rule.kind is RuleKind.DROP and facts.runs[0].id <= compared_since:
        return True
    return sum(one.condition.measured for one in facts.of(rule)) >= window_length(rule)


def _compared_since(connection: Connection, check_id: int, rules: Sequence[Rule]) -> int:
    """Id of the newest run before the baseline was last chosen; runs up to it were compared with another one."""
    is_used = has_kind(rules, RuleKind.DROP, RuleKind.GUARD, RuleKind.SLOWER, RuleKind.INDEX)
    choice = detector_rows.newest_choice(connection, check_id) if is_used else None
    return 0 if choice is None else choice.after_run


def detector_facts(row: DetectionRow, *, before: bool = False) -> RunFacts:
    """Facts of a run from its detection; `before` = another baseline was chosen since."""
    drops, p = row.body.get("drops", {}), row.body.get("drop_p", {})
    first = baselines.first_run_of(row.body)
    stands = row.baseline_id is not None
    over = before or (first is None and stands)
    return RunFacts(
        alarm=_alarm(row),
        drops={key: _OTHER_BASELINE if before else drop_from_json(one, p.get(key)) for key, one in drops.items()},
        warm_up=WarmUp(over=True)
        if over
        else None
        if first is None
        else WarmUp(over=False, first=first, renewed=stands),
        baseline_latency=_OTHER_BASELINE if before else baseline_latency(row),
    )


def baseline_latency(row: DetectionRow) -> float | str:
    """Median latency that a run is compared with, in seconds, or why it is unknown, without a full stop."""
    if row.baseline_latency is not None:
        return row.baseline_latency
    if row.baseline_id is not None:
        return "the latencies of the baseline are not known; they are once it is learned again"
    return row.body.get("warming", "no baseline yet").partition("; ")[0]


def _read_facts(
    connection: Connection, rules: Sequence[Rule], rows: Sequence[RunRow], compared_since: int
) -> dict[int, RunFacts]:
    """Facts that the rules use, of those of these runs that have a verdict; of the others leaks and the index."""
    leaks = read_leaks(connection, rows) if has_kind(rules, RuleKind.LEAK) else {}
    index: Mapping[int, Sequence[KnownFact]] = {}
    if rows and has_kind(rules, RuleKind.INDEX):
        index = known_facts(connection, rows[-1].check_id, [row.id for row in rows], after=compared_since)
    known = {*leaks, *index}
    of_unknown = {one: replace(NO_FACTS, leaks=leaks.get(one), index=index.get(one)) for one in known}
    runs = [row for row in rows if row.verdict != Verdict.UNKNOWN]
    detections: dict[int, DetectionRow] = {}
    if has_kind(rules, RuleKind.REGRESSION, RuleKind.DROP, RuleKind.GUARD, RuleKind.SLOWER):
        detections = detector_rows.detections_of(connection, [run.id for run in runs])
    canaries = read_canaries(connection, named_canaries(rules), runs)
    latencies = run_latencies(connection, runs) if watches_latency(rules) else {}
    is_judged = any(judged_name(rule.measure) for rule in rules)
    rated: Mapping[int, RunAnswers | None] = {}
    if is_judged:
        rated = read_run_answers(connection, [run.id for run in runs])
    confirmed = confirmed_of_runs(connection, [run.id for run in runs]) if is_judged else {}
    return of_unknown | {
        run.id: replace(
            detector_facts(row, before=run.id <= compared_since) if (row := detections.get(run.id)) else NO_FACTS,
            latencies=latencies.get(run.id, {}),
            canaries=canaries.get(run.id, {}),
            corrected={} if (one := rated.get(run.id)) is None else one.get("corrected", {}),
            unjudged=unjudged(rated.get(run.id)),
            rated=rated_texts(rated.get(run.id)),
            confirmed=confirmed.get(run.id, ()),
            leaks=leaks.get(run.id),
            index=index.get(run.id),
        )
        for run in runs
    }


def _alarm(detection: DetectionRow) -> Alarm:
    body = detection.body
    severity = body.get("severity")
    return Alarm(
        open=detection.open,
        good=not detection.open or bool(body.get("good")),
        severity=Severity.CRITICAL if severity is None else Severity(severity),
        evidence=detection.evidence,
        since_run=detection.since_run,
        reason=str(body.get("reason", "")).rstrip("."),
        undecided_reason=_undecided_reason(detection),
    )


def _undecided_reason(detection: DetectionRow) -> str:
    """Why a run cannot be judged for a regression: the detector restarted, and no alarm of its own is open or ends.

    A restart by people resolved the open alert; where the check measures otherwise now, an alert may still be open.
    """
    anew = detection.body.get("anew")
    if not anew or detection.open or detection.body.get("change") == Change.CLOSED:
        return ""
    return f"{anew}, {UNDECIDED}"
