"""Whole sets of definitions, as canary files and imports bring them: what would change, and putting it in force.

Everything is validated before it arrives here as documents, and canaries are planned before the transaction that
writes: all of it, or none.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from types import MappingProxyType
from typing import Any

from app.domain.alerts.silences import is_over
from app.domain.catalog.suite_floors import SuiteFloors
from app.domain.errors import ConflictError, InvalidInputError, Problem
from app.formats.catalog.canary_files import Documents
from app.formats.catalog.documents import CheckDocument, HookDocument, RetrieverDocument, SilenceDocument, SuiteDocument
from app.formats.catalog.silence_references import RULE, rule_keys, unknown_references
from app.services.alerts import transitions
from app.services.alerts.silencing import refuse_too_many
from app.services.catalog.changes import (
    Change,
    archived_change,
    definition_change,
    definition_content,
    refused_change,
    write_archive,
)
from app.services.catalog.references import (
    API,
    FILE,
    checks_in_force,
    missing,
    owned_by_file,
    references_of,
    refuse_file_managed,
)
from app.services.catalog.suite_plans import (
    NO_FLOORS,
    CanaryContent,
    SuitePlan,
    canary_contents,
    floors_in_force,
    hold_suite,
    plan_and_write,
    plan_archive,
    plan_suite,
    write_suite_plan,
)
from app.services.catalog.suite_snapshots import SuiteOvertakenError
from app.services.catalog.vault import Vault
from app.store.catalog import definitions
from app.store.delivery import outbox
from app.store.engine import Connection, Store, to_us
from app.store.row_tables import StagedRows


def diff(store: Store, vault: Vault, wanted: Documents, *, managed_by: str, now: datetime) -> list[Change]:
    """Say what `apply` would change, changing nothing. Raises what `apply` would raise.

    But for what the API may not change, since a file owns it: that is part of the plan, with a note.
    """
    contents = _contents(wanted)
    with store.read() as connection:
        plans = _plan_suites(connection, wanted, contents, managed_by=managed_by, refuse=False)
        return _Applying(connection, vault, wanted, plans, managed_by, now=now, writes=False).run()


class OvertakenError(ConflictError):
    """A definition was changed after it was read to make what is wanted of it."""


def apply(
    store: Store,
    vault: Vault,
    wanted: Documents,
    *,
    managed_by: str,
    now: datetime,
    revisions: Mapping[tuple[str, str], int] = MappingProxyType({}),
) -> list[Change]:
    """Put what is wanted in force, in one transaction; file-managed objects not wanted any more are archived.

    Raises InvalidInputError where a check, whoever manages it, would be left without what it refers to, and where
    its runs would not compute a measure that a canary has a floor on, or not ask a canary that a rule of its own is
    about; nothing is changed then. OvertakenError where a definition is not of its revision any more: `revisions` has
    those that wanted ones were completed from, by (kind, slug).
    """
    contents = _contents(wanted)
    plan = partial(_plan_suites, wanted=wanted, contents=contents, managed_by=managed_by, refuse=True)
    write = partial(_write, store, vault, wanted, managed_by=managed_by, now=now, revisions=revisions)
    return plan_and_write(store, plan, write)


def _write(
    store: Store,
    vault: Vault,
    wanted: Documents,
    plans: "_Plans",
    *,
    managed_by: str,
    now: datetime,
    revisions: Mapping[tuple[str, str], int],
) -> list[Change]:
    """Write what was planned. Raises SuiteOvertakenError where it was planned for suites that were others by then."""
    with store.write(plans.tables) as connection:
        for (kind, slug), revision in sorted(revisions.items()):
            definitions.hold_definition(connection, kind, slug)
            found = definitions.find_definition(connection, kind, slug)
            if found is None or found.revision != revision:
                raise OvertakenError(f"{kind} '{slug}' was changed by somebody else meanwhile; try again")
        changes = _Applying(connection, vault, wanted, plans, managed_by, now=now, writes=True).run()
        if managed_by == FILE or wanted.checks:
            transitions.follow_definitions(connection, now=now)
        return changes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plans:
    """What happens to suites, and what was read of others for that; by slug."""

    wanted: Mapping[str, SuitePlan]
    absent: Mapping[str, Sequence[Change]]
    """Suites of files that are in force and in no file any more, and what taking them out of force changes."""
    floors: Mapping[str, SuiteFloors]
    """Of the wanted suites as they will be, and of those that wanted checks use besides."""
    revisions: Mapping[str, int]
    """Of every suite that this depends on; 0 = there was none."""

    @property
    def tables(self) -> list[StagedRows]:
        return [table for plan in self.wanted.values() for table in plan.staged.tables]


def _plan_suites(
    connection: Connection,
    wanted: Documents,
    contents: Mapping[str, Mapping[str, CanaryContent]],
    *,
    managed_by: str,
    refuse: bool,
) -> _Plans:
    """Plan the canaries of each suite. Raises FileManagedError as `plan_suite` does."""
    plans = {
        document.slug: plan_suite(
            connection,
            document.slug,
            document.canaries or (),
            contents[document.slug],
            managed_by=managed_by,
            refuse=refuse,
            repeats=True,
            source=partial(_source, wanted, managed_by, "canary", document.slug),
            number=number,
        )
        for number, document in enumerate(wanted.suites)
    }
    absent = {
        suite.slug: suite
        for suite in definitions.list_definitions(connection, "suite")
        if managed_by == FILE and suite.managed_by == FILE and suite.slug not in plans
    }
    used = {check.suite for check in wanted.checks} - plans.keys()
    others = {slug: definitions.find_definition(connection, "suite", slug) for slug in used | absent.keys()}
    return _Plans(
        wanted=plans,
        absent={slug: plan_archive(connection, suite) for slug, suite in absent.items()},
        floors={
            **{slug: plan.floors for slug, plan in plans.items()},
            **{slug: floors_in_force(connection, slug) for slug in used - absent.keys()},
        },
        revisions={
            **{slug: plan.revision for slug, plan in plans.items()},
            **{slug: suite.revision if suite is not None else 0 for slug, suite in others.items()},
        },
    )


def _source(wanted: Documents, managed_by: str, *identity: str) -> str | None:
    """Say where a definition or a canary stands, as file:line; None where no file owns it."""
    place = wanted.sources.get(identity)
    return f"{place.file}:{place.line}" if place is not None and managed_by == FILE else None


def _contents(wanted: Documents) -> Mapping[str, Mapping[str, CanaryContent]]:
    """Make the canaries of each suite ready to be stored: suite -> key -> content."""
    return {suite.slug: canary_contents(suite.canaries or ()) for suite in wanted.suites}


_Named = SuiteDocument | RetrieverDocument | HookDocument | CheckDocument | SilenceDocument


class _Applying:
    """One application of wanted definitions within a transaction; unless it `writes`, it only collects the changes."""

    def __init__(
        self,
        connection: Connection,
        vault: Vault,
        wanted: Documents,
        plans: _Plans,
        managed_by: str,
        *,
        now: datetime,
        writes: bool,
    ) -> None:
        self._connection = connection
        self._vault = vault
        self._wanted = wanted
        self._plans = plans
        self._managed_by = managed_by
        self._instant = now
        self._now = to_us(now)
        self._writes = writes
        self._changes: list[Change] = []
        self._changed: set[tuple[str, str]] = set()
        """(kind, slug) of what is created or updated."""
        self._archived: dict[str, set[str]] = defaultdict(set)
        """Slugs by kind."""
        self._rules_before: list[_Rules] = []
        """The rules of each check there was, where a silence names any."""

    def run(self) -> list[Change]:
        """Apply in an order in which nothing refers to what is not there yet."""
        if self._writes:
            self._hold_suites()
        if any(silence.rules for silence in self._wanted.silences):
            self._rules_before = _rules_of(checks_in_force(self._connection))
        for suite in self._wanted.suites:
            self._definition("suite", SuiteDocument(slug=suite.slug))
            self._canaries(suite.slug)
        for kind, documents in self._by_kind().items():
            for document in documents if kind != "suite" else ():
                self._definition(kind, document)
        if self._managed_by == FILE:
            self._archive_absent()
        if self._wanted.silences:
            refuse_too_many(len(self._expected("silence")))
        problems = list(self._broken())
        if problems:
            raise InvalidInputError(problems)
        return self._changes

    def _by_kind(self) -> dict[str, tuple[_Named, ...]]:
        wanted = self._wanted
        return {
            "suite": wanted.suites,
            "retriever": wanted.retrievers,
            "hook": wanted.hooks,
            "check": wanted.checks,
            "silence": wanted.silences,
        }

    def _definition(self, kind: str, document: _Named) -> None:
        slug = document.slug
        source = _source(self._wanted, self._managed_by, kind, slug)
        before = definitions.find_definition(self._connection, kind, slug)
        content = definition_content(self._vault, document, kept=before if self._managed_by == API else None)
        if self._managed_by == API and owned_by_file(before):
            if definition_change(self._vault, kind, slug, before, content, managed_by=FILE) is None:
                return  # the files say the same: nothing to do, whoever owns it
            if self._writes or before is None:
                refuse_file_managed(before)
            else:
                planned = definition_change(self._vault, kind, slug, before, content, managed_by=FILE)
                self._changes.append(refused_change(kind, slug, before, planned.fields if planned else ()))
                return
        change = definition_change(self._vault, kind, slug, before, content, managed_by=self._managed_by)
        if change is not None:
            self._changes.append(change)
            self._changed.add((kind, slug))
        if not self._writes:
            return
        owner = self._managed_by
        if change is not None:
            saved = definitions.save_definition(
                self._connection, kind, slug, content, managed_by=owner, source=source, now=self._now
            )
            if before is not None and before.disabled_reason is not None:
                outbox.send_owed(self._connection, self._now, hook_id=saved)
        elif before is not None and before.source != source:
            definitions.own_definition(self._connection, before.id, managed_by=owner, source=source)

    def _hold_suites(self) -> None:
        """Keep the suites as they were planned for. Raises SuiteOvertakenError where they are others already."""
        for slug, revision in sorted(self._plans.revisions.items()):
            hold_suite(self._connection, slug, revision)

    def _canaries(self, slug: str) -> None:
        planned = self._plans.wanted[slug]
        self._changes += planned.changes
        if self._writes:
            write_suite_plan(self._connection, planned, managed_by=self._managed_by, now=self._now)

    def _archive_absent(self) -> None:
        for kind, documents in self._by_kind().items():
            kept = {document.slug for document in documents}
            for row in definitions.list_definitions(self._connection, kind):
                if row.managed_by == FILE and row.slug not in kept:
                    self._archived[kind].add(row.slug)
                    self._changes += self._archive_changes(kind, row.slug)
                    if self._writes:
                        write_archive(self._connection, row, now=self._now)

    def _archive_changes(self, kind: str, slug: str) -> Sequence[Change]:
        if kind != "suite":
            return [archived_change(kind, slug)]
        if slug not in self._plans.absent:
            raise SuiteOvertakenError  # another process has just made it of its files
        return self._plans.absent[slug]

    def _broken(self) -> Iterator[Problem]:
        """Yield what the checks in force afterwards would lack, those of others included."""
        others = self._other_checks()
        for check in self._wanted.checks:
            for problem in missing(check, self._present(check)):
                yield replace(problem, **self._place(("check", check.slug)))
        for check in others:
            for kind, names in references_of(check).items():
                for name in self._archived[kind].intersection(names):
                    told = f"{kind} '{name}' is used by check '{check.slug}' of the API; change or delete that first"
                    yield Problem(message=told)
        for check in [*self._wanted.checks, *(other for other in others if other.suite in self._plans.wanted)]:
            suite = self._plans.floors.get(check.suite, NO_FLOORS)
            for key, told in check.uncomputed_floors(suite):
                place = self._place(("canary", check.suite, key), ("check", check.slug))
                yield Problem(path="floors", message=told, **place)
            for told in check.unknown_canaries(suite.keys):
                yield Problem(path="rules", message=told, **self._place(("check", check.slug)))
        yield from self._dangling_silences()

    def _dangling_silences(self) -> Iterator[Problem]:
        """Yield what silences would name that nobody has: they would keep nothing back, and be trusted to.

        One that stands as it was is not held against what the API archived since: it would stop the next start. One
        that is over is held against nothing: nobody trusts it any more.
        """
        nameable = cache(self._nameable)  # each check has rules to read
        rules = _rules_of(self._expected_checks()) if self._rules_before else []
        taken = {**self._archived, RULE: _heard(self._rules_before)}
        for silence in self._wanted.silences:
            if is_over(silence.to_domain(), self._instant):
                continue
            place = self._place(("silence", silence.slug))
            found = unknown_references(silence, nameable)
            for stranger in found:
                if stranger.slug in taken.get(stranger.kind, ()):
                    told = f"{stranger.kind} '{stranger.slug}' is taken away; take it out of this silence too"
                    yield replace(stranger.problem, message=told, **place)
                elif ("silence", silence.slug) in self._changed:
                    yield replace(stranger.problem, **place)
            lost = _heard(self._rules_before, silence) - _heard(rules, silence) if silence.rules and not found else ()
            for at, rule in enumerate(silence.rules):
                if rule in lost:  # others have one of that name, which this silence is not about
                    told = f"rule '{rule}' is taken away from what this is about; take it out of this silence too"
                    yield Problem(path=f"rules[{at}]", message=told, **place)

    def _other_checks(self) -> list[CheckDocument]:
        """Give the checks that stay in force and are not wanted here: those of others."""
        gone = {check.slug for check in self._wanted.checks} | self._archived["check"]
        return [check for check in checks_in_force(self._connection) if check.slug not in gone]

    def _nameable(self, kind: str) -> set[str]:
        """Give what a silence may name of a kind, of what would be in force afterwards."""
        if kind != RULE:
            return self._expected(kind)
        return {key for check in self._expected_checks() for key in rule_keys(check)}

    def _expected_checks(self) -> list[CheckDocument]:
        """Give the checks that would be in force afterwards."""
        return [*self._wanted.checks, *self._other_checks()]

    def _present(self, check: CheckDocument) -> dict[str, Collection[str]]:
        """Give the slugs a check may refer to, by kind; those it refers to stay until the transaction ends."""
        references = references_of(check)
        if self._writes:
            return {
                kind: definitions.hold_definitions(self._connection, kind, names) for kind, names in references.items()
            }
        return {kind: self._expected(kind) for kind in references}

    def _expected(self, kind: str) -> set[str]:
        """Give the slugs that would be in force afterwards."""
        there = {row.slug for row in definitions.list_definitions(self._connection, kind)}
        return (there | {document.slug for document in self._by_kind()[kind]}) - self._archived[kind]

    def _place(self, *identities: tuple[str, ...]) -> dict[str, Any]:
        """Say where the first of these stands that stands in a file."""
        for identity in identities:
            place = self._wanted.sources.get(identity)
            if place is not None:
                return {"file": place.file, "line": place.line}
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """The keys of a check's rules, read once."""

    check: CheckDocument
    keys: Collection[str]

    def are_meant_by(self, silence: SilenceDocument) -> bool:
        """Whether a silence is about this check, whatever rules it names."""
        check = self.check
        wanted = ((silence.checks, check.slug), (silence.suites, check.suite), (silence.retrievers, check.retriever))
        return all(not names or name in names for names, name in wanted)


def _rules_of(checks: Iterable[CheckDocument]) -> list[_Rules]:
    return [_Rules(check=check, keys=rule_keys(check)) for check in checks]


def _heard(rules: Iterable[_Rules], silence: SilenceDocument | None = None) -> set[str]:
    """Give the keys of the rules of all checks, or of those that a silence is about."""
    return {key for one in rules if silence is None or one.are_meant_by(silence) for key in one.keys}
