"""How a database is opened, in the way of its driver, and what the errors of drivers mean."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from app.base.errors import ConfigurationError, StoreUnavailableError

WRITES = "coalmine_writes"
"""The execution option of connections that write."""
_SQLITE_REFUSALS = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
}
_SQLITE_LOCKS = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_SQLITE_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_POSTGRESQL_REFUSALS = {"53100", "58030", "25006"}  # disk full, I/O error, read-only transaction
_POSTGRESQL_MISSING = {"42P01", "42703", "3F000", "42501"}  # table, column, schema, permission
_POSTGRESQL_DAMAGE = {"XX001", "XX002"}  # of a table, of an index


def create_engine(url: str, busy_milliseconds: int) -> Engine:
    """Open the database of a URL. Raises ConfigurationError where it is none of ours."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise ConfigurationError("DATABASE_URL is not a database URL (sqlite:///... or postgresql://...)") from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        # The connection used last goes out first: each has a page cache of 2 MB, and those of a busy moment stay cold.
        options = {"pool_size": 20, "max_overflow": 20, "pool_timeout": 10, "pool_use_lifo": True}
        engine = sa.create_engine(parsed, hide_parameters=True, **options)
        event.listen(engine, "connect", partial(_prepare_sqlite, busy_milliseconds))
        if parsed.database and parsed.database != ":memory:":
            event.listen(engine, "begin", _SameFile(parsed.database))
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if backend in {"postgresql", "postgres"}:
        engine = sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_size=20,
            max_overflow=20,
            pool_timeout=10,
            pool_pre_ping=True,
            hide_parameters=True,  # they may hold queries, texts and bodies
            connect_args={"connect_timeout": 5},
        )
        event.listen(engine, "connect", partial(_prepare_postgresql, busy_milliseconds))
        return engine
    raise ConfigurationError(f"DATABASE_URL: {backend} is not supported; use sqlite or postgresql")


def _prepare_sqlite(busy_milliseconds: int, connection: Any, _record: object) -> None:
    # We emit BEGIN ourselves (see _begin_sqlite); the driver's own idea of transactions is switched off.
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {busy_milliseconds}",
        "synchronous = NORMAL",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")
    deadline = time.monotonic() + busy_milliseconds / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            # Processes that open a new file at once: the switch is refused without waiting, whatever busy_timeout is.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


class _SameFile:
    """Refuses to work on a file that is not in its place any more: SQLite would go on, and lose it all at the end."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._first: tuple[int, int] | None = None

    def __call__(self, _connection: Connection) -> None:
        try:
            found = self._path.stat()
        except OSError as error:
            raise StoreUnavailableError(self._path_error("is gone")) from error
        self._first = self._first or (found.st_dev, found.st_ino)
        if self._first != (found.st_dev, found.st_ino):
            raise StoreUnavailableError(self._path_error("was replaced"))

    def _path_error(self, what: str) -> str:
        return f"the database cannot be used: {self._path} {what} while it was open; put it back and restart"


def _prepare_postgresql(busy_milliseconds: int, connection: Any, _record: object) -> None:
    # Else a table that somebody locked would hold up every thread for ever, instead of being said to be locked.
    connection.execute(f"SET lock_timeout = {busy_milliseconds}")
    # The functions of the engine of jobs name its tables without their schema.
    connection.execute("SELECT set_config('search_path', current_setting('search_path') || ', procrastinate', false)")
    connection.commit()


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(WRITES) else "BEGIN")


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn a database that is locked, absent, damaged, read-only or without our tables into StoreUnavailableError."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError) as error:
        raise StoreUnavailableError(error_text(error)) from error
    except DBAPIError as error:
        # The bare base class is what SQLite says of a file that is damaged or none of its own.
        unusable = refuses_writes(error) or _sqlstate(error) in _POSTGRESQL_MISSING | _POSTGRESQL_DAMAGE
        if error.connection_invalidated or type(error.orig) is sqlite3.DatabaseError or unusable:
            raise StoreUnavailableError(error_text(error)) from error
        raise
    except sqlite3.Error as error:  # while a connection is being prepared, nobody has wrapped it yet
        raise StoreUnavailableError(error_text(error)) from error


def refuses_writes(error: Exception) -> bool:
    """Whether a write failed for want of room or permission, which another attempt alone does not mend."""
    return _sqlite_code(error) in _SQLITE_REFUSALS or _sqlstate(error) in _POSTGRESQL_REFUSALS


def is_locked_out(error: Exception) -> bool:
    """Whether another process held the one writer of SQLite for as long as a write waits."""
    return _sqlite_code(error) in _SQLITE_LOCKS


def is_damage(error: Exception) -> bool:
    """Whether the database found a part of itself to be damaged."""
    return _sqlite_code(error) in _SQLITE_DAMAGE or _sqlstate(error) in _POSTGRESQL_DAMAGE


def _sqlite_code(error: Exception) -> int | None:
    cause = getattr(error, "orig", None) or error
    code: int | None = getattr(cause, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _sqlstate(error: Exception) -> str | None:
    cause = getattr(error, "orig", None) or error
    return getattr(cause, "sqlstate", None)


def error_text(error: Exception) -> str:
    """Words of the driver without the statement and its values, which may hold queries and texts."""
    cause = getattr(error, "orig", None) or error
    return f"the database cannot be used now: {str(cause).strip().splitlines()[0]}"
