"""Definitions one at a time, as the API changes and everybody reads them: put, archive, find, list.

Whole sets of them are put in force by `applying`; each function here is one transaction.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from app.domain.errors import ConflictError, InvalidInputError, Problem
from app.formats.catalog.documents import CheckDocument, HookDocument, RetrieverDocument
from app.formats.catalog.secret_fields import destinations, join_secrets, secret_names
from app.formats.fields import Document
from app.formats.validation_messages import AnyDocument, parse_document
from app.services.alerts import silencing, transitions
from app.services.catalog.changes import definition_change, definition_content, write_archive
from app.services.catalog.references import (
    API,
    load_suite_of,
    refuse_file_managed,
    refuse_used,
    require,
    require_references,
)
from app.services.catalog.suite_plans import (
    plan_and_write,
)
from app.services.catalog.taken_names import taken
from app.services.catalog.vault import Vault
from app.store.catalog import definitions
from app.store.catalog.definitions import Definition
from app.store.delivery import replays
from app.store.engine import Connection, Store, to_us


def put(
    store: Store,
    vault: Vault,
    kind: str,
    document: Document,
    *,
    now: datetime,
    revision: int | None = None,
    only_new: bool = False,
) -> tuple[Definition, bool]:
    """Create or replace an API-managed definition; gives it and whether it is new.

    The document is all there is: a secret it does not have (see `stored_secrets`) is there no more. A hook whose
    receiver was gone is enabled again. `revision` is the one it was completed from (see `complete`) or was shown to
    whoever changed it; with `only_new` nothing in force is replaced.

    Raises FileManagedError for one a file owns, InvalidInputError for a reference to nothing, ConflictError where it
    is not of that revision any more, or is there already and was to be new.
    """

    def write(suite_revision: int | None) -> tuple[Definition, bool]:
        with store.write() as connection:
            if isinstance(document, CheckDocument):  # what it refers to is held before it, as applying does
                require_references(connection, document, suite_revision)
            return _put(connection, vault, kind, document, now=now, revision=revision, only_new=only_new)

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
) -> tuple[Definition, bool]:
    slug = str(document.data()["slug"])
    if revision is not None or only_new:
        definitions.hold_definition(connection, kind, slug)
    before = definitions.find_definition(connection, kind, slug)
    if only_new and before is not None and before.archived_at is None:
        raise taken(connection, kind, slug)
    refuse_file_managed(before)
    if revision is not None and (before is None or before.revision != revision):
        # Else secrets stored for one address could be saved beside another that came in between.
        raise overtaken(f"{kind} '{slug}'")
    content = definition_content(vault, document)
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
        raise taken(connection, kind, slug)  # on PostgreSQL there is no row to hold before there is one
    return after, before is None or before.archived_at is not None


def save(
    store: Store,
    vault: Vault,
    kind: str,
    model: type[Document],
    body: Mapping[str, Any],
    *,
    now: datetime,
    revision: int | None = None,
    only_new: bool = False,
) -> tuple[Definition, bool]:
    """Complete a definition whose secrets may be null and put it in force: see `complete` and `put`.

    `revision` is the one it was filled from; where nobody knows, that of the secrets it is completed with.
    """
    document, completed_from = complete(store, vault, kind, model, body)
    seen = completed_from if revision is None else revision
    return put(store, vault, kind, document, now=now, revision=seen, only_new=only_new)


def archive(store: Store, kind: str, slug: str, *, now: datetime) -> None:
    """Take an API-managed definition out of force; its history stays.

    Raises ConflictError while a check still uses it.
    """
    with store.write() as connection:
        definition = require(definitions.find_definition(connection, kind, slug), f"{kind} '{slug}'")
        refuse_file_managed(definition)
        write_archive(connection, definition, now=to_us(now))
        refuse_used(connection, kind, slug)
        if kind == "check":
            transitions.follow_definitions(connection, now=now)


def find(store: Store, kind: str, slug: str) -> Definition:
    """Find a definition in force. Raises NotFoundError."""
    with store.read() as connection:
        return require(definitions.find_definition(connection, kind, slug), f"{kind} '{slug}'")


def stored_secrets(store: Store, vault: Vault, kind: str, slug: str) -> dict[str, Any]:
    """Give the secrets of an API-managed definition, so that a change may leave them as they are.

    Raises ConfigurationError where they were stored under another key.
    """
    return _kept(vault, _find(store, kind, slug))


def complete(
    store: Store, vault: Vault, kind: str, model: type[AnyDocument], body: Mapping[str, Any]
) -> tuple[AnyDocument, int | None]:
    """Read a definition whose secrets may be null, "as they were": those stored for its slug stand in their places.

    Gives it and the revision they are of, which `put` wants to know; None where there are none.

    Raises InvalidInputError for what is wrong with it, and where secrets would go elsewhere than they
    were stored for: whoever moves an address has to say the secrets again. ConfigurationError as `stored_secrets`.
    """
    # Only where they are needed: secrets stored under another key must not keep fresh ones from taking their place.
    left = secret_names(body)
    before = _find(store, kind, str(body.get("slug"))) if left else None
    kept = _kept(vault, before)
    document = parse_document(model, join_secrets(body, kept))
    if before is None or not kept:
        return document, None
    if isinstance(document, RetrieverDocument | HookDocument):
        refuse_moving(before, document, [name for name in left if name in kept])
    return document, before.revision


def _find(store: Store, kind: str, slug: str) -> Definition | None:
    with store.read() as connection:
        return definitions.find_definition(connection, kind, slug)


def _kept(vault: Vault, before: Definition | None) -> dict[str, Any]:
    return vault.decrypt(before.secrets) if before is not None and before.managed_by == API else {}


def refuse_moving(before: Definition, document: RetrieverDocument | HookDocument, kept: Iterable[str]) -> None:
    """Raise InvalidInputError where stored secrets, `kept` as they were, would go elsewhere than they were stored for.

    Whoever may change an address could else have them sent to a server of their own.
    """
    after = document.data()
    message = "a stored value is not sent to another address than the one it was stored for; say the value again"
    moved = [name for name in kept if destinations(after, name) != destinations(before.body, name)]
    if moved:
        raise InvalidInputError([Problem(path=name, message=message) for name in moved])


def list_all(store: Store, kind: str, *, after: str = "", limit: int | None = None) -> list[Definition]:
    """List the definitions of a kind in force, by slug."""
    with store.read() as connection:
        return definitions.list_definitions(connection, kind, after=after, limit=limit)


def overtaken(name: str) -> ConflictError:
    """Return the error of a definition that was changed since it was read."""
    return ConflictError(f"{name} was changed by somebody else meanwhile; look at it and try again")
