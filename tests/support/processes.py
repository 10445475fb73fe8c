"""The real command as a process, and ports for it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from tests.support.living import until

ROOT = Path(__file__).parents[2]
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
_FIRST = 12_000 + 2_000 * _WORKER
# Begins anywhere, so that two runs of the tests on one machine rarely meet.
_OFFSET = os.getpid() * 2 % 2_000
_PORTS: Iterator[int] = cycle((*range(_FIRST + _OFFSET, _FIRST + 2_000, 2), *range(_FIRST, _FIRST + _OFFSET, 2)))


class Process:
    """The real command, its stderr in a file so that it never blocks."""

    def __init__(self, folder: Path, *arguments: object, **environment: str) -> None:
        self._log = folder / f"stderr-{len(list(folder.glob('stderr-*')))}"
        with self._log.open("wb") as stderr:
            self.popen = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "app.cli", *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=stderr,
                stderr=stderr,
                cwd=ROOT,
                env={**os.environ, **environment},
            )

    @property
    def said(self) -> str:
        """Give what it wrote so far."""
        return self._log.read_text(encoding="utf-8")

    def wait_for(self, word: str) -> None:
        """Wait until it says this."""
        until(lambda: word in self.said or self.popen.poll() is not None, seconds=60)
        assert word in self.said, self.said

    def end(self, number: int | None = None) -> int:
        """Wait for its end, after a signal where one is given, and give its exit code."""
        if number is not None:
            self.popen.send_signal(number)
        return self.popen.wait(60)


@contextmanager
def started(folder: Path, *arguments: object, **environment: str) -> Iterator[Process]:
    process = Process(folder, *arguments, **environment)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.wait(60)
        if process.popen.stdin is not None:
            process.popen.stdin.close()


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free_ports() -> int:
    """Find a port that is free and so is the one after it, among those that this test process alone gives away.

    They lie below the ports that the system lends to outgoing connections, so that nobody takes one of them
    between its choice and its use.
    """
    return next(port for port in _PORTS if _is_free(port) and _is_free(port + 1))


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
