"""Preview of a silence before it is saved: the checks and rules it matches, and when it is on. It only reads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from app.alerts.documents.rule_documents import rules_in_force
from app.alerts.domain.views import SilencedAlert
from app.alerts.silences import service as silencing
from app.alerts.silences.documents import SilenceDocument
from app.alerts.silences.domain import Silence, active_until, matches
from app.alerts.silences.references import unknown_references
from app.base.db.engine import Connection, Store
from app.base.values import Severity
from app.catalog.documents.documents import CheckDocument
from app.catalog.domain.schedules import next_due
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition

_OCCURRENCES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedCheck:
    """A check with rules that a silence matches."""

    check: str
    rules: Sequence[str]
    """The keys of the matched rules."""
    all_rules: bool
    """Whether the check has no others."""
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A time span for which a silence is on."""

    starts: datetime | None
    """None = it is on already."""
    ends: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Checks, alerts and time spans that a silence affects."""

    checks: Sequence[AffectedCheck]
    of: int
    """Number of all checks."""
    silenced_alerts: Sequence[SilencedAlert]
    """The open alerts it would silence now."""
    unknown_references: Sequence[str]
    """Names in it that do not exist."""
    occurrences: Sequence[Occurrence]
    """When it is on, from now."""


def preview(store: Store, document: SilenceDocument, now: datetime) -> Preview:
    """Preview of a silence; nothing is stored."""
    silence = document.to_domain()
    with store.read() as connection:
        checks = definitions.list_definitions(connection, "check")
        silenced_alerts = (
            silencing.silenced_alerts(connection, silence) if active_until(silence, now) is not None else []
        )
        return Preview(
            checks=list(_affected_checks(silence, checks)),
            of=len(checks),
            silenced_alerts=silenced_alerts,
            unknown_references=_unknown_names(connection, document),
            occurrences=list(occurrences(silence, now)),
        )


def occurrences(silence: Silence, now: datetime, *, most: int = _OCCURRENCES) -> Iterator[Occurrence]:
    """Time spans a silence is on, from now; overlapping windows are one."""
    until = active_until(silence, now)
    if silence.window is None:
        if silence.ends is not None and silence.ends > now:
            yield Occurrence(starts=silence.starts, ends=silence.ends)
        return
    if until is not None:
        yield Occurrence(starts=None, ends=until)
    for _ in range(most - (until is not None)):
        begins = next_due(silence.window.schedule, until or now)
        until = active_until(silence, begins)
        if until is None:
            return
        yield Occurrence(starts=begins, ends=until)


def _affected_checks(silence: Silence, checks: Sequence[Definition]) -> Iterator[AffectedCheck]:
    for check in checks:
        document = CheckDocument.model_validate(check.body)
        rules = [rule.key for rule in rules_in_force(document.rules)]
        meant = [
            rule
            for rule in rules
            if any(matches(silence, silencing.subject_of(check, rule, severity)) for severity in Severity)
        ]
        if meant:
            yield AffectedCheck(
                check=check.slug, rules=meant, all_rules=len(meant) == len(rules), enabled=document.enabled
            )


def _unknown_names(connection: Connection, document: SilenceDocument) -> list[str]:
    found = unknown_references(document, partial(silencing.names_present, connection))
    return [f"{one.kind} '{one.slug}'" for one in found]
