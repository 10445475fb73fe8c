"""Threads that do jobs: one looks for those that are due, each is done in a thread of its own.

How many of which kinds are done at a time is given; who does what, too. A job that fails is tried again after a pause.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.base.errors import StoreUnavailableError
from app.base.jobs import JobQueue
from app.base.jobs.values import Job, JobKind, Room
from app.operation.service.self_monitor import Issue, SelfMonitor

logger = logging.getLogger("coalmine.worker")

POLL_SECONDS: Final = 1.0
"""At most this long between two looks, which is how late a job of another process begins."""
BEAT_SECONDS: Final = 5.0
_LEAST_PAUSE: Final = 0.02
_LONGEST_BACKOFF: Final = 60
_SILENT_SECONDS: Final = 15.0
"""Half of what others wait before they take a process for dead."""

Do = Callable[[Job], datetime | None]
"""Does a job; gives when it is to be done again, None = it is over."""


@dataclass(slots=True, kw_only=True)
class Places:
    """How many jobs of these kinds are done at a time."""

    kinds: Collection[JobKind]
    most: int
    taken: set[int] = field(default_factory=set)
    """The jobs that are being done, by id."""

    @property
    def room(self) -> Room:
        """How many more there may be."""
        return Room(self.kinds, self.most - len(self.taken))


class JobThreads:
    """Takes jobs from a queue and does them, until it is stopped."""

    def __init__(
        self,
        queue: JobQueue,
        doers: Mapping[JobKind, Do],
        places: Sequence[Places],
        *,
        clock: Callable[[], datetime],
        monitor: SelfMonitor,
        stopping: threading.Event,
    ) -> None:
        """Do nothing yet. `stopping` ends the taking of jobs; those under way ask for it themselves."""
        self._queue = queue
        self._doers = doers
        self._places = places
        self._clock = clock
        self._monitor = monitor
        self._stopping = stopping
        self._wake = threading.Event()
        self._free = threading.Condition()
        self._unsettled: list[tuple[Job, datetime | None]] = []
        """Jobs that are done, or to be done again, as the queue could not be told."""
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Take part in the work, in the background."""
        loops = [("jobs", self._take_loop), ("heartbeat", self._beat_loop)]
        if self._queue.is_shared:
            loops.append(("listen", self._listen_loop))
        for name, loop in loops:
            thread = threading.Thread(target=loop, name=f"coalmine-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def wake(self) -> None:
        """Look for jobs now."""
        self._wake.set()

    @property
    def alive(self) -> bool:
        """Whether jobs are looked for."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    def stop(self, deadline: float) -> None:
        """Wait for what is under way until `deadline` by the monotonic clock, and give the rest back."""
        self.wake()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._free:
            self._free.wait_for(lambda: not self._under_way(), max(0.0, deadline - time.monotonic()))
        try:
            self._settle()
            self._queue.end()
        except StoreUnavailableError as error:
            logger.warning("jobs_not_given_back", extra={"detail": str(error)})

    def _under_way(self) -> int:
        return sum(len(places.taken) for places in self._places)

    def _take_loop(self) -> None:
        begun = False
        while not self._stopping.is_set():
            self._wake.clear()
            pause = POLL_SECONDS
            try:
                if not begun:
                    self._queue.begin()
                    begun = True
                self._settle()
                if not self._take():
                    pause = self._pause()
                else:
                    continue
            except StoreUnavailableError as error:
                logger.error("store_unavailable", extra={"detail": str(error)})  # noqa: TRY400 - expected, no trace
            except Exception:
                logger.exception("bug")
            self._wake.wait(pause)

    def _take(self) -> bool:
        """Begin what is due as far as there are places; False where nothing was."""
        with self._free:
            rooms = [places.room for places in self._places]
        taken = self._queue.take(self._clock(), *rooms)
        for job in taken:
            self._begin(job, next(places for places in self._places if job.kind in places.kinds))
        return bool(taken)

    def _pause(self) -> float:
        now = self._clock()
        due = self._queue.next_due(now)
        seconds = POLL_SECONDS if due is None else (due - now).total_seconds()
        return min(POLL_SECONDS, max(_LEAST_PAUSE, seconds))

    def _begin(self, job: Job, places: Places) -> None:
        with self._free:
            places.taken.add(job.id)
        try:
            threading.Thread(
                target=self._do, args=(job, places), name=f"coalmine-{job.kind}-{job.key}", daemon=True
            ).start()
        except RuntimeError:  # no more threads on this machine
            logger.exception("no_thread")
            self._end(job, places, self._clock() + timedelta(seconds=POLL_SECONDS))

    def _do(self, job: Job, places: Places) -> None:
        again: datetime | None = self._clock()
        try:
            again = self._doers[job.kind](job)
        except StoreUnavailableError as error:
            logger.error("store_unavailable", extra={"detail": str(error)})  # noqa: TRY400 - expected, no trace
            again = self._clock() + timedelta(seconds=POLL_SECONDS)
        except Exception:
            logger.exception("bug", extra={"job": f"{job.kind}:{job.key}"})
            again = self._clock() + timedelta(seconds=min(_LONGEST_BACKOFF, 2**job.attempt))
        finally:
            self._end(job, places, again)

    def _end(self, job: Job, places: Places, again: datetime | None) -> None:
        try:
            self._tell(job, again)
        except Exception:  # noqa: BLE001 - whatever it is, the job would never be done again
            with self._free:
                self._unsettled.append((job, again))
        with self._free:
            places.taken.discard(job.id)
            self._free.notify_all()
        self.wake()

    def _tell(self, job: Job, again: datetime | None) -> None:
        if again is None:
            self._queue.finish(job)
        else:
            self._queue.put_back(job, again)

    def _settle(self) -> None:
        while self._unsettled:
            self._tell(*self._unsettled[0])
            self._unsettled.pop(0)

    def _listen_loop(self) -> None:
        """Look for jobs at once when others defer them; without it they are found by the next look."""
        while not self._stopping.is_set():
            try:
                self._queue.listen(self.wake, self._stopping.is_set)
            except StoreUnavailableError:
                self._stopping.wait(BEAT_SECONDS)
            except Exception:
                logger.exception("bug")
                self._stopping.wait(BEAT_SECONDS)

    def _beat_loop(self) -> None:
        """Give signs of life for as long as jobs are done, whatever goes wrong with one of them."""
        beaten_at = time.monotonic()
        while not self._stopping.wait(BEAT_SECONDS):
            try:
                self._queue.beat()
            except StoreUnavailableError as error:
                logger.error("store_unavailable", extra={"detail": str(error)})  # noqa: TRY400 - expected, no trace
            except BaseException:  # without a sign of life every job would be given to others again and again
                logger.exception("bug")
            else:
                beaten_at = time.monotonic()
                self._monitor.clear(Issue.HEARTBEAT)
                continue
            silent = time.monotonic() - beaten_at
            if silent > _SILENT_SECONDS:
                detail = f"this process could give the database no sign of life for {silent:.0f} s; the log says why"
                self._monitor.report(Issue.HEARTBEAT, detail)
