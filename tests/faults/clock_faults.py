"""Faults of clocks: one of two replicas has another time than the database. Needs Debian's libfaketime."""

from functools import partial
from pathlib import Path

from tests.faults.accounting import Account
from tests.faults.bench import bench
from tests.faults.faults import Fault
from tests.faults.harness import FaultError
from tests.faults.postgres import postgres
from tests.faults.replica_faults import LOAD
from tests.faults.trials import begin_runs, conclude, time_to_end

_SKEWED_SECONDS = 60.0
"""Two intervals of the checks."""
_RECOVERY_SECONDS = 60.0


def skew_clock(offset: str, folder: Path, times: int) -> Account:
    """Run one of two replicas by a clock that is so far off, and ask each in turn. Recovery is the time of the runs."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        raise FaultError("libfaketime is not installed: apt-get install libfaketime")
    seconds = 240 + times * (_SKEWED_SECONDS + _RECOVERY_SECONDS)
    skewed = {"LD_PRELOAD": str(library), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    with postgres(seconds) as server, bench(folder, seconds, LOAD, database_url=server.url) as trial:
        services = [trial.serve("skewed", ready=True, **skewed), trial.serve("sound")]
        recovery: list[float] = []
        for number in range(times):
            left = begin_runs(trial, services[number % 2])
            recovery.append(time_to_end(trial, left))
            trial.deadline.hold(_SKEWED_SECONDS, *(service.child for service in services))
        return conclude(trial, services[1], times, recovery)


FAULTS = [
    Fault(
        name=f"clock-{name}",
        title=f"PostgreSQL, 2 replicas: the clock of one 60 s {name} (time of a run)",
        long=5,
        attempt=partial(skew_clock, offset),
    )
    for name, offset in (("ahead", "+60s"), ("behind", "-60s"))
]
