"""What a silence would do, before it is saved: which checks and rules it is about, and when it is on. It only reads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from app.domain.alerts.silences import Silence, active_until, matches
from app.domain.alerts.views import SilencedAlert
from app.domain.catalog.schedules import next_due
from app.domain.model import Severity
from app.formats.alerts.rule_documents import rules_in_force
from app.formats.alerts.silence_documents import SilenceDocument
from app.formats.catalog.documents import CheckDocument
from app.formats.catalog.silence_references import unknown_references
from app.services.alerts import silencing
from app.store.catalog import definitions
from app.store.catalog.definitions import Definition
from app.store.engine import Connection, Store

_OCCURRENCES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Concerned:
    """A check of which a silence keeps news back."""

    check: str
    rules: Sequence[str]
    """The keys of those of its rules that are meant."""
    all_rules: bool
    """Whether those are all it has."""
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A time for which a silence is on."""

    starts: datetime | None
    """None = it has been on for as long as it was there."""
    ends: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a silence would do."""

    checks: Sequence[Concerned]
    of: int
    """How many checks there are."""
    held: Sequence[SilencedAlert]
    """The open alerts it would keep back now: `id, check, rule, severity, state` each."""
    unknown_references: Sequence[str]
    """What it names that is not in force."""
    occurrences: Sequence[Occurrence]
    """When it is on, from now."""


def preview(store: Store, document: SilenceDocument, now: datetime) -> Preview:
    """Say what a silence would do; of none of this anything is stored."""
    silence = document.to_domain()
    with store.read() as connection:
        checks = definitions.list_definitions(connection, "check")
        held = silencing.held_back(connection, silence) if active_until(silence, now) is not None else []
        return Preview(
            checks=list(_concerned(silence, checks)),
            of=len(checks),
            held=held,
            unknown_references=_unknown_names(connection, document),
            occurrences=list(occurrences(silence, now)),
        )


def occurrences(silence: Silence, now: datetime, *, most: int = _OCCURRENCES) -> Iterator[Occurrence]:
    """Give the times a silence is on, from now; windows that run into each other are one."""
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


def _concerned(silence: Silence, checks: Sequence[Definition]) -> Iterator[Concerned]:
    for check in checks:
        document = CheckDocument.model_validate(check.body)
        rules = [rule.key for rule in rules_in_force(document.rules)]
        meant = [
            rule
            for rule in rules
            if any(matches(silence, silencing.subject_of(check, rule, severity)) for severity in Severity)
        ]
        if meant:
            yield Concerned(check=check.slug, rules=meant, all_rules=len(meant) == len(rules), enabled=document.enabled)


def _unknown_names(connection: Connection, document: SilenceDocument) -> list[str]:
    found = unknown_references(document, partial(silencing.names_present, connection))
    return [f"{one.kind} '{one.slug}'" for one in found]
