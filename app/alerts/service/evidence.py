"""Explanations of an alert beyond its rule: what its canaries have in common, their causes, and since when."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from app.alerts.domain.evidence import ChangedCanaries, Degradation, FleetView, SinceView, StoredEvidence
from app.alerts.domain.rules import SlowerLimits
from app.alerts.domain.state import RETIRED, Retirement, TransitionType
from app.alerts.domain.telling import AlertFacts
from app.alerts.service.changes import ChangedRun, load_changes
from app.alerts.store import AlertRow, TransitionRow
from app.base.db.engine import Connection, cached_of_run, find_cached_of_run, from_us
from app.base.texts import counted
from app.base.values import Cause, Percentile, Reason, RuleKind, Verdict
from app.diagnosis.domain.common_causes import Fleet, Member, fleet
from app.diagnosis.domain.run_causes import RunCause
from app.diagnosis.store import DiagnosisRow, MarkRow, causes_of, marks_before
from app.records.service.score_details import without_relevance
from app.records.store import pruning, results
from app.records.store.pruning import DegradedRow
from app.records.store.results import RunRow, StateRow
from app.retrievers.domain.probe_failures import FailureSummary
from app.scoring.evaluation import MISSING, REGRESSED, TIMED, unpack_reasons
from app.scoring.suites import Group
from app.scoring.suites import Member as SuiteMember

_BYTES, _BYTES_PER_DIAGNOSIS, _BYTES_PER_CANARY = 2_000, 4_000, 100
_NEAR_RUNS = 10
"""Number of runs after a change of the index version in which a fault is attributed to it."""


def degraded_states(connection: Connection, run: RunRow, positions: Mapping[int, int]) -> list[StateRow]:
    """States of the canaries a run reports as degraded; `positions` are those of its canaries, by id.

    A canary whose probe failed is unknown; where relevance was not measured its reasons are left out.
    """
    _, failures = results.probes_of(connection, run.id)
    unscored = set(results.unscored_at(connection, run.id))
    states = [
        without_relevance(state) if positions[state.canary_id] in unscored else state
        for state in results.states_at(connection, run.check_id, run.id, only_degraded=True).values()
        if state.canary_id in positions and positions[state.canary_id] not in failures
    ]
    return [state for state in states if state.reasons]


# --- why -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the degraded canaries of a run have in common, and the cause of each."""

    fleet: Fleet
    """Of those that were healthy before the alert's first bad run."""
    cause: RunCause | None
    """The one cause that explains the whole run, where there is one."""
    diagnoses: Mapping[str, DiagnosisRow]
    """The diagnosis of each degraded canary by key, where one is still valid."""
    changed: ChangedCanaries
    """Which canaries changed since before the alert's first bad run, for its summary."""

    def of(self, key: str) -> Degradation:
        """Cause of a degraded canary, as part of a notice: `cause, cause_reason, persistent`; None = not diagnosed."""
        diagnosis = self.diagnoses.get(key)
        return {
            "cause": None if diagnosis is None else Cause(diagnosis.cause),
            "cause_reason": None if diagnosis is None else diagnosis.reason,
            "persistent": None if diagnosis is None else diagnosis.evidence.get("persistent"),
        }

    @property
    def fleet_view(self) -> FleetView:
        """What the canaries have in common, without the single canaries."""
        fleet, group = self.fleet, self.fleet.group
        return {
            "shape": str(fleet.shape),
            "headline": fleet.headline,
            "sentence": fleet.sentence,
            "group": None if group is None else {"kind": str(group.kind), "name": group.name},
            "fallen": fleet.fallen,
            "of": fleet.of,
            "expected_by_chance": fleet.expected,
            "causes": {str(cause): count for cause, count in fleet.causes.items()},
            "cause": None if self.cause is None else self.cause.as_json,
        }


def explain(connection: Connection, run_id: int | None, *, first_run: int | None = None) -> Explanation | None:
    """Explanation of the degraded canaries of a run; None where there is none, or nothing was measured.

    `first_run`: the first bad run of the alert.
    """
    return explain_all(connection, [(run_id, first_run)])[0] if run_id is not None else None


def explain_all(connection: Connection, requests: Sequence[tuple[int, int | None]]) -> list[Explanation | None]:
    """Explanations of several runs, each given with a first bad one, as in `explain`.

    The number of queries depends on how many runs have more than 400 degraded canaries, not on the number of runs.
    """
    changes = load_changes(connection, requests)
    newest = pruning.newest_diagnosis(connection)
    keys = [
        ("explanation", one, newest, changed and changed.run.finished_at)
        for one, changed in zip(requests, changes, strict=True)
    ]
    explanations = {key: find_cached_of_run(connection, key) for key in keys}
    missing = {
        key: one for key, one in zip(keys, changes, strict=True) if one is not None and explanations[key] is None
    }
    by_run = {one.run.id: one for one in missing.values()}
    diagnoses = _valid_diagnoses(connection, {run_id: one.degraded for run_id, one in by_run.items()}) if by_run else {}
    shared = causes_of(connection, by_run) if by_run else {}
    for key, one in missing.items():
        explanations[key] = cached_of_run(
            connection, key, partial(_build_explanation, one, diagnoses[one.run.id], shared.get(one.run.id))
        )
    return [explanations[key] for key in keys]


def _build_explanation(
    changed: ChangedRun, diagnoses: Mapping[int, DiagnosisRow], cause: RunCause | None
) -> tuple[Explanation, int]:
    """Return the explanation of a run and its size in bytes."""
    chronic = changed.degraded.keys() - changed.changed_ids
    if cause is not None:
        diagnoses = {canary: _overruled_by(row, cause) for canary, row in diagnoses.items()}
    everyone = [
        _member(changed, member, groups, diagnoses.get(member.canary_id), is_chronic=member.canary_id in chronic)
        for position, (member, groups) in enumerate(zip(changed.members, changed.suite.groups, strict=True))
        if position not in changed.missing.failures
    ]
    common = fleet(everyone, cause=cause, first=not changed.compared)
    by_key = {changed.members[changed.suite.positions[canary]].key: row for canary, row in diagnoses.items()}
    summary = _changed_canaries(changed, by_key, common, cause)
    explanation = Explanation(fleet=common, cause=cause, diagnoses=by_key, changed=summary)
    return explanation, _BYTES + len(by_key) * _BYTES_PER_DIAGNOSIS + len(summary.reasons) * _BYTES_PER_CANARY


def _overruled_by(row: DiagnosisRow, cause: RunCause) -> DiagnosisRow:
    """Diagnosis of a canary by the run's cause, where its own contradicts that."""
    if not cause.overrules(Cause(row.cause)):
        return row
    return replace(row, cause=Cause.SCORE_DRIFT, reason=f"Explained by the run's cause: {cause.phrase}")


def _member(
    changed: ChangedRun,
    member: SuiteMember,
    groups: tuple[Group, ...],
    diagnosis: DiagnosisRow | None,
    *,
    is_chronic: bool,
) -> Member:
    return Member(
        key=member.key,
        groups=groups,
        fallen=member.canary_id in changed.changed_ids,
        chronic=is_chronic,
        persistent=None if diagnosis is None else diagnosis.evidence.get("persistent"),
        chance=changed.chances.get(member.version_id),
        cause=None if diagnosis is None else Cause(diagnosis.cause),
        rank_now=None if diagnosis is None else diagnosis.evidence.get("rank_now"),
    )


def _changed_canaries(
    changed: ChangedRun, diagnoses: Mapping[str, DiagnosisRow], common: Fleet, cause: RunCause | None
) -> ChangedCanaries:
    """Return the changed canaries, without those that were healthy on every retry."""
    keys = {canary: changed.members[changed.suite.positions[canary]].key for canary in changed.changed_ids}
    retried = {key for key, row in diagnoses.items() if row.evidence.get("persistent") is False}
    changed_ids = [canary for canary in changed.changed_ids if keys[canary] not in retried]
    causes = Counter(Cause(diagnoses[keys[canary]].cause) for canary in changed_ids if keys[canary] in diagnoses)
    group = "" if common.group is None else common.group.name
    return ChangedCanaries(
        count=len(changed_ids),
        of=len(changed.members) - len(changed.missing.failures),
        failing_before=len(changed.degraded) - len(changed.changed_ids),
        reasons=[
            unpack_reasons(changed.degraded[canary].reasons & ~(MISSING if canary in changed.lost_before else 0))
            for canary in changed_ids
        ],
        name=keys[changed_ids[0]] if len(changed_ids) == 1 else group,
        causes=causes,
        shared_cause="" if cause is None else cause.phrase,
        shared_advice="" if cause is None else cause.advice,
        compared=changed.compared,
        recovered_on_retry=len(changed.changed_ids) - len(changed_ids),
    )


def valid_diagnoses(connection: Connection, run: RunRow, degraded: Mapping[int, StateRow]) -> dict[int, DiagnosisRow]:
    """Diagnoses that still explain the degraded canaries of a run, both by canary id.

    That is the newest of each up to then, where its ranking is the same, or it was made since the canary degraded and
    for the same reasons: a canary that found its expected chunk then and has lost it since is another case.
    """
    return _valid_diagnoses(connection, {run.id: degraded})[run.id]


def _valid_diagnoses(
    connection: Connection, degraded: Mapping[int, Mapping[int, StateRow | DegradedRow]]
) -> dict[int, dict[int, DiagnosisRow]]:
    newest = pruning.diagnoses_at(connection, degraded)
    well = pruning.healthy_until(connection, newest)
    canaries: dict[int, set[int]] = {}
    for diagnosis in (row for rows in newest.values() for row in rows.values()):
        canaries.setdefault(diagnosis.run_id, set()).add(diagnosis.canary_id)
    then = pruning.degraded_at(connection, canaries)
    return {
        run_id: {
            canary: diagnosis
            for canary, diagnosis in newest[run_id].items()
            if diagnosis.canary_version_id == mine[canary].canary_version_id
            and (
                diagnosis.ranking_id == mine[canary].ranking_id
                or (
                    diagnosis.run_id > well[run_id].get(canary, 0)
                    and _is_same_case(then[diagnosis.run_id].get(canary), mine[canary])
                )
            )
        }
        for run_id, mine in degraded.items()
    }


def _is_same_case(then: DegradedRow | None, now: StateRow | DegradedRow) -> bool:
    """Whether a canary is degraded for the reasons of its diagnosis; `then`: None = those are unknown.

    Further reasons of a canary that finds none of its expected chunks do not change the cause; nor does its latency, or
    that the detector names it now.
    """
    if then is None or then.reasons & now.reasons & MISSING:
        return True
    return not (then.reasons ^ now.reasons) & ~(TIMED | REGRESSED)


# --- since when ----------------------------------------------------------------------------------------------


def since(connection: Connection, first_run: int | None) -> SinceView | None:
    """Beginning of an alert's fault, given its first bad run; None = it did not begin with a run."""
    return None if first_run is None else since_all(connection, [first_run])[first_run]


def since_all(connection: Connection, first_runs: Collection[int]) -> dict[int, SinceView]:
    """Beginnings of the faults of several alerts, by their first bad runs, in one query."""
    marks = marks_before(connection, first_runs)
    return {run_id: _since(run_id, marks.get(run_id)) for run_id in first_runs}


def _since(run_id: int, mark: MarkRow | None) -> SinceView:
    now, before, after = None, None, None
    text = f"since run {run_id}"
    # The first version there ever was is no change.
    if mark is not None and mark.index_version_before is not None and mark.runs_after <= _NEAR_RUNS:
        now, before, after = mark.index_version, mark.index_version_before, mark.runs_after
        text += f", {counted(after, 'run')} after" if after else ", when"
        text += f" index version {before} -> {now}"
    return {
        "run_id": str(run_id),
        "index_version": now,
        "index_version_before": before,
        "runs_after": after,
        "text": text,
    }


def facts_of(
    alert: AlertRow,
    runs: Mapping[int, RunRow],
    explanation: Explanation | None,
    began: SinceView | None,
    transition: TransitionRow | None,
    *,
    news: bool = True,
) -> AlertFacts:
    """Facts at a transition, or of an alert without one.

    `runs` holds the rows of `run_ids_of`. Without `news` the facts describe for pages the state at that time, not the
    change.
    """
    kind = RuleKind(alert.kind)
    number = run_of(alert, transition)
    run = None if number is None else runs.get(number)
    first = None if alert.first_run is None else runs.get(alert.first_run)
    evidence, reason = (
        (alert.evidence, alert.reason) if transition is None else (transition.evidence, transition.reason)
    )
    if kind is RuleKind.PROBE_ERRORS and run is not None and run.reasons:
        reason = run.reasons[0]  # that of a run that could not be executed is the run's own
    newest_run = window[-1] if (window := evidence.get("window")) else None
    failure = evidence.get("failure")
    since = evidence.get("since")
    return AlertFacts(
        check=alert.check,
        kind=kind,
        change=TransitionType(transition.type) if transition is not None and news else None,
        reason=reason,
        measure=evidence.get("measure"),
        self_judged=bool(evidence.get("self_judged")),
        category=evidence.get("category"),
        canary=alert.scope if kind is RuleKind.CANARY else None,
        percentile=Percentile(evidence.get("percentile") or Percentile.P95),
        value=newest_run and newest_run["value"],
        threshold=newest_run and newest_run["threshold"],
        baseline=evidence.get("usual") if kind is RuleKind.LATENCY else newest_run and newest_run.get("baseline"),
        slower=SlowerLimits.of(evidence.get("factor"), evidence.get("rise")) if kind is RuleKind.SLOWER else None,
        bad=evidence.get("bad"),
        of=evidence.get("of"),
        run_id=None if run is None else run.id,
        since_run=alert.first_run,
        retriever=evidence.get("retriever") or "",
        index_version=None if began is None else began["index_version"],
        runs_after_index=0 if began is None else began["runs_after"] or 0,
        began_at=datetime.fromisoformat(since)
        if since is not None
        else from_us(first.finished_at)
        if first is not None and first.finished_at is not None
        else None,
        opened_at=None if alert.opened_at is None else from_us(alert.opened_at),
        at=None if transition is None else from_us(transition.at),
        due_at=datetime.fromisoformat(evidence["deadline"]) if evidence.get("deadline") is not None else None,
        unknown=run is not None and run.verdict == Verdict.UNKNOWN,
        failure=None if failure is None else FailureSummary.from_json(failure),
        measured=None if run is None else run.measured,
        total=None if run is None else run.total,
        coverage=None if run is None else run.aggregates.get("coverage"),
        changed=_changed(explanation, evidence, kind),
        retired=RETIRED[Retirement(evidence["cause"])] if "cause" in evidence else "",
        dated=not news,
    )


def _changed(explanation: Explanation | None, evidence: StoredEvidence, kind: RuleKind) -> ChangedCanaries | None:
    """Return the changed canaries; for a rule about a part of the check only those of that part."""
    if explanation is None:
        return None
    if kind is not RuleKind.CANARY and evidence.get("category") is None:
        return explanation.changed
    listed = evidence.get("canaries", ())
    causes = Counter(Cause(row.cause) for one in listed if (row := explanation.diagnoses.get(one["key"])) is not None)
    return replace(
        explanation.changed,
        count=evidence.get("changed") or 0,
        reasons=[[Reason(reason) for reason in one["reasons"]] for one in listed],
        name=listed[0]["key"] if len(listed) == 1 else "",
        causes=causes,
    )


def run_of(alert: AlertRow, transition: TransitionRow | None) -> int | None:
    """Run of the facts: that of the transition, or else the last one the rule evaluated."""
    if transition is not None:
        return transition.run_id
    window = alert.evidence.get("window")
    return int(window[-1]["run_id"]) if window else None


def run_ids_of(alert: AlertRow, transition: TransitionRow | None) -> set[int]:
    """Return the runs whose rows the facts need."""
    return {number for number in (run_of(alert, transition), alert.first_run) if number is not None}
