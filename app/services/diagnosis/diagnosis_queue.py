"""Queue of runs to be diagnosed, so that no run waits for a diagnosis.

Bounded in number and in time: a run that would wait too long has its notifications sent at once without causes, and
its canaries are diagnosed after a later run. One diagnosis at a time per retriever.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Final

from app.domain.errors import StoreUnavailableError
from app.domain.probing.retrievers import Probe
from app.services.diagnosis import diagnoses
from app.services.runs.plans import Planner
from app.services.runs.runs import EndedRun

logger = logging.getLogger("coalmine.diagnosis")

MOST_WAITING: Final = 32
"""Runs."""
_LEAST_SECONDS = 5.0
"""Least time for questions that suffice for a cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    ended: EndedRun
    since: datetime


@dataclass(slots=True, kw_only=True)
class Diagnoses:
    """Runs that wait for a diagnosis, shared by the worker's threads."""

    planner: Planner
    probe: Probe
    clock: Callable[[], datetime]
    stopping: Callable[[], bool] = lambda: False
    threads: int = 1
    """How many call `work_once`."""
    most: int = MOST_WAITING
    _queue: list[_Waiting] = field(default_factory=list)
    _at_work: set[str] = field(default_factory=set)
    """Retrievers."""
    _lasted: dict[str, float] = field(default_factory=dict)
    """How many seconds the last diagnosis took, by retriever."""
    _lock: Lock = field(default_factory=Lock)

    def add(self, ended: EndedRun) -> None:
        """Queue a run that just ended, or release its deliveries where the wait would be too long."""
        try:
            if not diagnoses.needs_diagnosis(self.planner.store, ended) or self._queued(ended):
                return
        except StoreUnavailableError:
            raise
        except Exception:
            logger.exception("bug", extra={"run": ended.id, "check": ended.check})
        self._let_go(ended)

    def work_once(self) -> bool:
        """Diagnose one queued run, or release its deliveries; False where there is none.

        Its deliveries are released even after an error. Raises StoreUnavailableError: then they go when due.
        """
        taken = self._take()
        if taken is None:
            return False
        ended, seconds = taken
        if seconds < _LEAST_SECONDS:
            self._let_go(ended)
            return True
        began = self.clock()
        try:
            outcome = diagnoses.after_run(
                self.planner, self.probe, ended, clock=self.clock, stopping=self.stopping, seconds=seconds
            )
            causes = dict(Counter(outcome.causes)) if outcome is not None else {}
            logger.info("diagnosis_ended", extra={"run": ended.id, "check": ended.check, "causes": causes})
        except StoreUnavailableError:
            raise
        except Exception:
            logger.exception("bug", extra={"run": ended.id, "check": ended.check})
            diagnoses.release(self.planner.store, ended.id, now=self.clock())
        finally:
            with self._lock:
                self._at_work.discard(ended.retriever)
                self._lasted[ended.retriever] = (self.clock() - began).total_seconds()
        return True

    def close(self) -> None:
        """Release the deliveries of all queued runs."""
        with self._lock:
            left, self._queue[:] = list(self._queue), []
        for one in left:
            diagnoses.release(self.planner.store, one.ended.id, now=self.clock())

    def _queued(self, ended: EndedRun) -> bool:
        with self._lock:
            is_late = self._wait(ended.retriever) + _LEAST_SECONDS > diagnoses.SECONDS
            if self.stopping() or is_late or len(self._queue) >= self.most:
                return False
            self._queue.append(_Waiting(ended=ended, since=self.clock()))
            return True

    def _wait(self, retriever: str) -> float:
        """Return the expected wait in seconds of one more run, by how long the last diagnoses took."""
        ahead = [*self._at_work, *(one.ended.retriever for one in self._queue)]
        lasted = [self._lasted.get(name, 0.0) for name in ahead]
        of_it = [self._lasted.get(retriever, 0.0) for name in ahead if name == retriever]
        return max(sum(lasted) / self.threads, sum(of_it))

    def _take(self) -> tuple[EndedRun, float] | None:
        """Take a run with its remaining seconds: one that waited too long, else the next with an idle retriever."""
        with self._lock:
            now = self.clock()
            left = [diagnoses.SECONDS - max(0.0, (now - one.since).total_seconds()) for one in self._queue]
            late = next((place for place, seconds in enumerate(left) if seconds < _LEAST_SECONDS), None)
            if late is not None:
                return self._queue.pop(late).ended, left[late]
            for place, one in enumerate(self._queue):
                if one.ended.retriever not in self._at_work:
                    self._at_work.add(one.ended.retriever)
                    return self._queue.pop(place).ended, left[place]
            return None

    def _let_go(self, ended: EndedRun) -> None:
        released = diagnoses.release(self.planner.store, ended.id, now=self.clock())
        if released:
            logger.warning("news_without_causes", extra={"run": ended.id, "check": ended.check, "released": released})
