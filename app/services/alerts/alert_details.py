"""One alert with all that is known about it: why, what is next, what else is open, where to look. It only reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.domain.alerts.advice import alert_advice
from app.domain.alerts.alert_state import AlertState, TransitionType
from app.domain.alerts.incidents import TRIGGERS
from app.domain.alerts.lost_chunks import all_lost_text
from app.domain.alerts.summary import NOT_ABOUT_CANARIES, alert_summary
from app.domain.model import RuleKind, Verdict
from app.services.alerts import alert_views, rule_explanations
from app.services.alerts.alert_evidence import explain
from app.services.alerts.alert_lines import standing_facts
from app.services.alerts.alert_links import Links, filled_links
from app.services.alerts.changed_canaries import list_changed
from app.store.alerts import alerts
from app.store.alerts.alerts import AlertRow
from app.store.catalog import definitions
from app.store.engine import Connection, Store
from app.store.runs import results

_MOST_DEGRADED: Final = 10
_TURNS: Final = frozenset({TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.RESOLVED})
"""Changes that a run brings about by what the rule sees in it."""
_LOOK_BACK: Final = 50
"""How many runs before the first bad one are looked at for one that was well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """The canaries of one run that degraded since before an alert began, the worst first."""

    run_id: str | None = None
    now: bool = False
    """Whether that is the newest run that can tell; else it is the one that was told of last."""
    silent_run: str | None = None
    """The newest run of the check, where it cannot tell: its verdict is unknown."""
    changed: int | None = None
    """How many changed since before the alert began; None = not known, as of alerts told by a release before."""
    failing_before: int | None = None
    """How many others are degraded as well, and were before."""
    canaries: Sequence[Mapping[str, Any]] = ()
    """`key, query, reasons, rank_before, rank_now, lost, lost_total, cause, cause_reason, persistent` each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertDetails:
    """An alert with what surrounds it."""

    alert: Mapping[str, Any]
    suite: str
    retriever: str
    rule: Mapping[str, Any] | None
    """What its rule says now; None of one that is over."""
    fleet: Mapping[str, Any] | None
    """What the canaries that fell have in common, where the alert is about canaries and not over."""
    summary: str
    """What happened, without a full stop."""
    advice: str
    """What to do next; empty of one that is over."""
    lost: str
    """The expected chunks that its canaries lost, the first of them by name; empty of one that is over."""
    seen: Mapping[str, Any]
    """What the rule looked at last; of one that ended without a run, what it looked at before."""
    opening: Mapping[str, Any]
    """What it looked at when the alert opened; empty where it has not, or looked at no runs."""
    looked_at: Sequence[Mapping[str, Any]]
    """The runs it looked at when it opened, got worse, was resolved, and last, oldest first: as it saw them then, and
    `did`, the transitions each brought about, and `after_others`, whether runs before it are left out."""
    versions: Mapping[str, str | None]
    """The index version of each run it looked at, by the run's id."""
    degraded: Degraded
    last_good_run: str | None
    """The newest healthy run before the first bad one."""
    newest_bad_run: str | None
    related: Sequence[Mapping[str, Any]]
    """Other alerts of the check that are not over: `id, rule, kind, severity, state, reason` each."""
    incident: Sequence[Mapping[str, Any]]
    """The other alerts that are or were part of its incident, in the same form."""
    dashboard: str | None
    runbook: str | None


def details(store: Store, alert_id: int, *, links: Links, now: datetime) -> AlertDetails:
    """Read an alert and what surrounds it. Raises NotFoundError."""
    alert = alert_views.alert(store, alert_id)
    over = alert["state"] == AlertState.RESOLVED
    rules = [] if over else rule_explanations.explain(store, alert["check"], now=now)["rules"]
    with store.read() as connection:
        row = alerts.find_alert(connection, alert_id)
        assert row is not None  # noqa: S101 - alerts that were told stay for a year
        check = definitions.definition_by_id(connection, row.check_id)
        about_canaries = row.kind not in NOT_ABOUT_CANARIES
        degraded = _degraded(connection, row, alert, over=over) if about_canaries else Degraded()
        seen = _seen(alert)
        looked_at = _looked_at(connection, row.check_id, alert)
        told = filled_links(links, row, None)
        facts = standing_facts(connection, [(row, alerts.list_transitions(connection, [row.id])[row.id])])[row.id]
        return AlertDetails(
            alert=alert,
            suite=check.body["suite"],
            retriever=check.body["retriever"],
            rule=next((one for one in rules if one["alert_id"] == alert["id"]), None),
            fleet=_fleet(alert) if about_canaries and not over else None,
            summary=alert_summary(facts),
            advice="" if over else alert_advice(facts),
            lost="" if over else all_lost_text(degraded.canaries, degraded.changed),
            seen=seen,
            opening=_opening(alert),
            looked_at=looked_at,
            versions=_versions(connection, [one["run_id"] for one in looked_at]),
            degraded=degraded,
            last_good_run=_last_good(connection, row),
            newest_bad_run=_newest_bad(alert, looked_at),
            related=[
                _related(one)
                for one in alerts.open_alerts(connection, row.check_id, hold=False)
                if one.id != row.id and (one.incident_id is None or one.incident_id != row.incident_id)
            ],
            incident=[] if row.incident_id is None else _others(connection, row.incident_id, row.id),
            dashboard=told["dashboard"],
            runbook=told["runbook"],
        )


def _fleet(alert: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give what the canaries have in common as it was told last."""
    told = [change["fleet"] for change in alert["transitions"] if change["fleet"] is not None]
    return told[-1] if told else None


def _seen(alert: Mapping[str, Any]) -> Mapping[str, Any]:
    if "cause" not in alert["evidence"]:
        return dict(alert["evidence"])
    earlier = [change["evidence"] for change in alert["transitions"] if "window" in change["evidence"]]
    return earlier[-1] if earlier else {}


def _opening(alert: Mapping[str, Any]) -> Mapping[str, Any]:
    opened = [change["evidence"] for change in alert["transitions"] if change["type"] == TransitionType.OPENED]
    return opened[0] if opened and "window" in opened[0] else {}


def _looked_at(connection: Connection, check_id: int, alert: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Put together what transitions and the newest look have of runs; each as the first of them saw it."""
    turns = [change for change in alert["transitions"] if change["type"] in _TURNS]
    windows = [found.get("window", []) for found in (*(one["evidence"] for one in turns), alert["evidence"])]
    runs: dict[int, dict[str, Any]] = {}
    for window in windows:
        ids = [int(one["run_id"]) for one in window]
        left_out = (
            bool(runs and ids) and ids[0] > max(runs) and _is_run_between(connection, check_id, max(runs), ids[0])
        )
        for number, one in zip(ids, window, strict=True):
            told = {**one, "did": _did(turns, one["run_id"]), "after_others": left_out and number == ids[0]}
            runs.setdefault(number, told)
    return [runs[number] for number in sorted(runs)]


def _did(turns: Sequence[Mapping[str, Any]], run_id: str) -> list[str]:
    return [str(one["type"]) for one in turns if one["run_id"] == run_id]


def _is_run_between(connection: Connection, check_id: int, earlier: int, later: int) -> bool:
    before = results.ended_runs(connection, check_id, before=later, limit=1)
    return bool(before) and before[0].id > earlier


def _versions(connection: Connection, run_ids: Sequence[str]) -> dict[str, str | None]:
    return {str(run.id): run.index_version for run in results.find_runs(connection, map(int, run_ids)).values()}


def _degraded(connection: Connection, row: AlertRow, alert: Mapping[str, Any], *, over: bool) -> Degraded:
    """Give the degraded canaries as they are now; of what is over, as they were when it was told last."""
    newest = results.newest_ended(connection, row.check_id)
    if over or newest is None:
        told = [change for change in alert["transitions"] if change["type"] in TRIGGERS]
        found = told[-1]["evidence"] if told else {}
        return Degraded(
            run_id=told[-1]["run_id"] if told else None,
            changed=found.get("changed"),
            failing_before=found.get("failing_before"),
            canaries=found.get("canaries", ()),
        )
    run = results.newest_known(connection, row.check_id) or newest  # rules hear nothing of a run that is unknown
    silent = str(newest.id) if run.id != newest.id else None
    why = explain(connection, run.id, first_run=row.first_run)
    canary = row.scope if row.kind == RuleKind.CANARY else None
    category = row.evidence.get("category")
    listed = list_changed(connection, run.id, row.first_run, category=category, canary=canary, limit=_MOST_DEGRADED)
    return Degraded(
        run_id=str(run.id),
        now=True,
        silent_run=silent,
        changed=listed.changed,
        failing_before=listed.failing_before,
        canaries=[one if why is None else {**one, **why.of(one["key"])} for one in listed.canaries],
    )


def _last_good(connection: Connection, row: AlertRow) -> str | None:
    if row.first_run is None:
        return None
    before = results.ended_runs(connection, row.check_id, before=row.first_run, limit=_LOOK_BACK)
    return next((str(run.id) for run in reversed(before) if run.verdict == Verdict.HEALTHY), None)


def _newest_bad(alert: Mapping[str, Any], looked_at: Sequence[Mapping[str, Any]]) -> str | None:
    bad = [one["run_id"] for one in looked_at if one["severity"] is not None]
    newest: str | None = bad[-1] if bad else alert["since_run"]
    return newest


def _others(connection: Connection, incident_id: int, alert_id: int) -> list[dict[str, Any]]:
    return [_related(one) for one in alerts.alerts_of_incident(connection, incident_id) if one.id != alert_id]


def _related(one: AlertRow) -> dict[str, Any]:
    return {
        "id": str(one.id),
        "rule": one.rule_key,
        "kind": one.kind,
        "severity": one.severity,
        "state": one.state,
        "reason": one.reason,
    }
