"""Rows of traffic: the distinct queries of users with their counts, and the sample that was asked of them."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks, insert_new, row_value, to_us, upsert
from app.base.db.rows import STAGED_ROWS, numbers
from app.base.values import Value
from app.catalog.tables import definitions
from app.traffic.documents.queries import AskedQuery
from app.traffic.tables import reaches, traffic_parts, traffic_queries

_SHARED = ("suite_id", "retriever", "digest", "query", "count", "first_seen", "last_seen", "received_at")


class TrafficQuery(Value):
    """A stored query, normalised, with how often and when it was asked, and its first hit where it was asked again."""

    id: int
    query: str
    count: int
    first_seen: int
    last_seen: int
    asked_at: int | None
    chunk: str | None
    document: str | None
    relevance: float | None
    failure: str | None


class FirstHit(Value):
    """The answer to a query of the sample: its first hit, none, or why there is no answer."""

    chunk: str | None = None
    document: str | None = None
    relevance: float | None = None
    failure: str | None = None


class TrafficSummary(Value):
    """Number and time span of the queries of a suite with a retriever."""

    retriever: str
    distinct: int
    traffic: int
    first_seen: int
    last_seen: int


class ReachRow(Value):
    """The sample that was drawn last."""

    id: int
    suite_id: int
    suite: str
    retriever: str
    body: Mapping[str, Any]
    requested_at: int
    finished_at: int | None


_LOOKED_UP: Final = 500
"""Up to so many queries are looked up one by one; for more all that are stored are read."""


def known_digests(
    connection: Connection, suite_id: int, retriever: str, received: Collection[AskedQuery]
) -> dict[bytes, int]:
    """Return the ids of the stored queries by digest: at least of those that were received and are stored."""
    digest = traffic_queries.c.digest
    statement = sa.select(digest, traffic_queries.c.id).where(_of(suite_id, retriever))
    if len(received) <= _LOOKED_UP:
        statement = statement.where(digest.in_([digest_of(one.query) for one in received]))
    return {bytes(one): number for one, number in connection.execute(statement)}


def count_distinct(connection: Connection, suite_id: int, retriever: str) -> int:
    """Return how many queries are stored."""
    statement = sa.select(sa.func.count()).select_from(traffic_queries).where(_of(suite_id, retriever))
    return connection.execute(statement).scalar_one()


def digest_of(query: str) -> bytes:
    """Return the digest by which a query is found again."""
    return hashlib.sha256(query.encode()).digest()[:16]


def add_queries(
    connection: Connection, suite_id: int, retriever: str, received: Sequence[AskedQuery], *, at: int
) -> None:
    """Add queries; the counts of those that are there grow. In the order of digests, against deadlocks."""
    times = {one.query: (to_us(one.first), to_us(one.last)) for one in received}
    rows = sorted((suite_id, retriever, digest_of(one.query), one.query, 0, *times[one.query], at) for one in received)
    for block in blocks(rows, STAGED_ROWS):
        insert_new(connection, traffic_queries, _SHARED, block)
    known = known_digests(connection, suite_id, retriever, received)
    grown = sorted((known[digest_of(one.query)], one.count, *times[one.query]) for one in received)
    for added in blocks(grown, STAGED_ROWS):
        _grow(connection, added, at)


def _grow(connection: Connection, received: Sequence[tuple[int, int, int, int]], at: int) -> None:
    """Add id, count, first and last time to stored queries."""
    added = numbers(connection, "added", ["id", "count", "first_seen", "last_seen"], received)
    first, last = traffic_queries.c.first_seen, traffic_queries.c.last_seen
    grown = (
        sa.update(traffic_queries)
        .where(traffic_queries.c.id == added.c.id)
        .values(
            count=traffic_queries.c.count + added.c.count,
            first_seen=sa.case((added.c.first_seen < first, added.c.first_seen), else_=first),
            last_seen=sa.case((added.c.last_seen > last, added.c.last_seen), else_=last),
            received_at=at,
        )
    )
    connection.execute(grown)


def summaries(connection: Connection, suite_id: int) -> list[TrafficSummary]:
    """Return the traffic of a suite by retriever."""
    statement = (
        sa.select(
            traffic_queries.c.retriever,
            sa.func.count().label("distinct"),
            sa.func.sum(traffic_queries.c.count).label("traffic"),
            sa.func.min(traffic_queries.c.first_seen).label("first_seen"),
            sa.func.max(traffic_queries.c.last_seen).label("last_seen"),
        )
        .where(traffic_queries.c.suite_id == suite_id)
        .group_by(traffic_queries.c.retriever)
        .order_by(traffic_queries.c.retriever)
    )
    return [row_value(TrafficSummary, row, traffic=int(row.traffic)) for row in connection.execute(statement)]


def query_counts(connection: Connection, suite_id: int, retriever: str) -> list[tuple[int, int]]:
    """Return id and count of all queries, the most frequent first."""
    statement = (
        sa.select(traffic_queries.c.id, traffic_queries.c.count.label("traffic"))
        .where(_of(suite_id, retriever))
        .order_by(traffic_queries.c.count.desc(), traffic_queries.c.id)
    )
    return [(row.id, row.traffic) for row in connection.execute(statement)]


def read_queries(connection: Connection, ids: Sequence[int]) -> dict[int, TrafficQuery]:
    """Return these queries by id."""
    named = numbers(connection, "named", ["id"], [(one,) for one in ids])
    rows = connection.execute(sa.select(traffic_queries).where(traffic_queries.c.id.in_(sa.select(named.c.id))))
    return {row.id: row_value(TrafficQuery, row) for row in rows}


def save_first_hits(connection: Connection, hits: Mapping[int, FirstHit], at: int) -> None:
    """Store the answers to queries of the sample."""
    for number, hit in sorted(hits.items()):
        connection.execute(
            sa.update(traffic_queries)
            .where(traffic_queries.c.id == number)
            .values(asked_at=at, chunk=hit.chunk, document=hit.document, relevance=hit.relevance, failure=hit.failure)
        )


def forget_query(connection: Connection, suite_id: int, query: str) -> int:
    """Delete a query of a suite, with whatever retriever; how many rows there were."""
    mine = sa.and_(traffic_queries.c.suite_id == suite_id, traffic_queries.c.digest == digest_of(query))
    return connection.execute(sa.delete(traffic_queries).where(mine)).rowcount


def forget_block(connection: Connection, suite_id: int, retriever: str | None, limit: int) -> int:
    """Delete up to so many queries of a suite, of one retriever or all; how many there were."""
    some = sa.select(traffic_queries.c.id).where(_of(suite_id, retriever)).limit(limit)
    return connection.execute(sa.delete(traffic_queries).where(traffic_queries.c.id.in_(some))).rowcount


def forget_reaches(connection: Connection, suite_id: int, retriever: str | None) -> None:
    """Delete the samples of a suite, of one retriever or all."""
    connection.execute(sa.delete(reaches).where(_of(suite_id, retriever, reaches)))


def save_sample(connection: Connection, suite_id: int, retriever: str, body: Mapping[str, Any], at: int) -> int:
    """Store the sample that is to be asked, in the place of the one before; its id."""
    values = {"suite_id": suite_id, "retriever": retriever, "body": json.dumps(body), "requested_at": at}
    upsert(connection, reaches, ["suite_id", "retriever"], **values, finished_at=None)
    return int(connection.execute(sa.select(reaches.c.id).where(_of(suite_id, retriever, reaches))).scalar_one())


def finish_sample(connection: Connection, reach_id: int, at: int, *, requested_at: int) -> bool:
    """Store that a sample is asked; False where another has taken its place."""
    mine = sa.and_(reaches.c.id == reach_id, reaches.c.requested_at == requested_at)
    return connection.execute(sa.update(reaches).where(mine).values(finished_at=at)).rowcount == 1


def find_reach(connection: Connection, suite_id: int, retriever: str) -> ReachRow | None:
    """Return the newest sample of a suite with a retriever."""
    return _one(connection, _of(suite_id, retriever, reaches))


def read_reach(connection: Connection, reach_id: int) -> ReachRow | None:
    """Return a sample by its id."""
    return _one(connection, reaches.c.id == reach_id)


def _one(connection: Connection, where: sa.ColumnElement[bool]) -> ReachRow | None:
    statement = sa.select(reaches, definitions.c.slug.label("suite")).join(
        definitions, definitions.c.id == reaches.c.suite_id
    )
    row = connection.execute(statement.where(where)).one_or_none()
    if row is None:
        return None
    return row_value(ReachRow, row, body=json.loads(row.body))


def _of(suite_id: int, retriever: str | None, table: sa.Table = traffic_queries) -> sa.ColumnElement[bool]:
    """Rows of a suite, of one retriever or all."""
    of_suite = table.c.suite_id == suite_id
    return of_suite if retriever is None else sa.and_(of_suite, table.c.retriever == retriever)


def forget_parts(connection: Connection, suite_id: int, retriever: str | None) -> None:
    """Delete the parts of a suite, of one retriever or all: what was deleted may be sent again."""
    connection.execute(sa.delete(traffic_parts).where(_of(suite_id, retriever, traffic_parts)))


def forget_contents(connection: Connection, suite_id: int) -> None:
    """Delete what the parts of a suite held, so that no hash tells of a deleted query."""
    mine = traffic_parts.c.suite_id == suite_id
    connection.execute(sa.update(traffic_parts).where(mine).values(content_hash=None))
