"""A whole run of Coalmine against an aiohttp loop that only fetches, in turn, against the same stub retriever.

    python -m benchmarks.throughput [canaries] [rounds] [--profile]

The stub is `stub.c`, built with gcc. A run is everything between claim and verdict: probe, parse, match, measure,
stage, states, aggregates, alerts, committed to a SQLite file. The first run (everything is new) is timed apart. Both
sides ask with 32 requests in flight over kept-alive connections.
"""

import asyncio
import cProfile
import gc
import pstats
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from statistics import median
from typing import Any

import aiohttp
import uvloop

from app.base.addresses import retriever_policy
from app.base.db.engine import Store
from app.base.db.files import migrate
from app.base.documents.validation_messages import parse_document
from app.base.values import Trigger
from app.base.vault import Vault
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.documents import CheckDocument
from app.catalog.service import applying
from app.catalog.service.references import API
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.documents.retrievers import RetrieverDocument
from app.runs.service import due_checks, runs
from app.runs.service.plans import Planner
from benchmarks.stub import PORT, stub

CONCURRENCY = 32


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
    claimed = runs.begin(planner.store, run_id, owner="bench", now=datetime.now(UTC))
    assert claimed is not None
    ended = runs.execute(
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


if __name__ == "__main__":
    main()
