"""What should be: one service under the canary files and the REST API.

Everything is validated before it arrives here as documents; what is decided here is ownership, references and
what changes. Each function is one transaction: all of it is applied, or none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.errors import ConflictError, FileManagedError, InvalidInputError, NotFoundError, Problem
from app.formats.canary_files import Documents
from app.formats.documents import (
    CanaryDocument,
    CheckDocument,
    HookDocument,
    RetrieverDocument,
    SuiteDocument,
)
from app.formats.fields import Document
from app.formats.secret_fields import content_hash, join_secrets, split_secrets
from app.services import alerting
from app.services.vault import Vault
from app.store import catalog as rows
from app.store import outbox
from app.store.catalog import CanaryRow, Content, Definition
from app.store.engine import Connection, Store, to_us

FILE, API = "file", "api"
_PLACEHOLDER = "whsec_" + 32 * "A"
"""Has the form of a hook's secret, and is none."""
KINDS: Mapping[str, type[Document]] = {
    "suite": SuiteDocument,
    "retriever": RetrieverDocument,
    "hook": HookDocument,
    "check": CheckDocument,  # last: it refers to the others
}


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


def diff(store: Store, vault: Vault, wanted: Documents, *, managed_by: str) -> list[Change]:
    """Say what `apply` would change, changing nothing."""
    with store.read() as connection:
        return _Applying(connection, vault, managed_by, now=0, dry=True).run(wanted)


def apply(store: Store, vault: Vault, wanted: Documents, *, managed_by: str, now: datetime) -> list[Change]:
    """Put what is wanted in force, in one transaction; file-managed objects not wanted any more are archived.

    Raises InvalidInputError where something refers to what does not exist; nothing is changed then.
    """
    with store.write() as connection:
        applying = _Applying(connection, vault, managed_by, now=to_us(now), dry=False)
        changes = applying.run(wanted)
        _check_references(connection, wanted)
        if managed_by == FILE or wanted.checks:
            alerting.follow_definitions(connection, now=now)
        return changes


def put(store: Store, vault: Vault, kind: str, document: Document, *, now: datetime) -> tuple[Definition, bool]:
    """Create or replace an API-managed definition; gives it and whether it is new.

    The document is all there is: a secret it does not have (see `stored_secrets`) is there no more. A hook whose
    receiver was gone is enabled again.

    Raises FileManagedError for one a file owns, InvalidInputError for a reference to nothing.
    """
    slug = str(document.data()["slug"])
    with store.write() as connection:
        before = rows.find_definition(connection, kind, slug)
        _refuse_file_managed(before)
        content = _content(vault, document, {})
        if before is None or before.archived_at is not None or _differs(vault, before, content):
            rows.save_definition(connection, kind, slug, content, managed_by=API, source=None, now=to_us(now))
        if isinstance(document, CheckDocument):
            _check_references(connection, Documents(checks=(document,)))
            alerting.follow_definitions(connection, now=now)
        after = rows.find_definition(connection, kind, slug)
        assert after is not None  # noqa: S101 - saved two lines above
        return after, before is None or before.archived_at is not None


def put_suite(store: Store, document: SuiteDocument, *, now: datetime) -> tuple[Definition, bool]:
    """Create or replace an API-managed suite; canaries, where given, replace its API-managed ones.

    A suite a file owns takes canaries of the API beside its own, but nothing else.
    """
    with store.write() as connection:
        before = rows.find_definition(connection, "suite", document.slug)
        if before is None or before.archived_at is not None:
            rows.save_definition(
                connection,
                "suite",
                document.slug,
                _suite_content(document.slug),
                managed_by=API,
                source=None,
                now=to_us(now),
            )
        elif before.managed_by == FILE and document.canaries is None:
            _refuse_file_managed(before)
        suite = _suite(connection, document.slug)
        if document.canaries is not None:
            _put_canaries(connection, suite, document.canaries, now=now, replace=True)
        return _suite(connection, document.slug), before is None or before.archived_at is not None


def put_canaries(store: Store, suite: str, documents: Sequence[CanaryDocument], *, now: datetime) -> int:
    """Create or replace API-managed canaries of a suite; gives how many changed."""
    with store.write() as connection:
        return _put_canaries(connection, _suite(connection, suite), documents, now=now, replace=False)


def archive(store: Store, kind: str, slug: str, *, now: datetime) -> None:
    """Take an API-managed definition out of force; its history stays.

    Raises ConflictError while a check still uses it.
    """
    with store.write() as connection:
        definition = _live(rows.find_definition(connection, kind, slug), f"{kind} '{slug}'")
        _refuse_file_managed(definition)
        users = [
            check.slug
            for check in rows.list_definitions(connection, "check")
            if slug in _references(CheckDocument.model_validate(check.body)).get(kind, ())
        ]
        if users:
            raise ConflictError(f"{kind} '{slug}' is used by check {', '.join(users)}; change or delete that first")
        _archive(connection, definition, to_us(now))
        if kind == "check":
            alerting.follow_definitions(connection, now=now)


def archive_canary(store: Store, suite: str, key: str, *, now: datetime) -> None:
    """Take an API-managed canary out of its suite; its history stays."""
    with store.write() as connection:
        owner = _suite(connection, suite)
        found = _canary(rows.list_canaries(connection, owner.id), suite, key)
        _refuse_file_managed_canary(found, suite)
        rows.archive_canaries(connection, [found.id], to_us(now))
        rows.touch_definition(connection, owner.id, to_us(now))


def find(store: Store, kind: str, slug: str) -> Definition:
    """Find a definition in force. Raises NotFoundError."""
    with store.read() as connection:
        return _live(rows.find_definition(connection, kind, slug), f"{kind} '{slug}'")


def stored_secrets(store: Store, vault: Vault, kind: str, slug: str) -> dict[str, Any]:
    """Give the secrets of an API-managed definition, so that a change may leave them as they are."""
    with store.read() as connection:
        before = rows.find_definition(connection, kind, slug)
    return vault.decrypt(before.secrets) if before is not None and before.managed_by == API else {}


def find_canary(store: Store, suite: str, key: str) -> CanaryRow:
    """Find a canary in force. Raises NotFoundError."""
    with store.read() as connection:
        return _canary(rows.list_canaries(connection, _suite(connection, suite).id), suite, key)


def list_all(store: Store, kind: str, *, after: str = "", limit: int | None = None) -> list[Definition]:
    """List the definitions of a kind in force, by slug."""
    with store.read() as connection:
        return rows.list_definitions(connection, kind, after=after, limit=limit)


def list_canaries(store: Store, suite: str, *, after: str = "", limit: int | None = None) -> list[CanaryRow]:
    """List the canaries of a suite in force, in their order, those behind the key `after`."""
    with store.read() as connection:
        found = rows.list_canaries(connection, _suite(connection, suite).id)
    if after:
        keys = [canary.key for canary in found]
        found = found[keys.index(after) + 1 :] if after in keys else []
    return found[:limit]


def in_force(store: Store, *, managed_by: str | None = None) -> Documents:
    """Read everything in force back as documents, for export; a placeholder stands in for every secret."""
    with store.read() as connection:
        suites: list[SuiteDocument] = []
        for suite in rows.list_definitions(connection, "suite"):
            mine = [
                CanaryDocument.model_validate(row.body)
                for row in rows.list_canaries(connection, suite.id)
                if managed_by in {None, row.managed_by}
            ]
            if mine or managed_by in {None, suite.managed_by}:
                suites.append(SuiteDocument(slug=suite.slug, canaries=tuple(mine)))

        def documents(kind: str) -> tuple[Any, ...]:
            return tuple(
                KINDS[kind].model_validate(join_secrets(row.body, _placeholders(row)))
                for row in rows.list_definitions(connection, kind)
                if managed_by in {None, row.managed_by}
            )

        return Documents(
            suites=tuple(suites),
            retrievers=documents("retriever"),
            hooks=documents("hook"),
            checks=documents("check"),
        )


class _Applying:
    """One application of wanted definitions within a transaction; dry, it only collects the changes."""

    def __init__(self, connection: Connection, vault: Vault, managed_by: str, *, now: int, dry: bool) -> None:
        self._connection = connection
        self._vault = vault
        self._managed_by = managed_by
        self._now = now
        self._dry = dry
        self._changes: list[Change] = []

    def run(self, wanted: Documents) -> list[Change]:
        """Apply in an order in which nothing refers to what is not there yet."""
        for suite in wanted.suites:
            self._definition("suite", suite.slug, SuiteDocument(slug=suite.slug), wanted)
            self._canaries(suite, wanted)
        for kind, documents in (
            ("retriever", wanted.retrievers),
            ("hook", wanted.hooks),
            ("check", wanted.checks),
        ):
            for document in documents:
                self._definition(kind, document.slug, document, wanted)
        if self._managed_by == FILE:
            self._archive_absent(wanted)
        return self._changes

    def _source(self, wanted: Documents, *identity: str) -> str | None:
        place = wanted.sources.get(identity)
        return f"{place.file}:{place.line}" if place is not None and self._managed_by == FILE else None

    def _definition(self, kind: str, slug: str, document: Document, wanted: Documents) -> None:
        source = self._source(wanted, kind, slug)
        before = rows.find_definition(self._connection, kind, slug)
        if self._managed_by == API:
            _refuse_file_managed(before)
        content = (
            _suite_content(slug)
            if kind == "suite"
            else _content(
                self._vault, document, _secrets_before(self._vault, before) if self._managed_by == API else {}
            )
        )
        change = self._change(kind, slug, before, content)
        if change is not None:
            self._changes.append(change)
            if not self._dry:
                rows.save_definition(
                    self._connection,
                    kind,
                    slug,
                    content,
                    managed_by=self._managed_by,
                    source=source,
                    now=self._now,
                )
        elif before is not None and before.source != source and not self._dry:
            rows.own_definition(self._connection, before.id, managed_by=self._managed_by, source=source)

    def _change(self, kind: str, slug: str, before: Definition | None, content: Content) -> Change | None:
        if before is None:
            return Change(kind=kind, name=slug, action="create")
        if before.archived_at is not None:
            return Change(kind=kind, name=slug, action="create", note="was archived")
        note = None if before.managed_by == self._managed_by else f"taken over from the {before.managed_by}"
        if note is None and before.disabled_reason is not None:
            note = "was disabled"
        fields = _changed_fields(before.body, content.body)
        if _secrets_differ(self._vault, before, content):
            fields = (*fields, "secrets")
        if fields or note:
            return Change(kind=kind, name=slug, action="update", fields=fields, note=note)
        return None

    def _canaries(self, document: SuiteDocument, wanted: Documents) -> None:
        slug = document.slug
        suite = rows.find_definition(self._connection, "suite", slug)
        known = {row.key: row for row in rows.list_canaries(self._connection, suite.id, archived=True)} if suite else {}
        changed: list[tuple[str, Content, str | None]] = []
        for canary in document.canaries or ():
            source = self._source(wanted, "canary", slug, canary.key)
            content = _canary_content(canary)
            before = known.get(canary.key)
            change = _canary_change(slug, canary.key, before, content, self._managed_by)
            if change is not None:
                self._changes.append(change)
            if change is not None or (before is not None and before.source != source):
                changed.append((canary.key, content, source))
        keys = {canary.key for canary in document.canaries or ()}
        gone = [
            row
            for row in known.values()
            if row.archived_at is None and row.managed_by == self._managed_by and row.key not in keys
        ]
        self._changes += [Change(kind="canary", name=f"{slug}/{row.key}", action="archive") for row in gone]
        if self._dry or suite is None or not (changed or gone):
            return
        rows.save_canaries(self._connection, suite.id, changed, managed_by=self._managed_by, now=self._now)
        rows.archive_canaries(self._connection, [row.id for row in gone], self._now)
        rows.touch_definition(self._connection, suite.id, self._now)

    def _archive_absent(self, wanted: Documents) -> None:
        names = {
            "suite": {document.slug for document in wanted.suites},
            "retriever": {document.slug for document in wanted.retrievers},
            "hook": {document.slug for document in wanted.hooks},
            "check": {document.slug for document in wanted.checks},
        }
        for kind, kept in names.items():
            for row in rows.list_definitions(self._connection, kind):
                if row.managed_by == FILE and row.slug not in kept:
                    self._changes.append(Change(kind=kind, name=row.slug, action="archive"))
                    if not self._dry:
                        _archive(self._connection, row, self._now)


def _put_canaries(
    connection: Connection, suite: Definition, documents: Sequence[CanaryDocument], *, now: datetime, replace: bool
) -> int:
    known = {row.key: row for row in rows.list_canaries(connection, suite.id, archived=True)}
    changed: list[tuple[str, Content, str | None]] = []
    for document in documents:
        before = known.get(document.key)
        if before is not None and before.archived_at is None:
            _refuse_file_managed_canary(before, suite.slug)
        content = _canary_content(document)
        if _canary_change(suite.slug, document.key, before, content, API) is not None:
            changed.append((document.key, content, None))
    keys = {document.key for document in documents}
    gone = [
        row.id for row in known.values() if row.managed_by == API and row.archived_at is None and row.key not in keys
    ]
    if changed:
        rows.save_canaries(connection, suite.id, changed, managed_by=API, now=to_us(now))
    if replace:
        rows.archive_canaries(connection, gone, to_us(now))
    if changed or (replace and gone):
        rows.touch_definition(connection, suite.id, to_us(now))
    return len(changed)


def _canary_change(suite: str, key: str, before: CanaryRow | None, content: Content, managed_by: str) -> Change | None:
    name = f"{suite}/{key}"
    if before is None or before.archived_at is not None:
        return Change(kind="canary", name=name, action="create", note=None if before is None else "was archived")
    note = None if before.managed_by == managed_by else f"taken over from the {before.managed_by}"
    fields = _changed_fields(before.body, content.body)
    if fields or note:
        return Change(kind="canary", name=name, action="update", fields=fields, note=note)
    return None


def _changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def _content(vault: Vault, document: Document, kept: Mapping[str, str]) -> Content:
    public, secrets = split_secrets(document)
    names = _secret_names(public)
    whole = {name: secrets.get(name, kept.get(name)) for name in names if name in secrets or name in kept}
    return Content(hash=content_hash(document), body=public, secrets=vault.encrypt(whole))


def _secret_names(public: Mapping[str, Any]) -> list[str]:
    names = ["secret"] if "secret" in public else []
    return names + [f"request.headers.{name}" for name in public.get("request", {}).get("headers", {})]


def _placeholders(row: Definition) -> dict[str, str]:
    names = [name for name in _secret_names(row.body) if name != "secret" or row.secrets is not None]
    return {name: _PLACEHOLDER if name == "secret" else "hidden" for name in names}


def _secrets_before(vault: Vault, before: Definition | None) -> dict[str, Any]:
    return vault.decrypt(before.secrets) if before is not None else {}


def _differs(vault: Vault, before: Definition, content: Content) -> bool:
    changed = _changed_fields(before.body, content.body) or _secrets_differ(vault, before, content)
    return bool(changed) or before.disabled_reason is not None


def _secrets_differ(vault: Vault, before: Definition, content: Content) -> bool:
    return vault.decrypt(before.secrets) != vault.decrypt(content.secrets)


def _archive(connection: Connection, definition: Definition, now: int) -> None:
    rows.archive_definition(connection, definition.id, now)
    if definition.kind == "hook":
        outbox.abandon_deliveries(connection, definition.id, "The hook was archived.")


def _canary_content(document: CanaryDocument) -> Content:
    return Content(hash=content_hash(document), body=document.data())


def _suite_content(slug: str) -> Content:
    return Content(hash=slug, body={"slug": slug})


def _suite(connection: Connection, slug: str) -> Definition:
    return _live(rows.find_definition(connection, "suite", slug), f"suite '{slug}'")


def _live(definition: Definition | None, name: str) -> Definition:
    if definition is None or definition.archived_at is not None:
        raise NotFoundError(f"there is no {name}")
    return definition


def _canary(found: Iterable[CanaryRow], suite: str, key: str) -> CanaryRow:
    for canary in found:
        if canary.key == key:
            return canary
    raise NotFoundError(f"suite '{suite}' has no canary '{key}'")


def _refuse_file_managed(definition: Definition | None) -> None:
    if definition is not None and definition.managed_by == FILE and definition.archived_at is None:
        raise FileManagedError(
            f"{definition.kind} '{definition.slug}' is managed by {definition.source}; change it there and apply"
        )


def _refuse_file_managed_canary(canary: CanaryRow, suite: str) -> None:
    if canary.managed_by == FILE:
        raise FileManagedError(
            f"canary '{suite}/{canary.key}' is managed by {canary.source}; change it there and apply"
        )


def _references(check: CheckDocument) -> dict[str, tuple[str, ...]]:
    return {"suite": (check.suite,), "retriever": (check.retriever,), "hook": check.hooks}


def _check_references(connection: Connection, wanted: Documents) -> None:
    problems: list[Problem] = []
    for check in wanted.checks:
        for kind, slugs in _references(check).items():
            for slug in slugs:
                found = rows.find_definition(connection, kind, slug)
                if found is not None and found.archived_at is None:
                    continue
                place = wanted.sources.get(("check", check.slug))
                problems.append(
                    Problem(
                        message=f"there is no {kind} '{slug}'",
                        path="hooks" if kind == "hook" else kind,
                        file=place.file if place else None,
                        line=place.line if place else None,
                    )
                )
    if problems:
        raise InvalidInputError(problems)
