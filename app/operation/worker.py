"""A worker: it queues the runs that are due, does jobs, and keeps the metrics; what it does is in `worker_tasks`.

Every replica may run one. APScheduler only says when to read the rows (memory store, anchored triggers); the database
decides who works. What is done every few seconds is timed by the monotonic clock, since the wall clock may be set. When
it stops, it lets go of what is under way, which goes on elsewhere or later; nothing is done twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.date import DateTrigger

from app.alerts.service import transitions
from app.base.errors import StoreUnavailableError
from app.base.jobs import open_queue
from app.base.net.transfer import return_free_pages
from app.hooks.service.deliveries import Ping, ping_if_working
from app.operation.job_threads import JobThreads
from app.operation.service.self_monitor import Issue, WorkerClock
from app.operation.worker_tasks import Engine as Engine  # noqa: PLC0414 - what a worker is made of
from app.operation.worker_tasks import WorkerTasks
from app.operation.worker_tasks import untraced as untraced  # noqa: PLC0414 - as above
from app.plants.service.planting import DuePlants
from app.reports import metrics
from app.reports.metrics import SnapshotKeeper
from app.reports.service.reports import DueReports
from app.runs.service import due_checks
from app.runs.service.due_checks import DueChecks

logger = logging.getLogger("coalmine.worker")

_POLL_SECONDS = 1.0
_SYNC_SECONDS = 5
_LEAST_PAUSE = timedelta(seconds=1)
"""From one look for planted documents that are due to the next."""
_FREE_PAGES_SECONDS = 60
"""From one look for free pages to the next, which takes about a millisecond."""


class Worker:
    """Runs the engine until it is stopped."""

    def __init__(self, engine: Engine, process: metrics.ProcessMetrics, snapshot: metrics.Snapshot) -> None:
        self._engine = engine
        self._process = process
        self._metrics = SnapshotKeeper(snapshot, process.monitor, engine.store)
        self._stopping = threading.Event()
        self._scheduling = threading.Lock()
        self._now = WorkerClock(engine.clock, process.monitor)
        self._due = DueChecks(engine.store)
        self._reports = DueReports(engine.store)
        self._plants = DuePlants(engine.store)
        self._times_set = -1
        """How often the clock was set when all instants were computed last; at the start they are."""
        self._lag = 0.0
        """How late the last tick queued its run, in seconds."""
        self._next_due: datetime | None = None
        """When a check is due next, as the last tick that succeeded said."""
        self._synced_at: float | None = None
        """When the scheduler last had every check looked after, by the monotonic clock."""
        self._threads: list[threading.Thread] = []
        self._scheduler = BackgroundScheduler(timezone=UTC)
        queue = open_queue(engine.store)
        self._tasks = WorkerTasks(engine, queue, process, self._metrics, clock=self._now, stopping=self._stopping)
        self._jobs = JobThreads(
            queue,
            self._tasks.doers,
            self._tasks.places,
            clock=self._now,
            monitor=process.monitor,
            stopping=self._stopping,
        )

    def start(self) -> None:
        """Catch up once on what was missed, then work in the background."""
        self._guarded(partial(self._now.follow, self._engine.store))  # before anything is begun
        self._guarded(lambda: due_checks.defer_retention(self._engine.store, self._now()))
        self._scheduler.start()
        loops: list[tuple[str, Callable[[], None]]] = [
            ("sync", partial(self._repeat, _SYNC_SECONDS, self._sync)),
            ("metrics", partial(self._metrics.keep, _SYNC_SECONDS, self._guarded)),
            ("free-pages", partial(self._repeat, _FREE_PAGES_SECONDS, return_free_pages)),
        ]
        if self._engine.ping is not None:
            loops.append(("ping", partial(self._ping_loop, self._engine.ping)))
        self._jobs.start()
        for name, loop in loops:
            thread = threading.Thread(target=loop, name=f"coalmine-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def wake(self) -> None:
        """Say that there may be work now: a run was queued, a delivery written, a definition changed."""
        self._jobs.wake()
        self._metrics.note_definitions()

    def call_when_ended(self, notify: Callable[[], None]) -> None:
        """Call `notify` whenever this worker has ended a run or a re-scoring."""
        self._tasks.notify_ended = notify

    def stop(self, *, patience: float = 20.0) -> None:
        """Stop ticking and taking jobs, end what is under way cleanly, and give the rest back."""
        self._stopping.set()
        self._metrics.close()
        with self._scheduling:  # no job comes in behind the scheduler's back
            self._scheduler.shutdown(wait=False)
        deadline = time.monotonic() + patience
        self._jobs.stop(deadline)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def alive(self) -> bool:
        """Whether every thread of the worker is running."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads) and self._jobs.alive

    @property
    def lag(self) -> float:
        """Seconds by which the last tick was late, or for which the next one is overdue: it grows while none comes."""
        overdue = (self._now() - self._next_due).total_seconds() if self._next_due is not None else 0.0
        return max(self._lag, overdue)

    def _repeat(self, seconds: float, task: Callable[[], None]) -> None:
        """Do a task now and then every few seconds, whatever the wall clock says."""
        while not self._stopping.is_set():
            self._guarded(task)
            self._stopping.wait(seconds)

    def _guarded(self, task: Callable[[], None]) -> None:
        try:
            task()
        except StoreUnavailableError as error:
            logger.error("store_unavailable", extra={"detail": str(error)})  # noqa: TRY400 - expected, no trace
        except Exception:
            logger.exception("bug")  # the next turn of the clock tries again

    def _sync(self) -> None:
        """Follow the catalog: what is new, what is due next, missing data, what is to be told again."""
        store = self._engine.store
        self._now.follow(store)
        now = self._now()
        with self._scheduling:
            if self._stopping.is_set():
                return
            anew = self._times_set != self._now.times_set  # instants were computed by the clock as it was
            queued, overdue = self._due.follow(now, anew=anew)
            self._times_set = self._now.times_set
        self._note_queued(queued, now)
        self._queue_due()
        self._queue_plants(anew=anew)
        if self._reports.queue_due(now, anew=anew):
            self._jobs.wake()
        if due_checks.recall_work(store, now=now):
            self._jobs.wake()
        self._synced_at = time.monotonic()
        if not self._process.monitor.has(Issue.RESOURCES):  # it cannot ask: that is no missing data of the check
            began = now - self._now.steady_for
            for check_id in due_checks.without_backlog(store, overdue, now):
                self._look_after(check_id, due_checks.watch_for_no_data, store, check_id, started_at=began, now=now)
        for check_id in sorted(transitions.checks_at_tick(store)):  # a silence is over, a reminder is due
            self._look_after(check_id, transitions.at_tick, store, check_id, now=now)

    def _look_after(self, check_id: int, task: Callable[..., bool], *words: Any, **names: Any) -> None:
        try:
            if task(*words, **names):
                self._jobs.wake()
        except StoreUnavailableError:
            raise
        except Exception:
            logger.exception("bug", extra={"check": check_id})  # of this check: the others go on

    def _queue_due(self) -> None:
        """Queue the runs that are due, and let the scheduler say when the next will be."""
        with self._scheduling:
            if self._stopping.is_set():
                return
            now = self._now()
            queued = self._due.queue_due(now)
            self._next_due = following = self._due.next_due(now)
            if following is not None:  # a moment by the clock of the scheduler, which may not be that of the worker
                trigger = DateTrigger(datetime.now(UTC) + (following - now))
                self._scheduler.add_job(
                    self._guarded,
                    trigger,
                    [self._queue_due],
                    id="due",
                    replace_existing=True,
                    misfire_grace_time=None,  # late is better than never: what is due is asked of the rows
                )
        self._note_queued(queued, now)

    def _queue_plants(self, *, anew: bool = False) -> None:
        """Queue the planted documents that are due, and let the scheduler say when the next will be."""
        with self._scheduling:
            if self._stopping.is_set():
                return
            now = self._now()
            queued = self._plants.queue_due(now, anew=anew)
            following = self._plants.next_at
            if following is not None:
                trigger = DateTrigger(datetime.now(UTC) + max(following - now, _LEAST_PAUSE))
                self._scheduler.add_job(
                    self._guarded,
                    trigger,
                    [self._queue_plants],
                    id="plants",
                    replace_existing=True,
                    misfire_grace_time=None,
                )
        if queued:
            self._jobs.wake()

    def _note_queued(self, queued: Sequence[datetime], now: datetime) -> None:
        if queued:
            self._lag = (now - min(queued)).total_seconds()
            self._jobs.wake()

    def _ping_loop(self, ping: Ping) -> None:
        while self._synced_at is None and not self._stopping.wait(_POLL_SECONDS):
            pass
        self._repeat(self._engine.ping_seconds, partial(self._ping, ping))

    def _ping(self, ping: Ping) -> None:
        synced_ago = time.monotonic() - (self._synced_at or 0.0)
        ping_if_working(ping, self._engine.store, self._process.monitor, alive=self.alive, synced_ago=synced_ago)
