"""The processes of a benchmark: the real service, asked over HTTP, and the stub retriever, stub.c built with gcc.

Neither has settings of ours. CPU is read from /proc, which is Linux's.
"""

import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self
from urllib.error import URLError
from urllib.request import urlopen

import httpx2

READY_SECONDS = 600
PORT: Final = 18_473


@contextmanager
def serving(port: int, folder: str) -> Iterator[int]:
    """Run `coalmine serve` on a data folder; gives the number of its process once it answers."""
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), "--data-dir", folder]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as service:  # noqa: S603 - our own
        try:
            wait_until_ready(port, service)
            yield service.pid
        finally:
            service.terminate()


class Service:
    """The real service, which can be killed and started again over its data."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._port = 18_700 + os.getpid() % 1_000
        self._client = httpx2.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=120, trust_env=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "app.cli", "serve", "--port", str(self._port), "--data-dir", str(self._data)]
        self._process = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)  # noqa: S603 - our own
        wait_until_ready(self._port, self._process)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)

    def get(self, path: str, **parameters: str) -> Any:
        """Ask for JSON."""
        return self._client.get(path, params=parameters).raise_for_status().json()

    def put(self, path: str, body: Any) -> Any:
        """Put JSON."""
        return self._client.put(path, json=body).raise_for_status().json()

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Post JSON."""
        return self._client.post(path, json=body, headers=headers).raise_for_status().json()


def environment() -> dict[str, str]:
    """Environment of our own processes, without settings of ours."""
    return {key: value for key, value in os.environ.items() if not key.startswith("COALMINE_")}


def wait_until_ready(port: int, service: "subprocess.Popen[bytes]") -> None:
    """Wait until the service answers; raises RuntimeError when it ends, or after ten minutes."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if service.poll() is not None:
            raise RuntimeError("the service ended at its start")
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.01)
    raise RuntimeError("the service was not ready within ten minutes")


def cpu_seconds(pid: int) -> float:
    """Return the user and system time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class NotInstalledError(Exception):
    """A program that a figure needs is not installed; the message is its name."""


@contextmanager
def stub(answers: int, port: int = PORT, *, delay_us: int = 0) -> Iterator[None]:
    """Build and run the stub with so many answers, each sent after a delay. Raises NotInstalledError without gcc."""
    compiler = program("gcc")
    with tempfile.TemporaryDirectory() as folder:
        binary = f"{folder}/stub"
        source = str(Path(__file__).with_name("stub.c"))
        subprocess.run([compiler, "-O2", "-o", binary, source], check=True)  # noqa: S603 - our own words
        process = subprocess.Popen([binary, str(port), str(answers), str(delay_us)])  # noqa: S603 - just built
        try:
            _wait_until_listening(process, port)
            yield
        finally:
            process.kill()
            process.wait()


def change_answers(percent: int, port: int = PORT) -> None:
    """Change so many of every hundred answers for good: two hits swapped, every score moved in its fourth digit."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", f"/q{percent}")
    assert connection.getresponse().status == 204
    connection.close()


def program(name: str) -> str:
    """Path of a program. Raises NotInstalledError."""
    found = shutil.which(name)
    if found is None:
        raise NotInstalledError(name)
    return found


def _wait_until_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    for _attempt in range(200):
        if process.poll() is not None:
            raise RuntimeError("the stub ended at its start: is its port in use?")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.connect()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
    raise RuntimeError("the stub did not listen within ten seconds")
