"""Two transactions on PostgreSQL, of which the second has to wait for the first."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import Store


def overtaken(store: Store, first: Callable[[Connection], object], second: Callable[[], object]) -> None:
    """Let the second begin before what the first wrote is committed, and raise what becomes of it.

    The second has to wait for a lock of the first; one that does not fails the test.
    """
    with ThreadPoolExecutor(1) as pool, store.write() as connection:
        first(connection)
        waiting = begin(store, pool, second)
        connection.commit()
        waiting()


def begin(store: Store, pool: ThreadPoolExecutor, second: Callable[[], object]) -> Callable[[], object]:
    """Begin what has to wait for a lock, and give what waits for its end once it does."""
    begun = pool.submit(second)
    while not waits_for_a_lock(store):
        assert not begun.done(), "it did not wait"
    return lambda: begun.result(20)


def waits_for_a_lock(store: Store) -> bool:
    """Whether any transaction waits for another one; nothing else uses the database server of a test."""
    with store.read() as connection:
        query = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(connection.execute(query).scalar_one())
