"""The database handle and, with `rows`, ALL differences between SQLite and PostgreSQL.

`read()` sees one snapshot, `write()` is one transaction; both turn a locked or absent database into
StoreUnavailableError. On SQLite every writing transaction begins IMMEDIATE: a deferred one that reads first fails under
contention instead of waiting. On PostgreSQL a writing transaction is READ COMMITTED, so that it sees what another
committed while it waited for a lock; a reading one is REPEATABLE READ.

Below: inserts that return ids or meet an existing row, content stored once, the meaning of drivers' errors, uploads
received twice, deletion by age, and a cache bounded by bytes.
"""

import json
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection as Connection  # noqa: PLC0414 - services take connections, but know nothing of SQLAlchemy
from sqlalchemy import Engine, Table, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from app.base.db.rows import STAGED_ROWS, StagedRows, ids_sql, insert_arrays_sql, insert_sql, typed_array
from app.base.errors import ConfigurationError, ConflictError, StoreUnavailableError
from app.base.values import Value

BUSY_MILLISECONDS = 5_000
WRITE_FAILURE_SECONDS = 30.0
DAMAGE_SECONDS = 600.0
"""How long a damaged part is told of after it was met last: what meets it may be a run every few minutes."""
RUN_CACHE_BYTES = 32 * 1024 * 1024
"""A page of 50 alerts whose runs degraded 1,000 canaries each takes 28 MB."""
RUN_CACHE_SECONDS = 600.0
"""As long as a person may look at an alert before the next page of it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CACHE = "coalmine_cache"
_RUN_CACHE = "coalmine_run_cache"
_CONTENT_LOCK = 0xC0A2
_FEW_ROWS = 20  # more are sent to PostgreSQL as one statement over arrays, in a third of the time
_IN_LIST = 400  # bound values, below every driver's limit
_T = TypeVar("_T")

Moment = int | sa.BindParameter[int]
"""Microseconds since 1970: a number, or the place of one in a statement that is put together once."""
NOW: sa.BindParameter[int] = sa.bindparam("now", type_=sa.BigInteger)

ValueT = TypeVar("ValueT")
RowT = TypeVar("RowT", bound=Value)


class Store:
    """A database, opened once per process and shared by its threads."""

    def __init__(self, url: str, *, busy_milliseconds: int = BUSY_MILLISECONDS) -> None:
        """Open nothing yet; `busy_milliseconds` is how long to wait for a lock that somebody else holds."""
        self.cache = ByteCache()
        self.run_cache = ByteCache(RUN_CACHE_BYTES, RUN_CACHE_SECONDS)
        options: dict[str, object] = {_CACHE: self.cache, _RUN_CACHE: self.run_cache}
        self.engine = create_engine(url, busy_milliseconds).execution_options(**options)
        self._writer = self.engine.execution_options(**{WRITES: True})
        self._reader = self.engine
        self._busy_milliseconds = busy_milliseconds
        self._turns = threading.Lock() if self.dialect == "sqlite" else None
        self._write_failure: tuple[str, float] | None = None
        """Why and when, by the monotonic clock, a write failed last for want of room or permission."""
        self._lock_failure: str | None = None
        """Why the last write failed, where another process held the writer; None = a write succeeded since."""
        self._damage: tuple[str, float] | None = None
        """What was found damaged and when, by the monotonic clock."""
        if self.dialect == "postgresql":
            self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.engine.dialect.name

    @property
    def place(self) -> str:
        """Where the database is, for people: never a user name, a password or a parameter."""
        url = self.engine.url
        if self.dialect == "sqlite":
            return f"SQLite, {url.database or 'in memory'}"
        host = f"{url.host or 'local socket'}{f':{url.port}' if url.port else ''}"
        return f"PostgreSQL, {host}/{url.database or ''}"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that only reads."""
        with translate_errors(), self._noting_damage(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def _noting_damage(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, sqlite3.Error) as error:
            if is_damage(error):
                self._damage = error_text(error), time.monotonic()
            raise

    @contextmanager
    def write(self, staged: Sequence[StagedRows] = ()) -> Iterator[Connection]:
        """Open the one transaction of a service function; committed on leaving, rolled back on an exception.

        What is `staged` is at hand in it, made ready while others still write.
        """
        with translate_errors(), self._noting_damage(), self._staging(staged) as prepared, self._turn():
            try:
                with self._transaction(prepared) as connection:
                    yield connection
            except (DBAPIError, sqlite3.Error) as error:
                if refuses_writes(error):
                    self._write_failure = error_text(error), time.monotonic()
                elif is_locked_out(error):
                    waited = self._busy_milliseconds / 1000
                    self._lock_failure = f"{error_text(error)}: another process held it for more than {waited:g} s"
                raise
            self._lock_failure = None
            failure = self._write_failure
            if failure is not None and time.monotonic() - failure[1] > WRITE_FAILURE_SECONDS:
                self._write_failure = None

    @contextmanager
    def _staging(self, staged: Sequence[StagedRows]) -> Iterator[Connection | None]:
        """Fill temporary tables of a connection, which on SQLite are in memory and of nobody else's concern.

        None where nothing is staged: a connection is taken for a turn then, not while waiting for one.
        """
        if not staged or self.dialect != "sqlite":
            yield None
            return
        with self.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA temp_store = MEMORY")
            try:
                for rows in staged:
                    _create_temporary(driver, rows)
                    for block in blocks(rows.rows, STAGED_ROWS):
                        _insert_temporary(driver, rows, block)
                yield connection.execution_options(**{WRITES: True})
            finally:
                driver.execute("PRAGMA temp_store = DEFAULT")  # drops them

    def _transaction(self, prepared: Connection | None) -> AbstractContextManager[Connection]:
        return self._writer.begin() if prepared is None else _begun(prepared)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for the other writers of this process: SQLite has one, and lets others sleep until it looks again."""
        if self._turns is None:
            yield
            return
        if not self._turns.acquire(timeout=self._busy_milliseconds / 1000):
            raise StoreUnavailableError("the database cannot be used now: database is locked")
        try:
            yield
        finally:
            self._turns.release()

    @property
    def write_failure(self) -> str | None:
        """Why writes failed lately although reads may do, such as a full disk or a lock; None = they did not.

        A lock is over with the next write. Else it stands until a write succeeds `WRITE_FAILURE_SECONDS` later: small
        ones may while large ones do not.
        """
        failure = self._write_failure
        return failure[0] if failure is not None else self._lock_failure

    @property
    def damage(self) -> str | None:
        """What was found damaged within the last `DAMAGE_SECONDS`; None = nothing was."""
        damage = self._damage
        return damage[0] if damage is not None and time.monotonic() - damage[1] < DAMAGE_SECONDS else None

    def read_clock(self) -> datetime | None:
        """Return the time by the clock of the database's server; None = it has none but that of this machine."""
        if self.dialect == "sqlite":
            return None
        with self.read() as connection:
            now: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return now.astimezone(UTC)

    def now(self) -> datetime:
        """Return the time by the clock of the database's server, or of this machine where it has none.

        What is asked for now must not lie ahead of what is due: the clock of a replica may be a minute off.
        """
        return self.read_clock() or datetime.now(UTC)

    def try_write(self) -> None:
        """Write and change nothing. Raises StoreUnavailableError where the database takes no writes."""
        if self.dialect == "sqlite":
            with self.write() as connection:  # pages of its own: what is overwritten in place needs no room
                connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS write_probe (body BLOB)")
                connection.exec_driver_sql("INSERT INTO write_probe VALUES (zeroblob(65536))")
            with self.write() as connection:
                connection.exec_driver_sql("DROP TABLE IF EXISTS write_probe")  # another thread may try as well
        else:
            with self.write() as connection:
                connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()


def _create_temporary(driver: Any, staged: StagedRows) -> None:
    """Make the table of staged rows, a SQLite connection's own."""
    driver.execute(f'CREATE TABLE temp."{staged.name}" (place INTEGER PRIMARY KEY, {", ".join(staged.columns)})')


def _insert_temporary(driver: Any, staged: StagedRows, block: Sequence[tuple[Any, ...]]) -> None:
    """Insert some of the staged rows, `STAGED_ROWS` at most."""
    marks = ", ".join([f"({', '.join('?' * len(staged.columns))})"] * len(block))
    insert = f'INSERT INTO temp."{staged.name}" ({", ".join(staged.columns)}) VALUES {marks}'  # noqa: S608 - names of ours
    driver.execute(insert, list(chain.from_iterable(block)))


def cached(connection: Connection, key: Hashable, make: Callable[[], tuple[ValueT, int]]) -> ValueT:
    """Return a value that never changes under its key, made with its size in bytes where it is not in memory.

    What a write transaction reads is not kept: it may be its own, and rolled back, and its id given to another row.
    """
    return _cached(connection, _CACHE, key, make)


def cached_of_run(connection: Connection, key: Hashable, make: Callable[[], tuple[ValueT, int]]) -> ValueT:
    """Return a value as `cached` does that only explains a single run.

    There is a new one with each run that opens an alert, and few are ever shown again: they are kept apart, in less
    room and for a shorter time.
    """
    return _cached(connection, _RUN_CACHE, key, make)


def _cached(connection: Connection, option: str, key: Hashable, make: Callable[[], tuple[ValueT, int]]) -> ValueT:
    cache: ByteCache = connection.get_execution_options()[option]
    if connection.get_execution_options().get(WRITES):
        known: ValueT | None = cache.peek(key)
        return make()[0] if known is None else known
    return cache.get(key, make)


def find_cached_of_run(connection: Connection, key: Hashable) -> Any:
    """Return what `cached_of_run` keeps under a key; None = it is not in memory."""
    cache: ByteCache = connection.get_execution_options()[_RUN_CACHE]
    return cache.peek(key)


def all_cached(connection: Connection, kind: type[ValueT]) -> list[ValueT]:
    """Return the values of a type that are in memory, the one used last at the end."""
    cache: ByteCache = connection.get_execution_options()[_CACHE]
    return cache.values(kind)


def row_value(kind: type[RowT], row: Any, **parsed: Any) -> RowT:
    """Return a row as a value: each field is the column of its name, but for those that are given, `parsed`."""
    names, values_of = _columns_of(kind, *parsed)
    return kind(**dict(zip(names, values_of(row), strict=True)), **parsed)


@lru_cache(maxsize=256)
def _columns_of(kind: type[Value], *parsed: str) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the fields of a value that are columns, and what reads these of a row."""
    names = tuple(name for name in kind.__struct_fields__ if name not in parsed)
    if len(names) == 1:
        return names, lambda row: (getattr(row, names[0]),)
    return names, attrgetter(*names)


def insert_new(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert many rows, passing over those a unique constraint already holds."""
    if not rows:
        return
    if connection.dialect.name == "postgresql" and len(rows) > _FEW_ROWS:
        arrays = [
            typed_array(table.c[name], column) for name, column in zip(columns, zip(*rows, strict=True), strict=True)
        ]
        connection.exec_driver_sql(insert_arrays_sql(table, tuple(columns)), tuple(arrays))
        return
    connection.exec_driver_sql(
        insert_sql(connection.dialect.name, table.name, tuple(columns)), list(rows) if len(rows) > 1 else rows[0]
    )


def insert_one(connection: Connection, table: Table, **values: Any) -> int | None:
    """Insert a row and return its id, or None where a unique constraint already holds one."""
    insert = insert_sql(connection.dialect.name, table.name, tuple(values))
    return connection.exec_driver_sql(f"{insert} RETURNING id", tuple(values.values())).scalar_one_or_none()


def upsert(connection: Connection, table: Table, keys: Sequence[str], **values: Any) -> None:
    """Insert a row or, where `keys` already name one, overwrite the other columns."""
    upsert_many(connection, table, keys, tuple(values), [tuple(values.values())])


def upsert_many(
    connection: Connection, table: Table, keys: Sequence[str], columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert rows or, where `keys` already name one, overwrite the other columns."""
    if not rows:
        return
    upsert_sql = insert_sql(connection.dialect.name, table.name, tuple(columns), tuple(keys))
    connection.exec_driver_sql(upsert_sql, list(rows) if len(rows) > 1 else rows[0])


def blocks(values: Sequence[_T], size: int = _IN_LIST) -> Iterator[list[_T]]:
    """Yield values in lists that are short enough for an IN list."""
    return (list(values[start : start + size]) for start in range(0, len(values), size))


def ids_of(connection: Connection, table: Table, hashes: Sequence[bytes]) -> dict[bytes, int]:
    """Look up the ids of content-addressed rows."""
    found: dict[bytes, int] = {}
    dialect = connection.dialect.name
    for block in blocks(hashes):
        select = ids_sql(dialect, table.name, len(block))
        given = tuple(block) if dialect == "sqlite" else (block,)
        rows: Any = connection.exec_driver_sql(select, given).all()  # pairs, as a dictionary takes them
        found.update(rows)
    return found


def new_ids(connection: Connection, table: Table, place: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Give the ids of rows to be inserted, counted by their `place` from 1."""
    if connection.dialect.name == "sqlite":  # the one writer: nobody else takes them meanwhile
        return sa.select(sa.func.coalesce(sa.func.max(table.c.id), 0)).scalar_subquery() + place
    return sa.func.nextval(sa.func.pg_get_serial_sequence(table.name, table.c.id.name), type_=sa.BigInteger)


def insert_selected(connection: Connection, table: Table, columns: Sequence[str], rows: sa.Select[Any]) -> None:
    """Insert what a query yields, passing over rows a unique constraint already holds."""
    found = rows.where(sa.true())  # SQLite: without a WHERE it takes ON CONFLICT for a join
    connection.execute(_dialect_insert(connection, table).from_select(columns, found).on_conflict_do_nothing())


def sql_literal(word: str) -> sa.ColumnElement[str]:
    """Write a word of ours into a statement instead of binding it.

    SQLite uses a partial index only where the statement itself says what the index says.
    """
    return sa.literal_column(f"'{word}'", sa.Text)


def hold_content(connection: Connection, *, alone: bool = False) -> None:
    """Keep content-addressed rows from being pruned between looking them up and referring to them.

    On SQLite the one writer holds them anyway; on PostgreSQL those who refer share a lock that the pruner needs alone.
    """
    if connection.dialect.name == "postgresql":
        lock = sa.func.pg_advisory_xact_lock if alone else sa.func.pg_advisory_xact_lock_shared
        connection.execute(sa.select(lock(_CONTENT_LOCK)))


def savepoint(connection: Connection) -> AbstractContextManager[object]:
    """Let a statement fail alone: with it PostgreSQL gives up the transaction, SQLite nothing else."""
    return nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()


def to_us(moment: datetime) -> int:
    """Microseconds since 1970, UTC."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_us(microseconds: int) -> datetime:
    """Give the aware UTC datetime of integer microseconds."""
    return _EPOCH + timedelta(microseconds=microseconds)


@contextmanager
def _begun(connection: Connection) -> Iterator[Connection]:
    with connection.begin():
        yield connection


def _dialect_insert(connection: Connection, table: Table) -> Any:
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert  # noqa: PLC0415 - two functions of one name
    else:
        from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment] # noqa: PLC0415 - as above
    return insert(table)


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
    for pragma in (f"busy_timeout = {busy_milliseconds}", "synchronous = NORMAL", "foreign_keys = ON"):
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


RECEIVED_BEFORE = "Received before with the same Idempotency-Key: not counted again."
"""Note of an answer to what arrived before."""


class ReceivedPart(Value):
    """What a part of a log is known by: keyed hashes, as its `Idempotency-Key` may be made of the queries."""

    key: str
    content: str


def answer_before(
    connection: Connection,
    table: Table,
    owner: Mapping[str, Any],
    part: ReceivedPart,
    answer: Mapping[str, Any],
    *,
    at: int,
) -> dict[str, Any] | None:
    """Return the first answer to a part that arrived before, with a note; None for a new one, which is stored.

    On PostgreSQL waits for one that is arriving. Raises ConflictError where it came with other content, as far as that
    is known: a part of which a query was deleted since has none.
    """
    values = {"received_at": at, "content_hash": part.content, "answer": json.dumps(answer)}
    if insert_one(connection, table, **owner, key=part.key, **values) is not None:
        return None
    mine = [table.c[name] == value for name, value in owner.items()]
    row = connection.execute(sa.select(table).where(*mine, table.c.key == part.key)).one_or_none()
    if row is None or row.content_hash not in {None, part.content}:
        raise ConflictError("this Idempotency-Key was used with other queries")
    first: dict[str, Any] = json.loads(row.answer)
    return {**first, "notes": [*first["notes"], RECEIVED_BEFORE]}


def old_rows(connection: Connection, limit: int, *, column: sa.Column[int], horizon: int) -> list[int]:
    """Find rows whose `column`, a time, lies before `horizon`."""
    return list(connection.execute(sa.select(column.table.c.id).where(column < horizon).limit(limit)).scalars())


def drop_rows(connection: Connection, old: Sequence[int], *, table: Table) -> int:
    """Delete these rows."""
    return connection.execute(sa.delete(table).where(table.c.id.in_(old))).rowcount


MOST_BYTES: Final = 256 * 1024 * 1024
IDLE_SECONDS: Final = 25 * 3600.0
"""Longer than the pause between daily runs, so that their suite stays."""


@dataclass(slots=True, kw_only=True)
class _Entry:
    value: Any
    size: int
    used_at: float


class ByteCache:
    """Keeps what was used last, up to a number of bytes by the makers' own estimates; its threads may share it.

    A value larger than the bound is kept until another one comes: dropping it at once would have it made each time.
    What nobody used for `idle_seconds` is dropped when another value is made: a version replaced long ago, for example.
    """

    def __init__(
        self,
        most_bytes: int = MOST_BYTES,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most_bytes
        self._idle = idle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Entry] = OrderedDict()
        """The one used last at the end."""
        self._making: dict[Hashable, threading.Lock] = {}
        self.size = 0
        """Bytes kept, as estimated."""

    def get(self, key: Hashable, make: Callable[[], tuple[ValueT, int]]) -> ValueT:
        """Return the value under a key, made with its size in bytes where it is not there.

        Of several threads that ask for the same at once, one makes it and the others wait. What `make` raises is not
        kept.
        """
        value: ValueT | None = self.peek(key)
        if value is not None:
            return value
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            value = self.peek(key)
            if value is not None:
                return value
            try:
                value, size = make()
                self._keep(key, value, size)
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return value

    def peek(self, key: Hashable) -> Any:
        """Return the value under a key; None = it is not there."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is None:
                return None
            self._kept.move_to_end(key)
            entry.used_at = self._clock()
            return entry.value

    def values(self, kind: type[ValueT]) -> list[ValueT]:
        """Return the values of a type, the one used last at the end."""
        with self._lock:
            return [entry.value for entry in self._kept.values() if isinstance(entry.value, kind)]

    def _keep(self, key: Hashable, value: Any, size: int) -> None:
        with self._lock:
            now = self._clock()
            self._kept[key] = _Entry(value=value, size=size, used_at=now)
            self.size += size
            while len(self._kept) > 1:
                oldest = next(iter(self._kept.values()))
                if self.size <= self._most and now - oldest.used_at <= self._idle:
                    return
                self._kept.popitem(last=False)
                self.size -= oldest.size
