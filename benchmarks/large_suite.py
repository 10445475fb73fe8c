"""Memory of a service over one very large suite: imported, run, shown, corrected and scored again.

    python -m benchmarks.large_suite [--canaries 100000]

`coalmine serve` on SQLite, and a stub that answers after 20 ms (a process of its own). What is printed is the highest
resident size of the service during each step, above that of the idle process. Linux: it is read from /proc.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.many_checks import SERVICE_PORT, STUB_PORT, part
from benchmarks.processes import serving

GOAL_MB = 300
SETTLE_SECONDS = 3.0
RETRIEVER = {
    "url": f"http://127.0.0.1:{STUB_PORT}/search",
    "request": {"method": "POST", "json": {"query": "{{ query }}", "k": "{{ k }}"}},
    "response": {"hits": "hits", "id": "id", "score": "score", "text": "text"},
    "scorer": {"kind": "score", "scale": "similarity"},
    "concurrency": 64,
}


class Watched:
    """The service's process, and how large it was at the beginning."""

    def __init__(self, pid: int) -> None:
        """Take the size it has now for that of the idle process."""
        self._pid = pid
        self._idle = self._megabytes("VmRSS")
        print(f"{'idle':<44}{self._idle:>8.0f} MB", flush=True)

    def step(self, name: str, do: Callable[[], object]) -> None:
        """Do something and print how long it took and how much larger the process was at most."""
        Path(f"/proc/{self._pid}/clear_refs").write_text("5", "utf-8")  # the highest size is that from here on
        began = time.monotonic()
        do()
        took, most = time.monotonic() - began, self._megabytes("VmHWM") - self._idle
        said = "met" if most <= GOAL_MB else "MISSED"
        print(f"{name:<44}{most:>+8.0f} MB  goal +{GOAL_MB} MB {said:<8}{took:>8.1f} s", flush=True)

    def _megabytes(self, name: str) -> float:
        for line in Path(f"/proc/{self._pid}/status").read_text("utf-8").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"the kernel does not say {name}")


def main() -> None:
    """Go through the steps once."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--canaries", type=int, default=100_000)
    canaries = options.parse_args().canaries
    with tempfile.TemporaryDirectory() as folder, part("stub"), serving(SERVICE_PORT, folder) as pid:
        time.sleep(SETTLE_SECONDS)
        go_through(Watched(pid), canaries)


def go_through(watched: Watched, canaries: int) -> None:
    """Import, define the check, run it twice, look at it, correct a hundredth of the judgments, score again."""
    watched.step(f"import of {canaries:,} canaries as CSV", lambda: import_suite(canaries, 0))
    told("PUT", "/v1/retrievers/stub", RETRIEVER)
    told("PUT", "/v1/checks/large", {"suite": "large", "retriever": "stub", "schedule": {"every": "1d"}, "k": 5})
    watched.step("the first run", run)
    watched.step("a run in which nothing changed", run)
    for name, path in (
        ("page of the check", "/checks/large"),
        ("page of the suite", "/suites/large"),
        ("page of a run", "/runs/1"),
        ("50 results", "/v1/runs/1/results?limit=50"),
        ("report of a run", "/v1/runs/1/report?format=json"),
        ("difference of two runs", "/v1/runs/1/diff/2"),
        ("metrics", "/metrics"),
        ("export of everything", "/v1/export?format=coalmine"),
    ):
        watched.step(name, lambda path=path: read(path))  # type: ignore[misc] # mypy cannot infer it
    watched.step(f"import that corrects {canaries // 100:,} judgments", lambda: import_suite(canaries, canaries // 100))
    watched.step("scoring the runs again", rescore)


def import_suite(canaries: int, corrected: int) -> None:
    """Import the suite; of the first so many canaries another chunk is expected too."""
    lines = ["key,query,id,category"]
    for at in range(canaries):
        lines.append(f"q{at},large-{at},large-{at},procedural")
        lines += [f"q{at},large-{at},other-1,procedural"] if at < corrected else []
    text = "\n".join(lines) + "\n"
    told("POST", "/v1/import?format=csv&suite=large", {"files": {"large.csv": text}})


def run() -> None:
    """Run the check and wait for its end."""
    before = newest_run()
    told("POST", "/v1/checks/large/runs", {})
    while newest_run() == before:
        time.sleep(0.2)


def rescore() -> None:
    """Score the check's runs by the corrected judgments and wait for the end."""
    told("POST", "/v1/checks/large/rescorings", {})
    while read("/v1/checks/large/rescorings")["items"][0]["status"] in {"queued", "running"}:
        time.sleep(0.2)


def newest_run() -> str | None:
    """Return the newest ended run of the check, None before the first."""
    ended = [one["id"] for one in read("/v1/checks/large/runs?limit=5")["items"] if one["finished_at"]]
    return ended[0] if ended else None


def told(method: str, path: str, body: object) -> None:
    """Send JSON. Raises HTTPError for an answer that is no success."""
    headers = {"content-type": "application/json"}
    request = Request(f"http://127.0.0.1:{SERVICE_PORT}{path}", json.dumps(body).encode(), headers, method=method)
    with urlopen(request, timeout=600) as answer:  # noqa: S310 - our own server
        answer.read()


def read(path: str) -> Any:
    """Get something of the service: JSON as it is, anything else as bytes."""
    with urlopen(f"http://127.0.0.1:{SERVICE_PORT}{path}", timeout=600) as answer:
        body = answer.read()
        return json.loads(body) if "json" in answer.headers["content-type"] else body


if __name__ == "__main__":
    main()
