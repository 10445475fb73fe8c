"""Rows of parts of traffic logs that arrived: found, remembered, and forgotten with the queries they held."""

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db import received_parts
from app.base.db.received_parts import ReceivedPart
from app.traffic.tables import traffic_parts


def remember_part(
    connection: Connection, suite_id: int, retriever: str, key: str, part: ReceivedPart, *, at: int
) -> bool:
    """Store that a part arrived; False where it had arrived before. On PostgreSQL waits for one that is arriving."""
    owner = {"suite_id": suite_id, "retriever": retriever}
    return received_parts.remember_part(connection, traffic_parts, owner, key, part, at=at)


def find_part(connection: Connection, suite_id: int, retriever: str, key: str) -> ReceivedPart | None:
    """Return the part that arrived with a key."""
    return received_parts.find_part(connection, traffic_parts, {"suite_id": suite_id, "retriever": retriever}, key)


def forget_parts(connection: Connection, suite_id: int, retriever: str | None) -> None:
    """Delete the parts of a suite, of one retriever or all: what was deleted may be sent again."""
    mine = traffic_parts.c.suite_id == suite_id
    mine = mine if retriever is None else sa.and_(mine, traffic_parts.c.retriever == retriever)
    connection.execute(sa.delete(traffic_parts).where(mine))


def forget_contents(connection: Connection, suite_id: int) -> None:
    """Delete what the parts of a suite held, so that no hash tells of a deleted query."""
    mine = traffic_parts.c.suite_id == suite_id
    connection.execute(sa.update(traffic_parts).where(mine).values(content_hash=None))
