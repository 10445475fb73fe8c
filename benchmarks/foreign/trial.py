"""A trial: the real service watches a system by defaults, faults come and go, a receiver that knows the truth judges.

A pair of system and collection has a service and a database of its own, in which all faults happen one after the
other, so that leftovers of one are there when the next comes, as in life.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import httpx2

from benchmarks.foreign.collections import Collection, suite_for
from benchmarks.foreign.faults import FETCHED, Bench, Fault, Hurt, faults, hurt
from benchmarks.foreign.systems import ROOT, System, free_port, served

CHECK: Final = "trial"
MOST_RUNS: Final = 6
RUNS_AFTER: Final = 1
"""Runs that go on after a fault was noticed, for what is said later."""
_MOST_RUNS_HEALING: Final = 12
_LISTED: Final = 10
_NEWS_SECONDS: Final = 60.0
"""News waits up to 30 s for the causes."""
_POLL_SECONDS: Final = 0.05


@dataclass(kw_only=True)
class Row:
    """What came of a fault. Counts are of canaries but for those of runs and messages."""

    system: str
    collection: str
    fault: str
    pages_wanted: bool
    noticeable: bool = True
    lost: int = 0
    worse: int = 0
    better: int = 0
    noticed: int | None = None
    right: int = 0
    wrong: int = 0
    missing: int = 0
    verdict: str = "none"
    told: tuple[str, ...] = ()
    last_verdict: str = "none"
    """Of the last message before the heal; that of the page is `verdict`."""
    group_named: bool | None = None
    pages: int = 0
    updates: int = 0
    resolves: int = 0
    false_pages: int = 0
    incidents: int = 0
    healed: int | None = None
    """Runs after the heal until no alert was open."""
    news_seconds: float = 0.0
    """From the end of the run in which it was noticed to the page."""
    seconds: float = 0.0
    summary: str = ""
    causes: str = ""
    advice: str = ""
    reasons: tuple[str, ...] = ()
    """What the run's page said first."""
    later: tuple[str, ...] = ()
    """Summaries of updates, escalations and the resolve."""
    listed_wrong: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Receiver:
    """A webhook receiver that keeps what it is sent."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def since(self, start: int, kind: str | None = None) -> list[dict[str, Any]]:
        """List the messages after the first `start`, of one type or of all."""
        return [one for one in self.messages[start:] if kind in {None, one["type"]}]


class Trial:
    """The faults of one system and collection, at one service."""

    def __init__(self, bench: Bench, client: httpx2.Client, receiver: Receiver) -> None:
        self._bench, self._client, self._receiver = bench, client, receiver

    def watch_healthy(self, runs: int) -> Row:
        """Run until there is a baseline and longer; no page is wanted."""
        started = time.monotonic()
        for _ in range(runs):
            run = self._run()
        self._wait_for_deliveries()
        row = self._row(f"{runs} healthy runs", wanted=False)
        row.noticeable = False
        row.pages = row.false_pages = len(self._receiver.since(0, "alert.opened"))
        row.summary = f"coverage {run['coverage']} of {run['canaries']['total']} canaries, {run['verdict']}"
        row.reasons = tuple(map(str, run["reasons"]))
        row.seconds = round(time.monotonic() - started, 1)
        return row

    def try_fault(self, fault: Fault) -> Row:
        """Make a fault, watch until it is noticed and a little longer, heal it, watch until all is well."""
        started, start = time.monotonic(), len(self._receiver.messages)
        row = self._row(fault.name, wanted=fault.pages)
        fault.make(self._bench)
        truth = hurt(self._bench)
        row.noticeable = truth.is_noticeable or not fault.names_canaries
        row.lost, row.worse, row.better = len(truth.lost), len(truth.worse), len(truth.better)
        after = 0
        for number in range(1, MOST_RUNS + 1):
            run = self._run()
            if row.noticed is not None:
                after += 1
            elif self._is_open():
                row.noticed = number
                self._judge(row, run, fault, truth, start)
            if after >= RUNS_AFTER:
                break
        if row.noticed is None:
            row.reasons = (f"coverage {run['coverage']}, {run['verdict']}", *map(str, run["reasons"]))
        before_heal = len(self._receiver.messages)
        if last := [one["data"]["summary"] for one in self._receiver.since(start) if one["data"]["summary"]]:
            row.last_verdict, _ = fault.verdict(last[-1], row.reasons)
        self._bench.system.heal()
        for number in range(1, _MOST_RUNS_HEALING + 1):
            self._run()
            if not self._is_open():
                row.healed = number
                break
        self._wait_for_deliveries()
        heard = self._receiver.since(start)
        row.pages = len(self._receiver.since(start, "alert.opened"))
        row.updates = sum(one["type"] in {"alert.escalated", "alert.updated"} for one in heard)
        row.resolves = len(self._receiver.since(start, "alert.resolved"))
        row.incidents = len({one["data"].get("incident_id") for one in heard})
        hurts = fault.pages and bool(truth.worse or not fault.names_canaries)
        row.false_pages = len(self._receiver.since(before_heal, "alert.opened")) if hurts else row.pages
        row.later = tuple(f"{one['type']}: {one['data']['summary']}" for one in heard if one["type"] != "alert.opened")
        row.seconds = round(time.monotonic() - started, 1)
        return row

    def _row(self, fault: str, *, wanted: bool) -> Row:
        return Row(
            system=self._bench.system.name, collection=self._bench.collection.name, fault=fault, pages_wanted=wanted
        )

    def _judge(self, row: Row, run: dict[str, Any], fault: Fault, truth: Hurt, start: int) -> None:
        since = time.monotonic()
        opened = self._wait(lambda: next(iter(self._receiver.since(start, "alert.opened")), None), _NEWS_SECONDS)
        row.news_seconds = round(time.monotonic() - since, 1)
        if opened is None:
            return
        data = opened["data"]
        fleet = data.get("fleet") or {}
        row.summary, row.causes, row.advice = data["summary"], data["causes"] or "", data["advice"] or ""
        row.reasons = tuple(str(one) for one in self._client.get(f"/v1/runs/{run['id']}").json()["reasons"])
        phrases = [(fleet.get("cause") or {}).get("phrase"), fleet.get("headline"), fleet.get("sentence")]
        row.verdict, row.told = fault.verdict(row.summary, [one for one in (row.causes, *phrases, *row.reasons) if one])
        if fault.group is not None:
            row.group_named = fault.group(self._bench) in row.summary
        if fault.names_canaries:
            listed = {canary["key"] for canary in data["degraded"]}
            row.listed_wrong = tuple(sorted(listed - truth.worse - truth.thinner))
            row.right, row.wrong = len(listed) - len(row.listed_wrong), len(row.listed_wrong)
            row.missing = max(min(_LISTED, len(truth.lost & self._unfound(run["id"]))) - row.right, 0)

    def _run(self) -> dict[str, Any]:
        answer = self._client.post(f"/v1/checks/{CHECK}/runs", json={"wait_seconds": 60, "trigger": "api"})
        run: dict[str, Any] = answer.raise_for_status().json()
        while run["status"] in {"queued", "running"}:
            time.sleep(_POLL_SECONDS)
            run = self._client.get(f"/v1/runs/{run['id']}").raise_for_status().json()
        return run

    def _unfound(self, run_id: str) -> set[str]:
        """Return the canaries without an expected chunk in a run: of answers that alternate some found theirs."""
        found: set[str] = set()
        following: dict[str, str] = {}
        while True:
            answer = self._client.get(f"/v1/runs/{run_id}/results", params={"limit": 200, **following})
            page = answer.raise_for_status().json()
            found |= {one["key"] for one in page["items"] if not one["any_match"]}
            if not page["next"]:
                return found
            following = {"after": page["next"]}

    def _is_open(self) -> bool:
        alerts = self._client.get("/v1/alerts", params={"check": CHECK, "limit": 50}).raise_for_status().json()["items"]
        return any(one["state"] in {"firing", "recovering"} for one in alerts)

    def _wait_for_deliveries(self) -> None:
        def none_waits() -> bool:
            answer = self._client.get("/v1/deliveries", params={"state": "pending"})
            return not answer.raise_for_status().json()["items"]

        self._wait(none_waits, _NEWS_SECONDS)

    def _wait(self, found: Callable[[], Any], seconds: float) -> Any:
        until = time.monotonic() + seconds
        while not (value := found()) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        return value


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is tried, and where rows are kept."""

    faults: Sequence[Fault]
    healthy_runs: int
    out: Path
    fresh: int | None = None
    """A new service and database after so many faults; None = one for all."""


def try_pair(system_class: type[System], collection: Collection, plan: Plan) -> None:
    """Try all faults that are not in the file of rows yet, and add a row for each."""
    done = {(row.system, row.collection, row.fault) for row in read_rows(plan.out)}
    pair = (system_class.name, collection.name)
    system = system_class(collection.chunks)
    left = [one for one in plan.faults if (*pair, one.name) not in done and one.why_not(system) is None]
    if not left:
        return
    with tempfile.TemporaryDirectory(prefix="foreign-") as home, system.running(Path(home)), receiving() as receiver:
        suite = suite_for(collection, lambda query: [hit.chunk.id for hit in system.rankings(query, FETCHED)[0]])
        healthy = {question.key: system.rankings(question.text, FETCHED)[0] for question in suite.questions}
        bench = Bench(system=system, collection=collection, suite=suite, healthy=healthy)
        for start in range(0, len(left), plan.fresh or len(left)):
            receiver.messages.clear()
            folder = Path(home) / f"service-{start}"
            folder.mkdir()
            write_file(folder / "canaries.yaml", bench, receiver)
            with service(folder) as client:
                trial = Trial(bench, client, receiver)
                keep(trial.watch_healthy(plan.healthy_runs), plan.out)
                for fault in left[start : start + (plan.fresh or len(left))]:
                    keep(trial.try_fault(fault), plan.out)


def keep(row: Row, out: Path) -> None:
    """Add a row to the file, and say it."""
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")
    print(
        f"{row.system}, {row.collection}, {row.fault}: run {row.noticed}, lost {row.lost}, worse {row.worse},"
        f" listed {row.right}/{row.wrong}/{row.missing}, {row.verdict.upper()} {list(row.told)}, pages {row.pages}"
        f" (+{row.updates}), resolves {row.resolves}, false {row.false_pages}, healed {row.healed},"
        f" news {row.news_seconds} s, {row.seconds} s\n    {row.summary}",
        flush=True,
    )


def read_rows(out: Path) -> list[Row]:
    """Read the rows of before; of two of one fault the later counts."""
    if not out.exists():
        return []
    rows = [Row(**json.loads(line)) for line in out.read_text(encoding="utf-8").splitlines()]
    by_name = {fault.name: fault for fault in faults()}
    for row in rows:  # by the words of today
        if row.fault in by_name and by_name[row.fault].may_be_quiet:
            row.noticeable = row.noticed is not None
        if row.fault in by_name and row.summary:
            row.verdict, row.told = by_name[row.fault].verdict(row.summary, [row.causes, *row.reasons])
    return list({(row.system, row.collection, row.fault): row for row in rows}.values())


# --- setting up ----------------------------------------------------------------------------------------------


def write_file(path: Path, bench: Bench, receiver: Receiver) -> None:
    """Write the canary file of a newcomer: a suite, the retriever, a check without rules, a webhook."""
    content = {
        "suite": CHECK,
        "canaries": bench.suite.documents(bench.collection),
        "retrievers": [{"slug": "search", **bench.system.document()}],
        "checks": [
            {"slug": CHECK, "suite": CHECK, "retriever": "search", "schedule": {"every": "1d"}, "hooks": ["receiver"]}
        ],
        "hooks": [{"slug": "receiver", "kind": "webhook", "url": receiver.url, "secret": "whsec_" + "dHJpYWwt" * 4}],
    }
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")  # JSON is YAML
    found = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "app.cli", "validate", path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if found.returncode:
        raise SystemExit(found.stdout + found.stderr)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Receive webhooks on a free port of 127.0.0.1."""
    receiver = Receiver()

    def keep_message(_: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        receiver.messages.append(json.loads(body))
        return 200, b"{}"

    with served(keep_message) as port:
        receiver.url = f"http://127.0.0.1:{port}/hook"
        yield receiver


@contextmanager
def service(home: Path) -> Iterator[httpx2.Client]:
    """Run the real service over the file, with a database of its own."""
    port = free_port()
    options = ["serve", "--port", str(port), "--data-dir", home / "data", "--canaries", home / "canaries.yaml"]
    kept = {name: value for name, value in os.environ.items() if not re.match("COALMINE_", name)}
    environment = {**kept, "COALMINE_HOOK_ALLOW": "127.0.0.0/8"}
    log_file = home / "service.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "app.cli", *map(str, options)], cwd=ROOT, stdout=log, stderr=log, env=environment
        )
    try:
        # The service closes connections that were idle for 5 s: they are not used again.
        limits = httpx2.Limits(keepalive_expiry=2)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False, limits=limits) as client:
            until = time.monotonic() + 60
            while True:
                with suppress(httpx2.TransportError):
                    if client.get("/readyz").is_success:
                        break
                if time.monotonic() > until or process.poll() is not None:
                    raise SystemExit(log_file.read_text(encoding="utf-8")[-4000:])
                time.sleep(_POLL_SECONDS)
            yield client
    finally:
        process.terminate()
        process.wait(60)
