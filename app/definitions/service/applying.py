"""Applies a set of documents, from canary files or an import: the changes it would make, and making them.

The documents are valid, and the canaries planned before the transaction, which writes all of them or none. How one
definition is saved is said in `definitions`. A check with its suite, retriever or hooks inline is applied as a set,
too, and read at the end.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from app.alerts.service import transitions
from app.alerts.silences.service import CheckRules, refuse_too_many, rules_of, silence_problems
from app.base.db.engine import Connection, Store, to_us
from app.base.db.keys import Vault
from app.base.db.rows import StagedRows
from app.base.documents.fields import Document, parse_document
from app.base.errors import (
    ConflictError,
    InvalidInputError,
    Problem,
)
from app.base.values import Value, replace
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service.references import (
    answer_problems,
    checks_in_force,
    gives_answers,
    hook_kinds,
    load_definition,
    missing_references,
    plant_problems,
    references_of,
    writer_of,
)
from app.catalog.service.suites import (
    NO_FLOORS,
    Change,
    SuiteContent,
    SuiteOvertakenError,
    SuitePlan,
    archived_change,
    assign_suite_keys,
    floors_in_force,
    hold_suite,
    plan_and_write,
    plan_archive,
    plan_suite,
    refused_change,
    suite_content,
    write_suite_plan,
)
from app.catalog.store import (
    API,
    FILE,
    KINDS,
    Content,
    Definition,
    DefinitionDocument,
    refuse_file_managed,
)
from app.definitions.service.definitions import (
    complete,
    planned_change,
    refuse_unended,
    stored_content,
    unended_incidents,
    write_archive,
    write_content,
)
from app.hooks.documents import HookDocument
from app.retrievers.documents.retrievers import RetrieverDocument
from app.scoring.suites import SuiteFloors


class SuitePlans(Value):
    """Planned changes of suites, and the stored suites they depend on; by slug."""

    saved: Mapping[str, SuitePlan]
    """Suites of the documents."""
    archived: Mapping[str, Sequence[Change]]
    """File-managed suites that no file defines any more, with the changes of archiving them."""
    floors: Mapping[str, SuiteFloors]
    """Floors of the saved suites, and of other suites that checks of the documents use."""
    revisions: Mapping[str, int]
    """Revisions of all suites that this depends on; 0 = there is none."""

    @property
    def tables(self) -> list[StagedRows]:
        """The staged rows of all suites."""
        return [table for plan in self.saved.values() for table in plan.staged.tables]


def suite_contents(documents: Documents, managed_by: str) -> list[SuiteContent]:
    """Return the suites of documents ready to be stored."""
    return [
        suite_content(
            suite.slug,
            suite.canaries or (),
            managed_by=managed_by,
            source_of=partial(source_of, documents, managed_by, "canary", suite.slug),
            number=number,
        )
        for number, suite in enumerate(documents.suites)
    ]


def plan_suites(
    connection: Connection, documents: Documents, contents: Sequence[SuiteContent], *, managed_by: str, refuse: bool
) -> SuitePlans:
    """Return the plans of all suites. Raises FileManagedError as `plan_suite` does."""
    plans = {one.slug: plan_suite(connection, one, repeats=True, refuse=refuse) for one in contents}
    absent = {
        suite.slug: suite
        for suite in catalog.list_definitions(connection, "suite")
        if managed_by == FILE and suite.managed_by == FILE and suite.slug not in plans
    }
    used = {check.suite for check in documents.checks} - plans.keys()
    others = {slug: catalog.find_definition(connection, "suite", slug) for slug in used | absent.keys()}
    return SuitePlans(
        saved=plans,
        archived={slug: plan_archive(connection, suite) for slug, suite in absent.items()},
        floors={
            **{slug: plan.floors for slug, plan in plans.items()},
            **{slug: floors_in_force(connection, slug) for slug in used - absent.keys()},
        },
        revisions={
            **{slug: plan.revision for slug, plan in plans.items()},
            **{slug: suite.revision if suite is not None else 0 for slug, suite in others.items()},
        },
    )


def source_of(documents: Documents, managed_by: str, *identity: str) -> str | None:
    """Return where a file defines an object, as file:line; None where no file owns it."""
    place = documents.sources.get(identity)
    return f"{place.file}:{place.line}" if place is not None and managed_by == FILE else None


def diff(store: Store, vault: Vault, documents: Documents, *, managed_by: str, now: datetime) -> list[Change]:
    """Return the changes that `apply` would make. Raises what `apply` would raise.

    Changes the API may not make, since a file owns the object, are listed with a note instead.
    """
    contents = suite_contents(documents, managed_by)
    with store.read() as connection:
        plans = plan_suites(connection, documents, contents, managed_by=managed_by, refuse=False)
        return _Application(connection, vault, documents, plans, managed_by, now=now, writes=False).run()


class DefinitionChangedError(ConflictError):
    """A definition was changed after the documents were completed from it."""


def apply(
    store: Store,
    vault: Vault,
    documents: Documents,
    *,
    managed_by: str,
    now: datetime,
    revisions: Mapping[tuple[str, str], int] = MappingProxyType({}),
    force: bool = True,
) -> list[Change]:
    """Save documents in one transaction; file-managed objects that no file defines any more are archived.

    Raises InvalidInputError, and changes nothing, where a check of any owner would lack something it refers to, would
    not compute a measure that a canary has a floor on, or has a rule about a canary its suite lacks. Raises
    DefinitionChangedError where a definition has another revision than in `revisions`, by (kind, slug): those the
    documents were completed from. A change of a hook that leaves incidents open at its receiver says so in its note
    or, unless `force`, raises UnendedIncidentsError.
    """
    contents = suite_contents(documents, managed_by)
    plan = partial(plan_suites, documents=documents, contents=contents, managed_by=managed_by, refuse=True)

    def write(plans: SuitePlans) -> list[Change]:
        with store.write(plans.tables) as connection:
            for (kind, slug), revision in sorted(revisions.items()):
                catalog.hold_definition(connection, kind, slug)
                definition = catalog.find_definition(connection, kind, slug)
                if definition is None or definition.revision != revision:
                    raise DefinitionChangedError(f"{kind} '{slug}' was changed by somebody else meanwhile; try again")
            changes = _Application(
                connection, vault, documents, plans, managed_by, now=now, writes=True, force=force
            ).run()
            if managed_by == FILE or documents.checks:
                transitions.follow_definitions(connection, now=now)
            return changes

    return plan_and_write(store, plan, write)


class _Application:
    """One application of documents within a transaction; unless it `writes`, it only collects the changes."""

    def __init__(
        self,
        connection: Connection,
        vault: Vault,
        documents: Documents,
        plans: SuitePlans,
        managed_by: str,
        *,
        now: datetime,
        writes: bool,
        force: bool = True,
    ) -> None:
        self._connection = connection
        self._vault = vault
        self._documents = documents
        self._plans = plans
        self._managed_by = managed_by
        self._now = now
        self._writes = writes
        self._force = force
        self._by_kind: dict[str, tuple[DefinitionDocument, ...]] = {
            "suite": documents.suites,
            "retriever": documents.retrievers,
            "hook": documents.hooks,
            "judge": documents.judges,
            "check": documents.checks,
            "silence": documents.silences,
        }
        self._changes: list[Change] = []
        self._changed: set[tuple[str, str]] = set()
        """(kind, slug) of created and updated definitions."""
        self._archived: dict[str, set[str]] = defaultdict(set)
        """Slugs by kind."""

    def run(self) -> list[Change]:
        """Apply the documents, each after those it refers to. Raises SuiteOvertakenError where a plan is outdated."""
        for slug, revision in sorted(self._plans.revisions.items()) if self._writes else ():
            hold_suite(self._connection, slug, revision)
        rules_before = rules_of(checks_in_force(self._connection)) if self._names_rules else []
        for suite in self._documents.suites:
            self._save("suite", SuiteDocument(slug=suite.slug))
            self._save_canaries(suite.slug)
        for kind, documents in self._by_kind.items():
            for document in documents if kind != "suite" else ():
                self._save(kind, document)
        if self._managed_by == FILE:
            self._archive_absent()
        if self._documents.silences:
            refuse_too_many(len(self._slugs_after("silence")))
        problems = [*self._check_problems(), *self._silence_problems(rules_before)]
        if problems:
            raise InvalidInputError(problems)
        return self._changes

    @property
    def _names_rules(self) -> bool:
        return any(silence.rules for silence in self._documents.silences)

    def _save(self, kind: str, document: DefinitionDocument) -> None:
        slug, owner = document.slug, self._managed_by
        before = catalog.find_definition(self._connection, kind, slug)
        content = stored_content(self._vault, document, previous=before if owner == API else None)
        if owner == API and before is not None and before.is_file_managed:
            change = planned_change(self._vault, kind, slug, before, content, managed_by=FILE)
            if change is None:
                return  # equal to the file's definition
            if self._writes:
                refuse_file_managed(before, f"{kind} '{slug}'")
            else:
                self._changes.append(refused_change(kind, slug, before, change.fields))
                return
        change = planned_change(self._vault, kind, slug, before, content, managed_by=owner)
        if change is not None:
            change = self._with_unended(change, before, content)
            self._changes.append(change)
            self._changed.add((kind, slug))
        if not self._writes:
            return
        source, now = source_of(self._documents, owner, kind, slug), to_us(self._now)
        if change is not None:
            write_content(self._connection, kind, slug, before, content, managed_by=owner, source=source, now=now)
        elif before is not None and before.source != source:
            catalog.own_definition(self._connection, before.id, managed_by=owner, source=source)

    def _save_canaries(self, slug: str) -> None:
        plan = self._plans.saved[slug]
        self._changes += plan.changes
        if self._writes:
            write_suite_plan(self._connection, plan, managed_by=self._managed_by, now=to_us(self._now))

    def _archive_absent(self) -> None:
        for kind, documents in self._by_kind.items():
            slugs = {document.slug for document in documents}
            for row in catalog.list_definitions(self._connection, kind):
                if row.managed_by == FILE and row.slug not in slugs:
                    self._archived[kind].add(row.slug)
                    changes = self._archive_changes(kind, row.slug)
                    self._changes += [self._with_unended(change, row, None) for change in changes]
                    if self._writes:
                        write_archive(self._connection, row, now=to_us(self._now))

    def _with_unended(self, change: Change, before: Definition | None, after: Content | None) -> Change:
        """Return a change that says in its note which incidents it leaves open at the receiver of a hook.

        Those of checks that are archived with it are not among them: their ends are sent as the hook was before.
        """
        sentence = None
        if change.kind == "hook":
            ended = self._ended_checks() if after is None else ()
            sentence = unended_incidents(self._connection, self._vault, before, after, ended=ended)
        if sentence is None:
            return change
        refuse_unended(sentence, change.name, force=self._force)
        return replace(change, note="; ".join(filter(None, (change.note, f"WARNING: {sentence}"))))

    def _ended_checks(self) -> set[str]:
        """Return the checks that this application archives or disables."""
        kept = {check.slug for check in self._documents.checks if check.enabled}
        stored = catalog.list_definitions(self._connection, "check")
        ours = {row.slug for row in stored if row.managed_by == FILE == self._managed_by}
        return (ours | {check.slug for check in self._documents.checks}) - kept

    def _archive_changes(self, kind: str, slug: str) -> Sequence[Change]:
        if kind != "suite":
            return [archived_change(kind, slug)]
        if slug not in self._plans.archived:
            raise SuiteOvertakenError  # another process has just created it from files
        return self._plans.archived[slug]

    def _check_problems(self) -> Iterator[Problem]:
        """Yield what checks of any owner would lack afterwards."""
        others = self._other_checks()
        for check in self._documents.checks:
            for problem in self._reference_problems(check):
                yield self._placed(problem, ("check", check.slug))
        for check in others:
            for kind, names in references_of(check).items():
                for name in self._archived[kind].intersection(names):
                    used = f"{kind} '{name}' is used by check '{check.slug}' of the API"
                    yield Problem(message=f"{used}; change or delete that first")
        for check in [*self._documents.checks, *(other for other in others if other.suite in self._plans.saved)]:
            suite = self._plans.floors.get(check.suite, NO_FLOORS)
            for key, message in check.uncomputed_floors(suite):
                problem = Problem(path="floors", message=message)
                yield self._placed(problem, ("canary", check.suite, key), ("check", check.slug))
            for message in check.unknown_canaries(suite.keys):
                yield self._placed(Problem(path="rules", message=message), ("check", check.slug))

    def _reference_problems(self, check: CheckDocument) -> Iterator[Problem]:
        """Yield what a check of the documents refers to in vain."""
        yield from missing_references(check, self._slugs_present(check))
        yield from answer_problems(check, gives_answers=self._gives_answers(check.retriever))
        yield from plant_problems(check, self._retriever_body(writer_of(check)))
        kinds = hook_kinds(self._connection, check) | {hook.slug: hook.kind for hook in self._documents.hooks}
        yield from (Problem(path="report.hooks", message=message) for message in check.unfit_report_hooks(kinds))

    def _retriever_body(self, slug: str) -> Mapping[str, Any] | None:
        """Return the JSON that a retriever has afterwards; None where there is none."""
        document = next((one for one in self._documents.retrievers if one.slug == slug), None)
        if document is not None:
            return document.data()
        row = catalog.find_definition(self._connection, "retriever", slug)
        return None if row is None else row.body

    def _gives_answers(self, slug: str) -> bool:
        """Whether a retriever gives answers afterwards."""
        document = next((one for one in self._documents.retrievers if one.slug == slug), None)
        return gives_answers(self._connection, slug) if document is None else document.gives_answers

    def _silence_problems(self, rules_before: Collection[CheckRules]) -> Iterator[Problem]:
        checks = [*self._documents.checks, *self._other_checks()] if self._names_rules else []
        problems = silence_problems(
            self._documents.silences,
            slugs_of=self._slugs_after,
            before=rules_before,
            after=rules_of(checks),
            archived=self._archived,
            changed=self._changed,
            now=self._now,
        )
        return (self._placed(problem, ("silence", silence.slug)) for silence, problem in problems)

    def _other_checks(self) -> list[CheckDocument]:
        """Return the checks that remain besides those of the documents."""
        excluded = {check.slug for check in self._documents.checks} | self._archived["check"]
        return [check for check in checks_in_force(self._connection) if check.slug not in excluded]

    def _slugs_present(self, check: CheckDocument) -> dict[str, Collection[str]]:
        """Return the existing slugs a check may refer to, by kind; a writing application locks those it uses."""
        references = references_of(check)
        if self._writes:
            return {kind: catalog.hold_definitions(self._connection, kind, names) for kind, names in references.items()}
        return {kind: self._slugs_after(kind) for kind in references}

    def _slugs_after(self, kind: str) -> set[str]:
        """Return the slugs of a kind that exist afterwards."""
        stored = {row.slug for row in catalog.list_definitions(self._connection, kind)}
        return (stored | {document.slug for document in self._by_kind[kind]}) - self._archived[kind]

    def _placed(self, problem: Problem, *identities: tuple[str, ...]) -> Problem:
        """Return a problem with file and line of the first of these that a file defines."""
        places = (self._documents.sources.get(identity) for identity in identities)
        place = next((one for one in places if one is not None), None)
        return problem if place is None else replace(problem, file=place.file, line=place.line)


def put_inline_check(
    store: Store, vault: Vault, body: Mapping[str, Any], *, now: datetime, force: bool = False
) -> tuple[Definition, bool]:
    """Create or change a check and its inline parts, all or nothing; return it and whether it is new.

    The canaries of the suite replace its API-managed ones. A null secret keeps the stored one, see `complete`.

    Raises InvalidInputError with paths in the whole document (`retriever.response.id`), FileManagedError where a file
    owns a part that differs, ConflictError where a part whose secrets it keeps was changed meanwhile and,
    unless `force`, where an inline hook leaves incidents open at its present receiver.
    """
    revisions: dict[tuple[str, str], int] = {}

    def read(model: type[RetrieverDocument | HookDocument], part: Mapping[str, Any]) -> Document:
        document, revision = complete(store, vault, model, part)
        if revision is not None:
            revisions[KINDS[model], str(part["slug"])] = revision
        return document

    documents = _InlineCheckReader(body=body, read=read, assign_keys=partial(assign_suite_keys, store)).documents()
    # The revisions prevent an outdated secret from being restored, or sent to a changed address.
    changes = apply(store, vault, documents, managed_by=API, now=now, revisions=revisions, force=force)
    slug = documents.checks[0].slug
    created = any(change.kind == "check" and change.action == "create" for change in changes)
    return load_definition(store, "check", slug), created


def inline_kinds(body: Mapping[str, Any]) -> set[str]:
    """Return the kinds of definitions that are inline in a check."""
    kinds = {kind for kind in ("suite", "retriever") if isinstance(body.get(kind), dict)}
    hooks = body.get("hooks")
    return kinds | ({"hook"} if isinstance(hooks, list) and any(isinstance(one, dict) for one in hooks) else set())


_DocumentReader = Callable[[type[RetrieverDocument | HookDocument], Mapping[str, Any]], Document]
"""Returns a document of a type from its JSON, with null secrets filled in; raises InvalidInputError."""

_KeyAssigner = Callable[[str, Sequence[Any]], list[Any]]
"""Returns the canaries of a suite with derived keys where they have none."""

_DocumentT = TypeVar("_DocumentT", bound=Document)


@dataclass(slots=True, kw_only=True)
class _InlineCheckReader:
    """Reads the documents of a check with inline parts."""

    body: Mapping[str, Any]
    read: _DocumentReader
    assign_keys: _KeyAssigner
    problems: list[Problem] = field(default_factory=list)

    def documents(self) -> Documents:
        """Return them. Raises InvalidInputError with every problem and its path."""
        check = dict(self.body)
        suite = self._part(check, "suite", SuiteDocument, self._suite)
        retriever = self._part(check, "retriever", RetrieverDocument, partial(self.read, RetrieverDocument))
        hooks = self._hooks(check)
        parsed = self._parse_at("", lambda: parse_document(CheckDocument, check))
        if self.problems or parsed is None:
            raise InvalidInputError(self.problems)
        return Documents(
            suites=() if suite is None else (suite,),
            retrievers=() if retriever is None else (retriever,),
            hooks=tuple(hooks),
            checks=(parsed,),
        )

    def _hooks(self, check: dict[str, Any]) -> list[HookDocument]:
        hooks = check.get("hooks")
        if not isinstance(hooks, list):
            return []
        check["hooks"] = hooks = list(hooks)
        documents = [
            self._part(hooks, place, HookDocument, partial(self.read, HookDocument), prefix=f"hooks[{place}]")
            for place in range(len(hooks))
        ]
        return [hook for hook in documents if hook is not None]

    def _part(
        self,
        holder: Any,
        place: str | int,
        model: type[_DocumentT],
        parse: Callable[[Mapping[str, Any]], Document],
        *,
        prefix: str | None = None,
    ) -> _DocumentT | None:
        """Return the document of an inline part and leave its slug in its place; None where there is only a slug."""
        part = holder[place] if isinstance(place, int) else holder.get(place)
        if not isinstance(part, dict):
            return None
        named = {"slug": self.body.get("slug"), **part}
        holder[place] = named["slug"]
        document = self._parse_at(prefix or str(place), lambda: parse(named))
        return document if isinstance(document, model) else None

    def _suite(self, part: Mapping[str, Any]) -> SuiteDocument:
        canaries = part.get("canaries")
        if canaries is None:
            raise InvalidInputError([Problem(path="canaries", message="the key 'canaries' is missing")])
        keyed = self.assign_keys(str(part.get("slug")), canaries) if isinstance(canaries, list) else canaries
        return parse_document(SuiteDocument, {**part, "canaries": keyed})

    def _parse_at(self, prefix: str, parse: Callable[[], _DocumentT]) -> _DocumentT | None:
        """Return a parsed part; None where it has problems, which are added with their path in the whole document."""
        try:
            return parse()
        except InvalidInputError as error:
            for one in error.problems:
                path = ".".join(part for part in (prefix, one.path) if part)
                self.problems.append(replace(one, path=path or None))
            return None
