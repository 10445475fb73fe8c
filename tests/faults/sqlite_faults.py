"""Faults of the one process that works on a SQLite file, and of that file."""

import random
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.faults.accounting import Account
from tests.faults.bench import Bench, bench
from tests.faults.faults import Fault
from tests.faults.trials import START_SECONDS, begin_runs, conclude, restart, time_to_end

_LOCKED_SECONDS = 20.0
_FULL_SECONDS = 10.0
_TEXT_CHARACTERS = 2_000
"""Of each hit, unlike any other, so that the file grows with every answer."""


def kill_at_random_moments(folder: Path, times: int) -> Account:
    """Kill the service some time after each start, whatever it is at, and start it again."""
    moments = random.Random(times)  # noqa: S311 - the same moments every time
    with bench(folder, 120 + times * START_SECONDS) as trial:
        recovery: list[float] = []
        service = trial.serve()
        for number in range(times):
            trial.set_missing(is_missing=number % 3 == 0)
            trial.ask_for_runs(service)
            trial.deadline.hold(moments.uniform(0.0, 2.5), service.child)
            service.child.kill()
            left = trial.newest_run()
            recovery.append(time_to_end(trial, left, lambda: restart(trial, service)))
        return conclude(trial, service, times, recovery)


def lock_by_another_process(folder: Path, times: int) -> Account:
    """Hold the lock for writing for longer than anybody waits for it, while runs are under way."""
    with bench(folder, 120 + times * (_LOCKED_SECONDS + START_SECONDS)) as trial:
        recovery: list[float] = []
        service = trial.serve()
        for _ in range(times):
            left = begin_runs(trial, service)
            with closing(sqlite3.connect(_file(trial), isolation_level=None, timeout=30)) as other:
                other.execute("BEGIN IMMEDIATE")
                trial.deadline.hold(_LOCKED_SECONDS, service.child)
                other.execute("ROLLBACK")
            recovery.append(time_to_end(trial, left))
        return conclude(trial, service, times, recovery)


def fill_the_disk(folder: Path, times: int) -> Account:
    """Let no file of the service grow any more, while runs are under way, and then again."""
    with bench(folder, 120 + times * (_FULL_SECONDS + START_SECONDS)) as trial:
        trial.retriever.set_mode(pad=_TEXT_CHARACTERS)
        recovery: list[float] = []
        service = trial.serve()
        for _ in range(times):
            left = begin_runs(trial, service)
            largest = max(file.stat().st_size for file in trial.folder.glob("coalmine.db*"))
            _, hard = resource.prlimit(service.child.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(service.child.pid, resource.RLIMIT_FSIZE, (largest, hard))
            try:
                trial.deadline.until(
                    "the service says that it cannot write",
                    lambda: 'coalmine_self_issue{issue="store_write"} 1.0' in service.metrics(),
                    at_most=START_SECONDS,
                )
                trial.deadline.hold(_FULL_SECONDS, service.child)
            finally:
                resource.prlimit(service.child.pid, resource.RLIMIT_FSIZE, (hard, hard))
            recovery.append(time_to_end(trial, left))
        return conclude(trial, service, times, recovery)


def take_the_file_away(folder: Path, times: int) -> Account:
    """Move the file away while runs are under way; put it back and start again, as the service asks for."""
    with bench(folder, 120 + times * 2 * START_SECONDS) as trial:
        recovery: list[float] = []
        service = trial.serve()
        away = trial.folder / "away"
        away.mkdir()
        for _ in range(times):
            left = begin_runs(trial, service)
            names = [file.name for file in (_file(trial), *trial.folder.glob("coalmine.db-*"))]
            for name in names:
                (trial.folder / name).rename(away / name)
            trial.deadline.until(
                "the service says that it is not ready", lambda: not service.answers("/readyz"), at_most=START_SECONDS
            )
            assert service.answers("/livez"), "a restart alone would not help"
            trial.deadline.until(
                "the service says what to do",
                lambda: "is gone while it was open; put it back and restart" in service.child.output,
                at_most=START_SECONDS,
            )
            assert not _file(trial).exists(), "nothing was written to a new file in its place"
            service.child.end(trial.deadline)
            for name in names:
                if (away / name).exists():  # the last to close a database takes its log in
                    (away / name).rename(trial.folder / name)
            recovery.append(time_to_end(trial, left, lambda: restart(trial, service)))
        return conclude(trial, service, times, recovery)


def _file(trial: Bench) -> Path:
    return trial.folder / "coalmine.db"


FAULTS = [
    Fault(
        name="sqlite-kill",
        title="SQLite: `kill -9` at random moments",
        long=200,
        short=3,
        attempt=kill_at_random_moments,
    ),
    Fault(
        name="sqlite-locked", title="SQLite: locked by another process, 20 s", long=5, attempt=lock_by_another_process
    ),
    Fault(name="sqlite-full", title="SQLite: disk full (file-size limit), 10 s", long=5, attempt=fill_the_disk),
    Fault(name="sqlite-gone", title="SQLite: file moved away and put back", long=5, attempt=take_the_file_away),
]
