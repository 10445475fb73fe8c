"""The facts of an alert, read from rows: what its summary is made of, at a transition or as it stands."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from app.domain.alerts.alert_state import RETIRED, Retirement, TransitionType
from app.domain.alerts.canary_changes import ChangedCanaries
from app.domain.alerts.summary import AlertFacts
from app.domain.model import Cause, Percentile, Reason, RuleKind, Verdict
from app.domain.probing.probe_failures import FailureSummary
from app.services.alerts.alert_evidence import Explanation, Since
from app.store.alerts.alerts import AlertRow, TransitionRow
from app.store.engine import from_us
from app.store.runs.results import RunRow


def facts_of(
    alert: AlertRow,
    runs: Mapping[int, RunRow],
    found: Explanation | None,
    began: Since | None,
    transition: TransitionRow | None,
    *,
    news: bool = True,
) -> AlertFacts:
    """Gather the facts at a transition, or of an alert without one; `found` explains its canaries, `began` since when.

    `runs` holds the rows of `run_ids_of`. Without `news` they say how the alert stood then, not what happened to it.
    """
    kind = RuleKind(alert.kind)
    number = run_of(alert, transition)
    run = None if number is None else runs.get(number)
    first = None if alert.first_run is None else runs.get(alert.first_run)
    evidence = alert.evidence if transition is None else transition.evidence
    seen: Mapping[str, Any] = (evidence.get("window") or [{}])[-1]
    failure = evidence.get("failure")
    since = evidence.get("since")
    version, after = (None, 0) if began is None else (began.index_version, began.runs_after)
    return AlertFacts(
        check=alert.check,
        kind=kind,
        change=TransitionType(transition.type) if transition is not None and news else None,
        reason=_reason(alert.reason if transition is None else transition.reason, run, kind),
        measure=evidence.get("measure"),
        category=evidence.get("category"),
        canary=alert.scope if kind is RuleKind.CANARY else None,
        percentile=Percentile(evidence.get("percentile") or Percentile.P95),
        value=seen.get("value"),
        threshold=seen.get("threshold"),
        baseline=evidence.get("usual") if kind is RuleKind.LATENCY else seen.get("baseline"),
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
        changed=_changed(found, evidence, kind),
        retired=RETIRED[Retirement(evidence["cause"])] if "cause" in evidence else "",
    )


def _changed(found: Explanation | None, evidence: Mapping[str, Any], kind: RuleKind) -> ChangedCanaries | None:
    """Say which canaries changed; of a rule about a part of the check only those of that part."""
    if found is None:
        return None
    if kind is not RuleKind.CANARY and evidence.get("category") is None:
        return found.changed
    listed = evidence.get("canaries", ())
    known = Counter(Cause(row.cause) for one in listed if (row := found.known.get(one["key"])) is not None)
    return replace(
        found.changed,
        count=evidence.get("changed") or 0,
        reasons=[[Reason(reason) for reason in one["reasons"]] for one in listed],
        name=listed[0]["key"] if len(listed) == 1 else "",
        causes=known,
    )


def _reason(reason: str, run: RunRow | None, kind: RuleKind) -> str:
    """Say what the rule found; of a run that could not be carried out why, which the rule does not know."""
    if kind is RuleKind.PROBE_ERRORS and run is not None and run.reasons:
        return run.reasons[0]
    return reason


def run_of(alert: AlertRow, transition: TransitionRow | None) -> int | None:
    """Give the run that facts are of: that of the transition, or else the last one the rule looked at."""
    if transition is not None:
        return transition.run_id
    window = alert.evidence.get("window")
    return int(window[-1]["run_id"]) if window else None


def run_ids_of(alert: AlertRow, transition: TransitionRow | None) -> set[int]:
    """Name the runs whose rows the facts are gathered from."""
    return {number for number in (run_of(alert, transition), alert.first_run) if number is not None}


def _ended_at(run: RunRow | None) -> datetime | None:
    return None if run is None or run.finished_at is None else from_us(run.finished_at)
