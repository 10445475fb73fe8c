"""Rows of the most different pairs of a shadow: one of each query, so many as its document says."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new
from app.experiments.tables import shadow_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPair:
    """A query with the texts that users got and those of the candidate, and how alike the rankings are."""

    query: str
    a: Sequence[str]
    b: Sequence[str]
    rbo: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow(NewPair):
    """A pair that is kept."""

    id: int
    at: int


def keep_pairs(connection: Connection, shadow_id: int, pairs: Sequence[NewPair], *, most: int, at: int) -> None:
    """Add pairs, the first one of each query, and delete all but the `most` different ones."""
    rows = [
        (
            shadow_id,
            sha256(one.query.encode()).hexdigest(),
            one.query,
            json.dumps(list(one.a)),
            json.dumps(list(one.b)),
            one.rbo,
            at,
        )
        for one in sorted(pairs, key=lambda one: one.rbo)[:most]
    ]
    insert_new(connection, shadow_pairs, ("shadow_id", "digest", "query", "a", "b", "rbo", "at"), rows)
    mine = shadow_pairs.c.shadow_id == shadow_id
    kept = sa.select(shadow_pairs.c.id).where(mine).order_by(shadow_pairs.c.rbo, shadow_pairs.c.id).limit(most)
    connection.execute(sa.delete(shadow_pairs).where(mine, shadow_pairs.c.id.not_in(kept)))


def list_pairs(connection: Connection, shadow_id: int, limit: int | None = None) -> list[PairRow]:
    """Return the pairs of a shadow, the most different first."""
    order = (shadow_pairs.c.rbo, shadow_pairs.c.id)
    statement = sa.select(shadow_pairs).where(shadow_pairs.c.shadow_id == shadow_id).order_by(*order).limit(limit)
    return [
        PairRow(id=row.id, query=row.query, a=json.loads(row.a), b=json.loads(row.b), rbo=row.rbo, at=row.at)
        for row in connection.execute(statement)
    ]


def count_pairs(connection: Connection, shadow_id: int) -> int:
    """Count the pairs of a shadow."""
    mine = shadow_pairs.c.shadow_id == shadow_id
    return connection.execute(sa.select(sa.func.count()).select_from(shadow_pairs).where(mine)).scalar_one()


def forget_pairs(connection: Connection, shadow_id: int) -> None:
    """Delete the pairs of a shadow."""
    connection.execute(sa.delete(shadow_pairs).where(shadow_pairs.c.shadow_id == shadow_id))


def old_pairs(connection: Connection, limit: int, *, horizon: int) -> list[int]:
    """Find pairs that came before `horizon`."""
    statement = sa.select(shadow_pairs.c.id).where(shadow_pairs.c.at < horizon).limit(limit)
    return list(connection.execute(statement).scalars())


def drop_pairs(connection: Connection, old: Sequence[int]) -> int:
    """Delete these pairs."""
    return connection.execute(sa.delete(shadow_pairs).where(shadow_pairs.c.id.in_(old))).rowcount
