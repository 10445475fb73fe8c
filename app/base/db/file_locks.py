"""Locks on a database file of SQLite: one process works on it, any number serve it, and none while its key is changed.

They stand beside the file and are the operating system's, which releases them when a process ends, however it does.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from app.base.errors import ConfigurationError


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
