"""Faults of the PostgreSQL that two replicas share."""

from functools import partial
from pathlib import Path

from tests.faults.accounting import Account
from tests.faults.bench import Load, bench
from tests.faults.faults import Fault
from tests.faults.postgres import postgres
from tests.faults.replica_faults import LOAD
from tests.faults.trials import START_SECONDS, begin_runs, conclude, time_to_end

_RECOVERY_SECONDS = 90.0
_FULL_SECONDS = 10.0
_BULKY = Load(checks=1, canaries=400, requests_per_second=150, every="30s")
_TEXT_CHARACTERS = 400
"""Of each hit, unlike any other, so that tables grow with every answer."""


def restart_postgres(folder: Path, times: int) -> Account:
    """End PostgreSQL at once amid runs, and start it again."""
    seconds = 240 + times * (_RECOVERY_SECONDS + START_SECONDS)
    with postgres(seconds) as server, bench(folder, seconds, LOAD, database_url=server.url) as trial:
        services = [trial.serve(f"replica-{number}") for number in range(2)]
        recovery: list[float] = []
        for _ in range(times):
            left = begin_runs(trial, services[0])
            server.restart_at_once()
            recovery.append(time_to_end(trial, left))
        return conclude(trial, services[0], times, recovery)


def freeze_postgres(frozen_seconds: float, folder: Path, times: int) -> Account:
    """Stop all of PostgreSQL in its tracks amid runs, and let it go on."""
    seconds = 240 + times * (frozen_seconds + _RECOVERY_SECONDS)
    with postgres(seconds) as server, bench(folder, seconds, LOAD, database_url=server.url) as trial:
        services = [trial.serve(f"replica-{number}") for number in range(2)]
        recovery: list[float] = []
        for _ in range(times):
            left = begin_runs(trial, services[0])
            server.freeze()
            try:
                trial.deadline.hold(frozen_seconds, *(service.child for service in services))
            finally:
                server.thaw()
            recovery.append(time_to_end(trial, left))
        return conclude(trial, services[0], times, recovery)


def fill_the_disk(small: str, folder: Path, times: int) -> Account:
    """Fill the disk of PostgreSQL amid runs until a replica says that it cannot write, and make room again."""
    seconds = 240 + times * (_FULL_SECONDS + _RECOVERY_SECONDS + START_SECONDS)
    with postgres(seconds, small) as server, bench(folder, seconds, _BULKY, database_url=server.url) as trial:
        assert server.disk is not None
        trial.retriever.set_mode(pad=_TEXT_CHARACTERS)
        services = [trial.serve(f"replica-{number}") for number in range(2)]
        recovery: list[float] = []
        for _ in range(times):
            left = begin_runs(trial, services[0])
            server.disk.fill()
            trial.deadline.until(
                "a replica says that it cannot write",
                lambda: any('coalmine_self_issue{issue="store_write"} 1.0' in each.metrics() for each in services),
                at_most=_RECOVERY_SECONDS,
            )
            trial.deadline.hold(_FULL_SECONDS, *(service.child for service in services))
            recovery.append(time_to_end(trial, left, server.free_disk))
        return conclude(trial, services[0], times, recovery)


FAULTS = [
    Fault(
        name="postgres-restart", title="PostgreSQL, 2 replicas: restarted at once", long=20, attempt=restart_postgres
    ),
    *(
        Fault(
            name=f"postgres-frozen-{seconds}",
            title=f"PostgreSQL, 2 replicas: frozen {seconds} s",
            long=5,
            attempt=partial(freeze_postgres, seconds),
        )
        for seconds in (20, 60)
    ),
    *(
        Fault(
            name=f"postgres-full-{name}",
            title=f"PostgreSQL, 2 replicas: {what}, 10 s",
            long=5,
            attempt=partial(fill_the_disk, small),
        )
        for name, what, small in (
            ("tables", "disk of its tables full", "base"),
            ("log", "disk of its tables and its log full", ""),
        )
    ),
]
