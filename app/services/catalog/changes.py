"""What differs between what is wanted and what is in force, and how it is written; for one definition or one suite.

`definitions` changes one at a time, `applying` all together; who may is said in `references`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.domain.errors import ConfigurationError
from app.formats.catalog.documents import CanaryDocument, SuiteDocument
from app.formats.catalog.secret_fields import content_hash, secret_names, split_secrets
from app.formats.fields import Document
from app.services.catalog.references import API, floors_of, owned_by_file, refuse_file_managed_canary
from app.services.catalog.vault import Vault
from app.store.catalog import definitions, suites
from app.store.catalog.definitions import Content, Definition
from app.store.catalog.suites import CanaryRow, PreparedCanaries
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPlan:
    """What happens to the canaries of a suite."""

    changes: tuple[Change, ...]
    saved: tuple[tuple[str, Content, str | None], ...]
    """(key, content, source): those that change, and those that only stand elsewhere now."""
    gone: tuple[CanaryRow, ...]
    floors: Mapping[str, tuple[str, ...]]
    """The measures with floors of each canary in force afterwards, by key."""


def definition_change(
    vault: Vault, kind: str, slug: str, before: Definition | None, content: Content, *, managed_by: str
) -> Change | None:
    """Say what saving a content changes; None = nothing."""
    if before is None:
        return Change(kind=kind, name=slug, action="create")
    if before.archived_at is not None:
        return Change(kind=kind, name=slug, action="create", note="was archived")
    note = _taken_over(before, managed_by)
    if note is None and before.disabled_reason is not None:
        note = "was disabled"
    fields = _fields_changed(before, content)
    if _secrets_differ(vault, before, content):
        fields = (*fields, "secrets")
    if fields or note:
        return Change(kind=kind, name=slug, action="update", fields=fields, note=note)
    return None


def definition_content(vault: Vault, document: Document, *, kept: Definition | None = None) -> Content:
    """Make a document ready to be stored; secrets it leaves open are those of `kept`, where given."""
    if isinstance(document, SuiteDocument):
        return suite_content(document.slug)
    public, secrets = split_secrets(document)
    open_names = [name for name in secret_names(public) if name not in secrets]
    if open_names and kept is not None and kept.secrets is not None:
        stored = vault.decrypt(kept.secrets)
        secrets |= {name: stored[name] for name in open_names if name in stored}
    return Content(hash=content_hash(document), body=public, secrets=vault.encrypt(secrets))


def suite_content(slug: str) -> Content:
    """Make a suite ready to be stored; its canaries are stored for themselves."""
    return Content(hash=slug, body={"slug": slug})


def canary_contents(documents: Iterable[CanaryDocument]) -> dict[str, Content]:
    """Make canaries ready to be stored, by key: work for before a transaction, since many of them take seconds."""
    return {document.key: Content(hash=content_hash(document), body=document.data()) for document in documents}


def plan_canaries(  # noqa: PLR0913 - what is wanted, and how
    suite: str,
    known: Sequence[CanaryRow],
    documents: Sequence[CanaryDocument],
    *,
    managed_by: str,
    contents: Mapping[str, Content] | None = None,
    refuse: bool = True,
    replace: bool = True,
    repeats: bool = False,
    source: Callable[[str], str | None] = lambda _: None,
) -> CanaryPlan:
    """Hold wanted canaries against those known, archived ones included; `replace` archives the owner's other ones.

    `contents` are those of the documents, by key, where they are made already: see `canary_contents`.

    Raises FileManagedError where the API wants to change what a file owns; with `repeats` it may say the same. Where it
    is not to `refuse`, such a change is planned with a note that it would be refused.
    """
    rows = {row.key: row for row in known}
    contents = canary_contents(documents) if contents is None else contents
    changes: list[Change] = []
    saved: list[tuple[str, Content, str | None]] = []
    for document in documents:
        before = rows.get(document.key)
        content = contents[document.key]
        if before is not None and managed_by == API and owned_by_file(before):
            if repeats and not _fields_changed(before, content):
                continue
            if refuse:
                refuse_file_managed_canary(before, suite)
            changes.append(
                refused_change("canary", f"{suite}/{document.key}", before, _fields_changed(before, content))
            )
            continue
        change = _canary_change(f"{suite}/{document.key}", before, content, managed_by)
        place = source(document.key)
        if change is not None:
            changes.append(change)
        if change is None and before is not None and before.source != place:
            # Stands elsewhere now: under the hash it has, or the suite would look like another one to its runs.
            saved.append((document.key, Content(hash=before.hash, body=before.body), place))
        elif change is not None:
            saved.append((document.key, content, place))
    keys = {document.key for document in documents}
    others = [row for row in known if row.archived_at is None and row.key not in keys]
    gone = tuple(row for row in others if replace and row.managed_by == managed_by)
    stay = [row for row in others if not replace or row.managed_by != managed_by]
    changes += [_archived("canary", f"{suite}/{row.key}") for row in gone]
    floors = floors_of(stay) | {document.key: tuple(document.floors) for document in documents}
    return CanaryPlan(changes=tuple(changes), saved=tuple(saved), gone=gone, floors=floors)


def refused_change(kind: str, name: str, before: Definition | CanaryRow, fields: tuple[str, ...]) -> Change:
    """Plan what the API may not change: the note says which file owns it."""
    note = f"managed by {before.source}: refused here, change it there"
    return Change(kind=kind, name=name, action="update", fields=fields, note=note)


def write_canaries(
    connection: Connection,
    suite_id: int,
    plan: CanaryPlan,
    *,
    managed_by: str,
    now: int,
    prepared: PreparedCanaries | None = None,
) -> None:
    """Write what was planned; a suite of which something changed is a new revision.

    The suite's row comes first, here and everywhere: on PostgreSQL whoever holds it keeps others from its canaries.
    `prepared` are those the plan saves, where they are made ready already.
    """
    if not plan.saved and not plan.gone:
        return
    rows = suites.prepare_canaries(connection, plan.saved) if prepared is None else prepared
    definitions.touch_definition(connection, suite_id, now)
    suites.save_canaries(connection, suite_id, rows, managed_by=managed_by, now=now)
    suites.archive_canaries(connection, [row.id for row in plan.gone], now)


def archive_changes(connection: Connection, definition: Definition) -> list[Change]:
    """Say what taking a definition out of force changes."""
    canaries = suites.list_canaries(connection, definition.id) if definition.kind == "suite" else []
    archived = [_archived("canary", f"{definition.slug}/{row.key}") for row in canaries]
    return [_archived(definition.kind, definition.slug), *archived]


def write_archive(connection: Connection, definition: Definition, *, now: int) -> None:
    """Take a definition out of force: a suite with its canaries, a hook with what was still to be sent to it."""
    definitions.archive_definition(connection, definition.id, now)
    if definition.kind == "hook":
        outbox.abandon_deliveries(connection, definition.id, "The hook was archived.")


def _canary_change(name: str, before: CanaryRow | None, content: Content, managed_by: str) -> Change | None:
    if before is None or before.archived_at is not None:
        return Change(kind="canary", name=name, action="create", note=None if before is None else "was archived")
    note = _taken_over(before, managed_by)
    fields = _fields_changed(before, content)
    return Change(kind="canary", name=name, action="update", fields=fields, note=note) if fields or note else None


def _archived(kind: str, name: str) -> Change:
    return Change(kind=kind, name=name, action="archive")


def _taken_over(before: Definition | CanaryRow, managed_by: str) -> str | None:
    return None if before.managed_by == managed_by else f"taken over from the {before.managed_by}"


def _fields_changed(before: Definition | CanaryRow, content: Content) -> tuple[str, ...]:
    """Return the names of the fields that differ; a stored body has the defaults of what its release did not know."""
    if before.hash == content.hash:  # the order of tags and hooks is no difference
        return ()
    # Another hash alone is no change: an older release may have computed it otherwise.
    names = sorted({*before.body, *content.body})
    return tuple(name for name in names if before.body.get(name) != content.body.get(name))


def _secrets_differ(vault: Vault, before: Definition, content: Content) -> bool:
    try:
        return vault.decrypt(before.secrets) != vault.decrypt(content.secrets)
    except ConfigurationError:  # stored under another key: nobody can use them, so the new ones take their place
        return True
