"""Locks of the lanes of retrievers on PostgreSQL: shards of a run share a lane, whatever else asks holds it alone.

Of the shards in a lane one is asked at a time already, by the lock of their jobs: they share the lane, so that one
whose process is frozen keeps no other waiting.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.drivers import translate_errors
from app.base.db.engine import Store

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
