"""What suites ask: canaries with every version they ever had, and the suite versions that runs worked with."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.catalog import Content
from app.store.engine import insert_new, read_body
from app.store.tables import canaries, canary_versions, definitions, suite_versions

_BLOCK = 400  # bound values in one IN list, below every driver's limit


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


def list_canaries(
    connection: Connection, suite_id: int, *, archived: bool = False, without: Collection[str] = ()
) -> list[CanaryRow]:
    """List the canaries of a suite in the order they came; archived ones only when asked for.

    Keys in `without` are left out, and their bodies not parsed.
    """
    left_out = frozenset(without)
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
            body=read_body(connection, "canary", row.body),
            archived_at=row.archived_at,
        )
        for row in connection.execute(statement)
        if row.key not in left_out
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


def current_hashes(connection: Connection, suite_ids: Sequence[int]) -> dict[int, str]:
    """Name the canary lists in force of suites, by suite id: what `suite_version` calls them once they are frozen."""
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
        found.update(
            (version.id, (version, read_body(connection, "canary", version.body)))
            for version in connection.execute(statement)
        )
    return {row.id: (row.hash, [_member(pair, *found[pair[1]]) for pair in pairs[row.id]]) for row in rows}


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
    return {version_id: body["query"] for version_id, body in bodies_of(connection, version_ids).items()}


def bodies_of(connection: Connection, version_ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Read versions of canaries as documents."""
    wanted = sorted(set(version_ids))
    found: dict[int, dict[str, Any]] = {}
    for start in range(0, len(wanted), _BLOCK):
        block = canary_versions.c.id.in_(wanted[start : start + _BLOCK])
        rows = connection.execute(sa.select(canary_versions.c.id, canary_versions.c.body).where(block))
        found.update((row.id, read_body(connection, "canary", row.body)) for row in rows)
    return found


def _canary_ids(connection: Connection, suite_id: int) -> dict[str, int]:
    statement = sa.select(canaries.c.key, canaries.c.id).where(canaries.c.suite_id == suite_id)
    return dict(connection.execute(statement).all())


def _member(pair: Sequence[int], version: Any, body: Mapping[str, Any]) -> Member:
    return Member(canary_id=pair[0], version_id=pair[1], key=version.key, hash=version.hash, body=body)
