"""A CSV import of 100,000 rows by REST: its time, its CPU, and how long it keeps other writers waiting.

    .venv/bin/python benchmarks/importing.py [--rows 100000] [--changed 0] [--writers 0]

`coalmine serve --no-worker` runs over an empty SQLite file. A prober asks the file every 2 ms whether it could write;
the longest time in a row in which it could not is the write lock. `--changed N` imports the same rows first and N of
them changed then. `--writers` puts that many clients beside it that save small suites as fast as they are served, and
counts those that are told `store_unavailable`. Linux: CPU is read from /proc.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.idle import cpu_seconds, wait_until_ready

PROBE_SECONDS = 0.002


def table(rows: int, changed: int = 0) -> str:
    """Write a CSV of so many canaries; the first `changed` ask otherwise."""
    lines = ["key,query,id,category"]
    for row in range(rows):
        asked = f"how to reset item {row}{' now' if row < changed else ''}?"
        lines.append(f"q{row},{asked},chunk-{row % 9_973},procedural")
    return "\n".join(lines) + "\n"


def send(port: int, method: str, path: str, body: object) -> int:
    """Send JSON and return the status."""
    data = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    try:
        with urlopen(request, timeout=600) as answer:  # noqa: S310 - as above
            answer.read()
            return int(answer.status)
    except HTTPError as error:
        return error.code


@contextmanager
def lock_probe(path: Path) -> Iterator[list[float]]:
    """Yield a list that holds the longest time in seconds that the file took no writer, once the context ends."""
    longest, stop = [0.0], threading.Event()
    connection = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)

    def probe() -> None:
        free = time.monotonic()
        while not stop.wait(PROBE_SECONDS):
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                now = time.monotonic()
                longest[0], free = max(longest[0], now - free), now
            except sqlite3.OperationalError:
                continue

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield longest
    finally:
        stop.set()
        thread.join()
        connection.close()


@contextmanager
def writers(port: int, count: int) -> Iterator[list[int]]:
    """Yield the statuses that clients got who save suites of their own all the while."""
    statuses: list[int] = []
    stop = threading.Event()

    def write(client: int) -> None:
        canaries = [{"key": "a", "query": "a?", "expected_chunks": "a"}]
        while not stop.is_set():
            canaries[0]["query"] = f"{time.monotonic()}?"
            statuses.append(send(port, "PUT", f"/v1/suites/other-{client}", {"canaries": canaries}))

    threads = [threading.Thread(target=write, args=(client,)) for client in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def main(rows: int, changed: int, clients: int, port: int) -> None:
    """Import once and print what it took."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("COALMINE_")}
        command = [sys.executable, "-m", "app.cli", "serve", "--no-worker", "--port", str(port), "--data-dir", folder]
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as service:  # noqa: S603 - our own
            try:
                wait_until_ready(port, service)
                path = "/v1/import?format=csv&suite=large"
                if changed:
                    send(port, "POST", path, {"files": {"large.csv": table(rows)}})
                body = {"files": {"large.csv": table(rows, changed)}}
                before, began = cpu_seconds(service.pid), time.monotonic()
                with lock_probe(Path(folder) / "coalmine.db") as lock, writers(port, clients) as statuses:
                    status = send(port, "POST", path, body)
                    took, cpu = time.monotonic() - began, cpu_seconds(service.pid) - before
            finally:
                service.terminate()
    refused = sum(one == 503 for one in statuses)
    print(f"{rows:,} rows, status {status}: {took:.1f} s, CPU {cpu:.1f} s, write lock {lock[0]:.2f} s", end="")
    print(f"; {len(statuses)} other writes, {refused} store_unavailable" if clients else "")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--changed", type=int, default=0)
    options.add_argument("--writers", type=int, default=0)
    options.add_argument("--port", type=int, default=8766)
    given = options.parse_args()
    main(given.rows, given.changed, given.writers, given.port)
