"""The figures of `make bench` with their goals, and how each is measured."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import detector_cost, footprint, peers, scoring
from benchmarks.goal_table import Figure, Goal, Measured, ratios, shown_number, shown_rate
from benchmarks.storage import JitteryProbe, SwappingProbe, weigh
from benchmarks.stub import PORT, NotInstalledError, change_answers, stub
from benchmarks.throughput import fetch_only, new_probe, opened, settled_run

Found = Iterator[tuple[str, Measured]]


@dataclass(frozen=True, slots=True)
class Part:
    """A process of `make bench`."""

    measure: Callable[[], Found]
    seconds: int
    """After which it is ended."""


FIGURES: Final[Mapping[str, tuple[Figure, ...]]] = {
    "scoring": (
        Figure("scoring", "matching and 39 measures of a top 10, against pytrec_eval's 18", Goal(0.5, "x its time")),
    ),
    "detector": (
        Figure("detector-200", "detector step, state read and written, 200 canaries", Goal(1, "ms")),
        Figure("detector-10000", "the same, 10,000 canaries", Goal(10, "ms")),
    ),
    "storage": (
        Figure("bytes", "a result stored, 0.5 % of answers changing", Goal(4, "bytes")),
        Figure("bytes-jitter", "the same, scores jittering in the 4th digit in every answer", Goal(8, "bytes")),
    ),
    "changed": (
        Figure("changed-10", "run with 10 % of answers changed, against unchanged", Goal(0.7, "x", at_least=True)),
        Figure("changed-100", "run with all answers changed, against unchanged", Goal(0.35, "x", at_least=True)),
    ),
    "unchanged": (
        Figure("run-1000", "unchanged run, 1,000 canaries, against aiohttp fetching", Goal(2.5, "x", at_least=True)),
        Figure("wrk-1000", "the same, against wrk", Goal(0.2, "x", at_least=True)),
        Figure("run-10000", "unchanged run, 10,000 canaries, against aiohttp fetching", Goal(2.5, "x", at_least=True)),
        Figure("wrk-10000", "the same, against wrk", Goal(0.2, "x", at_least=True)),
    ),
    "peers": (
        Figure("httpx", "1,000 canaries end to end, against httpx one by one", Goal(15, "x", at_least=True)),
        Figure("blackbox", "the same, against the blackbox exporter with a regexp", Goal(12, "x", at_least=True)),
        Figure("promptfoo", "the same, against promptfoo with two assertions", Goal(150, "x", at_least=True)),
    ),
    "footprint": (
        Figure("start", "start to the first answer", Goal(1.5, "s")),
        Figure("memory", "resident memory after it", Goal(120, "MB")),
        Figure("check", "coalmine check of 50 canaries on a stub of 1 ms", Goal(1, "s")),
        Figure("idle", "idle service with 1,000 checks", Goal(2, "% of a core")),
    ),
}


def measure(name: str) -> Found:
    """Measure a part and yield each figure by its key as soon as it is known."""
    return PARTS[name].measure()


def _scoring() -> Found:
    times, _ = scoring.measure(queries=1_000, rounds=15)
    ours, theirs = times[scoring.OURS], times[scoring.PEER]
    again = median(ratios(times[scoring.AGAIN], theirs))
    beside = (
        f"{median(ours):.1f} us of CPU a query, pytrec_eval {median(theirs):.1f}; patterns seen before {again:.2f} x"
    )
    yield "scoring", Measured(ratios(ours, theirs), beside)


def _detector() -> Found:
    for canaries, runs in ((200, 60), (10_000, 20)):
        elapsed, processor = detector_cost.measure(canaries, runs)
        yield f"detector-{canaries}", Measured(elapsed, f"{shown_number(median(processor))} ms of the processor")


def _storage() -> Found:
    for key, probe, runs in (("bytes", SwappingProbe, 300), ("bytes-jitter", JitteryProbe, 100)):
        with tempfile.TemporaryDirectory() as folder:
            found = weigh(Path(folder) / "bench.db", runs, probe(500), datetime.now(UTC))
            beside = f"{runs} runs of 500 canaries, {median(found.seconds) * 1e3:.0f} ms each"
            yield key, Measured([found.per_result], beside)


def _changed(canaries: int = 1_000, rounds: int = 9) -> Found:
    """Three checks on three stubs: what one of them learns of its retriever stays its own."""
    percents = {0: PORT, 10: PORT + 1, 100: PORT + 2}
    rates: dict[int, list[float]] = {percent: [] for percent in percents}
    with ExitStack() as stack:
        planners, probes = {}, {percent: new_probe() for percent in percents}
        for percent, port in percents.items():
            stack.enter_context(stub(canaries, port))
            planners[percent] = stack.enter_context(opened(canaries, port))
        for number in range(rounds + 2):
            for percent, port in percents.items():
                if percent:
                    change_answers(percent, port)
                rate = canaries / settled_run(planners[percent], probes[percent], healthy=False)
                if number > 1:  # the first stores what is new, the second compiles
                    rates[percent].append(rate)
    for percent in (10, 100):
        beside = f"{shown_rate(rates[percent])}, unchanged {shown_rate(rates[0])}"
        yield f"changed-{percent}", Measured(ratios(rates[percent], rates[0]), beside)


def _unchanged() -> Found:
    for canaries, rounds in ((1_000, 11), (10_000, 5)):
        ours, aiohttp, wrk = list[float](), list[float](), list[float]()
        missing = ""
        with stub(canaries), opened(canaries) as planner:
            first = canaries / settled_run(planner)
            settled_run(planner)
            for _ in range(rounds):
                aiohttp.append(canaries / fetch_only(canaries, with_uvloop=True)[0])
                ours.append(canaries / settled_run(planner))
                try:
                    wrk.append(peers.wrk_rate(canaries))
                except NotInstalledError as error:
                    missing = f"{error} is not installed"
        beside = f"{shown_rate(ours)}, first run {first:,.0f}/s, aiohttp on uvloop {shown_rate(aiohttp)}"
        yield f"run-{canaries}", Measured(ratios(ours, aiohttp), beside)
        if missing:
            yield f"wrk-{canaries}", Measured((), missing)
        else:
            yield f"wrk-{canaries}", Measured(ratios(ours, wrk), f"wrk {shown_rate(wrk)}")


def _peers(canaries: int = 1_000) -> Found:
    with stub(canaries), opened(canaries) as planner:
        for _ in range(2):
            settled_run(planner)
        ask: list[tuple[str, Callable[[], float], int]] = [
            ("httpx", partial(peers.httpx_seconds, canaries), 5),
            ("blackbox", partial(peers.blackbox_seconds, canaries), 5),
            ("promptfoo", partial(peers.promptfoo_seconds, canaries), 2),
        ]
        for name, seconds, rounds in ask:
            theirs, ours = list[float](), list[float]()
            try:
                with ExitStack() as stack:
                    if name == "blackbox":
                        stack.enter_context(peers.blackbox(canaries))
                    for _ in range(rounds):
                        theirs.append(seconds())
                        ours.append(settled_run(planner))
            except NotInstalledError as error:
                yield name, Measured((), f"{error} is not installed")
            else:
                beside = f"{median(ours) * 1e3:.0f} ms, {name} {shown_number(median(theirs))} s"
                yield name, Measured(ratios(theirs, ours), beside)


def _footprint() -> Found:
    found = footprint.starts(5)
    yield "start", Measured(found["seconds"], "to /readyz, over data that is there")
    yield "memory", Measured(found["megabytes"], f"{footprint.SETTLE_SECONDS} s after the start")
    yield "check", Measured(footprint.checks(7))
    yield "idle", Measured(footprint.idle_share(1_000, seconds=10, rounds=3))


PARTS: Final[Mapping[str, Part]] = {
    "scoring": Part(_scoring, 40),
    "detector": Part(_detector, 110),
    "storage": Part(_storage, 90),
    "changed": Part(_changed, 60),
    "unchanged": Part(_unchanged, 110),
    "peers": Part(_peers, 150),
    "footprint": Part(_footprint, 160),
}
