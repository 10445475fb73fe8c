"""What should be: suites, canaries, retrievers, checks and hooks, each with every version it ever had.

Nothing is deleted: what is no longer wanted is archived, so that history keeps its words.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.engine import insert_new, insert_one
from app.store.tables import canaries, canary_versions, definition_versions, definitions, suite_versions

_BLOCK = 400  # bound values in one IN list, below every driver's limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A suite, retriever, check or hook with its version in force."""

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
class CanaryRow:
    """A canary of a suite with its version in force."""

    id: int
    key: str
    managed_by: str
    source: str | None
    version_id: int
    hash: str
    body: Mapping[str, Any]
    archived_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A canary as a frozen suite version lists it."""

    canary_id: int
    version_id: int
    key: str
    hash: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a definition or canary says, ready to be stored."""

    hash: str
    body: Mapping[str, Any]
    secrets: bytes | None = None


_DEFINITION = sa.select(
    definitions, definition_versions.c.hash, definition_versions.c.body, definition_versions.c.secrets
).join(definition_versions, definition_versions.c.id == definitions.c.version_id)


def find_definition(connection: Connection, kind: str, slug: str) -> Definition | None:
    """Find a definition by its slug, archived ones included."""
    row = connection.execute(_DEFINITION.where(definitions.c.kind == kind, definitions.c.slug == slug)).one_or_none()
    return _definition(row) if row else None


def definition_by_id(connection: Connection, definition_id: int) -> Definition:
    """Read the definition with an id known to exist."""
    return _definition(connection.execute(_DEFINITION.where(definitions.c.id == definition_id)).one())


def list_definitions(
    connection: Connection, kind: str, *, after: str = "", limit: int | None = None, archived: bool = False
) -> list[Definition]:
    """List definitions of a kind by slug, those after `after`; archived ones only when asked for."""
    statement = _DEFINITION.where(definitions.c.kind == kind, definitions.c.slug > after)
    if not archived:
        statement = statement.where(definitions.c.archived_at.is_(None))
    rows = connection.execute(statement.order_by(definitions.c.slug).limit(limit))
    return [_definition(row) for row in rows]


def hold_definitions(connection: Connection, kind: str, slugs: Collection[str]) -> set[str]:
    """Give those of these slugs that are in force, and keep them so until the transaction ends.

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


def version_body(connection: Connection, version_id: int) -> Content:
    """Read what a definition said in one of its versions."""
    row = connection.execute(sa.select(definition_versions).where(definition_versions.c.id == version_id)).one()
    return Content(hash=row.hash, body=json.loads(row.body), secrets=row.secrets)


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
    """Create a definition or put a new version of it in force; un-archives it. Gives its id."""
    found = connection.execute(
        sa.select(definitions.c.id).where(definitions.c.kind == kind, definitions.c.slug == slug)
    ).scalar_one_or_none()
    definition_id = found or insert_one(
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
    """Count a change of what belongs to a definition: a suite's canaries."""
    connection.execute(
        sa.update(definitions)
        .where(definitions.c.id == definition_id)
        .values(revision=definitions.c.revision + 1, updated_at=now)
    )


def own_definition(connection: Connection, definition_id: int, *, managed_by: str, source: str | None) -> None:
    """Say who owns a definition whose content did not change."""
    connection.execute(
        sa.update(definitions).where(definitions.c.id == definition_id).values(managed_by=managed_by, source=source)
    )


def disable_definition(connection: Connection, definition_id: int, reason: str, now: int) -> None:
    """Switch off a hook whose receiver is gone, until it is saved anew."""
    connection.execute(
        sa.update(definitions)
        .where(definitions.c.id == definition_id)
        .values(disabled_at=now, disabled_reason=reason, updated_at=now)
    )


def list_canaries(connection: Connection, suite_id: int, *, archived: bool = False) -> list[CanaryRow]:
    """List the canaries of a suite in the order they came; archived ones only when asked for."""
    statement = (
        sa.select(canaries, canary_versions.c.hash, canary_versions.c.body)
        .join(canary_versions, canary_versions.c.id == canaries.c.version_id)
        .where(canaries.c.suite_id == suite_id)
        .order_by(canaries.c.id)
    )
    if not archived:
        statement = statement.where(canaries.c.archived_at.is_(None))
    return [
        CanaryRow(
            id=row.id,
            key=row.key,
            managed_by=row.managed_by,
            source=row.source,
            version_id=row.version_id,
            hash=row.hash,
            body=json.loads(row.body),
            archived_at=row.archived_at,
        )
        for row in connection.execute(statement)
    ]


def save_canaries(
    connection: Connection,
    suite_id: int,
    contents: Sequence[tuple[str, Content, str | None]],
    *,
    managed_by: str,
    now: int,
) -> None:
    """Create canaries of a suite or put new versions of them in force: (key, content, source) each."""
    if not contents:
        return
    columns = ("suite_id", "key", "managed_by", "source")
    insert_new(connection, canaries, columns, [(suite_id, key, managed_by, source) for key, _, source in contents])
    ids = _canary_ids(connection, suite_id)
    columns = ("canary_id", "hash", "body", "created_at")
    rows = [(ids[key], content.hash, json.dumps(content.body), now) for key, content, _ in contents]
    insert_new(connection, canary_versions, columns, rows)
    version = sa.select(canary_versions.c.id).where(
        canary_versions.c.canary_id == sa.bindparam("canary"), canary_versions.c.hash == sa.bindparam("digest")
    )
    connection.execute(
        sa.update(canaries)
        .where(canaries.c.id == sa.bindparam("canary"))
        .values(
            version_id=version.scalar_subquery(),
            managed_by=managed_by,
            source=sa.bindparam("place"),
            archived_at=None,
        ),
        [{"canary": ids[key], "digest": content.hash, "place": source} for key, content, source in contents],
    )


def find_canary_id(connection: Connection, suite_id: int, key: str) -> int | None:
    """Find a canary of a suite by its key, archived ones included."""
    statement = sa.select(canaries.c.id).where(canaries.c.suite_id == suite_id, canaries.c.key == key)
    return connection.execute(statement).scalar_one_or_none()


def archive_canaries(connection: Connection, canary_ids: Iterable[int], now: int) -> None:
    """Take canaries out of their suite, keeping their history."""
    wanted = list(canary_ids)
    for start in range(0, len(wanted), _BLOCK):
        block = canaries.c.id.in_(wanted[start : start + _BLOCK])
        connection.execute(sa.update(canaries).where(block).values(archived_at=now))


def freeze_suite(connection: Connection, suite_id: int, now: int) -> int:
    """Give the version of a suite as it is now, freezing its canary list if no run has needed it yet."""
    revision = connection.execute(
        sa.select(definitions.c.revision).where(definitions.c.id == suite_id).with_for_update()
    ).scalar_one()
    place = sa.and_(suite_versions.c.suite_id == suite_id, suite_versions.c.revision == revision)
    known = connection.execute(sa.select(suite_versions.c.id).where(place)).scalar_one_or_none()
    if known is not None:
        return int(known)
    members = list_canaries(connection, suite_id)
    digest = suite_hash([(member.key, member.hash) for member in members])
    packed = np.array([(member.id, member.version_id) for member in members], dtype="<i8").tobytes()
    columns = ("suite_id", "revision", "hash", "members", "created_at")
    insert_new(connection, suite_versions, columns, [(suite_id, revision, digest, packed, now)])
    return int(connection.execute(sa.select(suite_versions.c.id).where(place)).scalar_one())


def suite_hash(members: Sequence[tuple[str, str]]) -> str:
    """Name a canary list by the keys and content hashes of its members in order: 32 hex digits."""
    return blake2b(json.dumps([list(member) for member in members]).encode(), digest_size=16).hexdigest()


def suite_version(connection: Connection, version_id: int) -> tuple[str, list[Member]]:
    """Read a frozen canary list: its hash and its members in order."""
    return suite_versions_of(connection, [version_id])[version_id]


def suite_versions_of(connection: Connection, version_ids: Iterable[int]) -> dict[int, tuple[str, list[Member]]]:
    """Read a few frozen canary lists, by id, as `suite_version` does one; what several hold is read once."""
    wanted = suite_versions.c.id.in_(sorted(set(version_ids)))
    rows = connection.execute(sa.select(suite_versions).where(wanted)).all()
    pairs = {row.id: np.frombuffer(row.members, dtype="<i8").reshape(-1, 2).tolist() for row in rows}
    versions = list(dict.fromkeys(version for members in pairs.values() for _, version in members))
    found: dict[int, Any] = {}
    for start in range(0, len(versions), _BLOCK):
        block = versions[start : start + _BLOCK]
        statement = (
            sa.select(canary_versions.c.id, canaries.c.key, canary_versions.c.hash, canary_versions.c.body)
            .join(canaries, canaries.c.id == canary_versions.c.canary_id)
            .where(canary_versions.c.id.in_(block))
        )
        found.update((version.id, (version, json.loads(version.body))) for version in connection.execute(statement))
    return {row.id: (row.hash, [_member(pair, *found[pair[1]]) for pair in pairs[row.id]]) for row in rows}


def _member(pair: Sequence[int], version: Any, body: Mapping[str, Any]) -> Member:
    return Member(canary_id=pair[0], version_id=pair[1], key=version.key, hash=version.hash, body=body)


def members_of(connection: Connection, version_id: int) -> list[tuple[int, int]]:
    """Read a frozen canary list as (canary id, version id) alone."""
    packed = connection.execute(sa.select(suite_versions.c.members).where(suite_versions.c.id == version_id))
    return [(canary, version) for canary, version in np.frombuffer(packed.scalar_one(), "<i8").reshape(-1, 2).tolist()]


def places_of(connection: Connection, version_id: int, keys: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Find canaries in a frozen canary list by their keys: (position, canary id); those not in it are left out."""
    packed = connection.execute(
        sa.select(suite_versions.c.suite_id, suite_versions.c.members).where(suite_versions.c.id == version_id)
    ).one()
    asked: list[int] = np.frombuffer(packed.members, dtype="<i8")[::2].tolist()
    found: dict[str, tuple[int, int]] = {}
    for key in keys:
        canary_id = find_canary_id(connection, packed.suite_id, key)
        if canary_id is not None and canary_id in asked:
            found[key] = asked.index(canary_id), canary_id
    return found


def queries_of(connection: Connection, version_ids: Iterable[int]) -> dict[int, str]:
    """Read what versions of canaries ask."""
    wanted = sorted(set(version_ids))
    found: dict[int, str] = {}
    for start in range(0, len(wanted), _BLOCK):
        block = canary_versions.c.id.in_(wanted[start : start + _BLOCK])
        rows = connection.execute(sa.select(canary_versions.c.id, canary_versions.c.body).where(block))
        found.update((row.id, json.loads(row.body)["query"]) for row in rows)
    return found


def _canary_ids(connection: Connection, suite_id: int) -> dict[str, int]:
    statement = sa.select(canaries.c.key, canaries.c.id).where(canaries.c.suite_id == suite_id)
    return dict(connection.execute(statement).all())


def _definition(row: Any) -> Definition:
    return Definition(
        id=row.id,
        kind=row.kind,
        slug=row.slug,
        managed_by=row.managed_by,
        source=row.source,
        version_id=row.version_id,
        revision=row.revision,
        hash=row.hash,
        body=json.loads(row.body),
        secrets=row.secrets,
        created_at=row.created_at,
        updated_at=row.updated_at,
        archived_at=row.archived_at,
        disabled_reason=row.disabled_reason,
    )
