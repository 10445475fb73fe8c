"""Silences in force: which alerts they match now, their state, and checks of what they name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

from app.alerts.domain.alert_state import OPEN, AlertState
from app.alerts.domain.views import SilencedAlert, SilenceState
from app.alerts.silences.documents import SilenceDocument
from app.alerts.silences.domain import (
    MOST_IN_FORCE,
    Silence,
    Subject,
    active_until,
    find_silences,
    matches,
    next_change_after,
)
from app.alerts.silences.references import RULE, UnknownReference, rule_keys, unknown_references
from app.alerts.store import alerts
from app.alerts.store.alerts import AlertFilter
from app.base.db.engine import Connection, Store
from app.base.errors import InvalidInputError, Problem
from app.base.values import Severity
from app.catalog.service.references import checks_in_force, require
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.records import documents as shapes

KIND = "silence"


def in_force(connection: Connection) -> list[Silence]:
    """Every silence, whether or not it is on now."""
    return [parse_stored(row) for row in definitions.list_definitions(connection, KIND)]


def parse_stored(row: Definition) -> Silence:
    """Return the value of a stored silence, cached by its version."""
    return _parsed(_Stored(version_id=row.version_id, hash=row.hash, body=row.body))


def refuse_too_many(count: int) -> None:
    """Raise InvalidInputError where the count exceeds the limit of silences in force."""
    if count > MOST_IN_FORCE:
        limit = f"no more than {MOST_IN_FORCE} silences may be in force, and this would make {count}"
        raise InvalidInputError([Problem(message=f"{limit}; delete those that are over or not needed any more")])


def refuse_one_too_many(connection: Connection) -> None:
    """Raise InvalidInputError where too many silences are in force; called after one was written."""
    refuse_too_many(len(definitions.list_definitions(connection, KIND, limit=MOST_IN_FORCE + 1)))


def silenced(
    connection: Connection, check: Definition, subjects: Iterable[tuple[int, str, Severity]], now: datetime
) -> dict[int, Silence]:
    """Active silences of the alerts of a check, given as (alert id, rule key, severity), by alert id."""
    listed = list(subjects)
    silences = in_force(connection) if listed else []
    if not silences:
        return {}
    found = find_silences(silences, [subject_of(check, rule, severity) for _, rule, severity in listed], now)
    return {alert_id: one for (alert_id, *_), one in zip(listed, found, strict=True) if one is not None}


def subject_of(check: Definition, rule: str, severity: Severity) -> Subject:
    """Fields of an alert of a check that silences match."""
    return Subject(
        check=check.slug,
        suite=check.body["suite"],
        retriever=check.body["retriever"],
        rule=rule,
        severity=severity,
    )


def silenced_alerts(connection: Connection, silence: Silence) -> list[SilencedAlert]:
    """List the open alerts a silence matches."""
    return [shape for subject, shape in _list_open_alerts(connection) if matches(silence, subject)]


def refuse_unknown_references(store: Store, document: SilenceDocument) -> None:
    """Raise InvalidInputError where a silence names what does not exist."""
    found = unknown_references_of(store, document)
    if found:
        raise InvalidInputError([one.problem for one in found])


def states(store: Store, rows: Iterable[Definition], now: datetime) -> dict[int, SilenceState]:
    """States of silences by id: whether they are on, until when, and which open alerts they match."""
    with store.read() as connection:
        return {row.id: shape for row, shape in _states(connection, list(rows), now)}


def state(store: Store, slug: str, now: datetime) -> tuple[Definition, SilenceState]:
    """Return a silence in force and its state. Raises NotFoundError."""
    with store.read() as connection:
        row = require(definitions.find_definition(connection, KIND, slug), f"silence '{slug}'")
        return row, next(shape for _, shape in _states(connection, [row], now))


def unknown_references_of(store: Store, document: SilenceDocument) -> list[UnknownReference]:
    """List names in a silence that do not exist, see `unknown_references`."""
    with store.read() as connection:
        return unknown_references(document, partial(names_present, connection))


def names_present(connection: Connection, kind: str) -> set[str]:
    """Names a silence may use of a kind: slugs in force or, for rules, the keys of all rules of all checks."""
    if kind == RULE:
        return {key for check in checks_in_force(connection) for key in rule_keys(check)}
    return {row.slug for row in definitions.list_definitions(connection, kind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A version of a silence: its id and, across stores, its hash are the cache key."""

    version_id: int
    hash: str
    body: Mapping[str, Any] = field(compare=False)


@lru_cache(maxsize=4 * MOST_IN_FORCE)
def _parsed(stored: _Stored) -> Silence:
    return SilenceDocument.stored(stored.body).to_domain()


def _states(connection: Connection, rows: list[Definition], now: datetime) -> list[tuple[Definition, SilenceState]]:
    silences = [parse_stored(row) for row in rows]
    untils = [active_until(silence, now) for silence in silences]
    firing = _list_open_alerts(connection) if any(untils) else []
    standing = zip(rows, silences, untils, strict=True)
    return [(row, _silence_state(silence, until, firing, now)) for row, silence, until in standing]


def _silence_state(
    silence: Silence, until: datetime | None, firing: Iterable[tuple[Subject, SilencedAlert]], now: datetime
) -> SilenceState:
    silenced = [shape for subject, shape in firing if until is not None and matches(silence, subject)]
    return {
        "active": until is not None,
        "until": shapes.time_text(until),
        "next_change": shapes.time_text(next_change_after(silence, now, until)),
        "holds_back": silenced,
    }


def _list_open_alerts(connection: Connection) -> list[tuple[Subject, SilencedAlert]]:
    rows = alerts.list_alerts(connection, AlertFilter(states=[str(state) for state in OPEN]), limit=500)
    checks = {
        check_id: definitions.definition_by_id(connection, check_id) for check_id in {row.check_id for row in rows}
    }
    return [
        (
            subject_of(checks[row.check_id], row.rule_key, Severity(row.severity)),
            {
                "id": str(row.id),
                "check": row.check,
                "rule": row.rule_key,
                "severity": Severity(row.severity),
                "state": AlertState(row.state),
            },
        )
        for row in rows
    ]
