"""Faults of those that two replicas on PostgreSQL speak with: the retriever and the receiver of notifications."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.accounting import Account
from tests.faults.bench import Bench, Peer
from tests.faults.faults import Fault
from tests.faults.replica_faults import replicas
from tests.faults.trials import begin_runs, conclude, time_to_end

_FAULT_SECONDS = 10.0
_HOOK_SECONDS = 30.0
_RECOVERY_SECONDS = 180.0
"""For runs to end, and for the retries of deliveries, which come up to minutes apart."""
_SOUND: Mapping[str, Any] = {"delay": 0, "flap": 0, "drip": False}


def change_retriever(mode: Mapping[str, Any], folder: Path, times: int) -> Account:
    """Let the retriever answer otherwise for a while amid runs."""
    with replicas(folder, 240 + times * (_FAULT_SECONDS + _RECOVERY_SECONDS)) as (trial, services):
        recovery: list[float] = []
        for _ in range(times):
            left = begin_runs(trial, services[0])
            trial.retriever.set_mode(**mode)
            trial.deadline.hold(_FAULT_SECONDS, *(service.child for service in services))
            recovery.append(time_to_end(trial, left, partial(trial.retriever.set_mode, **_SOUND)))
        return conclude(trial, services[0], times, recovery)


def kill_retriever(folder: Path, times: int) -> Account:
    """Kill the retriever amid runs, and start it again."""
    with replicas(folder, 240 + times * (_FAULT_SECONDS + _RECOVERY_SECONDS)) as (trial, services):
        recovery: list[float] = []
        for _ in range(times):
            left = begin_runs(trial, services[0])
            trial.retriever.child.kill()
            trial.deadline.hold(_FAULT_SECONDS, *(service.child for service in services))
            is_missing = trial.is_missing
            recovery.append(time_to_end(trial, left, partial(_start_again, trial, trial.retriever)))
            trial.set_missing(is_missing=is_missing)
        return conclude(trial, services[0], times, recovery)


def kill_receiver(folder: Path, times: int) -> Account:
    """Kill the receiver while alerts open and resolve, and start it again. Recovery is the time to send what waits."""
    with replicas(folder, 240 + times * (_HOOK_SECONDS + _RECOVERY_SECONDS)) as (trial, services):
        recovery: list[float] = []
        for _ in range(times):
            trial.receiver.child.kill()
            left = begin_runs(trial, services[0])
            trial.wait_ended(left)
            trial.deadline.until("a notification waits", partial(trial.pending_deliveries, left))
            trial.deadline.hold(_HOOK_SECONDS, *(service.child for service in services))
            recovery.append(time_to_end(trial, left, partial(_deliver, trial, left)))
        return conclude(trial, services[0], times, recovery)


def _start_again(trial: Bench, peer: Peer) -> None:
    peer.child.start()
    trial.deadline.until(f"{peer.child.name} listens", peer.is_ready)


def _deliver(trial: Bench, until: int) -> None:
    _start_again(trial, trial.receiver)
    trial.deadline.until("what waited is sent", lambda: not trial.pending_deliveries(until))


def _fault(name: str, what: str, attempt: Callable[[Path, int], Account]) -> Fault:
    return Fault(name=name, title=f"PostgreSQL, 2 replicas: {what}", long=5, attempt=attempt)


FAULTS = [
    _fault("retriever-dead", "retriever killed, 10 s", kill_retriever),
    _fault("retriever-slow", "retriever answers after 2 s, 10 s", partial(change_retriever, {"delay": 2})),
    _fault(
        "retriever-flapping",
        "retriever resets connections every other second, 10 s",
        partial(change_retriever, {"flap": 1}),
    ),
    _fault("retriever-dripping", "retriever sends a byte each 0.2 s, 10 s", partial(change_retriever, {"drip": True})),
    _fault("hook-dead", "receiver killed, 30 s", kill_receiver),
]
