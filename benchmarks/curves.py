"""How figures grow: runs of 100 to 100,000 canaries, an idle service with 1 to 1,000 checks.

    make bench-curves, or python -m benchmarks.curves [--canaries 100 1000 ...] [--checks 1 10 ...]

Each size is measured once on the stub, the unchanged run as the median of three; about ten minutes in all.
"""

import argparse
import time
from statistics import median

from benchmarks.footprint import idle_share
from benchmarks.goal_table import machine, shown_number
from benchmarks.stub import change_answers, stub
from benchmarks.throughput import new_probe, opened, settled_run

CANARIES = (100, 1_000, 10_000, 100_000)
CHECKS = (1, 10, 100, 1_000)


def main() -> None:
    """Print a table for each curve."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--canaries", type=int, nargs="*", default=CANARIES)
    options.add_argument("--checks", type=int, nargs="*", default=CHECKS)
    given = options.parse_args()
    print(f"{machine()}; {time.strftime('%Y-%m-%d %H:%M')}")
    if given.canaries:
        print("\n| canaries | first run | unchanged | all answers changed |\n|--:|--:|--:|--:|")
    for canaries in given.canaries:
        first, unchanged, changed = (f"{canaries / seconds:,.0f}/s" for seconds in run_seconds(canaries))
        print(f"| {canaries:,} | {first} | {unchanged} | {changed} |", flush=True)
    if given.checks:
        print("\n| checks | idle, of a core |\n|--:|--:|")
    for checks in given.checks:
        print(f"| {checks:,} | {shown_number(median(idle_share(checks, seconds=10, rounds=2)))} % |", flush=True)


def run_seconds(canaries: int) -> tuple[float, float, float]:
    """Seconds of a first run, of an unchanged one, and of one in which every answer has changed."""
    probe = new_probe()
    with stub(canaries), opened(canaries) as planner:
        first = settled_run(planner, probe)
        unchanged = median(settled_run(planner, probe) for _ in range(3))
        change_answers(100)
        return first, unchanged, settled_run(planner, probe, healthy=False)


if __name__ == "__main__":
    main()
