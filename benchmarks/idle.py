"""CPU of an idle service: `coalmine serve` over an empty database, as a share of one core.

    .venv/bin/python benchmarks/idle.py [--seconds 60]

Linux: the time of the process is read from /proc. The first seconds, in which everything is loaded, do not count.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

SETTLE_SECONDS = 15
READY_SECONDS = 600


def cpu_seconds(pid: int) -> float:
    """Return the user and system time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(seconds: float, port: int) -> float:
    """Return the share of a core that an empty service uses."""
    with tempfile.TemporaryDirectory() as folder, serving(port, folder) as pid:
        time.sleep(SETTLE_SECONDS)
        before, began = cpu_seconds(pid), time.monotonic()
        time.sleep(seconds)
        return (cpu_seconds(pid) - before) / (time.monotonic() - began)


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


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--port", type=int, default=8765)
    given = options.parse_args()
    print(f"{measure(given.seconds, given.port):.2%} of a core over {given.seconds:.0f} s")
