"""Rows of parts of logs that arrived: for a day the same part is not counted twice.

The tables of traffic and of shadows have these columns, and their own ones that say what a part is of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Table

from app.base.db.engine import insert_one


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedPart:
    """A part that arrived: hash of what it held, None once a query was deleted since, and JSON of its answer."""

    content_hash: str | None
    answer: str


def remember_part(
    connection: Connection, table: Table, owner: Mapping[str, Any], key: str, part: ReceivedPart, *, at: int
) -> bool:
    """Store that a part arrived; False where it had arrived before. On PostgreSQL waits for one that is arriving."""
    values = {**owner, "key": key, "received_at": at, "content_hash": part.content_hash, "answer": part.answer}
    return insert_one(connection, table, **values) is not None


def find_part(connection: Connection, table: Table, owner: Mapping[str, Any], key: str) -> ReceivedPart | None:
    """Return the part that arrived with a key."""
    mine = [table.c[name] == value for name, value in owner.items()]
    row = connection.execute(sa.select(table).where(*mine, table.c.key == key)).one_or_none()
    return None if row is None else ReceivedPart(content_hash=row.content_hash, answer=row.answer)


def old_parts(connection: Connection, limit: int, *, table: Table, horizon: int) -> list[int]:
    """Find parts that arrived before `horizon`."""
    statement = sa.select(table.c.id).where(table.c.received_at < horizon).limit(limit)
    return list(connection.execute(statement).scalars())


def drop_parts(connection: Connection, old: Sequence[int], *, table: Table) -> int:
    """Delete these parts."""
    return connection.execute(sa.delete(table).where(table.c.id.in_(old))).rowcount
