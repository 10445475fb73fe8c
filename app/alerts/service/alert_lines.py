"""Alerts as a list shows them: each with its summary and delivery counts, grouped by incident. It only reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.alerts.domain.alert_state import AlertState, TransitionType
from app.alerts.domain.incidents import NON_REPEATING, TRIGGERS
from app.alerts.domain.summary import NOT_ABOUT_CANARIES, AlertFacts, alert_summary
from app.alerts.domain.views import AlertView, TransitionView
from app.alerts.service import alert_views
from app.alerts.service.alert_evidence import Explanation, explain_all, since_all
from app.alerts.service.alert_facts import facts_of, run_ids_of, run_of
from app.alerts.store import incidents
from app.alerts.store.alerts import AlertFilter, AlertRow, TransitionRow
from app.alerts.store.incidents import IncidentRow
from app.base.db.engine import Connection, Store
from app.hooks.store import hook_stats
from app.records.store import results


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLine:
    """One alert of a list."""

    alert: AlertView
    summary: str
    """What happened, as it was last announced or, before that, as its rule sees it; without a full stop."""
    reason: str
    """Reason of the last evaluation or, for a resolved alert, of its last opening or update."""
    deliveries: Mapping[str, int]
    """Number of deliveries of its incident, by state."""
    suppressed: TransitionView | None
    """Its newest trigger transition, where that was not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentLines:
    """The alerts of a list that belong to one incident; those without one stand alone."""

    incident: IncidentRow | None
    lines: Sequence[AlertLine]


def by_incident(store: Store, alert_lines: Sequence[AlertLine]) -> list[IncidentLines]:
    """Group the alerts of a list by their incidents, each at the place of its newest alert."""
    groups: dict[str, list[AlertLine]] = {}
    for line in alert_lines:
        groups.setdefault(line.alert["incident_id"] or f"alert {line.alert['id']}", []).append(line)
    with store.read() as connection:
        rows = incidents.find_incidents(connection, [int(number) for number in groups if number.isdigit()])
    return [
        IncidentLines(incident=rows.get(int(number)) if number.isdigit() else None, lines=one)
        for number, one in groups.items()
    ]


def lines(
    store: Store, alert_filter: AlertFilter, *, check: str | None, before: int | None, limit: int
) -> list[AlertLine]:
    """List alerts with summaries, newest first. Raises NotFoundError for an unknown check."""
    with store.read() as connection:
        rows = alert_views.find_rows(connection, alert_filter, check=check, before=before, limit=limit)
        deliveries = hook_stats.count_by_incident(
            connection, [row.incident_id for row, _ in rows if row.incident_id is not None]
        )
        texts = summaries(connection, rows)
    shaped = {row.id: alert_views.alert_shape(row, changes) for row, changes in rows}
    return [
        AlertLine(
            alert=alert,
            summary=texts[number],
            reason=_reason(alert),
            deliveries=deliveries[int(alert["incident_id"])] if alert["incident_id"] else {},
            suppressed=_suppressed(alert),
        )
        for number, alert in shaped.items()
    ]


AlertRows = Sequence[tuple[AlertRow, Sequence[TransitionRow]]]
"""Alerts, each with its transitions, oldest first."""
Explained = Mapping[tuple[int, int | None], Explanation | None]
"""By run id and first bad run, as in `explain_all`."""


def explained_runs(rows: AlertRows) -> list[tuple[int, int | None]]:
    """Return the runs whose explanations the summaries of these alerts need, each with the first bad one."""
    return list(dict.fromkeys(explained_by_alert(rows).values()))


def summaries(connection: Connection, rows: AlertRows, explained: Explained | None = None) -> dict[int, str]:
    """Summary of each alert for pages, by its id; `explained` as in `standing_facts`."""
    return {
        number: alert_summary(replace(facts, dated=True))
        for number, facts in standing_facts(connection, rows, explained).items()
    }


def standing_facts(
    connection: Connection, rows: AlertRows, explained: Explained | None = None
) -> dict[int, AlertFacts]:
    """Facts of each alert, by its id, at its newest trigger or, without one, at the last evaluation.

    The unresolved alerts of an incident among them have one set of canaries: those of the newest run of them all, since
    before the first bad one.

    `explained` holds the explanations of `explained_runs`; None = they are read.
    """
    if explained is None:
        runs_explained = explained_runs(rows)
        explained = dict(zip(runs_explained, explain_all(connection, runs_explained), strict=True))
    runs_by_alert = explained_by_alert(rows)
    newest = {row.id: _newest_trigger(changes) for row, changes in rows}
    began = since_all(connection, {row.first_run for row, _ in rows if row.first_run is not None})
    runs = results.find_runs(connection, {number for row, _ in rows for number in run_ids_of(row, newest[row.id])})
    found = {}
    for row, _ in rows:
        run_id, first_run = runs_by_alert.get(row.id, (None, None))
        explanation = None if run_id is None else explained[run_id, first_run]
        facts = facts_of(row, runs, explanation, began.get(row.first_run or 0), newest[row.id], news=False)
        found[row.id] = facts if row.state == AlertState.RESOLVED else _with_value_at(facts, row, run_id)
    return found


def _with_value_at(facts: AlertFacts, row: AlertRow, run_id: int | None) -> AlertFacts:
    """Return facts with the value of the run whose canaries they count, as far as the last evaluation has it."""
    window = row.evidence.get("window") or ()
    one = next((one for one in window if run_id is not None and int(one["run_id"]) == run_id), None)
    if one is None or facts.run_id == run_id:
        return facts
    return replace(facts, value=one["value"], threshold=one["threshold"], baseline=one.get("baseline"))


def recovery_summary(connection: Connection, row: AlertRow, changes: Sequence[TransitionRow]) -> str | None:
    """Return how an alert ended, as its resolve says it; None = it is not resolved or never opened."""
    last = changes[-1] if changes else None
    if last is None or last.type != TransitionType.RESOLVED or row.opened_at is None:
        return None
    is_explained = row.kind not in NOT_ABOUT_CANARIES and last.run_id is not None
    facts = facts_of(
        row,
        results.find_runs(connection, run_ids_of(row, last)),
        explain_all(connection, [(last.run_id or 0, row.first_run)])[0] if is_explained else None,
        since_all(connection, {row.first_run} if row.first_run is not None else set()).get(row.first_run or 0),
        last,
    )
    return alert_summary(replace(facts, dated=True))


def _is_explained(row: AlertRow, changes: Sequence[TransitionRow]) -> bool:
    return row.kind not in NOT_ABOUT_CANARIES and run_of(row, _newest_trigger(changes)) is not None


def explained_by_alert(rows: AlertRows) -> dict[int, tuple[int, int | None]]:
    """Return by alert the run that explains it and the first bad one; one pair for what is open of an incident."""
    alone = {
        row.id: (run_of(row, _newest_trigger(changes)) or 0, row.first_run)
        for row, changes in rows
        if _is_explained(row, changes)
    }
    together: dict[int, list[tuple[int, int | None]]] = {}
    for row, _ in rows:
        if row.id in alone and row.incident_id is not None and row.state != AlertState.RESOLVED:
            together.setdefault(row.incident_id, []).append(alone[row.id])
    shared = {
        incident_id: (
            max(run for run, _ in pairs),
            min((first for _, first in pairs if first is not None), default=None),
        )
        for incident_id, pairs in together.items()
    }
    return {
        row.id: alone[row.id]
        if row.state == AlertState.RESOLVED or row.incident_id not in shared
        else shared[row.incident_id]
        for row, _ in rows
        if row.id in alone
    }


def _newest_trigger(changes: Sequence[TransitionRow]) -> TransitionRow | None:
    return next((change for change in reversed(changes) if change.type in TRIGGERS), None)


def _reason(alert: AlertView) -> str:
    news = [change["reason"] for change in alert["transitions"] if change["type"] in NON_REPEATING]
    return news[-1] if news and alert["state"] == AlertState.RESOLVED else alert["reason"]


def _suppressed(alert: AlertView) -> TransitionView | None:
    triggers = [change for change in alert["transitions"] if change["type"] in TRIGGERS]
    return (
        triggers[-1]
        if triggers and triggers[-1]["suppressed"] is not None and alert["state"] != AlertState.RESOLVED
        else None
    )
