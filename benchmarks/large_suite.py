"""Memory and pages of a service over one very large suite: imported, run, shown, corrected and scored again.

    python -m benchmarks.large_suite [--canaries 100000]
    python -m benchmarks.large_suite --pages [--canaries 10000] [--data FOLDER]

`coalmine serve` on SQLite, and a stub that answers after 20 ms (a process of its own). What is printed is the highest
resident size of the service during each step, above that of the idle process. Linux: it is read from /proc.

With `--pages`: the milliseconds in which each page comes over HTTP, one request at a time, after 25 runs of one check,
the last three of which lose a fifth of the chunks, and two of another; with an incident, traffic of users, a task,
answers and a judge, and one of each kind of experiment. A folder that is given is filled once, and kept.
"""

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.request import Request, urlopen

from benchmarks.many_checks import SERVICE_PORT, STUB_PORT, part
from benchmarks.processes import serving

GOAL_MB = 300
SETTLE_SECONDS = 3.0
CATEGORIES: Final = ("simple_factual", "complex_factual", "procedural", "entity_centric", "comparative")
RETRIEVER: Final[Mapping[str, Any]] = {
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
    options.add_argument("--canaries", type=int)
    options.add_argument("--pages", action="store_true")
    options.add_argument("--data", type=Path)
    given = options.parse_args()
    if given.pages:
        time_pages(given.canaries or 10_000, given.data)
        return
    canaries = given.canaries or 100_000
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


PAGES: Final = {
    "overview": "/",
    "overview, wall screen": "/?wall=1",
    "check": "/checks/large",
    "check, form": "/checks/large/edit",
    "chart data": "/v1/checks/large/series?measure=coverage&points=300",
    "latency data": "/v1/checks/large/latency-series",
    "heat map data": "/v1/checks/large/heatmap",
    "heat map, drawn": "/heatmap/large.png?columns=40&width=640",
    "incidents": "/alerts",
    "incident": "/incidents/{incident}",
    "alert": "/alerts/{alert}",
    "canary": "/checks/large/canaries/q5",
    "run": "/runs/{run}",
    "run, worst first": "/runs/{run}?verdict=degraded",
    "run, older": "/runs/{before}",
    "run, last page": "/runs/{run}?after={last}",
    "run, answers": "/runs/{answers}/answers",
    "run, printable report": "/v1/runs/{run}/report?format=html",
    "two runs": "/compare?a=run:{before}&b=run:{run}",
    "two checks": "/compare?a=check:large&b=check:other",
    "two retrievers": "/compare?a=retriever:stub&b=retriever:other",
    "canary in two runs": "/compare/canary?a=run:{before}&b=run:{run}&key=q5",
    "compare, form": "/compare",
    "suites": "/suites",
    "suite": "/suites/large",
    "suite, composition": "/suites/large?show=composition",
    "suite, search": "/suites/large?text=large-77",
    "canary definition": "/suites/large/canaries/q5",
    "new canary": "/suites/large/add",
    "import": "/import",
    "quality": "/checks/large/quality?report=1",
    "renamed chunks": "/checks/large/reanchors",
    "traffic": "/suites/large/traffic",
    "traffic, suggestions": "/suites/large/traffic?retriever=stub",
    "traffic, all suites": "/traffic",
    "tasks": "/tasks",
    "task": "/tasks/truth",
    "annotate": "/tasks/truth/annotate",
    "experiments": "/experiments",
    "experiment": "/experiments/trial",
    "interleaving": "/interleavings/trial",
    "shadow": "/shadows/trial",
    "promotion": "/promotions/trial",
    "answers, all checks": "/answers",
    "judges": "/judges",
    "judge": "/judges/reader",
    "retrievers": "/retrievers",
    "retriever": "/retrievers/stub",
    "retriever, test request": "/retrievers/stub/try",
    "hooks": "/hooks",
    "hook": "/hooks/team",
    "deliveries": "/deliveries",
    "reports": "/reports",
    "silences": "/silences",
    "new silence": "/new-silence?check=large",
    "keys": "/keys",
    "search": "/search?q=large-77",
    "metrics": "/metrics",
}
GOAL_MS: Final = 150
ANNOTATOR: Final = "coalmine_annotator=Cy"


def time_pages(canaries: int, data: Path | None) -> None:
    """Fill a database, unless the folder has one, and print how long each page takes: first, median, least to most."""
    with tempfile.TemporaryDirectory() as folder, part("stub"), serving(SERVICE_PORT, str(data or folder)):
        if not read("/v1/checks")["items"]:
            fill(canaries)
        ends = [one["id"] for one in read("/v1/checks/large/runs?limit=25")["items"] if one["finished_at"]]
        answers = read("/v1/checks/answers/runs?limit=1")["items"][0]["id"]
        (alert, *_) = read("/v1/alerts?check=large")["items"]
        found = {"run": ends[0], "before": ends[4], "answers": answers, "last": canaries - 25}
        found |= {"alert": alert["id"], "incident": alert["incident_id"]}
        print(
            f"| page of {canaries:,} canaries | median | least to most | first | kB | gzip |\n|---|--:|--:|--:|--:|--:|"
        )
        for name, path in PAGES.items():
            print(f"| {name} | {timed_page(path, found)} |", flush=True)


def timed_page(path: str, found: Mapping[str, object]) -> str:
    """Give the cells of a page: milliseconds of seven requests and of the one before them, and its size."""
    took = []
    request = Request(f"http://127.0.0.1:{SERVICE_PORT}{path.format_map(found)}", headers={"cookie": ANNOTATOR})
    for _ in range(8):
        began = time.perf_counter()
        with urlopen(request, timeout=600) as answer:  # noqa: S310 - our own server
            body = answer.read()
        took.append((time.perf_counter() - began) * 1e3)
    first, *rest = took
    shown = f"**{median(rest):.0f}**" if median(rest) > GOAL_MS else f"{median(rest):.0f}"
    sizes = f"{len(body) / 1e3:.0f} | {len(gzip.compress(body)) / 1e3:.0f}"
    return f"{shown} | {min(rest):.0f} to {max(rest):.0f} | {first:.0f} | {sizes}"


def fill(canaries: int) -> None:
    """Make one of everything that pages show, over a suite of so many canaries."""
    import_suite(canaries, 0)
    url = RETRIEVER["url"]
    told("PUT", "/v1/hooks/team", {"kind": "webhook", "url": url})
    told("PUT", "/v1/retrievers/stub", RETRIEVER)
    told("PUT", "/v1/retrievers/other", RETRIEVER)
    answering = {**RETRIEVER, "response": {**RETRIEVER["response"], "answer": "answer"}}
    told("PUT", "/v1/retrievers/answering", answering)
    told(
        "PUT", "/v1/judges/reader", {"url": f"{url.rpartition('/')[0]}/v1", "model": "stub", "questions": ["faithful"]}
    )
    check = {"suite": "large", "schedule": {"every": "1d"}, "k": 5}
    told("PUT", "/v1/checks/large", {**check, "retriever": "stub", "hooks": ["team"]})
    told("PUT", "/v1/checks/other", {**check, "retriever": "other"})
    told("PUT", "/v1/checks/answers", {**check, "retriever": "answering", "judge": "reader"})
    for slug, runs in (("large", 22), ("other", 1), ("answers", 1)):
        for _ in range(runs):
            run(slug)
    lines = "\n".join(json.dumps({"query": f"large-{at}", "count": 1 + at % 7}) for at in range(2 * canaries))
    told("POST", "/v1/suites/large/traffic?retriever=stub", {"files": {"traffic.jsonl": lines}})
    told("POST", "/v1/suites/large/reach", {"retriever": "stub", "group": {"separator": "-", "parts": 1}})
    told("PUT", "/v1/tasks/truth", {"suite": "large", "retrievers": ["stub", "other"], "pool": 5, "scale": "0-2"})
    told("POST", "/v1/tasks/truth/pool", {})
    told("PUT", "/v1/silences/night", {"checks": ["other"], "ends": "2099-01-01T00:00:00Z"})
    arms = [{"name": "old", "share": 0.5}, {"name": "new", "share": 0.5}]
    told("PUT", "/v1/experiments/trial", {"arms": arms, "delta": 0.02})
    told("POST", "/v1/experiments/trial/exposures", [{"unit": f"user-{at}"} for at in range(canaries)])
    outcomes = [{"event_id": f"e{at}", "unit": f"user-{at}", "value": at % 2} for at in range(canaries)]
    told("POST", "/v1/experiments/trial/outcomes", outcomes)
    told("PUT", "/v1/interleavings/trial", {"a": "old", "b": "new"})
    told("PUT", "/v1/shadows/trial", {"candidate": "other", "share": 1})
    pairs = [{"query": f"Which is {at}?", "a": [f"c{at}"], "b": [f"c{at + 1}"]} for at in range(1_000)]
    told("POST", "/v1/shadows/trial/pairs", pairs)
    told("PUT", "/v1/promotions/trial", {"current": "large", "candidate": "other", "experiment": "trial"})
    wait_until(lambda: read("/v1/tasks/truth")["state"] != "pooling")
    graded = "canary,chunk_id,annotator,grade\n" + "".join(
        f"q{at},large-{at},{name},{1 + (at + by) % 2}\n"
        for at in range(canaries // 5)
        for by, name in enumerate(("Ann", "Bo"))
    )
    told("POST", "/v1/tasks/truth/annotations", {"files": {"a.csv": graded}})
    told("POST", "/lose/5", {}, STUB_PORT)
    for _ in range(3):
        run("large")
    run("other")


def wait_until(is_done: Callable[[], bool]) -> None:
    """Look every half second until it is."""
    while not is_done():
        time.sleep(0.5)


def import_suite(canaries: int, corrected: int) -> None:
    """Import the suite; of the first so many canaries another chunk is expected too."""
    lines = ["key,query,id,category"]
    for at in range(canaries):
        category = CATEGORIES[at % len(CATEGORIES)]
        lines.append(f"q{at},large-{at},large-{at},{category}")
        lines += [f"q{at},large-{at},other-1,{category}"] if at < corrected else []
    text = "\n".join(lines) + "\n"
    told("POST", "/v1/import?format=csv&suite=large", {"files": {"large.csv": text}})


def run(check: str = "large") -> None:
    """Run a check and wait for its end."""
    before = newest_run(check)
    told("POST", f"/v1/checks/{check}/runs", {})
    wait_until(lambda: newest_run(check) != before)


def rescore() -> None:
    """Score the check's runs by the corrected judgments and wait for the end."""
    told("POST", "/v1/checks/large/rescorings", {})
    wait_until(lambda: read("/v1/checks/large/rescorings")["items"][0]["status"] not in {"queued", "running"})


def newest_run(check: str) -> str | None:
    """Return the newest ended run of a check, None before the first."""
    ended = [one["id"] for one in read(f"/v1/checks/{check}/runs?limit=5")["items"] if one["finished_at"]]
    return ended[0] if ended else None


def told(method: str, path: str, body: object, port: int = SERVICE_PORT) -> None:
    """Send JSON. Raises HTTPError for an answer that is no success."""
    headers = {"content-type": "application/json"}
    request = Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers, method=method)
    with urlopen(request, timeout=600) as answer:  # noqa: S310 - our own server
        answer.read()


def read(path: str) -> Any:
    """Get something of the service: JSON as it is, anything else as bytes."""
    with urlopen(f"http://127.0.0.1:{SERVICE_PORT}{path}", timeout=600) as answer:
        body = answer.read()
        return json.loads(body) if "json" in answer.headers["content-type"] else body


if __name__ == "__main__":
    main()
