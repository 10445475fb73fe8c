"""Silences in force: the alerts they silence, their states, a preview of one, and names in them that do not exist."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any, Final

from typing_extensions import TypedDict

from app.alerts import store as alerts
from app.alerts.domain.state import OPEN, Member
from app.alerts.domain.views import AlertState
from app.alerts.silences.documents import RULE, SilenceDocument
from app.alerts.store import AlertFilter
from app.base.db.engine import Connection, Store
from app.base.errors import InvalidInputError, Problem
from app.base.schedules import next_due
from app.base.values import Severity, TimeText, Value, replace
from app.base.views import time_text, view_of
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service.references import checks_in_force
from app.catalog.store import Definition

KIND: Final = "silence"
MOST_IN_FORCE: Final = 200
"""Each one is evaluated for every run and every few seconds while an alert is open."""


def silences_of(connection: Connection, check: Definition) -> list[SilenceDocument]:
    """Return the silences that are about a check, whether or not they are on now."""
    silences = [row.read(SilenceDocument) for row in catalog.list_definitions(connection, KIND)]
    return [silence for silence in silences if _is_about(silence, check)]


def silence_members(silences: Iterable[SilenceDocument], members: Collection[Member], now: datetime) -> list[Member]:
    """Return the alerts of a check, each with the silence of it that is on; of several the one that ends last.

    Whether a silence is on is computed once, and only for those that match an alert.
    """
    matching = [one for one in silences if any(one.matches(each.rule, each.severity) for each in members)]
    ends = {one.slug: until for one in matching if (until := one.active_until(now)) is not None}
    on = sorted((one for one in matching if one.slug in ends), key=lambda one: (ends[one.slug], one.slug), reverse=True)
    return [
        replace(each, silence=next((one.slug for one in on if one.matches(each.rule, each.severity)), None))
        for each in members
    ]


def _is_about(silence: SilenceDocument, check: Definition) -> bool:
    return silence.is_about(check.slug, check.body["suite"], check.body["retriever"])


def refuse_too_many(count: int) -> None:
    """Raise InvalidInputError where the count exceeds the limit of silences in force."""
    if count > MOST_IN_FORCE:
        limit = f"no more than {MOST_IN_FORCE} silences may be in force, and this would make {count}"
        raise InvalidInputError([Problem(message=f"{limit}; delete those that are over or not needed any more")])


def refuse_one_too_many(connection: Connection) -> None:
    """Raise InvalidInputError where too many silences are in force; called after one was written."""
    refuse_too_many(len(catalog.list_definitions(connection, KIND, limit=MOST_IN_FORCE + 1)))


def refuse_unknown_references(store: Store, document: SilenceDocument) -> None:
    """Raise InvalidInputError where a silence names what does not exist."""
    with store.read() as connection:
        found = [problem for *_, problem in document.unknown_references(partial(_names_present, connection))]
    if found:
        raise InvalidInputError(found)


def _names_present(connection: Connection, kind: str) -> set[str]:
    """Names a silence may use of a kind: slugs in force or, for rules, the keys of all rules of all checks."""
    if kind == RULE:
        return {key for check in checks_in_force(connection) for key in check.rule_keys}
    return {row.slug for row in catalog.list_definitions(connection, kind)}


class SilencedAlert(TypedDict):
    """An open alert that a silence matches."""

    id: str
    check: str
    rule: str
    severity: Severity
    state: AlertState


class SilenceState(TypedDict):
    """State of a silence."""

    active: bool
    until: TimeText | None
    next_change: TimeText | None
    holds_back: list[SilencedAlert]
    """The open alerts it silences now."""


def states(store: Store, rows: Sequence[Definition], now: datetime) -> dict[int, SilenceState]:
    """States of silences by id: whether they are on, until when, and which open alerts they match."""
    with store.read() as connection:
        found = _states(connection, [row.read(SilenceDocument) for row in rows], now)
    return {row.id: shape for row, shape in zip(rows, found, strict=True)}


def _states(connection: Connection, silences: Sequence[SilenceDocument], now: datetime) -> list[SilenceState]:
    untils = [silence.active_until(now) for silence in silences]
    firing: list[tuple[Definition, SilencedAlert]] = []
    if any(untils):
        rows = alerts.list_alerts(connection, AlertFilter(states=[str(state) for state in OPEN]), limit=500)
        checks = {one: catalog.definition_by_id(connection, one) for one in {row.check_id for row in rows}}
        firing = [
            (checks[row.check_id], view_of(SilencedAlert, row, id=str(row.id), rule=row.rule_key)) for row in rows
        ]
    return [
        {
            "active": until is not None,
            "until": time_text(until),
            "next_change": time_text(silence.next_change(now)),
            "holds_back": [
                alert
                for check, alert in firing
                if until is not None and _is_about(silence, check) and silence.matches(alert["rule"], alert["severity"])
            ],
        }
        for silence, until in zip(silences, untils, strict=True)
    ]


_OCCURRENCES: Final = 5


class Preview(Value):
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
    with store.read() as connection:
        checks = catalog.list_definitions(connection, "check")
        unknown = document.unknown_references(partial(_names_present, connection))
        return Preview(
            checks=list(_affected_checks(document, checks)),
            of=len(checks),
            silenced_alerts=_states(connection, [document], now)[0]["holds_back"],
            unknown_references=[f"{kind} '{name}'" for kind, name, _ in unknown],
            occurrences=list(_occurrences(document, now)),
        )


def _occurrences(silence: SilenceDocument, now: datetime) -> Iterator[tuple[datetime | None, datetime]]:
    """Time spans a silence is on, from now; overlapping windows are one."""
    until = silence.active_until(now)
    if silence.window is None:
        if silence.ends is not None and silence.ends > now:
            yield silence.starts, silence.ends
        return
    if until is not None:
        yield None, until
    for _ in range(_OCCURRENCES - (until is not None)):
        begins = next_due(silence.window.schedule, until or now)
        until = silence.active_until(begins)
        if until is None:
            return
        yield begins, until


def _affected_checks(silence: SilenceDocument, checks: Sequence[Definition]) -> Iterator[dict[str, Any]]:
    for check in checks:
        if not _is_about(silence, check):
            continue
        document = check.read(CheckDocument)
        rules = [rule.key for rule in document.rules_in_force]
        meant = [rule for rule in rules if any(silence.matches(rule, severity) for severity in Severity)]
        if meant:
            all_rules = len(meant) == len(rules)
            yield {"check": check.slug, "rules": meant, "all_rules": all_rules, "enabled": document.enabled}


CheckRules = tuple[CheckDocument, Collection[str]]
"""A check with the keys of its rules, parsed once."""


def rules_of(checks: Iterable[CheckDocument]) -> list[CheckRules]:
    """Return checks with the keys of their rules."""
    return [(check, check.rule_keys) for check in checks]


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
        if silence.is_over(now):
            continue
        unknown = list(silence.unknown_references(names))
        for kind, name, problem in unknown:
            if name in removed.get(kind, ()):
                yield silence, replace(problem, message=f"{kind} '{name}' is removed; remove it from this silence too")
            elif (KIND, silence.slug) in changed:
                yield silence, problem
        lost = _keys(before, silence) - _keys(after, silence) if silence.rules and not unknown else ()
        for place, rule in enumerate(silence.rules):
            if rule in lost:  # checks outside this silence still have a rule of that key
                message = f"rule '{rule}' is removed from the checks of this silence; remove it here too"
                yield silence, Problem(path=f"rules[{place}]", message=message)


def _keys(rules: Iterable[CheckRules], silence: SilenceDocument | None = None) -> set[str]:
    """Return the keys of the rules of all checks, or of those that a silence is about."""
    return {
        key
        for check, keys in rules
        if silence is None or silence.is_about(check.slug, check.suite, check.retriever)
        for key in keys
    }
