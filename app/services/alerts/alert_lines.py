"""Alerts as a list shows them: each with its summary and who was told in a line, by incident. Nothing here writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.alerts.alert_state import AlertState
from app.domain.alerts.incidents import NON_REPEATING, TRIGGERS
from app.domain.alerts.summary import NOT_ABOUT_CANARIES, AlertFacts, alert_summary
from app.services.alerts import alert_views
from app.services.alerts.alert_evidence import Explanation, explain_all, since_all
from app.services.alerts.alert_facts import facts_of, run_ids_of, run_of
from app.services.alerts.alert_views import AlertQuestion
from app.store.alerts import incidents
from app.store.alerts.alerts import AlertRow, TransitionRow
from app.store.alerts.incidents import IncidentRow
from app.store.delivery import hook_stats
from app.store.engine import Connection, Store
from app.store.runs import results


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLine:
    """An alert at a glance."""

    alert: Mapping[str, Any]
    summary: str
    """What happened, as it was last announced or, before that, as its rule sees it; without a full stop."""
    reason: str
    """What its rule saw last or, of one that is over, while it was open: why it ended says nothing of the fault."""
    told: Mapping[str, int]
    """How many deliveries tell of its incident, by their state."""
    suppressed: Mapping[str, Any] | None
    """Its newest transition that was to be told, where that was not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentLines:
    """The alerts of a list that are of one incident; those that entered none stand alone."""

    incident: IncidentRow | None
    lines: Sequence[AlertLine]


def by_incident(store: Store, found: Sequence[AlertLine]) -> list[IncidentLines]:
    """Group the alerts of a list by their incidents, each where its newest alert stands."""
    groups: dict[str, list[AlertLine]] = {}
    for line in found:
        groups.setdefault(line.alert["incident_id"] or f"alert {line.alert['id']}", []).append(line)
    with store.read() as connection:
        rows = incidents.find_incidents(connection, [int(number) for number in groups if number.isdigit()])
    return [
        IncidentLines(incident=rows.get(int(number)) if number.isdigit() else None, lines=one)
        for number, one in groups.items()
    ]


def lines(store: Store, asked: AlertQuestion, *, before: int | None, limit: int) -> list[AlertLine]:
    """List the alerts asked for, newest first. Raises NotFoundError for a check that never was."""
    with store.read() as connection:
        rows = alert_views.find_rows(connection, asked, before=before, limit=limit)
        told = hook_stats.by_incident(connection, [row.incident_id for row, _ in rows if row.incident_id is not None])
        written = summaries(connection, rows)
    shaped = {row.id: alert_views.alert_shape(row, changes) for row, changes in rows}
    return [
        AlertLine(
            alert=alert,
            summary=written[number],
            reason=_reason(alert),
            told=told[int(alert["incident_id"])] if alert["incident_id"] else {},
            suppressed=_suppressed(alert),
        )
        for number, alert in shaped.items()
    ]


AlertRows = Sequence[tuple[AlertRow, Sequence[TransitionRow]]]
"""Alerts, each with its transitions, oldest first."""
Explained = Mapping[tuple[int, int | None], Explanation | None]
"""By run id and first bad run, as `explain_all` is asked."""


def explained_runs(rows: AlertRows) -> list[tuple[int, int | None]]:
    """Name the runs whose explanations the summaries of these alerts take, each with the first bad one."""
    return list(dict.fromkeys(_explained_run(row, changes) for row, changes in rows if _is_explained(row, changes)))


def summaries(connection: Connection, rows: AlertRows, explained: Explained | None = None) -> dict[int, str]:
    """Write the summary of each alert, by its id; `explained` as `standing_facts` wants it."""
    return {number: alert_summary(facts) for number, facts in standing_facts(connection, rows, explained).items()}


def standing_facts(
    connection: Connection, rows: AlertRows, explained: Explained | None = None
) -> dict[int, AlertFacts]:
    """Gather the facts of each alert, by its id, as of the newest transition that people are told of.

    Of one that was not announced it is of what its rule saw last. `explained` holds what `explained_runs` names; None =
    it is read.
    """
    if explained is None:
        wanted = explained_runs(rows)
        explained = dict(zip(wanted, explain_all(connection, wanted), strict=True))
    newest = {row.id: _newest_trigger(changes) for row, changes in rows}
    began = since_all(connection, {row.first_run for row, _ in rows if row.first_run is not None})
    runs = results.find_runs(connection, {number for row, _ in rows for number in run_ids_of(row, newest[row.id])})
    return {
        row.id: facts_of(
            row,
            runs,
            explained[_explained_run(row, changes)] if _is_explained(row, changes) else None,
            began.get(row.first_run or 0),
            newest[row.id],
            news=False,
        )
        for row, changes in rows
    }


def _is_explained(row: AlertRow, changes: Sequence[TransitionRow]) -> bool:
    return row.kind not in NOT_ABOUT_CANARIES and run_of(row, _newest_trigger(changes)) is not None


def _explained_run(row: AlertRow, changes: Sequence[TransitionRow]) -> tuple[int, int | None]:
    return run_of(row, _newest_trigger(changes)) or 0, row.first_run


def _newest_trigger(changes: Sequence[TransitionRow]) -> TransitionRow | None:
    return next((change for change in reversed(changes) if change.type in TRIGGERS), None)


def _reason(alert: Mapping[str, Any]) -> str:
    news = [str(change["reason"]) for change in alert["transitions"] if change["type"] in NON_REPEATING]
    return news[-1] if news and alert["state"] == AlertState.RESOLVED else str(alert["reason"])


def _suppressed(alert: Mapping[str, Any]) -> Mapping[str, Any] | None:
    told = [change for change in alert["transitions"] if change["type"] in TRIGGERS]
    return told[-1] if told and told[-1]["suppressed"] is not None and alert["state"] != AlertState.RESOLVED else None
