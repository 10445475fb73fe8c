"""Rows of definitions (suites, retrievers, checks, hooks, silences, judges) with all versions and secrets; canaries.

Nothing is deleted, only archived, so that history keeps its definitions. A run works with a frozen suite version: the
list of its canaries in their versions.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy import Connection

from app.alerts.silences.documents import SilenceDocument
from app.answers.documents import JudgeDocument
from app.base.db.engine import blocks, insert_new, insert_one, insert_selected, new_ids
from app.base.db.rows import StagedRows, numbers, row_table, staged_table
from app.base.documents.fields import AnyDocument, Document, parse_document
from app.base.errors import FileManagedError, InvalidInputError, NotFoundError
from app.base.values import Value
from app.catalog.documents.canary_documents import CanaryDocument, ChunkDocument, JudgmentDocument, SuiteDocument
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.documents.secrets import WITH_SECRETS, split_secrets, with_placeholders
from app.catalog.tables import (
    canaries,
    canary_versions,
    definition_versions,
    definitions,
    public_links,
    suite_versions,
)
from app.hooks.documents import HookDocument
from app.retrievers.documents.retrievers import RetrieverDocument
from app.scoring.run_inputs import SuiteMember, UnusableSuiteError, suite_hash

FILE, API = "file", "api"


class Owned(Value):
    """What a canary file or the API owns."""

    managed_by: str
    source: str | None
    """File and line, where a file owns it."""
    archived_at: int | None

    @property
    def is_file_managed(self) -> bool:
        """Whether a file owns it, and it is not archived."""
        return self.managed_by == FILE and self.archived_at is None

    def ownership_note(self, managed_by: str) -> str | None:
        """Return a note on a change of ownership; None = the owner stays."""
        return None if self.managed_by == managed_by else f"taken over from the {self.managed_by}"


def refuse_file_managed(owned: Owned | None, name: str) -> None:
    """Raise FileManagedError for what a file owns."""
    if owned is not None and owned.is_file_managed:
        raise FileManagedError(f"{name} is managed by {owned.source}; change it there and apply")


class Definition(Owned):
    """A suite, retriever, check, hook or silence with its current version."""

    id: int
    kind: str
    slug: str
    version_id: int
    revision: int
    hash: str
    body: Mapping[str, Any]
    secrets: bytes | None
    created_at: int
    updated_at: int
    disabled_reason: str | None
    document: Document | None = None
    """The body read into a document, for kinds without secrets; None also where it is invalid in this release."""

    def read(self, model: type[AnyDocument]) -> AnyDocument:
        """Return the document, which is read once for all who ask. Raises ValidationError where it is invalid."""
        return self.document if isinstance(self.document, model) else model.model_validate(self.body)


class Content(Value):
    """The content of a definition, stored or ready to be."""

    hash: str
    document: Document | None = None
    """What people wrote, for kinds without secrets; None also for what is stored and invalid in this release."""
    public: Mapping[str, Any] | None = None
    """The JSON without secrets; None = that of the document."""
    secrets: bytes | None = None

    @property
    def body(self) -> Mapping[str, Any]:
        """The JSON without secrets, written when it is compared or stored."""
        if self.public is not None:
            return self.public
        return {} if self.document is None else self.document.data()


_DEFINITION = sa.select(
    *(column for column in definitions.c if column.name != "disabled_at"),
    *(definition_versions.c[name] for name in ("hash", "body", "secrets")),
).join(definition_versions, definition_versions.c.id == definitions.c.version_id)
_BY_SLUG = _DEFINITION.where(definitions.c.kind == sa.bindparam("kind"), definitions.c.slug == sa.bindparam("slug"))
_BY_ID = _DEFINITION.where(definitions.c.id == sa.bindparam("id"))


def require(definition: Definition | None, name: str) -> Definition:
    """Return the definition. Raises NotFoundError where it is None or archived."""
    if definition is None or definition.archived_at is not None:
        raise NotFoundError(f"there is no {name}")
    return definition


def find_definition(connection: Connection, kind: str, slug: str) -> Definition | None:
    """Return a definition by its slug, archived ones included."""
    row = connection.execute(_BY_SLUG, {"kind": kind, "slug": slug}).one_or_none()
    return _definition(row) if row else None


def definition_by_id(connection: Connection, definition_id: int) -> Definition:
    """Return the definition with an id known to exist."""
    return _definition(connection.execute(_BY_ID, {"id": definition_id}).one())


def definitions_by_id(connection: Connection, definition_ids: Sequence[int]) -> list[Definition]:
    """Return a few hundred definitions at most by their ids, in no order; those that are not there are left out."""
    rows = connection.execute(_DEFINITION.where(definitions.c.id.in_(list(definition_ids))))
    return [_definition(row) for row in rows]


def list_definitions(
    connection: Connection, kind: str, *, after: str = "", limit: int | None = None, archived: bool = False
) -> list[Definition]:
    """Return definitions of a kind by slug, those after `after`; archived ones only with `archived`."""
    statement = _DEFINITION.where(definitions.c.kind == kind, definitions.c.slug > after)
    if not archived:
        statement = statement.where(definitions.c.archived_at.is_(None))
    rows = connection.execute(statement.order_by(definitions.c.slug).limit(limit))
    return [_definition(row) for row in rows]


class FoundCanary(NamedTuple):
    """A canary in force, found by a part of its key or its query."""

    suite: str
    key: str
    query: str


def search_definitions(connection: Connection, text: str, *, limit: int) -> list[tuple[str, str]]:
    """Return (kind, slug) of definitions in force with this text in their slugs, whatever its case."""
    found = sa.and_(definitions.c.archived_at.is_(None), definitions.c.slug.icontains(text, autoescape=True))
    statement = sa.select(definitions.c.kind, definitions.c.slug).where(found)
    rows = connection.execute(statement.order_by(definitions.c.kind, definitions.c.slug).limit(limit))
    return [(row.kind, row.slug) for row in rows]


def search_canaries(connection: Connection, text: str, *, limit: int) -> list[FoundCanary]:
    """Return canaries in force with this text in key or query, whatever the case of what is ASCII.

    At most ten times the limit are read that have it anywhere in their documents.
    """
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    statement = (
        sa.select(definitions.c.slug, canaries.c.key, canary_versions.c.body)
        .join(canary_versions, canary_versions.c.id == canaries.c.version_id)
        .join(definitions, definitions.c.id == canaries.c.suite_id)
        .where(canaries.c.archived_at.is_(None), definitions.c.archived_at.is_(None))
        .where(canary_versions.c.body.icontains(written, autoescape=True))
        .order_by(canaries.c.id)
        .limit(10 * limit)
    )
    rows = [FoundCanary(row.slug, row.key, json.loads(row.body)["query"]) for row in connection.execute(statement)]
    wanted = text.casefold()
    return [one for one in rows if wanted in one.key.casefold() or wanted in one.query.casefold()][:limit]


def hold_definitions(connection: Connection, kind: str, slugs: Collection[str]) -> set[str]:
    """Return those of these slugs that are in force, and keep them so until the transaction ends.

    On PostgreSQL the rows are locked against archiving; whoever just did it is waited for. SQLite has one writer.
    """
    statement = sa.select(definitions.c.slug).where(
        definitions.c.kind == kind, definitions.c.slug.in_(slugs), definitions.c.archived_at.is_(None)
    )
    return set(connection.execute(statement.with_for_update(read=True)).scalars())


def hold_definition(connection: Connection, kind: str, slug: str) -> None:
    """Keep a definition as it is now until the transaction ends; whoever is just changing it is waited for.

    On PostgreSQL its row is locked, so that what is compared with it then is still so when it is saved. SQLite has one
    writer.
    """
    statement = sa.select(definitions.c.id).where(definitions.c.kind == kind, definitions.c.slug == slug)
    connection.execute(statement.with_for_update())


def lock_definition(connection: Connection, definition_id: int) -> None:
    """Decisions about the runs, alerts or deliveries of a definition, one after another until the transaction ends.

    Taken before any row of its runs, alerts and deliveries. On PostgreSQL runs of a check get ids in the order they are
    carried out by it, a tick that finds no data sees the run that is just completing, and a hook is not archived, nor
    its deliveries claimed, by others meanwhile. SQLite has one writer.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK, {"id": definition_id})


_LOCK = sa.select(definitions.c.id).where(definitions.c.id == sa.bindparam("id")).with_for_update(key_share=True)


def fields_changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the fields that differ; stored bodies have defaults for fields newer than them.

    A different hash alone is no change: an older release may have computed it differently.
    """
    return tuple(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))


def version_body(connection: Connection, version_id: int) -> Content:
    """Return the content of a version of a definition."""
    row = connection.execute(_VERSION, {"id": version_id}).one()
    document, body = _document_and_body(row)
    return Content(hash=row.hash, document=document, public=body, secrets=row.secrets)


_VERSIONS = sa.select(definitions.c.kind, definition_versions).join(
    definitions, definitions.c.id == definition_versions.c.definition_id
)
_VERSION = _VERSIONS.where(definition_versions.c.id == sa.bindparam("id"))


def made_since(connection: Connection, kind: str, slugs: Collection[str], at: int) -> set[str]:
    """Return the definitions of these whose version in force was made after `at`."""
    of = sa.and_(definitions.c.kind == kind, definitions.c.slug.in_(slugs), definition_versions.c.created_at > at)
    found = sa.select(definitions.c.slug).where(definition_versions.c.id == definitions.c.version_id, of)
    return set(connection.execute(found).scalars())


def version_bodies(connection: Connection, version_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Return the bodies of a few hundred versions of definitions at most, by version; without secrets."""
    return {
        row.id: read_body(row.kind, row.body, secrets_set=row.secrets is not None)
        for row in connection.execute(_VERSIONS.where(definition_versions.c.id.in_(list(version_ids))))
    }


def save_definition(
    connection: Connection, kind: str, slug: str, content: Content, *, managed_by: str, source: str | None, now: int
) -> int:
    """Create a definition or a new version of it; un-archives it. Return its id."""
    existing = connection.execute(
        sa.select(definitions.c.id).where(definitions.c.kind == kind, definitions.c.slug == slug)
    ).scalar_one_or_none()
    definition_id = existing or insert_one(
        connection,
        definitions,
        kind=kind,
        slug=slug,
        managed_by=managed_by,
        source=source,
        revision=0,
        created_at=now,
        updated_at=now,
    )
    if definition_id is None:  # another replica created it in between
        return save_definition(connection, kind, slug, content, managed_by=managed_by, source=source, now=now)
    versions = definition_versions
    same = sa.and_(versions.c.definition_id == definition_id, versions.c.hash == content.hash)
    insert_new(
        connection,
        versions,
        ("definition_id", "hash", "body", "secrets", "created_at"),
        [(definition_id, content.hash, json.dumps(content.body), content.secrets, now)],
    )
    # An old version coming back into force: its secrets were encrypted under the key of their day.
    connection.execute(sa.update(versions).where(same).values(secrets=content.secrets))
    connection.execute(
        sa.update(definitions)
        .where(definitions.c.id == definition_id)
        .values(
            version_id=connection.execute(sa.select(versions.c.id).where(same)).scalar_one(),
            managed_by=managed_by,
            source=source,
            revision=definitions.c.revision + 1,
            updated_at=now,
            archived_at=None,
            disabled_at=None,
            disabled_reason=None,
        )
    )
    return definition_id


def archive_definition(connection: Connection, definition_id: int, now: int) -> None:
    """Take a definition out of force, keeping its history.

    A suite's canaries and a check's public link go with it, or they would come back.
    """
    connection.execute(
        sa.update(definitions)
        .where(definitions.c.id == definition_id)
        .values(archived_at=now, updated_at=now, revision=definitions.c.revision + 1)
    )
    members = sa.and_(canaries.c.suite_id == definition_id, canaries.c.archived_at.is_(None))
    connection.execute(sa.update(canaries).where(members).values(archived_at=now))
    connection.execute(sa.delete(public_links).where(public_links.c.check_id == definition_id))


def touch_definition(connection: Connection, definition_id: int, now: int) -> None:
    """Increase the revision of a definition, as for a change of a suite's canaries."""
    connection.execute(
        sa.update(definitions)
        .where(definitions.c.id == definition_id)
        .values(revision=definitions.c.revision + 1, updated_at=now)
    )


def own_definition(connection: Connection, definition_id: int, *, managed_by: str, source: str | None) -> None:
    """Change the owner of a definition, not its content."""
    connection.execute(
        sa.update(definitions).where(definitions.c.id == definition_id).values(managed_by=managed_by, source=source)
    )


def disable_definition(connection: Connection, definition_id: int, reason: str, now: int) -> None:
    """Disable a hook whose receiver is gone, until it is saved again."""
    connection.execute(
        sa.update(definitions)
        .where(definitions.c.id == definition_id)
        .values(disabled_at=now, disabled_reason=reason, updated_at=now)
    )


def _definition(row: Any) -> Definition:
    document, body = _document_and_body(row)
    return Definition(**{**row._asdict(), "document": document, "body": body})


def _document_and_body(row: Any) -> tuple[Document | None, dict[str, Any]]:
    document, public = _stored(row.kind, row.body, row.secrets is not None)
    return None if isinstance(document, WITH_SECRETS) else document, json.loads(public)


DefinitionDocument = SuiteDocument | RetrieverDocument | CheckDocument | HookDocument | SilenceDocument | JudgeDocument
"""What people write of a definition."""
KINDS: Final[Mapping[type[Document], str]] = {
    SuiteDocument: "suite",
    RetrieverDocument: "retriever",
    CheckDocument: "check",
    HookDocument: "hook",
    SilenceDocument: "silence",
    JudgeDocument: "judge",
}
"""Of definitions, by their documents."""
_DOCUMENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Document]]] = {
    "retriever": RetrieverDocument.model_validate,
    "check": CheckDocument.model_validate,
    "hook": HookDocument.model_validate,
    "judge": JudgeDocument.model_validate,
    "silence": SilenceDocument.stored,
}
"""By kind. A suite is only a slug, and canaries are completed without validation: there may be 50,000."""

_CANARY: Final = CanaryDocument(key="any", query="any").data()
_CHUNKS: Final = {
    "expected_chunks": {**JudgmentDocument(id="any").data(), "id": None},
    "forbidden_chunks": {**ChunkDocument(id="any").data(), "id": None},
}


def read_body(kind: str, text: str, *, secrets_set: bool = False) -> dict[str, Any]:
    """Return the body of a definition or a canary, with defaults for missing fields.

    A body that is invalid in this release is returned as stored; executing it reports the problem.
    """
    if kind == "canary":
        return _complete_canary(json.loads(text))
    return dict(json.loads(_stored(kind, text, secrets_set)[1]))


@lru_cache(maxsize=2048)
def _stored(kind: str, text: str, secrets_set: bool) -> tuple[Document | None, str]:  # noqa: FBT001 - part of the cache's key
    """Return a stored definition as a document, with placeholders for secrets, and as JSON without them."""
    parse = _DOCUMENTS.get(kind)
    if parse is None:
        return None, text
    body = json.loads(text)
    try:
        document = parse(with_placeholders(body, secrets_set=True) if secrets_set else body)
    except ValidationError:
        return None, text
    is_open = not isinstance(document, WITH_SECRETS)
    return document, json.dumps(document.data() if is_open else split_secrets(document)[0])


def _complete_canary(body: dict[str, Any]) -> dict[str, Any]:
    whole = body if body.keys() >= _CANARY.keys() else {**_CANARY, **body}
    for name, defaults in _CHUNKS.items():
        if not all(chunk.keys() >= defaults.keys() for chunk in whole[name]):
            whole[name] = [{**defaults, **chunk} for chunk in whole[name]]
    return whole


class Sealed(Value):
    """The encrypted secrets of one version of a definition."""

    version_id: int
    kind: str
    slug: str
    in_force: bool
    token: bytes


def list_encrypted(connection: Connection) -> list[Sealed]:
    """Return the secrets of every version of every definition, also archived ones, locked against other writers."""
    in_force = sa.and_(definitions.c.version_id == definition_versions.c.id, definitions.c.archived_at.is_(None))
    statement = (
        sa.select(
            definition_versions.c.id,
            definition_versions.c.secrets,
            definitions.c.kind,
            definitions.c.slug,
            in_force.label("in_force"),
        )
        .join(definitions, definitions.c.id == definition_versions.c.definition_id)
        .where(definition_versions.c.secrets.is_not(None))
        .order_by(definition_versions.c.id)
        .with_for_update(of=definition_versions)  # a secret renewed in between must not be overwritten by its old self
    )
    return [
        Sealed(version_id=row.id, kind=row.kind, slug=row.slug, in_force=bool(row.in_force), token=bytes(row.secrets))
        for row in connection.execute(statement)
    ]


def replace_encrypted(connection: Connection, tokens: Sequence[tuple[int, bytes]]) -> None:
    """Replace the encrypted secrets of versions: (version id, token) each."""
    if tokens:
        connection.execute(
            sa.update(definition_versions)
            .where(definition_versions.c.id == sa.bindparam("version"))
            .values(secrets=sa.bindparam("token")),
            [{"version": version, "token": token} for version, token in tokens],
        )


class CanaryHead(Owned):
    """A canary of a suite with its current version, without its body."""

    id: int
    key: str
    version_id: int
    hash: str


class CanaryRow(CanaryHead):
    """A canary of a suite with its current version."""

    body: Mapping[str, Any]


class CanaryList(Value):
    """The canary list of a suite at a revision, packed as it is frozen."""

    suite_id: int
    revision: int
    hash: str
    packed: bytes

    @property
    def members(self) -> list[tuple[int, int]]:
        """The same as (canary id, version id) in order."""
        return [(canary, version) for canary, version in np.frombuffer(self.packed, "<i8").reshape(-1, 2).tolist()]


def list_canaries(
    connection: Connection,
    suite_id: int,
    *,
    archived: bool = False,
    not_of: str | None = None,
    keys: Collection[str] | None = None,
    ids: Collection[int] | None = None,
    after: str = "",
    limit: int | None = None,
) -> list[CanaryRow]:
    """Return the canaries of a suite in the order they came; archived ones only when asked for.

    `not_of` leaves out those that this owner manages; `keys` and `ids` take only those. With `after`, at most `limit`
    of those behind a canary in force: nothing where there is no such canary.
    """
    statement = _canaries(connection, suite_id, canary_versions.c.body, archived=archived, keys=keys).limit(limit)
    if not_of is not None:
        statement = statement.where(canaries.c.managed_by != not_of)
    if ids is not None:
        named = numbers(connection, "named", ["id"], [(one,) for one in ids])
        statement = statement.where(canaries.c.id.in_(sa.select(named.c.id)))
    if after:
        in_force = sa.and_(canaries.c.suite_id == suite_id, canaries.c.key == after, canaries.c.archived_at.is_(None))
        statement = statement.where(canaries.c.id > sa.select(canaries.c.id).where(in_force).scalar_subquery())
    return [
        CanaryRow(**{**row._asdict(), "body": read_body("canary", row.body)}) for row in connection.execute(statement)
    ]


def list_canary_heads(
    connection: Connection, suite_id: int, *, archived: bool = False, keys: Collection[str] | None = None
) -> list[CanaryHead]:
    """Return canaries as `list_canaries` does, without their bodies."""
    statement = _canaries(connection, suite_id, archived=archived, keys=keys)
    return [CanaryHead(**row._asdict()) for row in connection.execute(statement)]


def _canaries(
    connection: Connection, suite_id: int, *more: sa.ColumnElement[Any], archived: bool, keys: Collection[str] | None
) -> sa.Select[Any]:
    statement = (
        sa.select(*(column for column in canaries.c if column.name != "suite_id"), canary_versions.c.hash, *more)
        .join(canary_versions, canary_versions.c.id == canaries.c.version_id)
        .where(canaries.c.suite_id == suite_id)
        .order_by(canaries.c.id)
    )
    if not archived:
        statement = statement.where(canaries.c.archived_at.is_(None))
    if keys is not None:
        wanted = row_table(connection, "wanted", {"key": sa.Text()}, [(key,) for key in keys])
        statement = statement.where(canaries.c.key.in_(sa.select(wanted.c.key)))
    return statement


def find_canary_id(connection: Connection, suite_id: int, key: str) -> int | None:
    """Return a canary of a suite by its key, archived ones included."""
    statement = sa.select(canaries.c.id).where(canaries.c.suite_id == suite_id, canaries.c.key == key)
    return connection.execute(statement).scalar_one_or_none()


def find_version_in_force(connection: Connection, suite_id: int) -> int | None:
    """Return the id of the current suite version; None = no run has frozen it yet."""
    return connection.execute(_IN_FORCE, {"suite": suite_id}).scalar_one_or_none()


_IN_FORCE = (
    sa.select(suite_versions.c.id)
    .join(definitions, definitions.c.id == suite_versions.c.suite_id)
    .where(suite_versions.c.suite_id == sa.bindparam("suite"), suite_versions.c.revision == definitions.c.revision)
)


def list_members(connection: Connection, suite_id: int) -> CanaryList:
    """Return the current canary list of a suite, without bodies."""
    revision = connection.execute(sa.select(definitions.c.revision).where(definitions.c.id == suite_id)).scalar_one()
    statement = (
        sa.select(canaries.c.id, canaries.c.version_id, canaries.c.key, canary_versions.c.hash)
        .join(canary_versions, canary_versions.c.id == canaries.c.version_id)
        .where(canaries.c.suite_id == suite_id, canaries.c.archived_at.is_(None))
        .order_by(canaries.c.id)
    )
    rows = connection.execute(statement).all()
    return CanaryList(
        suite_id=suite_id,
        revision=revision,
        hash=suite_hash([(row.key, row.hash) for row in rows]),
        packed=np.array([(row.id, row.version_id) for row in rows], dtype="<i8").tobytes(),
    )


def freeze_suite(connection: Connection, listed: CanaryList, now: int) -> int | None:
    """Freeze the canary list of a suite and return its version; None where the suite is of another revision by now.

    One that another froze meanwhile stands.
    """
    suite_id = listed.suite_id
    place = sa.and_(suite_versions.c.suite_id == suite_id, suite_versions.c.revision == listed.revision)
    in_force = sa.select(definitions.c.revision).where(definitions.c.id == suite_id).with_for_update()
    if connection.execute(in_force).scalar_one() != listed.revision:
        return None
    columns = ("suite_id", "revision", "hash", "members", "created_at")
    insert_new(connection, suite_versions, columns, [(suite_id, listed.revision, listed.hash, listed.packed, now)])
    return int(connection.execute(sa.select(suite_versions.c.id).where(place)).scalar_one())


_hashes: WeakKeyDictionary[sa.Engine, dict[int, tuple[int, str]]] = WeakKeyDictionary()
"""Cache by database and suite id: (revision, hash); the hash of a revision never changes."""


def current_hashes(connection: Connection, revisions: Mapping[int, int]) -> dict[int, str]:
    """Return the hashes of the current canary lists of suites by suite id, equal to those of frozen versions.

    `revisions` are those of the suites as this transaction sees them; of each the canaries are read once.
    """
    known = _hashes.setdefault(connection.engine, {})
    missing = [suite for suite, revision in revisions.items() if known.get(suite, (0, ""))[0] != revision]
    found = _hash_lists(connection, missing) if missing else {}
    known.update({suite: (revisions[suite], digest) for suite, digest in found.items()})
    return {suite: found[suite] if suite in found else known[suite][1] for suite in revisions}


def _hash_lists(connection: Connection, suite_ids: Sequence[int]) -> dict[int, str]:
    statement = (
        sa.select(canaries.c.suite_id, canaries.c.key, canary_versions.c.hash)
        .join(canary_versions, canary_versions.c.id == canaries.c.version_id)
        .where(canaries.c.suite_id.in_(suite_ids), canaries.c.archived_at.is_(None))
        .order_by(canaries.c.id)
    )
    members: dict[int, list[tuple[str, str]]] = {suite_id: [] for suite_id in suite_ids}
    for row in connection.execute(statement):
        members[row.suite_id].append((row.key, row.hash))
    return {suite_id: suite_hash(listed) for suite_id, listed in members.items()}


def frozen_version(connection: Connection, version_id: int) -> CanaryList:
    """Return a frozen canary list."""
    row = connection.execute(sa.select(suite_versions).where(suite_versions.c.id == version_id)).one()
    return CanaryList(suite_id=row.suite_id, revision=row.revision, hash=row.hash, packed=row.members)


def read_members(connection: Connection, version_ids: Sequence[int]) -> Iterator[SuiteMember]:
    """Return versions of canaries, in no particular order; by one statement, however many they are.

    Raises UnusableSuiteError for one that is invalid in this release.
    """
    wanted = numbers(connection, "wanted", ["id"], [(version_id,) for version_id in version_ids])
    columns = (canary_versions.c.id.label("version_id"), canary_versions.c.canary_id, canary_versions.c.hash)
    statement = (
        sa.select(*columns, canary_versions.c.body, canaries.c.key)
        .join_from(wanted, canary_versions, canary_versions.c.id == wanted.c.id)
        .join(canaries, canaries.c.id == canary_versions.c.canary_id)
    )
    for row in connection.execute(statement):
        try:
            canary = parse_document(CanaryDocument, json.loads(row.body)).to_domain()
        except InvalidInputError as error:
            raise UnusableSuiteError(f"canary '{row.key}' cannot be used as it is defined: {error}") from None
        yield SuiteMember(canary_id=row.canary_id, version_id=row.version_id, hash=row.hash, canary=canary)


def places_of(
    connection: Connection, version_ids: Iterable[int], keys: Iterable[str]
) -> dict[int, dict[str, tuple[int, int]]]:
    """Return (position, canary id) of canaries in a few suite versions, by version and key.

    Those that are not in a list are left out of it.
    """
    columns = (suite_versions.c.id, suite_versions.c.suite_id, suite_versions.c.members)
    packed = connection.execute(sa.select(*columns).where(suite_versions.c.id.in_(sorted(version_ids)))).all()
    found: dict[int, dict[str, tuple[int, int]]] = {one.id: {} for one in packed}
    for block in blocks(sorted(keys)):
        suites = sorted({one.suite_id for one in packed})
        named = sa.select(canaries).where(canaries.c.suite_id.in_(suites), canaries.c.key.in_(block))
        for canary in connection.execute(named).all():
            for one in packed:
                places = np.flatnonzero(np.frombuffer(one.members, dtype="<i8")[::2] == canary.id).tolist()
                found[one.id].update((canary.key, (place, canary.id)) for place in places)
    return found


def keys_of(connection: Connection, version_ids: Iterable[int]) -> dict[int, str]:
    """Return the keys of canaries by the ids of their versions."""
    found: dict[int, str] = {}
    for block in blocks(sorted(set(version_ids))):
        named = sa.select(canary_versions.c.id, canaries.c.key).join(
            canaries, canaries.c.id == canary_versions.c.canary_id
        )
        found.update(dict(connection.execute(named.where(canary_versions.c.id.in_(block))).all()))
    return found


def queries_of(connection: Connection, version_ids: Iterable[int]) -> dict[int, str]:
    """Return the queries of versions of canaries."""
    return {version_id: body["query"] for version_id, body in bodies_of(connection, version_ids).items()}


def bodies_of(connection: Connection, version_ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return the bodies of versions of canaries."""
    wanted = sorted(set(version_ids))
    found: dict[int, dict[str, Any]] = {}
    for block in blocks(wanted):
        held = sa.select(canary_versions.c.id, canary_versions.c.body).where(canary_versions.c.id.in_(block))
        rows = connection.execute(held)
        found.update((row.id, read_body("canary", row.body)) for row in rows)
    return found


class CanaryToSave(NamedTuple):
    """A canary of a suite, ready to be stored."""

    key: str
    hash: str
    text: str | None
    """Its body as JSON; None = the version of this hash exists already."""
    source: str | None


class StagedCanaries(Value):
    """Canaries for `save_canaries`."""

    created: StagedRows
    changed: StagedRows

    @property
    def tables(self) -> list[StagedRows]:
        """What `Store.write` is to have at hand."""
        return [rows for rows in (self.created, self.changed) if rows.rows]


_COLUMNS = {name: sa.Text() for name in ("key", "hash", "body", "source")}


def stage_canaries(
    created: Sequence[CanaryToSave], changed: Sequence[CanaryToSave], *, number: int = 0
) -> StagedCanaries:
    """Return canaries of a suite staged for `save_canaries`: those that it never had, and others.

    Suites of one transaction have different numbers.
    """
    return StagedCanaries(
        created=StagedRows(name=f"created_canaries_{number}", columns=_COLUMNS, rows=created),
        changed=StagedRows(name=f"changed_canaries_{number}", columns=_COLUMNS, rows=changed),
    )


def save_canaries(connection: Connection, suite_id: int, staged: StagedCanaries, *, managed_by: str, now: int) -> None:
    """Create canaries of a suite and new versions of others.

    The caller holds the suite, unchanged since its canaries were divided into new and existing ones.
    """
    if staged.created.rows:
        _create(connection, suite_id, staged.created, managed_by=managed_by, now=now)
    if staged.changed.rows:
        _change(connection, suite_id, staged.changed, managed_by=managed_by, now=now)


def _create(connection: Connection, suite_id: int, rows: StagedRows, *, managed_by: str, now: int) -> None:
    """Insert canaries with the ids of versions that follow them: rows that are updated at once are written twice.

    The outer join finds every row; SQLite would begin an inner one at the suite's canaries, and read all that is
    staged for each of them.
    """
    created = staged_table(connection, rows)
    version_id = new_ids(connection, canary_versions, created.c.place)
    owned = (sa.literal(suite_id), created.c.key, sa.literal(managed_by), created.c.source, version_id)
    columns = ("suite_id", "key", "managed_by", "source", "version_id")
    insert_selected(connection, canaries, columns, sa.select(*owned).order_by(created.c.place))
    mine = sa.and_(canaries.c.suite_id == suite_id, canaries.c.key == created.c.key)
    bodies = (created.c.hash, created.c.body, sa.literal(now, sa.BigInteger))
    versions = sa.select(canaries.c.version_id, canaries.c.id, *bodies).join_from(created, canaries, mine, isouter=True)
    columns = ("id", "canary_id", "hash", "body", "created_at")
    insert_selected(connection, canary_versions, columns, versions.order_by(created.c.place))


def _change(connection: Connection, suite_id: int, rows: StagedRows, *, managed_by: str, now: int) -> None:
    """Insert versions and put them in force; one that came back is there already.

    Joins as in `_create`. LIMIT keeps SQLite from taking them apart.
    """
    changed = staged_table(connection, rows)
    mine = sa.and_(canaries.c.suite_id == suite_id, canaries.c.key == changed.c.key)
    versions = (
        sa.select(canaries.c.id, changed.c.hash, changed.c.body, sa.literal(now, sa.BigInteger))
        .join_from(changed, canaries, mine, isouter=True)
        .where(changed.c.body.is_not(None))
    )
    insert_selected(connection, canary_versions, ("canary_id", "hash", "body", "created_at"), versions)
    version = sa.and_(canary_versions.c.canary_id == canaries.c.id, canary_versions.c.hash == changed.c.hash)
    found = (
        sa.select(canaries.c.id, canary_versions.c.id.label("version_id"), changed.c.source)
        .join_from(changed, canaries, mine, isouter=True)
        .join(canary_versions, version, isouter=True)
        .limit(len(rows.rows))
        .subquery("found")
    )
    connection.execute(
        sa.update(canaries)
        .where(canaries.c.id == found.c.id)
        .values(version_id=found.c.version_id, managed_by=managed_by, source=found.c.source, archived_at=None)
    )


def archive_canaries(connection: Connection, canary_ids: Iterable[int], now: int) -> None:
    """Archive canaries; their history stays."""
    gone = numbers(connection, "gone", ("id",), [(canary_id,) for canary_id in canary_ids])
    connection.execute(sa.update(canaries).where(canaries.c.id.in_(sa.select(gone.c.id))).values(archived_at=now))
