"""Faults of replicas that share a PostgreSQL: one is killed, frozen, replaced, or starts on an empty database."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from tests.faults.accounting import Account
from tests.faults.bench import Bench, Load, Service, bench
from tests.faults.faults import Fault
from tests.faults.postgres import postgres
from tests.faults.trials import START_SECONDS, begin_runs, conclude, restart, time_to_end, time_until_ended

LOAD = Load(checks=2, canaries=400, requests_per_second=150, every="30s")
"""Runs of four shards, which last some seconds."""
_TAKE_OVER_SECONDS = 90.0
"""For others to see that a process is gone, and to end what it was at."""
_LOOK_SECONDS = 0.5
_RUN_SECONDS = 60.0
"""In which a run without a fault has ended, or it hangs."""

Choose = Callable[[Bench, Sequence[Service]], Service]


@contextmanager
def replicas(folder: Path, seconds: float, count: int = 2, load: Load = LOAD) -> Iterator[tuple[Bench, list[Service]]]:
    """Give a trial with so many services on one PostgreSQL."""
    with postgres(seconds) as server, bench(folder, seconds, load, database_url=server.url) as trial:
        services = [trial.serve(f"replica-{number}", ready=False) for number in range(count)]
        for service in services:
            trial.wait_ready(service)
        yield trial, services


def _busiest(trial: Bench, services: Sequence[Service]) -> Service:
    """Choose the one that uses most of the processor now."""
    before = [_processor_seconds(service) for service in services]
    trial.deadline.hold(_LOOK_SECONDS, *(service.child for service in services))
    used = [_processor_seconds(service) - sooner for service, sooner in zip(services, before, strict=True)]
    return services[used.index(max(used))]


def _processor_seconds(service: Service) -> float:
    times = psutil.Process(service.child.pid).cpu_times()
    return float(times.user + times.system)


def _queuer(_trial: Bench, services: Sequence[Service]) -> Service:
    """Choose the one that is asked for runs."""
    return services[0]


def kill_replica(choose: Choose, folder: Path, times: int) -> Account:
    """Kill one of two amid a run, wait until the other has ended all, and start it again."""
    with replicas(folder, 240 + times * (_TAKE_OVER_SECONDS + START_SECONDS)) as (trial, services):
        recovery: list[float] = []
        for _ in range(times):
            left = begin_runs(trial, services[0])
            victim = choose(trial, services)
            recovery.append(time_to_end(trial, left, victim.child.kill))
            restart(trial, victim)
        return conclude(trial, services[0], times, recovery)


def kill_each_role(folder: Path, times: int) -> Account:
    """Kill in turn one that serves and works, one that only serves, one that only works; the others go on."""
    seconds = 240 + times * (_TAKE_OVER_SECONDS + START_SECONDS)
    with postgres(seconds) as server, bench(folder, seconds, LOAD, database_url=server.url) as trial:
        both, pages = trial.serve("serve"), trial.serve("serve-no-worker", "--no-worker")
        worker = trial.work("work")
        recovery: list[float] = []
        for number in range(times):
            victim = (both.child, pages.child, worker)[number % 3]
            left = begin_runs(trial, pages)
            recovery.append(time_to_end(trial, left, victim.kill))
            answering = pages if victim is both.child else both
            assert answering.answers("/readyz"), "nobody answers"
            victim.start()
            for service in (both, pages):
                trial.wait_ready(service)
        return conclude(trial, both, times, recovery)


def freeze_replica(seconds: float, folder: Path, times: int) -> Account:
    """Stop one of two in its tracks amid a run, and let it go on when others may long have done its work."""
    with replicas(folder, 240 + times * (seconds + _TAKE_OVER_SECONDS)) as (trial, services):
        recovery: list[float] = []
        for _ in range(times):
            left = begin_runs(trial, services[0])
            victim = _busiest(trial, services)
            began = time.monotonic()
            victim.child.freeze()
            living = [service.child for service in services]
            ended_after = time_until_ended(trial, left, seconds)
            trial.deadline.hold(seconds - (time.monotonic() - began), *living)
            victim.child.thaw()
            trial.wait_ended(left)
            recovery.append(ended_after if ended_after is not None else time.monotonic() - began)
            trial.wait_ready(victim)
        return conclude(trial, services[0], times, recovery)


def replace_one_after_the_other(folder: Path, times: int) -> Account:
    """End each of two in turn as an upgrade does, amid runs, and start it anew."""
    with replicas(folder, 240 + times * 2 * START_SECONDS) as (trial, services):
        recovery: list[float] = []
        for number in range(times):
            ending, staying = services[number % 2], services[(number + 1) % 2]
            left = begin_runs(trial, ending)
            began = time.monotonic()
            assert ending.child.end(trial.deadline) == 0, ending.child.output[-3000:]
            assert staying.answers("/readyz"), "nobody answers"
            restart(trial, ending)
            trial.wait_ended(left)
            recovery.append(time.monotonic() - began)
        return conclude(trial, services[0], times, recovery)


def run_in_a_row(count: int, folder: Path, times: int) -> Account:
    """Ask for one run after another, of one replica after another; none may hang. Recovery is the time of a run."""
    load = Load(checks=1, canaries=400, requests_per_second=None, every="31d")
    with replicas(folder, 240 + times * _RUN_SECONDS, count, load) as (trial, services):
        seconds: list[float] = []
        for number in range(times):
            if number % 20 == 0:
                trial.set_missing(is_missing=not trial.is_missing)
            before = trial.newest_run()
            began = time.monotonic()
            trial.ask_for_runs(services[number % count])
            trial.deadline.until("a run is queued", partial(_is_newer, trial, before), at_most=_RUN_SECONDS)
            queued = trial.newest_run()
            trial.deadline.until("it has ended", partial(_has_ended, trial, queued), at_most=_RUN_SECONDS)
            seconds.append(time.monotonic() - began)
        return conclude(trial, services[0], times, seconds)


def _is_newer(trial: Bench, before: int) -> bool:
    return trial.newest_run() > before


def _has_ended(trial: Bench, run_id: int) -> bool:
    return not trial.open_runs(run_id)


def start_on_an_empty_database(folder: Path, times: int) -> Account:
    """Start two at once where there are no tables; each may make them, once. Recovery is the time until both answer."""
    total = Account()
    for number in range(times):
        seconds = 240 + _TAKE_OVER_SECONDS
        with (
            postgres(seconds) as server,
            bench(folder / str(number), seconds, LOAD, database_url=server.url, migrated=False) as trial,
        ):
            _assert_refused(trial)
            began = time.monotonic()
            allowed = {"COALMINE_AUTO_MIGRATE": "true"}
            services = [trial.serve(f"replica-{one}", ready=False, **allowed) for one in range(2)]
            for service in services:
                trial.wait_ready(service)
            recovery = [time.monotonic() - began]
            trial.count_endings()
            trial.apply()
            for service in services:
                trial.ask_for_runs(service)
            total += conclude(trial, services[1], 1, recovery)
    return total


def _assert_refused(trial: Bench) -> None:
    """Start a worker that may not make the tables: it ends, and says what to do."""
    refused = trial.work("unmigrated")
    trial.deadline.until("a worker is refused", lambda: not refused.is_alive)
    assert "coalmine migrate" in refused.output, refused.output


FAULTS = [
    Fault(
        name="replica-kill-busiest",
        title="PostgreSQL, 2 replicas: `kill -9` of the busiest",
        long=20,
        attempt=partial(kill_replica, _busiest),
    ),
    Fault(
        name="replica-kill-queuer",
        title="PostgreSQL, 2 replicas: `kill -9` of the one that queued the run",
        long=20,
        attempt=partial(kill_replica, _queuer),
    ),
    Fault(
        name="replica-roles",
        title="PostgreSQL, `serve`, `serve --no-worker` and `work`: `kill -9` of each in turn",
        long=15,
        short=3,
        attempt=kill_each_role,
    ),
    *(
        Fault(
            name=f"replica-frozen-{seconds}",
            title=f"PostgreSQL, 2 replicas: one frozen {seconds} s and thawed",
            long=5,
            attempt=partial(freeze_replica, seconds),
        )
        for seconds in (20, 60)
    ),
    Fault(
        name="replica-upgrade",
        title="PostgreSQL, 2 replicas: each ended and started anew under load",
        long=20,
        short=2,
        attempt=replace_one_after_the_other,
    ),
    Fault(
        name="replica-unmigrated",
        title="PostgreSQL, 2 replicas started at once on an empty database",
        long=5,
        attempt=start_on_an_empty_database,
    ),
    *(
        Fault(
            name=f"replica-row-{count}",
            title=f"PostgreSQL, {count} replicas: runs in a row (their time)",
            long=300,
            short=3,
            attempt=partial(run_in_a_row, count),
        )
        for count in (2, 3)
    ),
]
