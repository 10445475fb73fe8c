"""Facts of an alert from rows: the inputs of its summary, at a transition or in its current state."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from app.alerts.domain.alert_state import RETIRED, Retirement, TransitionType
from app.alerts.domain.canary_changes import ChangedCanaries
from app.alerts.domain.evidence import StoredEvidence
from app.alerts.domain.slower import SlowerLimits
from app.alerts.domain.summary import AlertFacts
from app.alerts.service.alert_evidence import Explanation, Since
from app.alerts.store.alerts import AlertRow, TransitionRow
from app.base.db.engine import from_us
from app.base.values import Cause, Percentile, Reason, RuleKind, Verdict
from app.records.store.results import RunRow
from app.retrievers.domain.probe_failures import FailureSummary


def facts_of(
    alert: AlertRow,
    runs: Mapping[int, RunRow],
    explanation: Explanation | None,
    began: Since | None,
    transition: TransitionRow | None,
    *,
    news: bool = True,
) -> AlertFacts:
    """Facts at a transition, or of an alert without one.

    `runs` holds the rows of `run_ids_of`. Without `news` the facts describe the state at that time, not the change.
    """
    kind = RuleKind(alert.kind)
    number = run_of(alert, transition)
    run = None if number is None else runs.get(number)
    first = None if alert.first_run is None else runs.get(alert.first_run)
    evidence = alert.evidence if transition is None else transition.evidence
    newest_run = window[-1] if (window := evidence.get("window")) else None
    failure = evidence.get("failure")
    since = evidence.get("since")
    version, after = (None, 0) if began is None else (began.index_version, began.runs_after)
    return AlertFacts(
        check=alert.check,
        kind=kind,
        change=TransitionType(transition.type) if transition is not None and news else None,
        reason=_reason(alert.reason if transition is None else transition.reason, run, kind),
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
        index_version=version,
        runs_after_index=after,
        began_at=datetime.fromisoformat(since) if since is not None else _ended_at(first),
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


def _reason(reason: str, run: RunRow | None, kind: RuleKind) -> str:
    """Reason of the rule; for a run that could not be executed, the run's own."""
    if kind is RuleKind.PROBE_ERRORS and run is not None and run.reasons:
        return run.reasons[0]
    return reason


def run_of(alert: AlertRow, transition: TransitionRow | None) -> int | None:
    """Run of the facts: that of the transition, or else the last one the rule evaluated."""
    if transition is not None:
        return transition.run_id
    window = alert.evidence.get("window")
    return int(window[-1]["run_id"]) if window else None


def run_ids_of(alert: AlertRow, transition: TransitionRow | None) -> set[int]:
    """Return the runs whose rows the facts need."""
    return {number for number in (run_of(alert, transition), alert.first_run) if number is not None}


def _ended_at(run: RunRow | None) -> datetime | None:
    return None if run is None or run.finished_at is None else from_us(run.finished_at)
