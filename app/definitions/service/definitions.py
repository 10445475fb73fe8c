"""Definitions one at a time, such as a retriever, a check or a silence: put, archived, completed, exported.

One transaction a function, by the steps of `applying`: the content that is stored, the change it makes, the row. A
check with its inline suite and retriever is applied as a set. `catalog.service.suites` saves suites and their canaries.
A suggested rule is added to its check here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from app.alerts.service import transitions
from app.alerts.service.explanations import written_out
from app.alerts.silences import service as silencing
from app.alerts.silences.documents import SilenceDocument
from app.answers.documents import JudgeDocument
from app.base.db.engine import Connection, Store, to_us
from app.base.db.keys import Vault
from app.base.documents.fields import Document, parse_document
from app.base.errors import InvalidInputError, NotFoundError, Problem
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.documents.secrets import parse_with_stored, secret_names, with_placeholders
from app.catalog.documents.warnings import read_inline_check
from app.catalog.service.references import (
    answer_problems,
    find_check,
    gives_answers,
    hook_kinds,
    load_definition,
    missing_references,
    references_of,
    refuse_used,
)
from app.catalog.service.suites import (
    SuiteOvertakenError,
    assign_suite_keys,
    overtaken,
    plan_and_write,
    slug_taken_error,
)
from app.catalog.service.versions import load_suite_in_force
from app.catalog.store import API, KINDS, Definition, DefinitionDocument, refuse_file_managed, require
from app.definitions.service.applying import (
    apply,
    planned_change,
    refuse_unended,
    stored_content,
    unended_incidents,
    write_archive,
    write_content,
)
from app.hooks.documents import HookDocument
from app.retrievers.documents.retrievers import RetrieverDocument
from app.scoring.run_inputs import UnusableSuiteError

DefinitionT = TypeVar("DefinitionT", bound=DefinitionDocument)


def put(
    store: Store,
    vault: Vault,
    document: DefinitionDocument,
    *,
    now: datetime,
    revision: int | None = None,
    only_new: bool = False,
    force: bool = False,
) -> tuple[Definition, bool]:
    """Create or replace an API-managed definition; return it and whether it is new.

    The document is complete: a secret it lacks (see `stored_secrets`) is deleted. A hook disabled because its receiver
    was gone is enabled again. `revision` is the one the change is based on (see `complete`); with `only_new` an
    existing definition is not replaced.

    Raises FileManagedError for one a file owns, InvalidInputError for an unknown reference, ConflictError where the
    revision has changed, or the definition exists despite `only_new`; unless `force`, UnendedIncidentsError for a hook
    that gets another receiver while incidents are open at the present one.
    """
    kind, slug = KINDS[type(document)], document.slug

    def write(suite_revision: int | None) -> tuple[Definition, bool]:
        with store.write() as connection:
            if isinstance(document, CheckDocument):  # locks in the same order as `applying`: references first
                require_references(connection, document, suite_revision)
            before = _hold_changeable(connection, kind, slug, revision=revision, only_new=only_new)
            content = stored_content(vault, document)
            refuse_unended(unended_incidents(connection, vault, before, content), slug, force=force)
            if planned_change(vault, kind, slug, before, content, managed_by=API) is not None:
                write_content(connection, kind, slug, before, content, managed_by=API, source=None, now=to_us(now))
            if isinstance(document, CheckDocument):
                transitions.follow_definitions(connection, now=now)
            if isinstance(document, SilenceDocument):
                silencing.refuse_one_too_many(connection)
            after = require(catalog.find_definition(connection, kind, slug), f"{kind} '{slug}'")
            if only_new and before is None and after.revision != 1:
                raise slug_taken_error(connection, kind, slug)  # on PostgreSQL a missing row cannot be locked
            return after, before is None or before.archived_at is not None

    if isinstance(document, CheckDocument):
        return plan_and_write(store, partial(load_suite_of, check=document), write)
    return write(None)


def _hold_changeable(
    connection: Connection, kind: str, slug: str, *, revision: int | None, only_new: bool
) -> Definition | None:
    """Return a definition that may be changed, locked where the change is based on it; None = there is none.

    Raises as `put` does.
    """
    if revision is not None or only_new:
        catalog.hold_definition(connection, kind, slug)
    before = catalog.find_definition(connection, kind, slug)
    if only_new and before is not None and before.archived_at is None:
        raise slug_taken_error(connection, kind, slug)
    refuse_file_managed(before, f"{kind} '{slug}'")
    if revision is not None and (before is None or before.revision != revision):
        # Otherwise secrets stored for one address could be saved with another, changed in between.
        raise overtaken(f"{kind} '{slug}'")
    return before


def require_references(connection: Connection, check: CheckDocument, revision: int | None) -> None:
    """Raise InvalidInputError unless everything a check refers to exists; it is locked until the transaction ends.

    The suite is cached at `revision`, see `load_suite_of`; SuiteOvertakenError where it has another by now.
    """
    present = {kind: catalog.hold_definitions(connection, kind, slugs) for kind, slugs in references_of(check).items()}
    problems = missing_references(check, present)
    unfit = check.unfit_report_hooks(hook_kinds(connection, check))
    problems += [Problem(path="report.hooks", message=message) for message in unfit]
    if not problems:
        suite = require(catalog.find_definition(connection, "suite", check.suite), f"suite '{check.suite}'")
        if suite.revision != revision:
            raise SuiteOvertakenError
        floors = load_suite_in_force(connection, suite).floors
        problems = [Problem(path="suite", message=message) for _, message in check.uncomputed_floors(floors)]
        problems += [Problem(path="rules", message=message) for message in check.unknown_canaries(floors.keys)]
        problems += answer_problems(check, gives_answers=gives_answers(connection, check.retriever))
    if problems:
        raise InvalidInputError(problems)


def load_suite_of(connection: Connection, check: CheckDocument) -> int | None:
    """Load the suite of a check into the cache before the transaction of `require_references`; return its revision.

    None where there is none.
    """
    suite = catalog.find_definition(connection, "suite", check.suite)
    if suite is None:
        return None
    with suppress(UnusableSuiteError):
        assert load_suite_in_force(connection, suite).floors is not None  # noqa: S101 - read for its effect
    return suite.revision


def save(
    store: Store,
    vault: Vault,
    model: type[DefinitionDocument],
    body: Mapping[str, Any],
    *,
    now: datetime,
    revision: int | None = None,
    only_new: bool = False,
    force: bool = False,
) -> tuple[Definition, bool]:
    """Complete a definition with null secrets and save it: see `complete` and `put`.

    `revision` is the one the change is based on; None = that of the secrets it is completed with.
    """
    document, completed_from = complete(store, vault, model, body)
    base_revision = completed_from if revision is None else revision
    return put(store, vault, document, now=now, revision=base_revision, only_new=only_new, force=force)


def archive_hook(store: Store, vault: Vault, slug: str, *, now: datetime, force: bool) -> None:
    """Archive an API-managed hook; its history stays.

    Raises ConflictError while a check still uses it and, unless `force`, UnendedIncidentsError while incidents are open
    at its receiver.
    """

    def confirm(connection: Connection, hook: Definition) -> None:
        refuse_unended(unended_incidents(connection, vault, hook, None), slug, force=force)

    archive(store, "hook", slug, now=now, confirm=confirm)


def archive(
    store: Store,
    kind: str,
    slug: str,
    *,
    now: datetime,
    confirm: Callable[[Connection, Definition], None] | None = None,
) -> None:
    """Archive an API-managed definition, hooks with `archive_hook`; its history stays.

    Raises ConflictError while a check still uses it.
    """
    with store.write() as connection:
        definition = require(catalog.find_definition(connection, kind, slug), f"{kind} '{slug}'")
        refuse_file_managed(definition, f"{kind} '{slug}'")
        if confirm is not None:
            refuse_used(connection, kind, slug)
            confirm(connection, definition)
        write_archive(connection, definition, now=to_us(now))
        refuse_used(connection, kind, slug)
        if kind == "check":
            transitions.follow_definitions(connection, now=now)


def stored_secrets(store: Store, vault: Vault, kind: str, slug: str) -> dict[str, str]:
    """Return the secrets of an API-managed definition. Raises ConfigurationError if encrypted under another key."""
    return _decrypt(vault, _find(store, kind, slug))


def complete(
    store: Store, vault: Vault, model: type[DefinitionT], body: Mapping[str, Any]
) -> tuple[DefinitionT, int | None]:
    """Return a document with its null secrets filled from the store, and the revision those are of, for `put`.

    The revision is None where no stored secret was used. Raises InvalidInputError for an invalid document, and where a
    stored secret would be sent to another address than it was stored for. ConfigurationError as `stored_secrets`.
    """
    # Only where needed: secrets encrypted under another key must not prevent their replacement.
    before = _find(store, KINDS[model], str(body.get("slug"))) if secret_names(body) else None
    secrets = _decrypt(vault, before)
    document = parse_with_stored(model, body, before={} if before is None else before.body, secrets=secrets)
    return document, before.revision if before is not None and secrets else None


def _find(store: Store, kind: str, slug: str) -> Definition | None:
    with store.read() as connection:
        return catalog.find_definition(connection, kind, slug)


def _decrypt(vault: Vault, before: Definition | None) -> dict[str, str]:
    return vault.decrypt(before.secrets) if before is not None and before.managed_by == API else {}


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

    documents = read_inline_check(body, read, partial(assign_suite_keys, store))
    # The revisions prevent an outdated secret from being restored, or sent to a changed address.
    changes = apply(store, vault, documents, managed_by=API, now=now, revisions=revisions, force=force)
    slug = documents.checks[0].slug
    created = any(change.kind == "check" and change.action == "create" for change in changes)
    return load_definition(store, "check", slug), created


_PAGE: Final = 1_000
"""Canaries read at once."""


def write_all(store: Store, *, for_readers: bool = False) -> str:
    """Return all definitions as a canary file, see `write_canary_file`; canaries are read while they are written."""
    with store.read() as connection:
        rows = {row.slug: row for row in catalog.list_definitions(connection, "suite")}
        documents = Documents(
            suites=tuple(SuiteDocument(slug=slug) for slug in rows),
            retrievers=_documents(connection, "retriever", RetrieverDocument),
            hooks=_documents(connection, "hook", HookDocument),
            checks=_documents(connection, "check", CheckDocument),
            silences=_documents(connection, "silence", SilenceDocument),
            judges=_documents(connection, "judge", JudgeDocument),
        )
        return write_canary_file(
            documents, for_readers=for_readers, canaries_of=lambda slug: _canaries(connection, rows[slug])
        )


def load_suite_document(store: Store, slug: str | None) -> SuiteDocument:
    """Return a suite with its canaries; None = the only one there is.

    Raises NotFoundError, and InvalidInputError where there are several and `slug` is None.
    """
    with store.read() as connection:
        rows = catalog.list_definitions(connection, "suite")
        rows_of_slug = [row for row in rows if slug in {None, row.slug}]
        if not rows_of_slug:
            raise NotFoundError(f"there is no suite '{slug}'" if slug else "there is no suite")
        if len(rows_of_slug) > 1:
            names = ", ".join(row.slug for row in rows_of_slug)
            raise InvalidInputError([Problem(path="suite", message=f"say which suite; there are: {names}")])
        row = rows_of_slug[0]
        return SuiteDocument(slug=row.slug, canaries=tuple(_canaries(connection, row)))


def _canaries(connection: Connection, suite: catalog.Definition) -> Iterator[CanaryDocument]:
    after = ""
    while rows := catalog.list_canaries(connection, suite.id, after=after, limit=_PAGE):
        yield from [CanaryDocument.model_validate(one.body) for one in rows]
        after = rows[-1].key


def _documents(connection: Connection, kind: str, model: type[Document]) -> tuple[Any, ...]:
    return tuple(
        model.model_validate(with_placeholders(row.body, secrets_set=row.secrets is not None))
        for row in catalog.list_definitions(connection, kind)
    )


def adopt(store: Store, vault: Vault, slug: str, rule: Mapping[str, Any], *, revision: int, now: datetime) -> None:
    """Add a rule to an API-managed check of this revision, and write out the default that it would replace.

    Raises NotFoundError, FileManagedError, InvalidInputError, and ConflictError where somebody changed the check.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
    body = {**check.body, "rules": [*written_out(check.read(CheckDocument)), rule]}
    put(store, vault, parse_document(CheckDocument, body), now=now, revision=revision)
