"""A retriever's limits over 1, 2 and 3 replicas, and how much sooner two replicas end one run than one.

    python -m benchmarks.replicas limits [--canaries 400] [--checks 4]
    python -m benchmarks.replicas speed [--canaries 10000] [--rounds 3] [--concurrency 32]
    python -m benchmarks.replicas cost [--canaries 100] [--checks 40] [--rounds 5]

Real processes: `coalmine serve` one to three times on a PostgreSQL of their own, and a retriever that answers after
50 ms and logs each request with the number then under way. *limits*: all checks are run at the same time against one
retriever, at most 8 at a time and 100 a second. *speed*: one run of many canaries without a rate, by one replica and by
two in turn. What a machine of two cores shows of a speed-up is little where the replicas share them with PostgreSQL and
the retriever: the CPU of each side is printed beside it. *cost*: the CPU of a run in which every answer is new, of the
service and of PostgreSQL.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import sqlalchemy as sa

from tests.faults.bench import Bench, Load, Service
from tests.faults.replica_faults import replicas
from tests.faults.trials import restart

ANSWER_SECONDS = 0.05
CONCURRENCY, PER_SECOND = 8, 100.0
PATIENCE_SECONDS = 1_500


def main() -> None:
    """Print the table of the part that is named."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("part", choices=["limits", "speed", "cost"])
    options.add_argument("--canaries", type=int)
    options.add_argument("--checks", type=int)
    options.add_argument("--rounds", type=int)
    options.add_argument("--concurrency", type=int, default=32)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.part == "limits":
            measure_limits(Path(folder), given.canaries or 400, given.checks or 4)
        elif given.part == "speed":
            measure_speed(Path(folder), given.canaries or 10_000, given.rounds or 3, given.concurrency)
        else:
            measure_cost(Path(folder), given.canaries or 100, given.checks or 40, given.rounds or 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What the retriever saw of a measurement."""

    count: int
    most_under_way: int
    most_in_a_second: int
    """The most requests that arrived within any second."""
    seconds: float
    """From the first to the last."""


def measure_limits(folder: Path, canaries: int, checks: int) -> None:
    """Run all checks at once over 1, 2 and 3 replicas; print what arrived beside what was declared."""
    ideal = canaries * checks / PER_SECOND
    print(f"{checks} checks of {canaries} canaries, declared: {CONCURRENCY} at a time, {PER_SECOND:.0f} a second")
    print("| replicas | requests | most at a time | most in any second | seconds (ideal) |")
    print("| --: | --: | --: | --: | --: |")
    load = Load(checks=checks, canaries=canaries, concurrency=CONCURRENCY, requests_per_second=PER_SECOND, every="31d")
    for count in (1, 2, 3):
        with replicas(folder / str(count), PATIENCE_SECONDS, count, load) as (trial, services):
            prepare(trial, services[0])
            logged = len(trial.retriever.lines())
            for number, slug in enumerate(load.slugs):
                trial.ask_for_runs(services[number % count], [slug])
            trial.wait_ended(trial.newest_run())
            came = requests(trial, logged)
            print(
                f"| {count} | {came.count:,} | {came.most_under_way} | {came.most_in_a_second} "
                f"| {came.seconds:.1f} ({ideal:.1f}) |",
                flush=True,
            )


def measure_speed(folder: Path, canaries: int, rounds: int, concurrency: int) -> None:
    """Time one run by one replica and by two in turn; print the medians, the speed-up and the CPU of each side."""
    load = Load(checks=1, canaries=canaries, concurrency=concurrency, requests_per_second=None, every="31d")
    ideal = canaries * ANSWER_SECONDS / concurrency
    print(
        f"one run of {canaries:,} canaries, {concurrency} at a time, {ANSWER_SECONDS * 1000:.0f} ms each: {ideal:.1f} s"
    )
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with replicas(folder, PATIENCE_SECONDS, 2, load) as (trial, services):
        prepare(trial, services[0])
        for _ in range(rounds):
            for count, took in seconds.items():
                if count == 1:
                    services[1].child.end(trial.deadline)
                cpu = processor_seconds(services[:count])
                began = time.monotonic()
                trial.ask_for_runs(services[0])
                run_id = trial.newest_run()
                trial.wait_ended(run_id)
                took.append(time.monotonic() - began)
                spent = [now - then for now, then in zip(processor_seconds(services[:count]), cpu, strict=True)]
                shares = ", ".join(f"{one:.1f}" for one in spent)
                print(f"{count} replicas: {took[-1]:.1f} s; CPU seconds of each: {shares}", flush=True)
                if count == 1:
                    restart(trial, services[1])
    one, two = (median(seconds[count]) for count in (1, 2))
    ratios = [single / double for single, double in zip(seconds[1], seconds[2], strict=True)]
    spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
    print(f"medians: {one:.1f} s by one, {two:.1f} s by two; speed-up {median(ratios):.2f} ({spread})")


def measure_cost(folder: Path, canaries: int, checks: int, rounds: int) -> None:
    """Run all checks several times on one replica; print the CPU of a run, of the service and of PostgreSQL."""
    load = Load(checks=checks, canaries=canaries, concurrency=CONCURRENCY, requests_per_second=None, every="31d")
    with replicas(folder, PATIENCE_SECONDS, 1, load) as (trial, services):
        prepare(trial, services[0])
        costs: list[tuple[float, float]] = []
        for _ in range(rounds):
            service, database = processor_seconds(services)[0], postgresql_seconds(trial)
            trial.ask_for_runs(services[0])
            trial.wait_ended(trial.newest_run())
            spent = processor_seconds(services)[0] - service, postgresql_seconds(trial) - database
            costs.append((spent[0] / checks, spent[1] / checks))
        for name, of_each in zip(("service", "PostgreSQL"), zip(*costs, strict=True), strict=True):
            spread = f"{min(of_each) * 1000:.0f}-{max(of_each) * 1000:.0f}"
            print(f"{name}: {median(of_each) * 1000:.0f} ms of CPU a run of {canaries} canaries ({spread})", flush=True)


def prepare(trial: Bench, service: Service) -> None:
    """Let the first runs, in which everything is new, be over, and have the retriever answer slowly from then on."""
    trial.ask_for_runs(service)
    trial.wait_ended(trial.newest_run())
    trial.retriever.set_mode(delay=ANSWER_SECONDS)


def requests(trial: Bench, logged: int) -> Requests:
    """Count what the retriever logged behind the first `logged` lines."""
    lines = [line for line in trial.retriever.lines()[logged:] if line["path"] == "/search"]
    at = np.sort([line["at"] for line in lines])
    within = np.searchsorted(at, at + 1.0) - np.arange(len(at))
    return Requests(
        count=len(lines),
        most_under_way=max(line["under_way"] for line in lines),
        most_in_a_second=int(within.max()),
        seconds=float(at[-1] - at[0]),
    )


def processor_seconds(services: Sequence[Service]) -> list[float]:
    """Give the seconds of CPU that each used so far."""
    times = [psutil.Process(service.child.pid).cpu_times() for service in services]
    return [float(one.user + one.system) for one in times]


def postgresql_seconds(trial: Bench) -> float:
    """Give the seconds of CPU that the processes of the trial's PostgreSQL used so far."""
    folder = Path(str(sa.make_url(trial.database_url).query["host"])) / "data"
    used = 0.0
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.NoSuchProcess):
            if process.info["name"] == "postgres" and Path(process.cwd()) == folder:
                used += sum(process.cpu_times()[:2])
    return used


if __name__ == "__main__":
    main()
