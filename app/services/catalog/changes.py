"""What differs between a definition that is wanted and the one in force, and how it is written.

`definitions` changes one at a time, `applying` all together; who may is said in `references`, what becomes of the
canaries of a suite in `suite_plans`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.errors import ConfigurationError
from app.formats.catalog.documents import SuiteDocument
from app.formats.catalog.secret_fields import content_hash, secret_names, split_secrets
from app.formats.fields import Document
from app.services.catalog.vault import Vault
from app.store.catalog import definitions
from app.store.catalog.definitions import Content, Definition
from app.store.catalog.suites import CanaryHead
from app.store.delivery import outbox
from app.store.engine import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between what is wanted and what is in force."""

    kind: str
    name: str
    """The slug, for a canary `suite/key`."""
    action: str
    """create, update or archive."""
    fields: tuple[str, ...] = ()
    """What an update changes; names only, values may be secret."""
    note: str | None = None


def definition_change(
    vault: Vault, kind: str, slug: str, before: Definition | None, content: Content, *, managed_by: str
) -> Change | None:
    """Say what saving a content changes; None = nothing."""
    if before is None:
        return Change(kind=kind, name=slug, action="create")
    if before.archived_at is not None:
        return Change(kind=kind, name=slug, action="create", note="was archived")
    note = taken_over(before, managed_by)
    if note is None and before.disabled_reason is not None:
        note = "was disabled"
    # The same hash: the order of tags and hooks is no difference.
    fields = () if before.hash == content.hash else fields_changed(before.body, content.body)
    if _secrets_differ(vault, before, content):
        fields = (*fields, "secrets")
    if fields or note:
        return Change(kind=kind, name=slug, action="update", fields=fields, note=note)
    return None


def definition_content(vault: Vault, document: Document, *, kept: Definition | None = None) -> Content:
    """Make a document ready to be stored; secrets it leaves open are those of `kept`, where given."""
    if isinstance(document, SuiteDocument):
        return suite_definition(document.slug)
    public, secrets = split_secrets(document)
    open_names = [name for name in secret_names(public) if name not in secrets]
    if open_names and kept is not None and kept.secrets is not None:
        stored = vault.decrypt(kept.secrets)
        secrets |= {name: stored[name] for name in open_names if name in stored}
    return Content(hash=content_hash(document), body=public, secrets=vault.encrypt(secrets))


def suite_definition(slug: str) -> Content:
    """Make a suite ready to be stored; its canaries are stored for themselves."""
    return Content(hash=slug, body={"slug": slug})


def refused_change(kind: str, name: str, before: Definition | CanaryHead, fields: tuple[str, ...]) -> Change:
    """Plan what the API may not change: the note says which file owns it."""
    note = f"managed by {before.source}: refused here, change it there"
    return Change(kind=kind, name=name, action="update", fields=fields, note=note)


def archived_change(kind: str, name: str) -> Change:
    """Plan to take a definition or a canary out of force."""
    return Change(kind=kind, name=name, action="archive")


def taken_over(before: Definition | CanaryHead, managed_by: str) -> str | None:
    """Say whose it was, where that changes."""
    return None if before.managed_by == managed_by else f"taken over from the {before.managed_by}"


def write_archive(connection: Connection, definition: Definition, *, now: int) -> None:
    """Take a definition out of force: a suite with its canaries, a hook with what was still to be sent to it."""
    definitions.archive_definition(connection, definition.id, now)
    if definition.kind == "hook":
        outbox.abandon_deliveries(connection, definition.id, "The hook was archived.")


def fields_changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the fields that differ; a stored body has the defaults of what its release did not know.

    Another hash alone is no change: an older release may have computed it otherwise.
    """
    return tuple(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))


def _secrets_differ(vault: Vault, before: Definition, content: Content) -> bool:
    try:
        return vault.decrypt(before.secrets) != vault.decrypt(content.secrets)
    except ConfigurationError:  # stored under another key: nobody can use them, so the new ones take their place
        return True
