"""Views of alerts and deliveries, with explanations of their transitions. It only reads."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, cast

from app.alerts.domain.alert_state import OPEN, AlertState, TransitionType
from app.alerts.domain.evidence import ChangedCanary, StoredEvidence
from app.alerts.domain.incidents import TRIGGERS
from app.alerts.domain.views import AlertFields, AlertView, ExplainedTransition, RuleEvidence, TransitionView
from app.alerts.service.alert_evidence import Explanation, explain_all, since
from app.alerts.store import alerts
from app.alerts.store.alerts import AlertFilter, AlertRow, TransitionRow
from app.base.db.engine import Connection, Store
from app.base.errors import NotFoundError
from app.base.values import DeliveryState, Outcome, Percentile, Reason, RuleKind, Severity, Step
from app.catalog.store import definitions
from app.hooks.domain.views import AlertDetail, DeliveryView
from app.hooks.store import backlog, outbox
from app.hooks.store.outbox import AttemptRow, DeliveryRow
from app.records import documents as shapes

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
            _explained(_transition(one), explanations.get(one.run_id) if one.type in TRIGGERS else None)
            for one in changes
        ],
        "since": None if fault_start is None else fault_start.view,
        "deliveries": delivery_views,
    }


def _explained(change: TransitionView, why: Explanation | None) -> ExplainedTransition:
    """Return a transition with what its canaries have in common, and the cause of each."""
    found = change["evidence"]
    if why is not None and "canaries" in found:
        listed: list[ChangedCanary] = [{**one, **why.of(one["key"])} for one in found["canaries"]]
        found = {**found, "canaries": listed}
    return {**change, "evidence": found, "fleet": None if why is None else why.fleet_view}


def list_deliveries(
    store: Store,
    *,
    hook: str | None,
    state: str | None,
    before: int | None,
    limit: int,
    alert_id: int | None = None,
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
    return dict(zip([row.id for row in rows], _delivery_views(connection, rows), strict=True))


def _delivery_views(connection: Connection, rows: Sequence[DeliveryRow]) -> list[DeliveryView]:
    ids = [row.id for row in rows]
    attempts, behind = outbox.list_attempts(connection, ids), backlog.waiting_behind(connection, ids)
    return [_delivery(row, attempts[row.id], behind.get(row.id)) for row in rows]


def alert_shape(row: AlertRow, changes: Sequence[TransitionRow]) -> AlertView:
    """Shape an alert with its transitions."""
    return {**_fields(row), "transitions": [_transition(change) for change in changes]}


def _fields(row: AlertRow) -> AlertFields:
    return {
        "id": str(row.id),
        "check": row.check,
        "rule": row.rule_key,
        "kind": RuleKind(row.kind),
        "scope": row.scope,
        "severity": Severity(row.severity),
        "state": AlertState(row.state),
        "opened_at": shapes.time_text(row.opened_at),
        "resolved_at": shapes.time_text(row.resolved_at),
        "acknowledged_at": shapes.time_text(row.acknowledged_at),
        "acknowledged_by": row.acknowledged_by,
        "reason": row.reason,
        "evidence": evidence(row.evidence),
        "since_run": str(row.first_run) if row.first_run is not None else None,
        "incident_id": str(row.incident_id) if row.incident_id is not None else None,
        "dedupe_key": row.dedupe_key,
    }


def _transition(change: TransitionRow) -> TransitionView:
    return {
        "at": shapes.time_text(change.at),
        "type": TransitionType(change.type),
        "severity": Severity(change.severity),
        "reason": change.reason,
        "run_id": str(change.run_id) if change.run_id is not None else None,
        "suppressed": change.suppressed,
        "silence": change.silence,
        "evidence": evidence(change.evidence),
    }


_RUN_OF_A_WINDOW: Final[Mapping[str, None]] = {"baseline": None}
"""Defaults for runs of a window stored by an earlier release."""


def evidence(found: StoredEvidence) -> RuleEvidence:
    """Evidence with ids and times as on the wire; stored evidence has numbers, and times that end in +00:00."""
    return cast("RuleEvidence", _named_on_the_wire(found))


def _named_on_the_wire(found: Mapping[str, object]) -> dict[str, object]:
    return {name: _on_the_wire(name, value) for name, value in found.items()}


def _on_the_wire(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _named_on_the_wire(value)
    if isinstance(value, list):
        default = _RUN_OF_A_WINDOW if name == "window" else {}
        return [_on_the_wire(name, {**default, **one} if isinstance(one, Mapping) else one) for one in value]
    if name in _ENUMERATIONS and value is not None:
        return _ENUMERATIONS[name](value)
    if name in _RUNS and value is not None:
        return str(value)
    return shapes.time_text(datetime.fromisoformat(value)) if name in _TIMES and value is not None else value


def _delivery(row: DeliveryRow, attempts: Sequence[AttemptRow], behind: int | None) -> DeliveryView:
    return {
        "id": str(row.id),
        "hook": row.hook,
        "alert_id": str(row.alert_id) if row.alert_id is not None else None,
        "incident_id": str(row.incident_id) if row.incident_id is not None else None,
        "type": row.type,
        "state": DeliveryState(row.state),
        "reason": row.reason,
        "created_at": shapes.time_text(row.created_at),
        "next_attempt_at": shapes.time_text(row.next_attempt_at) if row.state == "pending" else None,
        "waits_for": str(behind) if behind is not None else None,
        "attempts": [
            {
                "at": shapes.time_text(attempt.at),
                "http_status": attempt.http_status,
                "error": attempt.error,
                "detail": attempt.detail,
                "latency_seconds": shapes.number(attempt.latency_seconds),
            }
            for attempt in attempts
        ],
    }


def _definition_id(connection: Connection, kind: str, slug: str | None) -> int | None:
    if slug is None:
        return None
    definition = definitions.find_definition(connection, kind, slug)
    if definition is None:
        raise NotFoundError(f"there is no {kind} '{slug}'")
    return definition.id
