"""Rows of embedders, as they once answered known texts and in each run, and of limits that replicas share.

Such a limit is a lane of a retriever that one replica holds at a time, or the stretch of time that requests reserve.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import BigInteger, Column, Connection, ForeignKey, LargeBinary, Table, Text, UniqueConstraint

from app.base.db.engine import Store, hold_content, ids_of, insert_new, translate_errors
from app.base.db.rows import Id, id_column, metadata
from app.base.values import Value
from app.catalog.tables import definition_versions
from app.records.tables import rates, runs
from app.retrievers.domain.probes import StoredFinding

# An embedder as a retriever is configured with it (hash: URL, model, dimensions, texts), and how it once answered.
embedders = Table(
    "embedders",
    metadata,
    id_column(),
    Column("retriever_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("model", Text, nullable=False),
    Column("reference", LargeBinary),  # msgpack [texts, float32 vectors]; NULL = to be learned at the next run
    Column("learned_at", BigInteger),
    Column("learned_run", Id),
    Column("finding_id", Id, ForeignKey("embedder_findings.id")),  # the last one
    Column("seen_run", Id),
    Column("since_run", Id),  # since when outcome and kind of the finding have been the same
    UniqueConstraint("retriever_id", "hash"),
)

embedder_findings = Table(
    "embedder_findings",
    metadata,
    id_column(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("body", Text, nullable=False),  # JSON: outcome, kind, reason, dimensions and cosines
)

run_embedders = Table(
    "run_embedders",
    metadata,
    # Deleted with its run also by a release that does not know of it yet.
    Column("run_id", Id, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("finding_id", Id, ForeignKey("embedder_findings.id"), nullable=False, index=True),
)


class _Vectors(msgspec.Struct, array_like=True):
    """Stored vectors: texts, and their numbers one after another, little-endian in single precision."""

    texts: list[str]
    numbers: bytes


class EmbedderRow(Value):
    """An embedder as a retriever is configured with it."""

    id: int
    model: str
    vectors: Mapping[str, NDArray[np.float32]] | None
    """Its reference, by text; None = it is not learned yet, or no more."""
    learned_at: int | None
    learned_run: int | None
    finding: StoredFinding | None
    """What was found last."""
    seen_run: int | None
    """When that was."""
    since_run: int | None
    """Since when outcome and kind of the finding have been the same."""


def retriever_of(connection: Connection, run_id: int) -> int:
    """Give the id of the retriever a started run asks."""
    statement = (
        sa.select(definition_versions.c.definition_id)
        .join(runs, runs.c.retriever_version_id == definition_versions.c.id)
        .where(runs.c.id == run_id)
    )
    return int(connection.execute(statement).scalar_one())


def find_embedder(connection: Connection, retriever_id: int, digest: bytes) -> EmbedderRow | None:
    """Find an embedder by the hash of its configuration."""
    place = sa.and_(embedders.c.retriever_id == retriever_id, embedders.c.hash == digest)
    row = connection.execute(_EMBEDDER.where(place)).one_or_none()
    return _embedder(row) if row else None


def newest_embedder(connection: Connection, retriever_id: int) -> EmbedderRow | None:
    """Find the embedder of a retriever that was seen last."""
    statement = _EMBEDDER.where(embedders.c.retriever_id == retriever_id)
    row = connection.execute(statement.order_by(embedders.c.seen_run.desc().nulls_last()).limit(1)).one_or_none()
    return _embedder(row) if row else None


def save_embedder(connection: Connection, retriever_id: int, digest: bytes, model: str) -> EmbedderRow:
    """Give an embedder, which is stored if it is new."""
    insert_new(connection, embedders, ("retriever_id", "hash", "model"), [(retriever_id, digest, model)])
    embedder = find_embedder(connection, retriever_id, digest)
    assert embedder is not None  # noqa: S101 - it was inserted above, or was there
    return embedder


def learn(
    connection: Connection, embedder_id: int, vectors: Mapping[str, NDArray[np.float32]], *, run_id: int, at: int
) -> None:
    """Keep how an embedder answers as its reference; one that is there already stays."""
    numbers = np.concatenate([vector.astype("<f4") for vector in vectors.values()]).tobytes()
    body = msgspec.msgpack.encode(_Vectors(texts=list(vectors), numbers=numbers))
    unlearned = sa.and_(embedders.c.id == embedder_id, embedders.c.reference.is_(None))
    values = {"reference": body, "learned_at": at, "learned_run": run_id}
    connection.execute(sa.update(embedders).where(unlearned).values(**values))


def forget(connection: Connection, retriever_id: int) -> None:
    """Let go of every reference of a retriever, to be learned anew."""
    values = {"reference": None, "learned_at": None, "learned_run": None}
    connection.execute(sa.update(embedders).where(embedders.c.retriever_id == retriever_id).values(**values))


def save_finding(connection: Connection, run_id: int, embedder_id: int, body: StoredFinding) -> None:
    """Keep what a run found of its embedder; equal findings are stored once."""
    hold_content(connection)
    text = json.dumps(body)
    digest = blake2b(text.encode(), digest_size=16).digest()
    insert_new(connection, embedder_findings, ("hash", "body"), [(digest, text)])
    finding_id = ids_of(connection, embedder_findings, [digest])[digest]
    insert_new(connection, run_embedders, ("run_id", "finding_id"), [(run_id, finding_id)])
    mine = embedders.c.id == embedder_id
    before = connection.execute(_EMBEDDER.where(mine).with_for_update(of=embedders)).one()
    now = _sort(body)
    same = before.finding is not None and _sort(json.loads(before.finding)) == now and before.since_run is not None
    values = {"finding_id": finding_id, "seen_run": run_id, "since_run": before.since_run if same else run_id}
    # Checks of one retriever may end their runs in any order: the newest run has the last word.
    newer = sa.or_(embedders.c.seen_run.is_(None), embedders.c.seen_run < run_id)
    connection.execute(sa.update(embedders).where(mine, newer).values(**values))


def _sort(body: StoredFinding) -> tuple[Any, Any]:
    return body["outcome"], body["kind"]


_EMBEDDER = sa.select(embedders, embedder_findings.c.body.label("finding")).outerjoin(
    embedder_findings, embedder_findings.c.id == embedders.c.finding_id
)


def _embedder(row: Any) -> EmbedderRow:
    return EmbedderRow(
        id=row.id,
        model=row.model,
        vectors=_unpacked(row.reference) if row.reference is not None else None,
        learned_at=row.learned_at,
        learned_run=row.learned_run,
        finding=json.loads(row.finding) if row.finding is not None else None,
        seen_run=row.seen_run,
        since_run=row.since_run,
    )


def _unpacked(body: bytes) -> dict[str, NDArray[np.float32]]:
    stored = msgspec.msgpack.decode(body, type=_Vectors)
    numbers = np.frombuffer(stored.numbers, dtype="<f4").astype(np.float32).reshape(len(stored.texts), -1)
    return dict(zip(stored.texts, numbers, strict=True))


_NOT_AVAILABLE = "55P03"


@contextmanager
def hold_lane(store: Store, retriever: str, lane: int, *, alone: bool, at_most: float) -> Iterator[bool]:
    """Hold a lane of a retriever until the end of the block, after waiting for so many seconds at most.

    False = others hold it still. The lock is that of a transaction that reads and writes nothing: it ends with the
    process or the connection, and poolers that lend connections by the transaction keep it.
    """
    with translate_errors():
        connection = store.engine.connect()
    try:
        with translate_errors():
            held = _lock(connection, f"retriever:{retriever}:{lane}", alone=alone, at_most=at_most)
        yield held
    finally:
        with suppress(sa.exc.DBAPIError):  # where the connection is gone, so is the lock
            connection.close()


def _lock(connection: Connection, name: str, *, alone: bool, at_most: float) -> bool:
    lock = sa.func.pg_advisory_xact_lock if alone else sa.func.pg_advisory_xact_lock_shared
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, round(at_most * 1000))}")
    try:
        connection.execute(sa.select(lock(sa.func.hashtextextended(name, 0))))
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _NOT_AVAILABLE:
            raise
        connection.rollback()
        return False
    return True


def reserve(connection: Connection, name: str, *, microseconds: int) -> int:
    """Reserve so long a stretch of time for requests to a retriever, and say in how many microseconds it begins."""
    return int(connection.execute(_RESERVE, {"name": name, "width": microseconds}).scalar_one())


def old_rates(connection: Connection, limit: int, *, horizon: int) -> list[str]:
    """Name retrievers that nobody has asked since `horizon`."""
    return list(connection.execute(sa.select(rates.c.name).where(rates.c.next_at < horizon).limit(limit)).scalars())


def drop_rates(connection: Connection, old: Sequence[str]) -> int:
    """Forget the rates of these retrievers; gives how many."""
    return connection.execute(sa.delete(rates).where(rates.c.name.in_(old))).rowcount


_RESERVE = sa.text(
    """
    WITH moment AS (SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) AS now)
    INSERT INTO rates (name, next_at) SELECT :name, now + :width FROM moment
    ON CONFLICT (name) DO UPDATE
    SET next_at = GREATEST(rates.next_at, (SELECT now FROM moment)) + :width
    RETURNING next_at - :width - (SELECT now FROM moment)
    """
)
