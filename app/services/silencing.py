"""Silences in force: which alerts they keep back now, and what people are told of them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from app.domain.alerting import OPEN
from app.domain.model import Severity
from app.domain.silences import Silence, Subject, active_until, matches, next_change, silencing
from app.formats import shapes
from app.formats.silence_documents import SilenceDocument
from app.services.references import require
from app.store import alerts, catalog
from app.store.catalog import Definition
from app.store.engine import Connection, Store

KIND = "silence"


def in_force(connection: Connection) -> list[Silence]:
    """Read every silence, whether or not it is on now."""
    return [as_silence(row) for row in catalog.list_definitions(connection, KIND)]


def as_silence(row: Definition) -> Silence:
    """Read a stored silence."""
    return SilenceDocument.model_validate(row.body).to_domain()


def silenced(
    connection: Connection, check: Definition, subjects: Iterable[tuple[int, str, Severity]], now: datetime
) -> dict[int, Silence]:
    """Find what is kept back now of the alerts of a check: (alert id, rule key, severity) each, by alert id."""
    silences = in_force(connection)
    if not silences:
        return {}
    found = {
        alert_id: silencing(silences, subject_of(check, rule, severity), now) for alert_id, rule, severity in subjects
    }
    return {alert_id: silence for alert_id, silence in found.items() if silence is not None}


def subject_of(check: Definition, rule: str, severity: Severity) -> Subject:
    """Say what silences look at of an alert of a check."""
    return Subject(
        check=check.slug,
        suite=check.body["suite"],
        retriever=check.body["retriever"],
        rule=rule,
        severity=severity,
    )


def states(store: Store, rows: Iterable[Definition], now: datetime) -> dict[int, dict[str, Any]]:
    """Say of silences, by id, whether they are on, until when, and which open alerts they keep back."""
    with store.read() as connection:
        return {row.id: shape for row, shape in _states(connection, list(rows), now)}


def state(store: Store, slug: str, now: datetime) -> tuple[Definition, dict[str, Any]]:
    """Find a silence in force, and say how it stands. Raises NotFoundError."""
    with store.read() as connection:
        row = require(catalog.find_definition(connection, KIND, slug), f"silence '{slug}'")
        return row, next(shape for _, shape in _states(connection, [row], now))


def names_nobody_has(store: Store, document: SilenceDocument) -> list[str]:
    """List what a silence names that is not in force, see `strangers`."""
    with store.read() as connection:
        return strangers(document, lambda kind: {row.slug for row in catalog.list_definitions(connection, kind)})


def strangers(document: SilenceDocument, present: Callable[[str], Collection[str]]) -> list[str]:
    """List what a silence names, as `check 'docs'`, that is not among the slugs present of its kind."""
    wanted = {"check": document.checks, "suite": document.suites, "retriever": document.retrievers}
    return [
        f"{kind} '{name}'" for kind, names in wanted.items() if names for name in names if name not in present(kind)
    ]


def _states(connection: Connection, rows: list[Definition], now: datetime) -> list[tuple[Definition, dict[str, Any]]]:
    silences = {row.id: as_silence(row) for row in rows}
    on = any(active_until(silence, now) for silence in silences.values())
    firing = _open_alerts(connection) if on else []
    return [(row, _shape(silences[row.id], firing, now)) for row in rows]


def _shape(silence: Silence, firing: Iterable[tuple[Subject, Mapping[str, Any]]], now: datetime) -> dict[str, Any]:
    until = active_until(silence, now)
    held = [shape for subject, shape in firing if until is not None and matches(silence, subject)]
    return {
        "active": until is not None,
        "until": shapes.time_text(until),
        "next_change": shapes.time_text(next_change(silence, now)),
        "holds_back": held,
    }


def _open_alerts(connection: Connection) -> list[tuple[Subject, dict[str, Any]]]:
    rows = alerts.list_alerts(connection, states=[str(state) for state in OPEN], limit=500)
    checks = {check_id: catalog.definition_by_id(connection, check_id) for check_id in {row.check_id for row in rows}}
    return [
        (
            subject_of(checks[row.check_id], row.rule_key, Severity(row.severity)),
            {
                "id": str(row.id),
                "check": row.check,
                "rule": row.rule_key,
                "severity": row.severity,
                "state": row.state,
            },
        )
        for row in rows
    ]
