"""Details of one alert: evaluated runs, next steps, changed canaries, related alerts and links. It only reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from app.alerts.domain.advice import alert_advice
from app.alerts.domain.alert_state import AlertState, TransitionType
from app.alerts.domain.evidence import ChangedCanary
from app.alerts.domain.incidents import TRIGGERS
from app.alerts.domain.lost_chunks import all_lost_text
from app.alerts.domain.summary import NOT_ABOUT_CANARIES, alert_summary
from app.alerts.domain.views import EvaluatedRun, FleetView, RuleEvidence, RuleExplanation
from app.alerts.service import alert_views, rule_explanations
from app.alerts.service.alert_evidence import explain
from app.alerts.service.alert_lines import explained_by_alert, recovery_summary, standing_facts
from app.alerts.service.alert_links import Links, filled_links
from app.alerts.service.changed_list import list_changed
from app.alerts.service.latency_curve import LatencyCurve, latency_curve
from app.alerts.store import alerts
from app.alerts.store.alerts import AlertRow
from app.base.db.engine import Connection, Store
from app.base.values import RuleKind, Verdict
from app.catalog.store import definitions
from app.hooks.domain.views import AlertDetail
from app.records.store import results

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
    rules = [] if over else rule_explanations.explain(store, alert["check"], now=now)["rules"]
    with store.read() as connection:
        row = alerts.find_alert(connection, alert_id)
        assert row is not None  # noqa: S101 - notified alerts stay for a year
        check = definitions.definition_by_id(connection, row.check_id)
        about_canaries = row.kind not in NOT_ABOUT_CANARIES
        evaluated = _newest_evidence(alert)
        evaluated_runs = _evaluated_runs(connection, row.check_id, alert)
        links_filled = filled_links(links, row, None)
        of_incident = [] if row.incident_id is None else alerts.alerts_of_incident(connection, row.incident_id)
        together = [row, *(one for one in of_incident if one.id != row.id)]
        transitions_by_alert = alerts.list_transitions(connection, [one.id for one in together])
        transitions = transitions_by_alert[row.id]
        rows = [(one, transitions_by_alert[one.id]) for one in together]
        facts = standing_facts(connection, rows)[row.id]
        run_id, first_run = explained_by_alert(rows).get(row.id, (None, row.first_run))
        explanation = explain(connection, run_id, first_run=first_run)
        fleet = _fleet(alert) if explanation is None else explanation.fleet_view
        degraded = _degraded(connection, row, alert, first_run, over=over) if about_canaries else Degraded()
        run_rows = results.find_runs(connection, [int(one["run_id"]) for one in evaluated_runs])
        return AlertDetails(
            alert=alert,
            suite=check.body["suite"],
            retriever=check.body["retriever"],
            rule=next((one for one in rules if one["alert_id"] == alert["id"]), None),
            fleet=fleet if about_canaries and not over else None,
            summary=alert_summary(replace(facts, dated=True)),
            recovery=recovery_summary(connection, row, transitions) if over else None,
            advice="" if over else alert_advice(facts),
            lost="" if over else all_lost_text(degraded.canaries, degraded.changed),
            evaluated=evaluated,
            opening=_opening(alert),
            evaluated_runs=evaluated_runs,
            versions={str(run.id): run.index_version for run in run_rows.values()},
            degraded=degraded,
            last_good_run=_last_good(connection, row),
            newest_bad_run=_newest_bad(alert, evaluated_runs),
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


def _fleet(alert: AlertDetail) -> FleetView | None:
    """Return what the canaries have in common, by the last transition that has it."""
    fleets = [change["fleet"] for change in alert["transitions"] if change["fleet"] is not None]
    return fleets[-1] if fleets else None


def _newest_evidence(alert: AlertDetail) -> RuleEvidence:
    if "cause" not in alert["evidence"]:
        return alert["evidence"]
    earlier = [change["evidence"] for change in alert["transitions"] if "window" in change["evidence"]]
    return earlier[-1] if earlier else {}


def _opening(alert: AlertDetail) -> RuleEvidence:
    opened = [change["evidence"] for change in alert["transitions"] if change["type"] == TransitionType.OPENED]
    return opened[0] if opened and "window" in opened[0] else {}


def _evaluated_runs(connection: Connection, check_id: int, alert: AlertDetail) -> list[DecisiveRun]:
    """Return the runs of the transitions and of the newest evaluation; each with the values of its first evaluation."""
    turns = [change for change in alert["transitions"] if change["type"] in _TURNS]
    windows = [found.get("window", []) for found in (*(one["evidence"] for one in turns), alert["evidence"])]
    runs: dict[int, DecisiveRun] = {}
    for window in windows:
        ids = [int(one["run_id"]) for one in window]
        left_out = (
            bool(runs and ids) and ids[0] > max(runs) and _is_run_between(connection, check_id, max(runs), ids[0])
        )
        for number, one in zip(ids, window, strict=True):
            evaluated: DecisiveRun = {
                **one,
                "did": [turn["type"] for turn in turns if turn["run_id"] == one["run_id"]],
                "after_others": left_out and number == ids[0],
            }
            runs.setdefault(number, evaluated)
    return [runs[number] for number in sorted(runs)]


def _is_run_between(connection: Connection, check_id: int, earlier: int, later: int) -> bool:
    before = results.ended_runs(connection, check_id, before=later, limit=1)
    return bool(before) and before[0].id > earlier


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


def _newest_bad(alert: AlertDetail, evaluated_runs: Sequence[DecisiveRun]) -> str | None:
    bad = [one["run_id"] for one in evaluated_runs if one["severity"] is not None]
    newest: str | None = bad[-1] if bad else alert["since_run"]
    return newest
