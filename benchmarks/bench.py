"""One table of what Coalmine is measured by: each figure beside its goal and, in the same rounds, its peer.

    make bench, or python -m benchmarks.bench [--only PART ...]

About ten minutes. Ratios are taken in rounds: the peer, then ours, then the peer again; what is shown is the median of
the rounds' ratios, the least and the most. Each part is a process of its own that is ended when its time is over:
figures it has given by then stand in the table. A peer that is not installed has a row that says so; `make bench-peers`
installs them. Each part yields its figures by key; what they measure is in the modules of their names.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Final

from app.base.values import replace
from benchmarks import causes, footprint, scoring, storage, throughput
from benchmarks.processes import PORT, NotInstalledError, change_answers, stub
from benchmarks.storage import JitteryProbe, SwappingProbe, weigh
from benchmarks.throughput import fetch_only, new_probe, opened, settled_run

HEAD: Final = ("figure", "goal", "measured: median (least to most, rounds)", "", "peer and absolute figures", "load")


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the median of a figure."""

    bound: float
    unit: str
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        """Whether a value keeps to the bound."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g} {self.unit}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table before it is measured."""

    key: str
    text: str
    goal: Goal


@dataclass(frozen=True, slots=True)
class Measured:
    """What a figure came to: a value for each round; none where it could not be measured, and `beside` says why."""

    values: Sequence[float]
    beside: str = ""
    """The peer's and our absolute figures, or why there are none."""
    load: float | None = None
    """The machine's load over the minute before."""


Found = Iterator[tuple[str, Measured]]


@dataclass(frozen=True, slots=True)
class Part:
    """A process of `make bench`."""

    measure: Callable[[], Found]
    seconds: int
    """After which it is ended."""


def main() -> None:
    """Measure the parts one after another and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=" ".join(PARTS))
    options.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.part:
        for key, measured in measure(given.part):
            print(json.dumps({"key": key, "measured": asdict(measured)}), flush=True)
        return
    began, found = time.monotonic(), dict[str, Measured]()
    for name in given.only:
        print(
            f"{time.monotonic() - began:4.0f} s  {name}, {PARTS[name].seconds} s at most", file=sys.stderr, flush=True
        )
        found |= part(name)
    figures = [figure for name in given.only for figure in FIGURES[name]]
    print(f"{machine()}; {time.strftime('%Y-%m-%d %H:%M')}; {time.monotonic() - began:.0f} s in all\n")
    print(table(figures, found))


def part(name: str) -> dict[str, Measured]:
    """Measure a part in a process of its own; what it did not come to says why."""
    load = os.getloadavg()[0]
    command = [sys.executable, "-m", "benchmarks.bench", "--part", name]
    root = Path(__file__).resolve().parent.parent
    found: dict[str, Measured] = {}
    with subprocess.Popen(  # noqa: S603 - ourselves
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        timer = Timer(PARTS[name].seconds, _end, [process])
        timer.start()
        try:
            said, errors = process.communicate()
        finally:
            timer.cancel()
    for line in said.splitlines():
        if line.startswith('{"key"'):
            one = json.loads(line)
            found[one["key"]] = replace(Measured(**one["measured"]), load=load)
    why = "its time was over" if process.returncode < 0 else _last_line(errors.splitlines())
    return {figure.key: Measured((), why, load) for figure in FIGURES[name]} | found


def _end(process: "subprocess.Popen[str]") -> None:
    """End a part and the processes it has started."""
    os.killpg(process.pid, 9)


def _last_line(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.strip()), "it gave no figure")


FIGURES: Final[Mapping[str, tuple[Figure, ...]]] = {
    "scoring": (
        Figure("scoring", "matching and 39 measures of a top 10, against pytrec_eval's 18", Goal(0.5, "x its time")),
    ),
    "detector": (
        Figure("detector-200", "detector step, state read and written, 200 canaries", Goal(1, "ms")),
        Figure("detector-10000", "the same, 10,000 canaries", Goal(10, "ms")),
    ),
    "cause": tuple(
        Figure(f"cause-{key}", f"a run's cause, 1,000 canaries: {name}", Goal(5, "ms"))
        for key, name in causes.CHANGES.items()
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
        Figure("start", "start to the first answer", Goal(1.0, "s")),
        Figure("memory", "resident memory after it", Goal(120, "MB")),
        Figure("check", "coalmine check of 50 canaries on a stub of 1 ms", Goal(0.4, "s")),
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
        elapsed, processor = storage.detector_step_ms(canaries, runs)
        yield f"detector-{canaries}", Measured(elapsed, f"{shown_number(median(processor))} ms of the processor")


def _cause() -> Found:
    for key, found in causes.measure(canaries=1_000, rounds=25).items():
        beside = f"{shown_number(median(found.whole))} ms with the texts that it compares; told: {found.told}"
        yield f"cause-{key}", Measured(found.shapes, beside)


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
                    wrk.append(throughput.wrk_rate(canaries))
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
            ("httpx", partial(throughput.httpx_seconds, canaries), 5),
            ("blackbox", partial(throughput.blackbox_seconds, canaries), 5),
            ("promptfoo", partial(throughput.promptfoo_seconds, canaries), 2),
        ]
        for name, seconds, rounds in ask:
            theirs, ours = list[float](), list[float]()
            try:
                with ExitStack() as stack:
                    if name == "blackbox":
                        stack.enter_context(throughput.blackbox(canaries))
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
    "cause": Part(_cause, 60),
    "storage": Part(_storage, 90),
    "changed": Part(_changed, 60),
    "unchanged": Part(_unchanged, 110),
    "peers": Part(_peers, 150),
    "footprint": Part(_footprint, 160),
}


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ratio of ours to theirs for each round; raises ValueError unless both took part in every round."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def shown_number(value: float) -> str:
    """Three digits, as people read them: 0.0214, 1.57, 34.2, 1,390."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def shown_rate(rates: Sequence[float]) -> str:
    """Median of several rates per second."""
    return f"{median(rates):,.0f}/s"


def shown_values(values: Sequence[float], unit: str) -> str:
    """Median with its unit and, of several rounds, the least and the most."""
    middle = f"{shown_number(median(values))} {unit}"
    if len(values) == 1:
        return f"{middle} (1)"
    return f"{middle} ({shown_number(min(values))} to {shown_number(max(values))}, {len(values)})"


def table(figures: Sequence[Figure], measured: Mapping[str, Measured]) -> str:
    """All figures as a Markdown table; what was not measured has a row that says so."""
    rows = [HEAD, *(_row(figure, measured.get(figure.key)) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _row(figure: Figure, found: Measured | None) -> tuple[str, str, str, str, str, str]:
    found = found or Measured((), "no time left")
    load = "" if found.load is None else f"{found.load:.1f}"
    if not found.values:
        return figure.text, str(figure.goal), "not measured", "", found.beside, load
    verdict = "met" if figure.goal.is_met(median(found.values)) else "MISSED"
    return figure.text, str(figure.goal), shown_values(found.values, figure.goal.unit), verdict, found.beside, load


def machine() -> str:
    """Processor, cores, system and Python of this machine."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text("utf-8").splitlines() if information.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    cores = f"{os.cpu_count()} cores"
    return f"{cores} of {model or platform.machine()}, {platform.system()}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
