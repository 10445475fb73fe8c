"""Definitions one at a time, such as a retriever, a check or a silence: put, archived, completed, exported.

One transaction a function, in steps that `applying` takes for sets of documents, too: the content that is stored, the
change it makes, the row. `catalog.service.suites` saves suites and their canaries. A suggested rule is added to its
check here.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from app.alerts.service import transitions
from app.alerts.service.explanations import written_out
from app.alerts.silences import service as silencing
from app.alerts.silences.documents import SilenceDocument
from app.answers.documents import JudgeDocument
from app.base.db.engine import Connection, Store, to_us
from app.base.db.keys import Vault
from app.base.documents.fields import Document, parse_document
from app.base.errors import (
    ConfigurationError,
    InvalidInputError,
    NotFoundError,
    Problem,
    UnendedIncidentsError,
)
from app.base.texts import counted
from app.base.values import replace
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.documents.secrets import (
    WITH_SECRETS,
    hash_apart,
    join_secrets,
    parse_with_stored,
    secret_names,
    split_secrets,
    with_placeholders,
)
from app.catalog.service.references import (
    answer_problems,
    find_check,
    gives_answers,
    hook_kinds,
    missing_references,
    plant_problems,
    references_of,
    refuse_used,
    unasked_canaries,
    unknown_vars,
    writer_of,
)
from app.catalog.service.suites import (
    Change,
    SuiteOvertakenError,
    overtaken,
    plan_and_write,
    slug_taken_error,
    suite_definition,
)
from app.catalog.service.versions import load_suite_in_force
from app.catalog.store import (
    API,
    KINDS,
    Content,
    Definition,
    DefinitionDocument,
    fields_changed,
    refuse_file_managed,
    require,
)
from app.hooks import store as outbox
from app.hooks.documents import HookDocument, receivers
from app.retrievers.documents.retrievers import RetrieverDocument
from app.scoring.run_inputs import UnusableSuiteError

DefinitionT = TypeVar("DefinitionT", bound=DefinitionDocument)


def plants_elsewhere(document: CheckDocument, stored: Mapping[str, Any] | None) -> bool:
    """Whether saving a check gives what it plants another form or place: a thing that may be asked of an admin alone.

    A plant is sent with the secrets of a retriever. `stored`: the body of the check as it is; None = there is none.
    """
    if document.plant is None:
        return False
    now = document.data()
    return stored is None or any(now.get(name) != stored.get(name) for name in ("plant", "retriever", "vars"))


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


def planned_change(
    vault: Vault, kind: str, slug: str, before: Definition | None, content: Content, *, managed_by: str
) -> Change | None:
    """Return the change that saving a content makes; None = no change."""
    if before is None:
        return Change(kind=kind, name=slug, action="create")
    if before.archived_at is not None:
        return Change(kind=kind, name=slug, action="create", note="was archived")
    note = before.ownership_note(managed_by)
    if note is None and before.disabled_reason is not None:
        note = "was disabled"
    # With equal hashes only the order of tags and hooks can differ.
    fields = () if before.hash == content.hash else fields_changed(before.body, content.body)
    if _secrets_differ(vault, before, content):
        fields = (*fields, "secrets")
    if fields or note:
        return Change(kind=kind, name=slug, action="update", fields=fields, note=note)
    return None


def _secrets_differ(vault: Vault, before: Definition, content: Content) -> bool:
    try:
        return vault.decrypt(before.secrets) != vault.decrypt(content.secrets)
    except ConfigurationError:  # encrypted under another key, thus unusable: the new ones replace them
        return True


def stored_content(vault: Vault, document: Document, *, previous: Definition | None = None) -> Content:
    """Return a document ready to be stored; null secrets are taken from `previous`, where given."""
    if isinstance(document, SuiteDocument):
        return suite_definition(document.slug)
    if not isinstance(document, WITH_SECRETS):
        return Content(hash=document.content_hash(), document=document)
    public, secrets = split_secrets(document)
    digest = hash_apart(document, public, secrets)
    open_names = [name for name in secret_names(public) if name not in secrets]
    if open_names and previous is not None and previous.secrets is not None:
        stored = vault.decrypt(previous.secrets)
        secrets |= {name: stored[name] for name in open_names if name in stored}
    return Content(hash=digest, public=public, secrets=vault.encrypt(secrets))


def write_content(
    connection: Connection,
    kind: str,
    slug: str,
    before: Definition | None,
    content: Content,
    *,
    managed_by: str,
    source: str | None,
    now: int,
) -> None:
    """Write a definition that differs from `before`; a hook that was disabled is sent the ends it has not heard of."""
    saved = catalog.save_definition(connection, kind, slug, content, managed_by=managed_by, source=source, now=now)
    if before is not None and before.disabled_reason is not None:
        outbox.replay_unsent_resolves(connection, now, hook_id=saved)


def write_archive(connection: Connection, definition: Definition, *, now: int) -> None:
    """Archive a definition: a suite with its canaries; pending deliveries of a hook are abandoned."""
    catalog.archive_definition(connection, definition.id, now)
    if definition.kind == "hook":
        outbox.abandon_deliveries(connection, definition.id, "The hook was archived.")


def unended_incidents(
    connection: Connection,
    vault: Vault,
    before: Definition | None,
    after: Content | None,
    *,
    ended: Collection[str] = (),
) -> str | None:
    """Return the rest of a sentence: which incidents a change of a hook leaves open at its receiver; None = none.

    `after` is the hook's content afterwards, None = it is archived. `ended`: checks that end with the same change, so
    that the receiver hears of it.
    """
    if before is None or before.archived_at is not None or before.kind != "hook":
        return None
    left = _receivers(vault, before.body, before.secrets)
    if left is not None and after is not None:
        kept = _receivers(vault, after.body, after.secrets) or {}
        left = {identity: name for identity, name in left.items() if identity not in kept}
    if left is not None and not left:
        return None
    found = [one for one in outbox.unended_incidents(connection, before.id) if one[0] not in ended]
    if not found:
        return None
    names = ", ".join(left.values()) if left else "its receiver"
    classes = ", ".join(f"{incident_class} of check '{check}'" for check, incident_class in found)
    return f"leaves {counted(len(found), 'incident')} open at {names}, which will not hear of the end: {classes}"


def refuse_unended(sentence: str | None, hook: str, *, force: bool) -> None:
    """Raise UnendedIncidentsError where `unended_incidents` says something of a change that is not forced."""
    if sentence is not None and not force:
        raise UnendedIncidentsError(f"this change of hook '{hook}' {sentence}")


def _receivers(vault: Vault, body: Mapping[str, Any], secrets: bytes | None) -> dict[tuple[str, ...], str] | None:
    """Return the receivers of a stored hook; None where its secrets cannot be read."""
    try:
        return receivers(join_secrets(body, vault.decrypt(secrets)))
    except ConfigurationError:
        return None


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
        snapshot = load_suite_in_force(connection, suite)
        floors = snapshot.floors
        problems = [Problem(path="suite", message=message) for _, message in check.uncomputed_floors(floors)]
        problems += [Problem(path="rules", message=message) for message in check.unknown_canaries(floors.keys)]
        problems += answer_problems(check, gives_answers=gives_answers(connection, check.retriever))
        problems += unknown_vars(connection, check)
        problems += unasked_canaries(connection, check, snapshot)
        writer = catalog.find_definition(connection, "retriever", writer_of(check))
        problems += plant_problems(check, None if writer is None else writer.body)
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


def choose_checks(
    store: Store, vault: Vault, hook: str, *, added: Collection[str], removed: Collection[str], now: datetime
) -> int:
    """Let checks send their alerts to a hook from now on, and others no longer; return how many were changed.

    Those archived meanwhile are left out. Raises FileManagedError for one a file owns, NotFoundError for the hook, and
    InvalidInputError for a check that has as many hooks as it may; then none is changed.
    """
    changed = 0
    with store.write() as connection:
        if not catalog.hold_definitions(connection, "hook", [hook]):
            raise NotFoundError(f"there is no hook '{hook}'")
        for slug in sorted({*added, *removed}):
            catalog.hold_definition(connection, "check", slug)
            before = catalog.find_definition(connection, "check", slug)
            if before is None or before.archived_at is not None:
                continue
            hooks = [*(one for one in before.body["hooks"] if one != hook), *([hook] if slug in added else [])]
            if set(hooks) == set(before.body["hooks"]):
                continue
            refuse_file_managed(before, f"check '{slug}'")
            try:
                document = parse_document(CheckDocument, {**before.body, "hooks": hooks})
            except InvalidInputError as error:
                raise InvalidInputError([replace(one, path=f"{slug}: {one.path}") for one in error.problems]) from None
            content = stored_content(vault, document)
            write_content(connection, "check", slug, before, content, managed_by=API, source=None, now=to_us(now))
            changed += 1
        if changed:
            transitions.follow_definitions(connection, now=now)
    return changed


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


def write_one(definition: Definition, *, for_readers: bool = False) -> str:
    """Return a definition, which is no suite, as a canary file has it, see `write_canary_file`."""
    model = next(one for one, kind in KINDS.items() if kind == definition.kind)
    listed: dict[str, Any] = {f"{definition.kind}s": (_document(definition, model),)}
    return write_canary_file(Documents(**listed), for_readers=for_readers)


def load_suite_document(store: Store, slug: str | None, *, most: int | None = None) -> SuiteDocument:
    """Return a suite with its canaries, `most` of them; None = the only one there is, and all of them.

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
        return SuiteDocument(slug=row.slug, canaries=tuple(islice(_canaries(connection, row), most)))


def _canaries(connection: Connection, suite: catalog.Definition) -> Iterator[CanaryDocument]:
    after = ""
    while rows := catalog.list_canaries(connection, suite.id, after=after, limit=_PAGE):
        yield from [CanaryDocument.model_validate(one.body) for one in rows]
        after = rows[-1].key


def _documents(connection: Connection, kind: str, model: type[Document]) -> tuple[Any, ...]:
    return tuple(_document(row, model) for row in catalog.list_definitions(connection, kind))


def _document(row: Definition, model: type[Document]) -> Any:
    return model.model_validate(with_placeholders(row.body, secrets_set=row.secrets is not None))


def adopt(store: Store, vault: Vault, slug: str, rule: Mapping[str, Any], *, revision: int, now: datetime) -> None:
    """Add a rule to an API-managed check of this revision, and write out the default that it would replace.

    Raises NotFoundError, FileManagedError, InvalidInputError, and ConflictError where somebody changed the check.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
    body = {**check.body, "rules": [*written_out(check.read(CheckDocument)), rule]}
    put(store, vault, parse_document(CheckDocument, body), now=now, revision=revision)
