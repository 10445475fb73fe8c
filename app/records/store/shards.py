"""Answers of a run until it is finalised, staged shard by shard."""

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new
from app.base.values import Slowing
from app.catalog.tables import suite_versions
from app.records.run_tables import runs, shards

_MEMBER_BYTES = 16  # a canary id and a version id, see suites.freeze_suite


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """How a probe ended that did not measure; rows of three columns are from before there was a second step."""

    outcome: str
    http_status: int | None = None
    detail: str | None = None
    step: str = "retriever"
    """Who failed."""
    address: str | None = None
    """Host and port of whoever failed; None in rows from before it was kept."""


class ShardBody(msgspec.Struct, array_like=True, frozen=True):
    """The answers of one shard, as columns over its positions; what is missing at the end is as it is by default."""

    first: int
    latencies: bytes
    rankings: list[int | None]
    failures: dict[int, Failure]
    index_version: str | None = None
    unscored: int = 0
    """Answers whose relevance the scorer could not measure."""
    unscored_detail: str | None = None
    """Why, of one of them."""
    arrived: int = 0
    """How many answers the run had when the shard was staged; the newest shard has the most."""
    row: dict[str, int] = msgspec.field(default_factory=dict)
    """The probes that had failed in a row by then, counted by the way they failed."""
    ended_early: str | None = None
    """Why no more requests were to be sent from here on."""
    scored: int = 0
    """Answers whose relevance a scorer outside the retriever measured."""
    unscored_at: list[int] = msgspec.field(default_factory=list)
    """The positions of those it could not measure."""
    present: list[str] = msgspec.field(default_factory=list)
    """What the hits had of the fields they may lack, see `presence`."""
    generated: dict[int, str] = msgspec.field(default_factory=dict)
    """Answers that came with the hits, by position."""
    cached: int = 0
    """Answers of a cache before the retriever."""
    cache_sign: str | None = None
    """The header line that says so, of one of them."""
    slowing: Slowing | None = None
    """By how much the retriever slowed these requests."""


def commit_shards(connection: Connection, run_id: int, bodies: Mapping[int, ShardBody], *, now: int) -> None:
    """Stage the answers of shards, by number; a second commit of the same shard changes nothing."""
    rows = [(run_id, number, msgspec.msgpack.encode(body), now) for number, body in bodies.items()]
    insert_new(connection, shards, ("run_id", "number", "body", "staged_at"), rows)


def staged_numbers(connection: Connection, run_id: int) -> set[int]:
    """Give the numbers of the shards a run has staged so far."""
    return set(connection.execute(sa.select(shards.c.number).where(shards.c.run_id == run_id)).scalars())


def newest_shard(connection: Connection, run_id: int) -> tuple[int, ShardBody] | None:
    """Read the shard of a run that was staged last, with its moment; None = none is."""
    newest = sa.select(shards).where(shards.c.run_id == run_id).order_by(sa.desc(shards.c.staged_at)).limit(1)
    row = connection.execute(newest).one_or_none()
    return None if row is None else (row.staged_at or 0, msgspec.msgpack.decode(row.body, type=ShardBody))


def staged_shards(connection: Connection, run_id: int) -> dict[int, ShardBody]:
    """Read the shards a run has staged so far, by number."""
    rows = connection.execute(sa.select(shards.c.number, shards.c.body).where(shards.c.run_id == run_id))
    return {row.number: msgspec.msgpack.decode(row.body, type=ShardBody) for row in rows}


def has_shards(connection: Connection, run_id: int) -> bool:
    """Whether a run has staged any answers; reads none, for they may be what cannot be read."""
    return connection.execute(sa.select(sa.exists().where(shards.c.run_id == run_id))).scalar_one()


def progress(connection: Connection, run_id: int) -> tuple[int | None, list[int]]:
    """Say how many canaries a run asks (None before it started) and which shards it has staged so far."""
    size = sa.func.length(suite_versions.c.members)
    frozen = sa.select(size).join(runs, runs.c.suite_version_id == suite_versions.c.id).where(runs.c.id == run_id)
    staged = sa.select(shards.c.number).where(shards.c.run_id == run_id)
    size_bytes = connection.execute(frozen).scalar_one_or_none()
    total = None if size_bytes is None else size_bytes // _MEMBER_BYTES
    return total, list(connection.execute(staged).scalars())


def drop_shards(connection: Connection, run_id: int) -> None:
    """Forget the staged answers of a finalised run."""
    connection.execute(_DROP_SHARDS, {"run": run_id})


_DROP_SHARDS = sa.delete(shards).where(shards.c.run_id == sa.bindparam("run"))
