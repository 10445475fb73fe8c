"""Seconds and memory of the largest file of queries that one request may bring: 100 MB of JSON lines, over HTTP.

    python -m benchmarks.traffic_upload [--megabytes 99]

`coalmine serve` on SQLite, a process of its own. The file has 300,000 distinct queries, the most one body may have,
each asked again until it is full; then a newer one of as many other queries, and all of it is deleted. What is printed
is the highest resident size of the service during each step, above that of the idle process. Linux: it is read from
/proc.
"""

import argparse
import http.client
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.idle import serving
from benchmarks.large_suite import RETRIEVER, SETTLE_SECONDS, Watched, told
from benchmarks.many_checks import SERVICE_PORT

QUERIES = 300_000
_WORDS = "how do I rotate the signing key of a webhook that was created before the workspace moved to another region"
_CHUNK = 1 << 16


def main() -> None:
    """Send the file twice, with other queries the second time, and delete what is kept of it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--megabytes", type=int, default=99)
    size = options.parse_args().megabytes * 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first", "second"):
            write(Path(folder) / f"{name}.jsonl", name, size)
        with serving(SERVICE_PORT, f"{folder}/data") as pid:
            time.sleep(SETTLE_SECONDS)
            go_through(Watched(pid), Path(folder))


def write(file: Path, about: str, size: int) -> None:
    """Write lines up to a size, going through the queries again and again."""
    with file.open("w", encoding="utf-8") as out:
        written, number = 0, 0
        while written < size:
            query = f"{about} {number % QUERIES}: {_WORDS}"
            written += out.write(json.dumps({"query": query, "at": "2026-11-20T10:00:00Z"}) + "\n")
            number += 1


def go_through(watched: Watched, folder: Path) -> None:
    """Define a suite and a retriever, send both files, delete."""
    told("PUT", "/v1/suites/large", {"canaries": []})
    told("PUT", "/v1/retrievers/stub", RETRIEVER)
    for name in ("first", "second"):
        file = folder / f"{name}.jsonl"
        watched.step(f"{file.stat().st_size / 1e6:.0f} MB of JSON lines", lambda file=file: send_file(file))  # type: ignore[misc] # mypy cannot infer it
    watched.step("deleting all traffic", lambda: told("DELETE", "/v1/suites/large/traffic", {}))


def send_file(file: Path) -> None:
    """Stream a file as it is. Raises RuntimeError for an answer that is no success."""
    connection = http.client.HTTPConnection("127.0.0.1", SERVICE_PORT, timeout=600)
    headers = {"content-type": "application/x-ndjson", "content-length": str(file.stat().st_size)}
    connection.request("POST", "/v1/suites/large/traffic?retriever=stub", body=chunks(file), headers=headers)
    answer = connection.getresponse()
    said = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"HTTP {answer.status}: {said.decode()[:500]}")
    print(said.decode()[:200], flush=True)


def chunks(file: Path) -> Iterator[bytes]:
    """Read a file in pieces."""
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            yield chunk


if __name__ == "__main__":
    main()
