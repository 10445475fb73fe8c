"""Details of one alert: evaluated runs, next steps, changed canaries, related alerts and links. It only reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.alerts import store as alerts
from app.alerts.domain.evidence import ChangedCanary, all_lost_text
from app.alerts.domain.state import TRIGGERS, AlertState, TransitionType
from app.alerts.domain.telling import NOT_ABOUT_CANARIES, alert_advice, alert_summary
from app.alerts.domain.views import EvaluatedRun, FleetView, RuleEvidence, RuleExplanation
from app.alerts.service import explanations
from app.alerts.service import views as alert_views
from app.alerts.service.changes import list_changed
from app.alerts.service.evidence import explain
from app.alerts.service.views import Links, explained_by_alert, filled_links, recovery_summary, standing_facts
from app.alerts.store import AlertRow, TransitionRow
from app.base.db.engine import Connection, Store
from app.base.values import Percentile, RuleKind, Severity, TimeText, Verdict
from app.catalog.store import definitions
from app.detection.service.detectors import run_latencies
from app.hooks.domain import AlertDetail
from app.records import documents as shapes
from app.records.store import results
from app.records.store.results import RunRow

_BEFORE: Final = 40
"""Runs before the first bad one."""
_MOST: Final = 200
"""Runs of a curve; of a longer alert those around its beginning and the newest are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLatency:
    """Latency of one run."""

    run_id: str
    at: TimeText
    seconds: float | None
    """None = it was not measured, or the verdict of the run is unknown."""
    after_others: bool = False
    """Whether runs before it are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCurve:
    """Latency of the runs from before an alert to its end, oldest first."""

    percentile: Percentile
    runs: Sequence[RunLatency]
    bounds: Sequence[tuple[Severity, float]]
    """Seconds above which a run is bad, by severity, as evaluated last."""
    baseline: float | None
    """Seconds; None = the rule compares with none."""
    first_run: str | None
    """The first bad run."""


def latency_curve(
    connection: Connection, row: AlertRow, transitions: Sequence[TransitionRow], evaluated: RuleEvidence
) -> LatencyCurve | None:
    """Read the curve of an alert; None where its rule is not about latency. `evaluated`: its last evidence."""
    if row.kind not in {RuleKind.LATENCY, RuleKind.SLOWER}:
        return None
    percentile = Percentile(evaluated.get("percentile") or Percentile.P95)
    window = evaluated.get("window", [])
    judged = [one for one in window if one["threshold"] is not None]
    bounds = [
        (severity, side["above"])
        for severity, side in (
            (Severity.WARNING, evaluated.get("warning")),
            (Severity.CRITICAL, evaluated.get("critical")),
        )
        if side is not None
    ]
    baseline = None
    if row.kind == RuleKind.SLOWER and judged:
        bounds, baseline = [(Severity.WARNING, judged[-1]["threshold"] or 0.0)], judged[-1]["baseline"]
    rows, gap = _runs(connection, row, transitions)
    latencies = run_latencies(connection, [run for run in rows if run.verdict != Verdict.UNKNOWN])
    return LatencyCurve(
        percentile=percentile,
        runs=[
            RunLatency(
                run_id=str(run.id),
                at=shapes.time_text(run.finished_at or run.created_at),
                seconds=latencies[run.id][percentile] if run.id in latencies else None,
                after_others=run.id == gap,
            )
            for run in rows
        ],
        bounds=bounds,
        baseline=baseline,
        first_run=None if row.first_run is None else str(row.first_run),
    )


def _runs(
    connection: Connection, row: AlertRow, transitions: Sequence[TransitionRow]
) -> tuple[list[RunRow], int | None]:
    """Return the runs of the curve, and the one before which others are left out."""
    ends = [one.run_id for one in transitions if one.type == TransitionType.RESOLVED and one.run_id is not None]
    newest = results.ended_runs(connection, row.check_id, before=ends[-1] + 1 if ends else None, limit=_MOST)
    if row.first_run is None or not newest:
        return newest[-_BEFORE:], None
    if newest[0].id <= row.first_run:
        place = next(place for place, run in enumerate(newest) if run.id >= row.first_run)
        return newest[max(place - _BEFORE, 0) :], None
    beginning = results.ended_runs(connection, row.check_id, before=row.first_run + 1, limit=_BEFORE + 1)
    rest = newest[len(beginning) :]
    return [*beginning, *rest], rest[0].id


_MOST_DEGRADED: Final = 10
_TURNS: Final = frozenset({TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.RESOLVED})
"""Changes that follow from the evaluation of a run."""
_MAX_RUNS_BACK: Final = 50
"""Number of runs before the first bad one that are searched for a healthy one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """The canaries of one run that degraded since before an alert began, the worst first."""

    run_id: str | None = None
    now: bool = False
    """Whether that is the newest run with a verdict; else it is the run of the last notification."""
    silent_run: str | None = None
    """The newest run of the check, where its verdict is unknown."""
    changed: int | None = None
    """Number of canaries that changed since before the alert began; None = unknown, for alerts of an older release."""
    failing_before: int | None = None
    """Number of other degraded canaries, which were failing before."""
    canaries: Sequence[ChangedCanary] = ()


class DecisiveRun(EvaluatedRun):
    """A run as evaluated first; `did` has the transitions it caused."""

    did: list[TransitionType]
    after_others: bool
    """Whether runs before it are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertDetails:
    """An alert with its rule, runs, canaries, related alerts and links."""

    alert: AlertDetail
    suite: str
    retriever: str
    rule: RuleExplanation | None
    """Current evaluation of its rule; None for a resolved one."""
    fleet: FleetView | None
    """What the changed canaries have in common; None for a resolved alert, or one not about canaries."""
    summary: str
    """What happened, without a full stop."""
    recovery: str | None
    """How it ended, without a full stop; None where it is not resolved."""
    advice: str
    """What to do next; empty for a resolved one."""
    lost: str
    """The expected chunks that its canaries lost, the first of them by name; empty for a resolved one."""
    evaluated: RuleEvidence
    """Evidence of the last evaluation; where the alert was resolved without a run, of the one before."""
    opening: RuleEvidence
    """Evidence at the opening; empty where the alert has not opened, or no runs were evaluated."""
    evaluated_runs: Sequence[DecisiveRun]
    """The runs evaluated when it opened, escalated, was resolved, and last, oldest first."""
    versions: Mapping[str, str | None]
    """The index version of each evaluated run, by the run's id."""
    degraded: Degraded
    last_good_run: str | None
    """The newest healthy run before the first bad one."""
    newest_bad_run: str | None
    related: Sequence[AlertRow]
    """Other unresolved alerts of the check."""
    latency: LatencyCurve | None
    """Latency of the runs around it; None where its rule is not about latency."""
    incident: Sequence[AlertRow]
    """The other alerts that are or were part of its incident."""
    dashboard: str | None
    runbook: str | None


def details(store: Store, alert_id: int, *, links: Links, now: datetime) -> AlertDetails:
    """Read the details of an alert. Raises NotFoundError."""
    alert = alert_views.alert(store, alert_id)
    over = alert["state"] == AlertState.RESOLVED
    rules = [] if over else explanations.explain(store, alert["check"], now=now)["rules"]
    with store.read() as connection:
        row = alerts.find_alert(connection, alert_id)
        assert row is not None  # noqa: S101 - notified alerts stay for a year
        check = definitions.definition_by_id(connection, row.check_id)
        about_canaries = row.kind not in NOT_ABOUT_CANARIES
        opened = [one["evidence"] for one in alert["transitions"] if one["type"] == TransitionType.OPENED]
        evaluated = alert["evidence"]
        if "cause" in evaluated:  # resolved without a run
            earlier = [one["evidence"] for one in alert["transitions"] if "window" in one["evidence"]]
            evaluated = earlier[-1] if earlier else {}
        evaluated_runs = _evaluated_runs(connection, row.check_id, alert)
        bad_runs = [one["run_id"] for one in evaluated_runs if one["severity"] is not None]
        links_filled = filled_links(links, row, None)
        of_incident = [] if row.incident_id is None else alerts.alerts_of_incident(connection, row.incident_id)
        together = [row, *(one for one in of_incident if one.id != row.id)]
        transitions_by_alert = alerts.list_transitions(connection, [one.id for one in together])
        transitions = transitions_by_alert[row.id]
        rows = [(one, transitions_by_alert[one.id]) for one in together]
        facts = standing_facts(connection, rows)[row.id]
        run_id, first_run = explained_by_alert(rows).get(row.id, (None, row.first_run))
        explanation = explain(connection, run_id, first_run=first_run)
        fleets = [change["fleet"] for change in alert["transitions"] if change["fleet"] is not None]
        fleet = explanation.fleet_view if explanation is not None else fleets[-1] if fleets else None
        degraded = _degraded(connection, row, alert, first_run, over=over) if about_canaries else Degraded()
        run_rows = results.find_runs(connection, [int(one["run_id"]) for one in evaluated_runs])
        return AlertDetails(
            alert=alert,
            suite=check.body["suite"],
            retriever=check.body["retriever"],
            rule=next((one for one in rules if one["alert_id"] == alert["id"]), None),
            fleet=fleet if about_canaries and not over else None,
            summary=alert_summary(facts),
            recovery=recovery_summary(connection, row, transitions) if over else None,
            advice="" if over else alert_advice(facts),
            lost="" if over else all_lost_text(degraded.canaries, degraded.changed),
            evaluated=evaluated,
            opening=opened[0] if opened and "window" in opened[0] else {},
            evaluated_runs=evaluated_runs,
            versions={str(run.id): run.index_version for run in run_rows.values()},
            degraded=degraded,
            last_good_run=_last_good(connection, row),
            newest_bad_run=bad_runs[-1] if bad_runs else alert["since_run"],
            related=[
                one
                for one in alerts.open_alerts(connection, row.check_id, hold=False)
                if one.id != row.id and (one.incident_id is None or one.incident_id != row.incident_id)
            ],
            latency=latency_curve(connection, row, transitions, evaluated),
            incident=together[1:],
            dashboard=links_filled["dashboard"],
            runbook=links_filled["runbook"],
        )


def _evaluated_runs(connection: Connection, check_id: int, alert: AlertDetail) -> list[DecisiveRun]:
    """Return the runs of the transitions and of the newest evaluation; each with the values of its first evaluation."""
    turns = [change for change in alert["transitions"] if change["type"] in _TURNS]
    windows = [found.get("window", []) for found in (*(one["evidence"] for one in turns), alert["evidence"])]
    runs: dict[int, DecisiveRun] = {}
    for window in windows:
        ids = [int(one["run_id"]) for one in window]
        between = results.ended_runs(connection, check_id, before=ids[0], limit=1) if runs and ids else []
        left_out = bool(between) and between[0].id > max(runs)
        for number, one in zip(ids, window, strict=True):
            evaluated: DecisiveRun = {
                **one,
                "did": [turn["type"] for turn in turns if turn["run_id"] == one["run_id"]],
                "after_others": left_out and number == ids[0],
            }
            runs.setdefault(number, evaluated)
    return [runs[number] for number in sorted(runs)]


def _degraded(
    connection: Connection, row: AlertRow, alert: AlertDetail, first_run: int | None, *, over: bool
) -> Degraded:
    """Degraded canaries now; for a resolved alert, those of the last notification."""
    newest = results.newest_ended(connection, row.check_id)
    if over or newest is None:
        triggers = [change for change in alert["transitions"] if change["type"] in TRIGGERS]
        evidence: RuleEvidence = triggers[-1]["evidence"] if triggers else {}
        return Degraded(
            run_id=triggers[-1]["run_id"] if triggers else None,
            changed=evidence.get("changed"),
            failing_before=evidence.get("failing_before"),
            canaries=evidence.get("canaries", ()),
        )
    run = results.newest_known(connection, row.check_id) or newest  # rules do not evaluate an unknown run
    silent = str(newest.id) if run.id != newest.id else None
    explanation = explain(connection, run.id, first_run=first_run)
    canary = row.scope if row.kind == RuleKind.CANARY else None
    category = row.evidence.get("category")
    listed = list_changed(connection, run.id, first_run, category=category, canary=canary, limit=_MOST_DEGRADED)
    return Degraded(
        run_id=str(run.id),
        now=True,
        silent_run=silent,
        changed=listed["changed"],
        failing_before=listed["failing_before"],
        canaries=[one if explanation is None else {**one, **explanation.of(one["key"])} for one in listed["canaries"]],
    )


def _last_good(connection: Connection, row: AlertRow) -> str | None:
    if row.first_run is None:
        return None
    before = results.ended_runs(connection, row.check_id, before=row.first_run, limit=_MAX_RUNS_BACK)
    return next((str(run.id) for run in reversed(before) if run.verdict == Verdict.HEALTHY), None)
