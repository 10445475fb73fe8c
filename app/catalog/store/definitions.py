"""Rows of definitions: suites, retrievers, checks, hooks, silences and judges, with all their versions and secrets.

Nothing is deleted, only archived, so that history keeps its definitions.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new, insert_one, read_body
from app.catalog.tables import canaries, definition_versions, definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A suite, retriever, check, hook or silence with its current version."""

    id: int
    kind: str
    slug: str
    managed_by: str
    source: str | None
    version_id: int
    revision: int
    hash: str
    body: Mapping[str, Any]
    secrets: bytes | None
    created_at: int
    updated_at: int
    archived_at: int | None
    disabled_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a definition or canary, ready to be stored."""

    hash: str
    body: Mapping[str, Any]
    secrets: bytes | None = None


_DEFINITION = sa.select(
    definitions, definition_versions.c.hash, definition_versions.c.body, definition_versions.c.secrets
).join(definition_versions, definition_versions.c.id == definitions.c.version_id)


_BY_SLUG = _DEFINITION.where(definitions.c.kind == sa.bindparam("kind"), definitions.c.slug == sa.bindparam("slug"))
_BY_ID = _DEFINITION.where(definitions.c.id == sa.bindparam("id"))


def find_definition(connection: Connection, kind: str, slug: str) -> Definition | None:
    """Return a definition by its slug, archived ones included."""
    row = connection.execute(_BY_SLUG, {"kind": kind, "slug": slug}).one_or_none()
    return _definition(connection, row) if row else None


def definition_by_id(connection: Connection, definition_id: int) -> Definition:
    """Return the definition with an id known to exist."""
    return _definition(connection, connection.execute(_BY_ID, {"id": definition_id}).one())


def definitions_by_id(connection: Connection, definition_ids: Sequence[int]) -> list[Definition]:
    """Return a few hundred definitions at most by their ids, in no order; those that are not there are left out."""
    rows = connection.execute(_DEFINITION.where(definitions.c.id.in_(list(definition_ids))))
    return [_definition(connection, row) for row in rows]


def list_definitions(
    connection: Connection, kind: str, *, after: str = "", limit: int | None = None, archived: bool = False
) -> list[Definition]:
    """Return definitions of a kind by slug, those after `after`; archived ones only with `archived`."""
    statement = _DEFINITION.where(definitions.c.kind == kind, definitions.c.slug > after)
    if not archived:
        statement = statement.where(definitions.c.archived_at.is_(None))
    rows = connection.execute(statement.order_by(definitions.c.slug).limit(limit))
    return [_definition(connection, row) for row in rows]


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


def version_body(connection: Connection, version_id: int) -> Content:
    """Return the content of a version of a definition."""
    row = connection.execute(_VERSION, {"id": version_id}).one()
    body = read_body(connection, row.kind, row.body, secrets_set=row.secrets is not None)
    return Content(hash=row.hash, body=body, secrets=row.secrets)


_VERSION = (
    sa.select(definitions.c.kind, definition_versions)
    .join(definitions, definitions.c.id == definition_versions.c.definition_id)
    .where(definition_versions.c.id == sa.bindparam("id"))
)


def version_bodies(connection: Connection, version_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Return the bodies of a few hundred versions of definitions at most, by version; without secrets."""
    statement = (
        sa.select(definitions.c.kind, definition_versions)
        .join(definitions, definitions.c.id == definition_versions.c.definition_id)
        .where(definition_versions.c.id.in_(list(version_ids)))
    )
    return {
        row.id: read_body(connection, row.kind, row.body, secrets_set=row.secrets is not None)
        for row in connection.execute(statement)
    }


def save_definition(
    connection: Connection,
    kind: str,
    slug: str,
    content: Content,
    *,
    managed_by: str,
    source: str | None,
    now: int,
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
    version_id = _save_version(connection, definition_id, content, now)
    connection.execute(
        sa.update(definitions)
        .where(definitions.c.id == definition_id)
        .values(
            version_id=version_id,
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


def _save_version(connection: Connection, definition_id: int, content: Content, now: int) -> int:
    table = definition_versions
    same = sa.and_(table.c.definition_id == definition_id, table.c.hash == content.hash)
    insert_new(
        connection,
        table,
        ("definition_id", "hash", "body", "secrets", "created_at"),
        [(definition_id, content.hash, json.dumps(content.body), content.secrets, now)],
    )
    # An old version coming back into force: its secrets were encrypted under the key of their day.
    connection.execute(sa.update(table).where(same).values(secrets=content.secrets))
    return int(connection.execute(sa.select(table.c.id).where(same)).scalar_one())


def archive_definition(connection: Connection, definition_id: int, now: int) -> None:
    """Take a definition out of force, keeping its history; a suite's canaries go with it, or they would come back."""
    connection.execute(
        sa.update(definitions)
        .where(definitions.c.id == definition_id)
        .values(archived_at=now, updated_at=now, revision=definitions.c.revision + 1)
    )
    members = sa.and_(canaries.c.suite_id == definition_id, canaries.c.archived_at.is_(None))
    connection.execute(sa.update(canaries).where(members).values(archived_at=now))


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


def _definition(connection: Connection, row: Any) -> Definition:
    return Definition(
        id=row.id,
        kind=row.kind,
        slug=row.slug,
        managed_by=row.managed_by,
        source=row.source,
        version_id=row.version_id,
        revision=row.revision,
        hash=row.hash,
        body=read_body(connection, row.kind, row.body, secrets_set=row.secrets is not None),
        secrets=row.secrets,
        created_at=row.created_at,
        updated_at=row.updated_at,
        archived_at=row.archived_at,
        disabled_reason=row.disabled_reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """The encrypted secrets of one version of a definition."""

    version_id: int
    kind: str
    slug: str
    in_force: bool
    token: bytes


def list_encrypted(connection: Connection) -> list[Sealed]:
    """Return the secrets of every version of every definition, also archived ones, locked against other writers."""
    statement = (
        sa.select(
            definition_versions.c.id,
            definition_versions.c.secrets,
            definitions.c.kind,
            definitions.c.slug,
            sa.and_(definitions.c.version_id == definition_versions.c.id, definitions.c.archived_at.is_(None)).label(
                "in_force"
            ),
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
