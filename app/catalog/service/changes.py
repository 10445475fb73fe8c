"""Changes of one definition: what differs from the stored one, who may change it, what a change would leave open.

Values are never named, as they may be secret. `definitions` uses this for one definition, `applying` for sets; `suites`
compares canaries.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.answers.documents import JudgeDocument
from app.base.db.engine import Connection
from app.base.documents.fields import Document
from app.base.errors import ConfigurationError, ConflictError, InvalidInputError, Problem, UnendedIncidentsError
from app.base.texts import counted
from app.base.vault import Vault
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.secret_fields import content_hash, destinations, join_secrets, secret_names, split_secrets
from app.catalog.store import definitions, suites
from app.catalog.store.definitions import Content, Definition
from app.catalog.store.suites import CanaryHead
from app.hooks.documents import HookDocument, receivers
from app.hooks.store import outbox, replays
from app.retrievers.documents.retrievers import RetrieverDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between a document and the stored definition."""

    kind: str
    name: str
    """The slug, for a canary `suite/key`."""
    action: str
    """create, update or archive."""
    fields: tuple[str, ...] = ()
    """Names of the fields that an update changes; values may be secret."""
    note: str | None = None


def definition_change(
    vault: Vault, kind: str, slug: str, before: Definition | None, content: Content, *, managed_by: str
) -> Change | None:
    """Return the change that saving a content makes; None = no change."""
    if before is None:
        return Change(kind=kind, name=slug, action="create")
    if before.archived_at is not None:
        return Change(kind=kind, name=slug, action="create", note="was archived")
    note = ownership_note(before, managed_by)
    if note is None and before.disabled_reason is not None:
        note = "was disabled"
    # With equal hashes only the order of tags and hooks can differ.
    fields = () if before.hash == content.hash else fields_changed(before.body, content.body)
    if _secrets_differ(vault, before, content):
        fields = (*fields, "secrets")
    if fields or note:
        return Change(kind=kind, name=slug, action="update", fields=fields, note=note)
    return None


def definition_content(vault: Vault, document: Document, *, previous: Definition | None = None) -> Content:
    """Return a document ready to be stored; null secrets are taken from `previous`, where given."""
    if isinstance(document, SuiteDocument):
        return suite_definition(document.slug)
    public, secrets = split_secrets(document)
    open_names = [name for name in secret_names(public) if name not in secrets]
    if open_names and previous is not None and previous.secrets is not None:
        stored = vault.decrypt(previous.secrets)
        secrets |= {name: stored[name] for name in open_names if name in stored}
    return Content(hash=content_hash(document), body=public, secrets=vault.encrypt(secrets))


def suite_definition(slug: str) -> Content:
    """Return a suite ready to be stored; its canaries are stored separately."""
    return Content(hash=slug, body={"slug": slug})


def refused_change(kind: str, name: str, before: Definition | CanaryHead, fields: tuple[str, ...]) -> Change:
    """Return a change that the API may not make; the note names the file that owns the object."""
    note = f"managed by {before.source}: refused here, change it there"
    return Change(kind=kind, name=name, action="update", fields=fields, note=note)


def archived_change(kind: str, name: str) -> Change:
    """Return the change of archiving a definition or a canary."""
    return Change(kind=kind, name=name, action="archive")


def ownership_note(before: Definition | CanaryHead, managed_by: str) -> str | None:
    """Return a note on a change of ownership; None = the owner stays."""
    return None if before.managed_by == managed_by else f"taken over from the {before.managed_by}"


def write_archive(connection: Connection, definition: Definition, *, now: int) -> None:
    """Archive a definition: a suite with its canaries; pending deliveries of a hook are abandoned."""
    definitions.archive_definition(connection, definition.id, now)
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
    found = [one for one in replays.unended_incidents(connection, before.id) if one[0] not in ended]
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


def fields_changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the fields that differ; stored bodies have defaults for fields newer than them.

    A different hash alone is no change: an older release may have computed it differently.
    """
    return tuple(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))


def _secrets_differ(vault: Vault, before: Definition, content: Content) -> bool:
    try:
        return vault.decrypt(before.secrets) != vault.decrypt(content.secrets)
    except ConfigurationError:  # encrypted under another key, thus unusable: the new ones replace them
        return True


_LONGEST_SLUG, _LONGEST_KEY = 64, 128
_NUMBERS: Final = range(2, 10)


def slug_taken_error(connection: Connection, kind: str, slug: str) -> ConflictError:
    """Return the error of a slug in use, with a similar one that was never used."""
    names = _numbered(slug, _LONGEST_SLUG)
    free = next((name for name in names if definitions.find_definition(connection, kind, name) is None), "")
    return _error(kind, slug, free)


def key_taken_error(connection: Connection, suite_id: int, key: str) -> ConflictError:
    """Return the error of a key in use, with a similar free one."""
    names = _numbered(key, _LONGEST_KEY)
    taken_keys = {row.key for row in suites.list_canaries(connection, suite_id, keys=names, archived=True)}
    return _error("canary", key, next((name for name in names if name not in taken_keys), ""))


def _error(kind: str, name: str, free: str) -> ConflictError:
    other = f"another name, such as '{free}'," if free else "another name,"
    return ConflictError(f"there is a {kind} '{name}' already; choose {other} or change that one")


def _numbered(name: str, longest: int) -> list[str]:
    """Return the name with numbers appended (`docs-2`), each of at most `longest` characters."""
    return [f"{name[: longest - 2].rstrip('-')}-{number}" for number in _NUMBERS]


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
