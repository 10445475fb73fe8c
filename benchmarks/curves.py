"""How figures grow: runs of 100 to 100,000 canaries, an idle service with 1 to 10,000 checks, a day to a year kept.

    make bench-curves, or python -m benchmarks.curves [--canaries 100 1000 ...] [--checks 1 10 ...] [--days 1 30 ...]

Each size is measured once, the unchanged run as the median of three. The history is one of hourly runs of 100
canaries in simulated time, carried out by the service's own functions; nothing is deleted on the way. Reads go over
HTTP, two hundred of each. Less than half an hour in all on a quiet machine.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import uvicorn

from app.base.db.engine import Store
from app.config import Settings
from app.main import create_app, open_service
from benchmarks.bench import machine, shown_number
from benchmarks.footprint import idle_share
from benchmarks.processes import change_answers, stub
from benchmarks.storage import SwappingProbe, period, play, serving, size_of, timed
from benchmarks.throughput import new_probe, opened, settled_run

CANARIES = (100, 1_000, 10_000, 100_000)
CHECKS = (1, 10, 100, 1_000, 10_000)
DAYS = (1, 30, 365)


def main() -> None:
    """Print a table for each curve."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--canaries", type=int, nargs="*", default=CANARIES)
    options.add_argument("--checks", type=int, nargs="*", default=CHECKS)
    options.add_argument("--days", type=int, nargs="*", default=DAYS)
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
    if given.days:
        print("\n| history | a run | database | health, p95 | series, p95 | canary, p95 |\n|--:|--:|--:|--:|--:|--:|")
    for days, figures in histories(sorted(given.days)):
        print(f"| {days:,} days | {' | '.join(figures)} |", flush=True)


def histories(days: Sequence[int], canaries: int = 100) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Fill a database and, as it comes to each of so many days, give what a run takes, its size and three reads."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coalmine.db"
        store, probe = Store(f"sqlite:///{file}"), SwappingProbe(canaries)
        runs = 24 * max(days, default=0)
        seconds = []
        for took in play(store, runs, probe, datetime.now(UTC).replace(microsecond=0), timedelta(hours=1)):
            seconds.append(took)
            if len(seconds) in {24 * day for day in days}:
                size = f"{size_of(store, file) / 1e6:.1f} MB"
                yield len(seconds) // 24, (f"{median(seconds[-24:]) * 1e3:.1f} ms", size, *_reads(file, max(days)))
        store.close()


def _reads(file: Path, days: int) -> Iterator[str]:
    """Give the 95th percentile of three reads over everything that is kept."""
    service = open_service(
        Settings(data_dir=file.parent, database_url=f"sqlite:///{file}"), environment={}, with_worker=False
    )
    with serving(lambda: uvicorn.Config(create_app(service), port=0, log_level="warning")) as address:
        for path in ("health", f"series?measure=coverage&points=300&{period(days)}", "canaries/c17/history"):
            yield f"{timed(f'{address}/v1/checks/bench/{path}')[0][189]:.1f} ms"


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
