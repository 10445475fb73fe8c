"""Migration of a database to this release (`migrate`, under a lock), the check of its schema, and locks of its file.

Alembic, a tenth of a second and 9 MB, is loaded only where there is something to migrate. The locks of a SQLite file
keep a second worker from it, and a new key of secrets while any process works on it or serves it.
"""

import fcntl
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.db.rows import metadata
from app.base.errors import ConfigurationError

if TYPE_CHECKING:
    from alembic.config import Config


_MIGRATIONS = Path(__file__).resolve().parents[3] / "migrations"
_INSUFFICIENT_PRIVILEGE = "42501"
_LOCK = 0xC0A1  # PostgreSQL advisory lock: replicas that start together migrate one after another
_APPLIED: Final = sa.table("alembic_version", sa.column("version_num", sa.Text()))
_NEEDED: Final = ("definitions", "canaries", "runs", "latest", "alerts", "deliveries")
_REVISION: Final = re.compile(r'^(revision|down_revision) = "(\w+)"', re.MULTILINE)


def migrate(store: Store) -> None:
    """Run every migration the database has not seen, in one transaction.

    Raises ConfigurationError where a newer release has been here.
    """
    if is_migrated(store):
        return
    from alembic import command  # noqa: PLC0415 - as the module says
    from alembic.util import CommandError  # noqa: PLC0415 - as the module says

    with store.write() as connection:
        if store.dialect == "postgresql":
            connection.exec_driver_sql("SET LOCAL lock_timeout = 0")  # the one who migrates may take its time
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        config = _config()
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise ConfigurationError(
                "the database has a schema this release does not know; a newer release has migrated it"
            ) from error
        except sa.exc.ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) != _INSUFFICIENT_PRIVILEGE:
                raise
            url = store.engine.url
            raise ConfigurationError(
                f"the database user may not do what the migration needs ({error.orig}); as the owner of the database: "
                f'GRANT CREATE ON DATABASE "{url.database}" TO "{url.username}", then migrate again'
            ) from error


def is_migrated(store: Store) -> bool:
    """Whether the database has exactly the schema of this release."""
    current, head = revisions(store)
    return current == head


def revisions(store: Store) -> tuple[str | None, str]:
    """Name the revision a database has (None = it is empty) and the one this release wants."""
    with store.read() as connection:
        is_empty = not sa.inspect(connection).has_table(_APPLIED.name)
        current = None if is_empty else connection.scalar(sa.select(_APPLIED.c.version_num))
    return current, _newest_revision()


def find_schema_error(store: Store) -> str | None:
    """Why the tables of the open database cannot be used, read cheaply; None = they can.

    A newer schema is no error: the release before goes on serving while a new one migrates. Of the tables that
    everything needs, the newest row is read, so that a damaged one is noticed. Raises StoreUnavailableError.
    """
    with store.read() as connection:
        names = set(sa.inspect(connection).get_table_names())
        if _APPLIED.name not in names:
            return "the database has no tables of Coalmine: it is empty or another one; connect to the right one"
        current = connection.scalar(sa.select(_APPLIED.c.version_num))
        head = _newest_revision()
        if current is None or (current != head and current in _known_revisions()):
            return f"the database has the older schema {current}, and this release needs {head}: run `coalmine migrate`"
        missing = [table.name for table in metadata.sorted_tables if table.name not in names]
        if current == head and missing:
            return f"the database lacks {len(missing)} tables, {missing[0]} among them: restore a backup"
        for table in (metadata.tables[name] for name in _NEEDED):
            connection.execute(
                sa.select(table).order_by(*(column.desc() for column in table.primary_key)).limit(1)
            ).all()
    return None


@cache
def _known_revisions() -> frozenset[str]:
    """Name the revisions of this release."""
    return frozenset(file.stem for file in (_MIGRATIONS / "versions").glob("*.py"))


@cache
def _newest_revision() -> str:
    """Name the revision that no other builds on. Each names its own and its forerunner's on a line of its file.

    Raises RuntimeError where there is not exactly one.
    """
    revisions = set[str]()
    forerunners = set[str]()
    for file in (_MIGRATIONS / "versions").glob("*.py"):
        for what, name in _REVISION.findall(file.read_text("utf-8")):
            (revisions if what == "revision" else forerunners).add(name)
    newest = revisions - forerunners
    if len(newest) != 1:
        raise RuntimeError(f"migrations must end in one revision, and end in {sorted(newest)}")
    return newest.pop()


def is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Whether something in the database is of our migrations, as Alembic asks: the engine of jobs has its own."""
    return kind != "table" or name is None or not name.startswith("procrastinate_")


def _config() -> "Config":
    from alembic.config import Config  # noqa: PLC0415 - as the module says

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s")
    return config


@contextmanager
def lock_for_work(database: Path | None) -> Iterator[None]:
    """Be the one process that schedules, runs and delivers on a file (None: there is none, and nothing to lock).

    Raises ConfigurationError naming the other process.
    """
    if database is None:
        yield
        return
    with _opened(database, "lock") as file:
        if not _try_lock(file, fcntl.LOCK_EX):
            raise ConfigurationError(
                f"another Coalmine{_holder(file)} works on {database}, and a SQLite file has one worker; stop it, "
                "serve beside it with --no-worker, or choose another --data-dir; "
                "several workers need PostgreSQL (COALMINE_DATABASE_URL)"
            )
        file.truncate(0)
        file.write(f"{os.getpid()} {socket.gethostname()}\n")
        file.flush()
        yield


@contextmanager
def lock_for_serving(database: Path | None) -> Iterator[None]:
    """Be one of the processes that read the key of the secrets of a file, and keep it. Raises ConfigurationError."""
    if database is None:
        yield
        return
    with _opened(database, "serving.lock") as file:
        if not _try_lock(file, fcntl.LOCK_SH):
            raise ConfigurationError(f"the key of {database} is being changed; start again when that is done")
        yield


@contextmanager
def lock_for_new_key(database: Path | None) -> Iterator[None]:
    """Keep every process from working on a file or serving it. Raises ConfigurationError where one does."""
    with ExitStack() as stack:
        stack.enter_context(lock_for_work(database))
        if database is not None:
            file = stack.enter_context(_opened(database, "serving.lock"))
            if not _try_lock(file, fcntl.LOCK_EX):
                raise ConfigurationError(
                    f"another Coalmine serves {database}; stop it, since it would keep the old key"
                )
        yield


@contextmanager
def _opened(database: Path, ending: str) -> Iterator[IO[str]]:
    path = database.resolve()  # a link to a file has the locks of that file
    path = path.with_name(f"{path.name}.{ending}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    with file:
        yield file


def _try_lock(file: IO[str], kind: int) -> bool:
    """Whether the lock was free, and is held now, until the file is closed."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ConfigurationError(f"{file.name} cannot be locked: {error.strerror}") from error
    return True


def _holder(file: IO[str]) -> str:
    """Name the process that holds a lock, by what it wrote; "" where it has not yet."""
    file.seek(0)
    pid, _, host = file.read().strip().partition(" ")
    elsewhere = f" on {host}" if host and host != socket.gethostname() else ""
    return f" (pid {pid}{elsewhere})" if pid else ""
