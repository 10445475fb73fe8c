"""Lists of alerts and of deliveries as views, one alert with its explained changes, one delivery; and counts.

It only reads. The summaries in a list, and what they are made of, are in `notice_data`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, cast

from app.alerts import store as alerts
from app.alerts.domain.state import NON_REPEATING, OPEN, TRIGGERS
from app.alerts.domain.views import (
    AlertFields,
    AlertState,
    AlertView,
    ExplainedTransition,
    RuleEvidence,
    SinceView,
    StoredEvidence,
    TransitionView,
)
from app.alerts.service.evidence import Explanation, explain_all, since
from app.alerts.service.notice_data import summaries
from app.alerts.store import AlertFilter, AlertRow, IncidentRow, TransitionRow
from app.base.db.engine import Connection, Store
from app.base.errors import NotFoundError
from app.base.values import DeliveryState, Outcome, Percentile, Reason, Severity, Step
from app.base.views import id_text, time_text, view_of
from app.catalog import store as catalog
from app.hooks import store as outbox
from app.hooks.domain import AttemptView, DeliveryView
from app.hooks.store import AttemptRow, DeliveryRow

_RUNS = {"run_id", "first_bad_run"}
_TIMES = {"at", "since", "deadline"}
_ENUMERATIONS: Mapping[str, type[StrEnum]] = {
    "outcome": Outcome,
    "percentile": Percentile,
    "reasons": Reason,
    "severity": Severity,
    "step": Step,
}
_EXPLAINED = 10
"""Number of the newest transitions of an alert that are explained, besides its first."""


def list_alerts(
    store: Store,
    *,
    check: str | None,
    state: str | None,
    before: int | None,
    limit: int,
    incident_id: int | None = None,
) -> list[AlertView]:
    """List alerts, newest first. Raises NotFoundError for an unknown check."""
    alert_filter = AlertFilter(states=(state,) if state else (), incident_id=incident_id)
    with store.read() as connection:
        rows = find_rows(connection, alert_filter, check=check, before=before, limit=limit)
    return [alert_shape(row, changes) for row, changes in rows]


def find_rows(
    connection: Connection, alert_filter: AlertFilter, *, check: str | None, before: int | None, limit: int
) -> list[tuple[AlertRow, Sequence[TransitionRow]]]:
    """Rows of alerts, newest first, each with its transitions, oldest first. Raises NotFoundError for no such check."""
    conditions = replace(alert_filter, check_id=_definition_id(connection, "check", check))
    rows = alerts.list_alerts(connection, conditions, before=before, limit=limit)
    changes = alerts.list_transitions(connection, [row.id for row in rows])
    return [(row, changes[row.id]) for row in rows]


def count_unresolved(store: Store, *, check: str | None = None) -> dict[str, int]:
    """Return the counts of unresolved alerts by state, and of open ones nobody acknowledged as `unacknowledged`.

    Raises NotFoundError for an unknown check.
    """
    with store.read() as connection:
        found = alerts.count_unresolved(connection, check_id=_definition_id(connection, "check", check))
    counts = Counter[str]()
    for state, acknowledged, count in found:
        counts[state] += count
        counts["unacknowledged"] += count if state in OPEN and not acknowledged else 0
    return counts


class AlertDetail(AlertFields):
    """An alert with its transitions explained, and the deliveries of its incident."""

    transitions: list[ExplainedTransition]
    since: SinceView | None
    deliveries: list[DeliveryView]


def alert(store: Store, alert_id: int) -> AlertDetail:
    """Read an alert with its transitions, and the deliveries of its incident."""
    with store.read() as connection:
        row = alerts.find_alert(connection, alert_id)
        if row is None:
            raise NotFoundError(f"there is no alert '{alert_id}'")
        changes = alerts.list_transitions(connection, [alert_id])[alert_id]
        deliveries = outbox.deliveries_of_incident(connection, row.incident_id) if row.incident_id is not None else []
        delivery_views = _delivery_views(connection, deliveries)
        fault_start = since(connection, row.first_run)
        # Of many reminders the newest are explained: each explanation reads all canaries of its run.
        bad = [one.run_id for one in changes if one.type in TRIGGERS and one.run_id is not None]
        run_ids = list(dict.fromkeys([*bad[:1], *bad[-_EXPLAINED:]]))
        explained = explain_all(connection, [(run_id, row.first_run) for run_id in run_ids])
    explanations: dict[int | None, Explanation | None] = dict(zip(run_ids, explained, strict=True))
    return {
        **_fields(row),
        "transitions": [
            _explained(one, explanations.get(one.run_id) if one.type in TRIGGERS else None) for one in changes
        ],
        "since": fault_start,
        "deliveries": delivery_views,
    }


def _explained(row: TransitionRow, why: Explanation | None) -> ExplainedTransition:
    """Return a transition with what its canaries have in common, and the cause of each."""
    change: ExplainedTransition = {**_transition(row), "fleet": None if why is None else why.fleet_view}
    if why is not None and "canaries" in change["evidence"]:
        change["evidence"]["canaries"] = [{**one, **why.of(one["key"])} for one in change["evidence"]["canaries"]]
    return change


def list_deliveries(
    store: Store, *, hook: str | None, state: str | None, before: int | None, limit: int, alert_id: int | None = None
) -> list[DeliveryView]:
    """List deliveries, newest first. Raises NotFoundError for an unknown hook."""
    with store.read() as connection:
        hook_id = _definition_id(connection, "hook", hook)
        rows = outbox.list_deliveries(
            connection, hook_id=hook_id, state=state, alert_id=alert_id, before=before, limit=limit
        )
        return _delivery_views(connection, rows)


def delivery(store: Store, delivery_id: int) -> DeliveryView:
    """Read a delivery with its attempts."""
    with store.read() as connection:
        view = deliveries_by_id(connection, [delivery_id]).get(delivery_id)
    if view is None:
        raise NotFoundError(f"there is no delivery '{delivery_id}'")
    return view


def deliveries_by_id(connection: Connection, delivery_ids: Sequence[int]) -> dict[int | None, DeliveryView]:
    """Read deliveries with their attempts, by id."""
    rows = [row for one in delivery_ids if (row := outbox.find_delivery(connection, one)) is not None]
    return {int(view["id"]): view for view in _delivery_views(connection, rows)}


def _delivery_views(connection: Connection, rows: Sequence[DeliveryRow]) -> list[DeliveryView]:
    ids = [row.id for row in rows]
    attempts, behind = outbox.list_attempts(connection, ids), outbox.waiting_behind(connection, ids)
    return [_delivery(row, attempts[row.id], behind.get(row.id)) for row in rows]


def alert_shape(row: AlertRow, changes: Sequence[TransitionRow]) -> AlertView:
    """Shape an alert with its transitions."""
    return {**_fields(row), "transitions": [_transition(change) for change in changes]}


def _fields(row: AlertRow) -> AlertFields:
    return view_of(
        AlertFields,
        row,
        id=str(row.id),
        rule=row.rule_key,
        evidence=evidence(row.evidence),
        since_run=id_text(row.first_run),
        incident_id=id_text(row.incident_id),
    )


def _transition(change: TransitionRow) -> TransitionView:
    run_id = id_text(change.run_id)
    return view_of(TransitionView, change, run_id=run_id, evidence=evidence(change.evidence))


_RUN_OF_A_WINDOW: Final[Mapping[str, None]] = {"baseline": None}
"""Defaults for runs of a window stored by an earlier release."""


def evidence(found: StoredEvidence) -> RuleEvidence:
    """Evidence with ids and times as on the wire; stored evidence has numbers, and times that end in +00:00."""
    return cast("RuleEvidence", _on_the_wire("", found))


def _on_the_wire(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {inner: _on_the_wire(inner, one) for inner, one in value.items()}
    if isinstance(value, list):
        default = _RUN_OF_A_WINDOW if name == "window" else {}
        return [_on_the_wire(name, {**default, **one} if isinstance(one, Mapping) else one) for one in value]
    if name in _ENUMERATIONS and value is not None:
        return _ENUMERATIONS[name](value)
    if name in _RUNS and value is not None:
        return str(value)
    return time_text(datetime.fromisoformat(value)) if name in _TIMES and value is not None else value


def _delivery(row: DeliveryRow, attempts: Sequence[AttemptRow], behind: int | None) -> DeliveryView:
    return view_of(
        DeliveryView,
        row,
        id=str(row.id),
        alert_id=id_text(row.alert_id),
        incident_id=id_text(row.incident_id),
        next_attempt_at=time_text(row.next_attempt_at) if row.state == DeliveryState.PENDING else None,
        waits_for=id_text(behind),
        attempts=[view_of(AttemptView, attempt, rounding=True) for attempt in attempts],
    )


def _definition_id(connection: Connection, kind: str, slug: str | None) -> int | None:
    if slug is None:
        return None
    definition = catalog.find_definition(connection, kind, slug)
    if definition is None:
        raise NotFoundError(f"there is no {kind} '{slug}'")
    return definition.id


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLine:
    """One alert of a list."""

    alert: AlertView
    summary: str
    """What happened, as it was last announced or, before that, as its rule sees it; without a full stop."""
    deliveries: Mapping[str, int] = field(default_factory=dict)
    """Number of deliveries of its incident, by state; empty too where they are not shown."""

    @property
    def reason(self) -> str:
        """Reason of the last evaluation or, for a resolved alert, of its last opening or update."""
        news = [change["reason"] for change in self.alert["transitions"] if change["type"] in NON_REPEATING]
        return news[-1] if news and self.alert["state"] == AlertState.RESOLVED else self.alert["reason"]

    @property
    def suppressed(self) -> TransitionView | None:
        """Its newest trigger transition, where that was not sent."""
        newest = next((one for one in reversed(self.alert["transitions"]) if one["type"] in TRIGGERS), None)
        is_suppressed = newest is not None and newest["suppressed"] is not None
        return newest if is_suppressed and self.alert["state"] != AlertState.RESOLVED else None


def by_incident(store: Store, alert_lines: Sequence[AlertLine]) -> list[tuple[IncidentRow | None, list[AlertLine]]]:
    """Group the alerts of a list by their incidents, each at the place of its newest alert; others stand alone."""
    groups: dict[str, list[AlertLine]] = {}
    for line in alert_lines:
        groups.setdefault(line.alert["incident_id"] or f"alert {line.alert['id']}", []).append(line)
    with store.read() as connection:
        rows = alerts.find_incidents(connection, [int(number) for number in groups if number.isdigit()])
    return [(rows.get(int(number)) if number.isdigit() else None, one) for number, one in groups.items()]


def lines(
    store: Store, alert_filter: AlertFilter, *, check: str | None, before: int | None, limit: int
) -> list[AlertLine]:
    """List alerts with summaries, newest first. Raises NotFoundError for an unknown check."""
    with store.read() as connection:
        rows = find_rows(connection, alert_filter, check=check, before=before, limit=limit)
        deliveries = outbox.count_by_incident(
            connection, [row.incident_id for row, _ in rows if row.incident_id is not None]
        )
        texts = summaries(connection, rows)
    return [
        AlertLine(
            alert=alert_shape(row, changes),
            summary=texts[row.id],
            deliveries=deliveries[row.incident_id] if row.incident_id is not None else {},
        )
        for row, changes in rows
    ]
