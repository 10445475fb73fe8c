"""Single definitions, such as a retriever or a hook: put, archive, find, list; one transaction per function.

`suite_definitions` has suites and canaries, `applying` whole sets of documents.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from app.alerts.service import transitions
from app.alerts.silences import service as silencing
from app.base.db.engine import Connection, Store, to_us
from app.base.documents.fields import Document
from app.base.documents.validation_messages import AnyDocument, parse_document
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.catalog.documents.documents import CheckDocument, HookDocument, JudgeDocument, RetrieverDocument
from app.catalog.documents.secret_fields import destinations, join_secrets, secret_names
from app.catalog.service.changes import (
    definition_change,
    definition_content,
    refuse_unended,
    unended_incidents,
    write_archive,
)
from app.catalog.service.references import (
    API,
    load_suite_of,
    refuse_file_managed,
    refuse_used,
    require,
    require_references,
)
from app.catalog.service.suite_plans import plan_and_write
from app.catalog.service.taken_names import slug_taken_error
from app.catalog.service.vault import Vault
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.hooks.store import replays


def put(
    store: Store,
    vault: Vault,
    kind: str,
    document: Document,
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

    def write(suite_revision: int | None) -> tuple[Definition, bool]:
        with store.write() as connection:
            if isinstance(document, CheckDocument):  # locks in the same order as `applying`: references first
                require_references(connection, document, suite_revision)
            return _put(connection, vault, kind, document, now=now, revision=revision, only_new=only_new, force=force)

    return plan_and_write(store, partial(load_suite_of, document=document), write)


def _put(
    connection: Connection,
    vault: Vault,
    kind: str,
    document: Document,
    *,
    now: datetime,
    revision: int | None,
    only_new: bool,
    force: bool,
) -> tuple[Definition, bool]:
    slug = str(document.data()["slug"])
    if revision is not None or only_new:
        definitions.hold_definition(connection, kind, slug)
    before = definitions.find_definition(connection, kind, slug)
    if only_new and before is not None and before.archived_at is None:
        raise slug_taken_error(connection, kind, slug)
    refuse_file_managed(before)
    if revision is not None and (before is None or before.revision != revision):
        # Otherwise secrets stored for one address could be saved with another, changed in between.
        raise overtaken(f"{kind} '{slug}'")
    content = definition_content(vault, document)
    refuse_unended(unended_incidents(connection, vault, before, content), slug, force=force)
    if definition_change(vault, kind, slug, before, content, managed_by=API) is not None:
        saved = definitions.save_definition(
            connection, kind, slug, content, managed_by=API, source=None, now=to_us(now)
        )
        if before is not None and before.disabled_reason is not None:
            replays.replay_unsent_resolves(connection, to_us(now), hook_id=saved)
    if isinstance(document, CheckDocument):
        transitions.follow_definitions(connection, now=now)
    if kind == silencing.KIND:
        silencing.refuse_one_too_many(connection)
    after = require(definitions.find_definition(connection, kind, slug), f"{kind} '{slug}'")
    if only_new and before is None and after.revision != 1:
        raise slug_taken_error(connection, kind, slug)  # on PostgreSQL a missing row cannot be locked
    return after, before is None or before.archived_at is not None


def save(  # noqa: PLR0913 - a parameter for each condition
    store: Store,
    vault: Vault,
    kind: str,
    model: type[Document],
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
    document, completed_from = complete(store, vault, kind, model, body)
    base_revision = completed_from if revision is None else revision
    return put(store, vault, kind, document, now=now, revision=base_revision, only_new=only_new, force=force)


def archive(store: Store, kind: str, slug: str, *, now: datetime) -> None:
    """Archive an API-managed definition, hooks with `archive_hook`; its history stays.

    Raises ConflictError while a check still uses it.
    """
    _archive(store, kind, slug, now=now)


def archive_hook(store: Store, vault: Vault, slug: str, *, now: datetime, force: bool) -> None:
    """Archive an API-managed hook; its history stays.

    Raises ConflictError while a check still uses it and, unless `force`, UnendedIncidentsError while incidents are open
    at its receiver.
    """

    def confirm(connection: Connection, hook: Definition) -> None:
        refuse_unended(unended_incidents(connection, vault, hook, None), slug, force=force)

    _archive(store, "hook", slug, now=now, confirm=confirm)


def _archive(
    store: Store,
    kind: str,
    slug: str,
    *,
    now: datetime,
    confirm: Callable[[Connection, Definition], None] | None = None,
) -> None:
    with store.write() as connection:
        definition = require(definitions.find_definition(connection, kind, slug), f"{kind} '{slug}'")
        refuse_file_managed(definition)
        if confirm is not None:
            refuse_used(connection, kind, slug)
            confirm(connection, definition)
        write_archive(connection, definition, now=to_us(now))
        refuse_used(connection, kind, slug)
        if kind == "check":
            transitions.follow_definitions(connection, now=now)


def find(store: Store, kind: str, slug: str) -> Definition:
    """Return a definition. Raises NotFoundError, also for an archived one."""
    with store.read() as connection:
        return require(definitions.find_definition(connection, kind, slug), f"{kind} '{slug}'")


def stored_secrets(store: Store, vault: Vault, kind: str, slug: str) -> dict[str, str]:
    """Return the secrets of an API-managed definition. Raises ConfigurationError if encrypted under another key."""
    return _decrypt(vault, _find(store, kind, slug))


def complete(
    store: Store, vault: Vault, kind: str, model: type[AnyDocument], body: Mapping[str, Any]
) -> tuple[AnyDocument, int | None]:
    """Return a document with its null secrets filled from the store, and the revision those are of, for `put`.

    The revision is None where no stored secret was used. Raises InvalidInputError for an invalid document, and where a
    stored secret would be sent to another address than it was stored for. ConfigurationError as `stored_secrets`.
    """
    # Only where needed: secrets encrypted under another key must not prevent their replacement.
    open_names = secret_names(body)
    before = _find(store, kind, str(body.get("slug"))) if open_names else None
    stored = _decrypt(vault, before)
    document = parse_document(model, join_secrets(body, stored))
    if before is None or not stored:
        return document, None
    if isinstance(document, RetrieverDocument | HookDocument | JudgeDocument):
        refuse_moving(before, document, [name for name in open_names if name in stored])
    return document, before.revision


def _find(store: Store, kind: str, slug: str) -> Definition | None:
    with store.read() as connection:
        return definitions.find_definition(connection, kind, slug)


def _decrypt(vault: Vault, before: Definition | None) -> dict[str, str]:
    return vault.decrypt(before.secrets) if before is not None and before.managed_by == API else {}


def refuse_moving(
    before: Definition, document: RetrieverDocument | HookDocument | JudgeDocument, stored: Iterable[str]
) -> None:
    """Raise InvalidInputError where the `stored` secrets would be sent to another address than they were stored for.

    Otherwise whoever may change an address could read them on a server of their own.
    """
    after = document.data()
    message = "a stored value is not sent to another address than the one it was stored for; enter the value again"
    moved = [name for name in stored if destinations(after, name) != destinations(before.body, name)]
    if moved:
        raise InvalidInputError([Problem(path=name, message=message) for name in moved])


def list_all(store: Store, kind: str, *, after: str = "", limit: int | None = None) -> list[Definition]:
    """Return the definitions of a kind, by slug, without archived ones."""
    with store.read() as connection:
        return definitions.list_definitions(connection, kind, after=after, limit=limit)


def overtaken(name: str) -> ConflictError:
    """Return the error of a definition that was changed since it was read."""
    return ConflictError(f"{name} was changed by somebody else meanwhile; reload it and try again")
