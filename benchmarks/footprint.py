"""What the service takes while nothing is due, and how soon it and `coalmine check` answer.

    python -m benchmarks.footprint

Linux: CPU and memory are read from /proc. A start is one over data that is there already, as after an upgrade; what it
takes is counted from the beginning of the process to the first answer of /readyz.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

from benchmarks.many_checks import count_ended, part, service, write_files
from benchmarks.processes import PORT, cpu_seconds, environment, serving, stub
from benchmarks.throughput import suite_file

SERVICE_PORT = 18_476
SETTLE_SECONDS = 5
LOADED_SECONDS = 15
"""Within which everything is loaded, also what a start can do without."""
CAUGHT_UP_SECONDS = 120
"""For the first run of each check; a tenth of a second more for each."""


def main() -> None:
    """Print every figure."""
    for name, values in starts(5).items():
        print(f"{name}: {', '.join(f'{value:.2f}' for value in values)}", flush=True)
    print(f"coalmine check of 50 canaries, s: {', '.join(f'{seconds:.2f}' for seconds in checks(5))}", flush=True)
    print(f"idle and empty, % of a core: {empty_share():.2f}", flush=True)
    shares = idle_share(1_000, seconds=10, rounds=3)
    print(f"idle with 1,000 checks, % of a core: {', '.join(f'{share:.2f}' for share in shares)}")


def starts(rounds: int) -> dict[str, list[float]]:
    """Seconds to the first answer and megabytes of memory after it, of so many starts."""
    found: dict[str, list[float]] = {"seconds": [], "megabytes": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            began = time.perf_counter()
            with serving(SERVICE_PORT, folder) as pid:
                seconds = time.perf_counter() - began
                time.sleep(SETTLE_SECONDS)
                if number:  # the first makes the database
                    found["seconds"].append(seconds)
                    found["megabytes"].append(resident_megabytes(pid))
    return found


def resident_megabytes(pid: int) -> float:
    """Resident size of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def checks(rounds: int, canaries: int = 50) -> list[float]:
    """Seconds of `coalmine check` over a stub that answers after 1 ms, of so many calls."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder, stub(canaries, delay_us=1_000):
        file = Path(folder) / "bench.yaml"
        file.write_text(json.dumps(suite_file(canaries, PORT)), "utf-8")
        command = [sys.executable, "-m", "app.cli", "check", str(file)]
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own
            seconds.append(time.perf_counter() - began)
    return seconds


def empty_share(seconds: float = 60) -> float:
    """Percent of a core that a service without any check takes."""
    with tempfile.TemporaryDirectory() as folder, serving(SERVICE_PORT, folder) as pid:
        time.sleep(LOADED_SECONDS)
        before, began = cpu_seconds(pid), time.monotonic()
        time.sleep(seconds)
        return 100 * (cpu_seconds(pid) - before) / (time.monotonic() - began)


def idle_share(count: int, *, seconds: float, rounds: int) -> list[float]:
    """Percent of a core that a service with so many checks takes over each of some periods in which no run is due.

    Raises RuntimeError where the runs of its start, one of each check, take too long.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = f"sqlite:///{folder}/coalmine.db"
        write_files(folder, count, 10, "1d")
        with part("stub"), service(folder, database, {}) as running:
            engine, end = sa.create_engine(database), time.monotonic() + CAUGHT_UP_SECONDS + count / 10
            while count_ended(engine) < count:
                if time.monotonic() > end:
                    raise RuntimeError(f"only {count_ended(engine)} of {count} checks ran in time")
                time.sleep(1)
            time.sleep(SETTLE_SECONDS * 2)
            shares = []
            for _ in range(rounds):
                before, began = cpu_seconds(running.pid), time.monotonic()
                time.sleep(seconds)
                shares.append(100 * (cpu_seconds(running.pid) - before) / (time.monotonic() - began))
            return shares


if __name__ == "__main__":
    main()
