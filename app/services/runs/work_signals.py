"""Wakes the threads of a worker for the kind of work that there is."""

import threading
from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class WorkKind(StrEnum):
    """What threads wait for."""

    RUNS = "runs"
    DELIVERIES = "deliveries"
    DIAGNOSES = "diagnoses"
    RESCORINGS = "rescorings"


EVERY_KIND: Final = frozenset(WorkKind)


class WorkSignals:
    """Counts how often each kind of work was announced; a thread waits until that is more than it knows."""

    def __init__(self) -> None:
        """Begin with nothing announced."""
        self._announced = dict.fromkeys(WorkKind, 0)
        self._conditions = {kind: threading.Condition() for kind in WorkKind}

    def announce(self, kinds: Iterable[WorkKind] = EVERY_KIND) -> None:
        """Wake all who wait for these kinds of work."""
        for kind in kinds:
            with self._conditions[kind]:
                self._announced[kind] += 1
                self._conditions[kind].notify_all()

    def wait(self, kind: WorkKind, known: int, seconds: float | None = None) -> int:
        """Wait until work was announced more often than `known` times, or for so long; gives how often."""
        with self._conditions[kind]:
            if self._announced[kind] == known:
                self._conditions[kind].wait(seconds)
            return self._announced[kind]
