"""Faults of clocks: a process has another time than the database, or its zone changes to and from summer time.

They need Debian's libfaketime. Waits are told apart from the time of day: what counts seconds is not faked. It slows a
process down, whatever time it shows: a skewed clock is to be compared with one that is right and faked.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from app.base.db.engine import from_us
from app.catalog.tables import definitions
from app.records.tables import runs
from tests.faults.accounting import Account
from tests.faults.bench import Bench, Load, bench
from tests.faults.faults import Fault
from tests.faults.harness import FaultError
from tests.faults.postgres import postgres
from tests.faults.replica_faults import LOAD
from tests.faults.trials import begin_runs, conclude, time_to_end

_SKEWED_SECONDS = 60.0
"""Two intervals of the checks."""
_RECOVERY_SECONDS = 60.0
_BEFORE: Final = timedelta(seconds=40)
"""How long before an instant a service starts, so that it is up by then."""
_AFTER_SECONDS = 20.0
_ZONE: Final = "Europe/Berlin"
_AT_HALF_PAST_TWO: Final = Load(
    checks=2,
    canaries=20,
    schedules=({"cron": "30 2 * * *", "timezone": _ZONE}, {"cron": "*/30 * * * *", "timezone": _ZONE}),
)
_SPRING: Final = datetime(2027, 3, 28, 1, tzinfo=UTC)
"""When clocks of the zone go from 02:00 to 03:00: half past two comes an hour later."""
_AUTUMN: Final = datetime(2027, 10, 31, 1, tzinfo=UTC)
"""When they go from 03:00 to 02:00: half past two is that of summer time, and comes once."""
_HALF: Final = timedelta(minutes=30)
_DUE_AT_HALF_PAST_TWO: Final = {_SPRING: {_SPRING + _HALF}, _AUTUMN: {_AUTUMN - _HALF}}


def faked_clock(time: str) -> dict[str, str]:
    """Return the environment of a process whose clock shows this time, as libfaketime writes it."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        raise FaultError("libfaketime is not installed: apt-get install libfaketime")
    only_time_of_day = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1", "TZ": "UTC"}
    return {"LD_PRELOAD": str(library), "FAKETIME": time, **only_time_of_day}


def skew_clock(offset: str | None, folder: Path, times: int) -> Account:
    """Run one of two replicas by a clock that is so far off, and ask each in turn. Recovery is the time of the runs.

    None = by the right clock, for comparison.
    """
    seconds = 240 + times * (_SKEWED_SECONDS + _RECOVERY_SECONDS)
    skewed = {} if offset is None else faked_clock(offset)
    with postgres(seconds) as server, bench(folder, seconds, LOAD, database_url=server.url) as trial:
        services = [trial.serve("skewed", ready=True, **skewed), trial.serve("sound")]
        trial.settle()  # what had been due before they started
        recovery: list[float] = []
        for number in range(times):
            left = begin_runs(trial, services[number % 2])
            recovery.append(time_to_end(trial, left))
            trial.deadline.hold(_SKEWED_SECONDS, *(service.child for service in services))
        return conclude(trial, services[1], times, recovery)


def change_to_and_from_summer_time(folder: Path, times: int) -> Account:
    """Run over half an hour before, at, and half an hour after the change, in spring and autumn, by the clock then.

    The service is started anew for each of the three instants. A run is due at each, and those of half past two where
    the day has one. Raises FaultError where others came.
    """
    total = Account()
    for number in range(times):
        for change in (_SPRING, _AUTUMN):
            total += _change(change, folder / f"{number}-{change.month}")
    return total


def _change(change: datetime, folder: Path) -> Account:
    with bench(folder, 600, _AT_HALF_PAST_TWO) as trial:
        came: dict[str, set[datetime]] = {slug: set() for slug in trial.load.slugs}
        instants = (change - _HALF, change, change + _HALF)
        service = trial.serve(ready=False, **faked_clock(_shown(instants[0] - _BEFORE)))
        for instant in instants:
            if not service.child.is_alive:
                service.child.environment = {**service.child.environment, **faked_clock(_shown(instant - _BEFORE))}
                service.child.start()
            trial.wait_ready(service)
            trial.deadline.until(f"the run of {instant} has begun", partial(_has_begun, trial, instant))
            trial.deadline.hold(_AFTER_SECONDS, service.child)
            for slug, due in _instants(trial):
                if due > instant - _BEFORE:
                    came[slug].add(due)
            trial.wait_ended(trial.newest_run())
            if instant is not instants[-1]:
                service.child.end(trial.deadline)
        at_half_past_two, each = (came[slug] for slug in trial.load.slugs)
        if (at_half_past_two, each) != (_DUE_AT_HALF_PAST_TWO[change], set(instants)):
            raise FaultError(f"{change}: half past two was at {at_half_past_two}; each half hour at {each}")
        return conclude(trial, service, 1, [])


def _shown(moment: datetime) -> str:
    return f"@{moment:%Y-%m-%d %H:%M:%S}"


def _has_begun(trial: Bench, instant: datetime) -> bool:
    return any(due == instant for _, due in _instants(trial))


def _instants(trial: Bench) -> Iterator[tuple[str, datetime]]:
    """Yield the check and instant of each scheduled run."""
    joined = runs.join(definitions, definitions.c.id == runs.c.check_id)
    wanted = sa.select(definitions.c.slug, runs.c.scheduled_for).select_from(joined)
    with trial.engine.connect() as connection:
        rows = connection.execute(wanted.where(runs.c.trigger == "schedule")).all()
    return ((row.slug, from_us(row.scheduled_for)) for row in rows)


FAULTS = [
    *(
        Fault(
            name=f"clock-{name}",
            title=f"PostgreSQL, 2 replicas: the clock of one {what} (time of a run)",
            long=5,
            attempt=partial(skew_clock, offset),
        )
        for name, what, offset in (
            ("right", "right, for comparison", None),
            ("faked", "right, but read through libfaketime, for comparison", "+0s"),
            ("ahead", "60 s ahead", "+60s"),
            ("behind", "60 s behind", "-60s"),
        )
    ),
    Fault(
        name="clock-summer-time",
        title="SQLite: a change to and one from summer time",
        long=5,
        attempt=change_to_and_from_summer_time,
    ),
]
