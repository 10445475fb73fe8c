"""Silences in force: which alerts they match, their states, a preview of one, and names in them that do not exist."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, lru_cache, partial
from typing import Any, Final

from app.alerts import store as alerts
from app.alerts.documents import rules_in_force
from app.alerts.domain.state import OPEN
from app.alerts.silences.documents import SilenceDocument
from app.alerts.silences.domain import (
    MOST_IN_FORCE,
    Silence,
    SilencedAlert,
    SilenceState,
    Subject,
    active_until,
    find_silences,
    is_over,
    matches,
    matches_check,
    next_change_after,
)
from app.alerts.store import AlertFilter
from app.base.db.engine import Connection, Store
from app.base.errors import InvalidInputError, Problem
from app.base.schedules import next_due
from app.base.values import Severity
from app.base.views import time_text, view_of
from app.catalog import store as catalog
from app.catalog.documents.canary_files import RULE, rule_keys, unknown_references
from app.catalog.documents.documents import CheckDocument
from app.catalog.service.references import checks_in_force
from app.catalog.store import Definition

KIND = "silence"


def in_force(connection: Connection) -> list[Silence]:
    """Every silence, whether or not it is on now."""
    return [parse_stored(row) for row in catalog.list_definitions(connection, KIND)]


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
    refuse_too_many(len(catalog.list_definitions(connection, KIND, limit=MOST_IN_FORCE + 1)))


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


def refuse_unknown_references(store: Store, document: SilenceDocument) -> None:
    """Raise InvalidInputError where a silence names what does not exist."""
    with store.read() as connection:
        found = unknown_references(document, partial(_names_present, connection))
    if found:
        raise InvalidInputError([one.problem for one in found])


def states(store: Store, rows: Sequence[Definition], now: datetime) -> dict[int, SilenceState]:
    """States of silences by id: whether they are on, until when, and which open alerts they match."""
    with store.read() as connection:
        found = _states(connection, [parse_stored(row) for row in rows], now)
    return {row.id: shape for row, shape in zip(rows, found, strict=True)}


def _names_present(connection: Connection, kind: str) -> set[str]:
    """Names a silence may use of a kind: slugs in force or, for rules, the keys of all rules of all checks."""
    if kind == RULE:
        return {key for check in checks_in_force(connection) for key in rule_keys(check)}
    return {row.slug for row in catalog.list_definitions(connection, kind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A version of a silence: its id and, across stores, its hash are the cache key."""

    version_id: int
    hash: str
    body: Mapping[str, Any] = field(compare=False)


@lru_cache(maxsize=4 * MOST_IN_FORCE)
def _parsed(stored: _Stored) -> Silence:
    return SilenceDocument.stored(stored.body).to_domain()


def _states(connection: Connection, silences: Sequence[Silence], now: datetime) -> list[SilenceState]:
    untils = [active_until(silence, now) for silence in silences]
    firing = _list_open_alerts(connection) if any(untils) else []
    return [
        {
            "active": until is not None,
            "until": time_text(until),
            "next_change": time_text(next_change_after(silence, now, until)),
            "holds_back": [shape for subject, shape in firing if until is not None and matches(silence, subject)],
        }
        for silence, until in zip(silences, untils, strict=True)
    ]


def _list_open_alerts(connection: Connection) -> list[tuple[Subject, SilencedAlert]]:
    rows = alerts.list_alerts(connection, AlertFilter(states=[str(state) for state in OPEN]), limit=500)
    checks = {check_id: catalog.definition_by_id(connection, check_id) for check_id in {row.check_id for row in rows}}
    return [
        (
            subject_of(checks[row.check_id], row.rule_key, Severity(row.severity)),
            view_of(SilencedAlert, row, id=str(row.id), rule=row.rule_key),
        )
        for row in rows
    ]


_OCCURRENCES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Checks, alerts and time spans that a silence affects."""

    checks: Sequence[Mapping[str, Any]]
    """Those with matched rules: `check`, the keys of these `rules`, whether it has no others, `enabled`."""
    of: int
    """Number of all checks."""
    silenced_alerts: Sequence[SilencedAlert]
    """The open alerts it would silence now."""
    unknown_references: Sequence[str]
    """Names in it that do not exist."""
    occurrences: Sequence[tuple[datetime | None, datetime]]
    """Starts and ends of the spans for which it is on, from now; a start of None = it is on already."""


def preview(store: Store, document: SilenceDocument, now: datetime) -> Preview:
    """Preview of a silence; nothing is stored."""
    silence = document.to_domain()
    with store.read() as connection:
        checks = catalog.list_definitions(connection, "check")
        unknown = unknown_references(document, partial(_names_present, connection))
        return Preview(
            checks=list(_affected_checks(silence, checks)),
            of=len(checks),
            silenced_alerts=_states(connection, [silence], now)[0]["holds_back"],
            unknown_references=[f"{one.kind} '{one.slug}'" for one in unknown],
            occurrences=list(_occurrences(silence, now)),
        )


def _occurrences(silence: Silence, now: datetime) -> Iterator[tuple[datetime | None, datetime]]:
    """Time spans a silence is on, from now; overlapping windows are one."""
    until = active_until(silence, now)
    if silence.window is None:
        if silence.ends is not None and silence.ends > now:
            yield silence.starts, silence.ends
        return
    if until is not None:
        yield None, until
    for _ in range(_OCCURRENCES - (until is not None)):
        begins = next_due(silence.window.schedule, until or now)
        until = active_until(silence, begins)
        if until is None:
            return
        yield begins, until


def _affected_checks(silence: Silence, checks: Sequence[Definition]) -> Iterator[dict[str, Any]]:
    for check in checks:
        document = CheckDocument.model_validate(check.body)
        rules = [rule.key for rule in rules_in_force(document.rules)]
        meant = [
            rule for rule in rules if any(matches(silence, subject_of(check, rule, severity)) for severity in Severity)
        ]
        if meant:
            all_rules = len(meant) == len(rules)
            yield {"check": check.slug, "rules": meant, "all_rules": all_rules, "enabled": document.enabled}


CheckRules = tuple[CheckDocument, Collection[str]]
"""A check with the keys of its rules, parsed once."""


def rules_of(checks: Iterable[CheckDocument]) -> list[CheckRules]:
    """Return checks with the keys of their rules."""
    return [(check, rule_keys(check)) for check in checks]


def silence_problems(
    silences: Sequence[SilenceDocument],
    *,
    slugs_of: Callable[[str], Collection[str]],
    before: Collection[CheckRules],
    after: Collection[CheckRules],
    archived: Mapping[str, Collection[str]],
    changed: Collection[tuple[str, str]],
    now: datetime,
) -> Iterator[tuple[SilenceDocument, Problem]]:
    """Yield the names in silences that do not exist afterwards: such a silence would suppress nothing.

    `slugs_of` returns the slugs of a kind afterwards; `before` and `after` are the rules of all checks, where a silence
    names any; `archived` are the slugs archived by this application, `changed` the (kind, slug) it saves. An unchanged
    silence is only checked against what this application removes: what the API archived earlier must not stop a start.
    A silence that is over is not checked.
    """

    @cache
    def names(kind: str) -> Collection[str]:
        return _keys(after) if kind == RULE else slugs_of(kind)

    removed = {**archived, RULE: _keys(before)}
    for silence in silences:
        value = silence.to_domain()
        if is_over(value, now):
            continue
        unknown = unknown_references(silence, names)
        for reference in unknown:
            if reference.slug in removed.get(reference.kind, ()):
                message = f"{reference.kind} '{reference.slug}' is removed; remove it from this silence too"
                yield silence, replace(reference.problem, message=message)
            elif ("silence", silence.slug) in changed:
                yield silence, reference.problem
        lost = _keys(before, value) - _keys(after, value) if silence.rules and not unknown else ()
        for place, rule in enumerate(silence.rules):
            if rule in lost:  # checks outside this silence still have a rule of that key
                message = f"rule '{rule}' is removed from the checks of this silence; remove it here too"
                yield silence, Problem(path=f"rules[{place}]", message=message)


def _keys(rules: Iterable[CheckRules], silence: Silence | None = None) -> set[str]:
    """Return the keys of the rules of all checks, or of those that a silence is about."""
    return {
        key
        for check, keys in rules
        if silence is None or matches_check(silence, check.slug, check.suite, check.retriever)
        for key in keys
    }
