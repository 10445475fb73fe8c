"""Rates of retrievers that several processes ask: requests are reserved in one row, by the clock of the database."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from app.records.run_tables import rates


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
