"""What trials have in common: runs begun before a fault, the time until they end, and the account at the end."""

import time
from collections.abc import Callable

from tests.faults.accounting import Account, take_account
from tests.faults.bench import Bench, Service

START_SECONDS = 60.0
"""For a process to start, and end what it finds, on a busy machine."""


def begin_runs(trial: Bench, service: Service) -> int:
    """Have runs under way whose alerts differ from those before; gives the newest."""
    trial.set_missing(is_missing=not trial.is_missing)
    before = trial.retriever.log.stat().st_size
    trial.ask_for_runs(service)
    trial.deadline.until("a run is under way", trial.started_runs)
    trial.deadline.until("its probes arrive", lambda: trial.retriever.log.stat().st_size > before)
    return trial.newest_run()


def time_to_end(trial: Bench, left: int, begin: Callable[[], object] = lambda: None) -> float:
    """Do what ends the fault, and say how long it took from there to end all runs up to this one."""
    began = time.monotonic()
    begin()
    trial.wait_ended(left)
    return time.monotonic() - began


def time_until_ended(trial: Bench, left: int, at_most: float) -> float | None:
    """Say how long it took to end all runs up to this one; None = longer than that."""
    began = time.monotonic()

    def is_over() -> bool:
        return not trial.open_runs(left) or time.monotonic() - began > at_most

    trial.deadline.until("the runs have ended, or the time is over", is_over)
    return None if trial.open_runs(left) else time.monotonic() - began


def restart(trial: Bench, service: Service) -> None:
    """Start a service again, and wait until it is ready."""
    service.child.start()
    trial.wait_ready(service)


def conclude(trial: Bench, service: Service, times: int, recovery: list[float]) -> Account:
    """Let the retriever find everything again, run once more, and take account."""
    trial.set_missing(is_missing=False)
    trial.ask_for_runs(service)
    return take_account(trial, service, trial.settle(), faults=times, recovery=recovery)
