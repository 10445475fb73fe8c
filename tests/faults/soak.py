"""`python -m tests.faults.soak`: an hour on SQLite over loopback, and whether memory, lag and open files stay flat.

50 checks of 20 canaries each minute; every ten minutes the retriever loses everything or finds it again, so that all
alerts open or resolve. The rows are accounted for at the end as after a fault.

`--every 10s --change-seconds 20 --minutes 25`: as many changes as in half a day, to tell what grows with each of them
from what fills up.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, median

import psutil
import sqlalchemy as sa

from app.base.values import replace
from app.records.tables import runs
from tests.faults.accounting import take_account
from tests.faults.bench import Bench, Load, Service, bench

_LOAD = Load(checks=50, canaries=20, concurrency=8, requests_per_second=None, every="60s")
_SAMPLE_SECONDS = 15.0
_CHANGE_MINUTES = 10
_CHANGES_SHOWN = 5
"""From one line about memory to the next."""
_WARM_MINUTES = 5
"""In which everything is loaded; the slopes leave them out."""
_ACCOUNT_SECONDS = 3600
"""To start, and to read every result at the end."""
_MEGABYTE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What the process holds at a moment."""

    minute: float
    changes: int
    """How often the retriever lost everything or found it again."""
    memory: float
    """Resident, in megabytes."""
    files: int
    """Descriptors: files, sockets, pipes."""
    threads: int
    processor_seconds: float


def main(arguments: Sequence[str]) -> int:
    """Print the figures; 1 = a result, alert or notification is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--every", default=_LOAD.every, help="schedule of the checks")
    parser.add_argument("--change-seconds", type=float, default=_CHANGE_MINUTES * 60)
    given = parser.parse_args(arguments)
    minutes = given.minutes
    folder = Path(tempfile.mkdtemp(prefix="coalmine-soak-"))
    with bench(folder, minutes * 60 + _ACCOUNT_SECONDS, replace(_LOAD, every=given.every)) as trial:
        service = trial.serve()
        samples = watch(trial, service, minutes, given.change_seconds)
        for line in (*describe(samples), *describe_changes(samples), *describe_lags(start_lags(trial))):
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        account = take_account(trial, service, trial.settle(), faults=0)
    sys.stdout.write(f"{account}\n")
    if account.wrong:
        sys.stdout.write(f"{account.wrong}\n{folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


def watch(trial: Bench, service: Service, minutes: int, change_seconds: float) -> list[Sample]:
    """Take samples of the service for so long, and change what the retriever finds now and then."""
    pause = min(_SAMPLE_SECONDS, change_seconds / 4)
    process = psutil.Process(service.child.pid)
    began = time.monotonic()
    samples: list[Sample] = []
    while (minute := (time.monotonic() - began) / 60) < minutes:
        changes = int(minute * 60 / change_seconds)
        is_missing = bool(changes % 2)
        if is_missing != trial.is_missing:
            trial.set_missing(is_missing=is_missing)
        samples.append(sample(process, minute, changes))
        sys.stderr.write(f"{samples[-1]}\n")
        trial.deadline.hold(pause, service.child)
    return samples


def sample(process: psutil.Process, minute: float, changes: int) -> Sample:
    """Return what the process holds now, after so many changes."""
    with process.oneshot():
        times = process.cpu_times()
        return Sample(
            minute=minute,
            changes=changes,
            memory=process.memory_info().rss / _MEGABYTE,
            files=process.num_fds(),
            threads=process.num_threads(),
            processor_seconds=times.user + times.system,
        )


def start_lags(trial: Bench) -> list[tuple[float, float]]:
    """List the minute of each run's instant with the seconds from when it might begin until it did."""
    wanted = sa.select(runs.c.not_before, runs.c.started_at).where(runs.c.started_at.is_not(None))
    with trial.engine.connect() as connection:
        rows = connection.execute(wanted.where(runs.c.scheduled_for.is_not(None)).order_by(runs.c.id)).all()
    return [((row.not_before - rows[0].not_before) / 60e6, (row.started_at - row.not_before) / 1e6) for row in rows]


def describe(samples: Sequence[Sample]) -> list[str]:
    """Describe each series: its medians at the beginning and the end, its maximum, its slope after the warm-up."""
    warm = [one for one in samples if one.minute >= _WARM_MINUTES]
    last = samples[-1].minute
    lines = []
    for name in ("memory", "files", "threads"):
        series = [(one.minute, float(getattr(one, name))) for one in warm]
        lines.append(_describe(name, series, last))
    used = warm[-1].processor_seconds - warm[0].processor_seconds
    share = used / ((warm[-1].minute - warm[0].minute) * 60)
    return [*lines, f"processor: {share:.1%} of a core"]


def describe_changes(samples: Sequence[Sample]) -> list[str]:
    """Describe the memory at the end of what follows a change, every few changes."""
    memory = {one.changes: one.memory for one in samples}
    return [f"memory after {count} changes: {memory[count]:.1f}" for count in memory if count % _CHANGES_SHOWN == 0]


def describe_lags(lags: Sequence[tuple[float, float]]) -> list[str]:
    """Describe how late runs began."""
    warm = [lag for lag in lags if lag[0] >= _WARM_MINUTES]
    seconds = sorted(value for _, value in warm)
    late = seconds[int(len(seconds) * 0.99)]
    return [_describe("lag", warm, lags[-1][0]), f"lag: {len(seconds)} runs, p99 {late:.3f} s"]


def _describe(name: str, series: Sequence[tuple[float, float]], last: float) -> str:
    """Describe a series over minutes."""
    minutes, values = zip(*series, strict=True)
    early = median(value for minute, value in series if minute < _WARM_MINUTES + _CHANGE_MINUTES)
    late = median(value for minute, value in series if minute > last - _CHANGE_MINUTES)
    slope = linear_regression(minutes, values).slope * 60
    half = [(minute, value) for minute, value in series if minute > last / 2]
    later = linear_regression(*zip(*half, strict=True)).slope * 60
    return (
        f"{name}: {early:.3f} in the first {_CHANGE_MINUTES} minutes, {late:.3f} in the last, at most"
        f" {max(values):.3f}; slope {slope:+.3f} an hour, {later:+.3f} in the second half"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
