"""Rows of parts of traffic logs that arrived: for a day the same part is not counted twice."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.engine import insert_one
from app.store.tables import traffic_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedPart:
    """A part that arrived: hash of what it held, None once a query of the suite was deleted, and JSON of its answer."""

    content_hash: str | None
    answer: str


def remember_part(
    connection: Connection, suite_id: int, retriever: str, key: str, part: ReceivedPart, *, at: int
) -> bool:
    """Store that a part arrived; False where it had arrived before. On PostgreSQL waits for one that is arriving."""
    values = {"suite_id": suite_id, "retriever": retriever, "key": key, "received_at": at}
    return (
        insert_one(connection, traffic_parts, **values, content_hash=part.content_hash, answer=part.answer) is not None
    )


def find_part(connection: Connection, suite_id: int, retriever: str, key: str) -> ReceivedPart | None:
    """Return the part that arrived with a key."""
    mine = sa.and_(_of(suite_id, retriever), traffic_parts.c.key == key)
    row = connection.execute(sa.select(traffic_parts).where(mine)).one_or_none()
    return None if row is None else ReceivedPart(content_hash=row.content_hash, answer=row.answer)


def forget_parts(connection: Connection, suite_id: int, retriever: str | None) -> None:
    """Delete the parts of a suite, of one retriever or all: what was deleted may be sent again."""
    connection.execute(sa.delete(traffic_parts).where(_of(suite_id, retriever)))


def forget_contents(connection: Connection, suite_id: int) -> None:
    """Delete what the parts of a suite held, so that no hash tells of a deleted query."""
    connection.execute(sa.update(traffic_parts).where(_of(suite_id, None)).values(content_hash=None))


def old_parts(connection: Connection, limit: int, *, horizon: int) -> list[int]:
    """Find parts that arrived before `horizon`."""
    statement = sa.select(traffic_parts.c.id).where(traffic_parts.c.received_at < horizon).limit(limit)
    return list(connection.execute(statement).scalars())


def drop_parts(connection: Connection, old: Sequence[int]) -> int:
    """Delete these parts."""
    return connection.execute(sa.delete(traffic_parts).where(traffic_parts.c.id.in_(old))).rowcount


def _of(suite_id: int, retriever: str | None) -> sa.ColumnElement[bool]:
    mine = traffic_parts.c.suite_id == suite_id
    return mine if retriever is None else sa.and_(mine, traffic_parts.c.retriever == retriever)
