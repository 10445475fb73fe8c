"""Threads of a worker: ticks, runs, diagnoses, deliveries, the metrics snapshot; what each does is in worker_tasks.

Every replica may run one. APScheduler only says when to read the rows (memory store, anchored triggers); the database
decides who works. What is done every few seconds is timed by the monotonic clock, since the wall clock may be set.
Stopping lets go of what is under way so that it goes on elsewhere or later, nothing twice.
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

from app import metrics
from app.domain.errors import StoreUnavailableError
from app.metrics.snapshot_keeper import SnapshotKeeper
from app.services.alerts import transitions
from app.services.delivery.outward_ping import Ping, ping_if_working
from app.services.delivery.sender_threads import DeliveryThreads
from app.services.history import retention
from app.services.runs import abandoned_work, scheduling
from app.services.runs.due_checks import DueChecks
from app.services.runs.heartbeat import keep_leases
from app.services.runs.work_queue import find_work
from app.services.runs.work_signals import WorkKind, WorkSignals
from app.services.self_monitor import Issue
from app.services.worker_clock import WorkerClock
from app.worker_tasks import LEASE, WorkerTasks
from app.worker_tasks import Engine as Engine  # noqa: PLC0414 - what a worker is made of
from app.worker_tasks import untraced as untraced  # noqa: PLC0414 - as above

logger = logging.getLogger("coalmine.worker")

_POLL_SECONDS = 1.0
_LEAST_POLL_SECONDS = 0.2
"""At most this long between two polls, which is how late a run of another replica begins, and at least."""
_SYNC_SECONDS = 5
_RETENTION_SECONDS = 600


class Worker:
    """Runs the engine until it is stopped."""

    def __init__(self, engine: Engine, process: metrics.ProcessMetrics, snapshot: metrics.Snapshot) -> None:
        self._engine = engine
        self._process = process
        self._metrics = SnapshotKeeper(snapshot, process.monitor, engine.store)
        self._stopping = threading.Event()
        self._next_run_in: timedelta | None = None
        """After the last poll, until the next run may begin."""
        self._scheduling = threading.Lock()
        self._signals = WorkSignals()
        self._now = WorkerClock(engine.clock, process.monitor)
        self._due = DueChecks(engine.store)
        self._times_set = -1
        """How often the clock was set when all instants were computed last; at the start they are."""
        self._synced_at: float | None = None
        """When the scheduler last had every check looked after, by the monotonic clock."""
        self._threads: list[threading.Thread] = []
        self._scheduler = BackgroundScheduler(timezone=UTC)
        self._tasks = WorkerTasks(
            engine, process, self._metrics, clock=self._now, signals=self._signals, stopping=self._stopping
        )
        self._senders = DeliveryThreads(self._delivery_loop, engine.send, most=engine.delivery_threads)

    def start(self) -> None:
        """Catch up once on what was missed, then work in the background."""
        self._guarded(partial(self._now.follow, self._engine.store))  # before anything is claimed
        self._now()
        if self._engine.is_alone:
            self._guarded(self._release_abandoned)
        self._scheduler.start()
        loops: list[tuple[str, Callable[[], None]]] = [
            ("sync", partial(self._repeat, _SYNC_SECONDS, self._sync)),
            ("metrics", partial(self._metrics.keep, _SYNC_SECONDS, self._guarded)),
            ("queue", self._poll_loop),
            ("retention", self._retention_loop),
            ("heartbeat", self._heartbeat),
            ("rescoring", self._rescoring_loop),
        ]
        owners = enumerate(self._tasks.run_owners)
        loops += [(f"run-{number}", partial(self._run_loop, owner)) for number, owner in owners]
        loops += [(f"diagnosis-{number}", self._diagnosis_loop) for number in range(self._engine.diagnosis_threads)]
        if self._engine.ping is not None:
            loops.append(("ping", partial(self._ping_loop, self._engine.ping)))
        self._senders.start()
        for name, loop in loops:
            thread = threading.Thread(target=loop, name=f"coalmine-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _release_abandoned(self) -> None:
        released = abandoned_work.release_abandoned(self._engine.store, now=self._now())
        if any(released):
            logger.info("work_taken_over", extra=released._asdict())

    def wake(self) -> None:
        """Say that there may be work now: a run was queued, a delivery written, a definition changed."""
        self._signals.announce()

    def call_when_ended(self, notify: Callable[[], None]) -> None:
        """Call `notify` whenever this worker has ended a run or a re-scoring."""
        self._tasks.notify_ended = notify

    def stop(self, *, patience: float = 20.0) -> None:
        """Stop ticking and claiming, end what is under way cleanly, and let go of its leases."""
        self._stopping.set()
        self._metrics.close()
        self.wake()
        with self._scheduling:  # no job comes in behind the scheduler's back
            self._scheduler.shutdown(wait=False)
        deadline = time.monotonic() + patience
        for thread in (*self._threads, *self._senders.threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        try:
            self._tasks.release()
        except StoreUnavailableError as error:
            logger.warning("leases_not_released", extra={"detail": str(error)})

    @property
    def alive(self) -> bool:
        """Whether every thread of the worker is running."""
        running = bool(self._threads) and all(thread.is_alive() for thread in self._threads)
        return running and self._senders.alive

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
            queued, silent = self._due.follow(now, anew=anew)
            self._times_set = self._now.times_set
        self._note_queued(queued, now)
        self._queue_due()
        self._synced_at = time.monotonic()
        if not self._process.monitor.has(Issue.RESOURCES):  # it cannot ask: that is no silence of the check
            began = now - self._now.steady_for
            for check_id in silent:
                self._look_after(check_id, scheduling.watch_for_silence, store, check_id, started_at=began, now=now)
        for check_id in sorted(transitions.checks_at_tick(store)):  # a silence is over, a reminder is due
            self._look_after(check_id, transitions.at_tick, store, check_id, now=now)

    def _look_after(self, check_id: int, task: Callable[..., bool], *words: Any, **names: Any) -> None:
        try:
            if task(*words, **names):
                self._signals.announce((WorkKind.DELIVERIES,))
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
            following = self._due.next_due(now)
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

    def _note_queued(self, queued: Sequence[datetime], now: datetime) -> None:
        if queued:
            self._process.scheduler_lag((now - min(queued)).total_seconds())
            self._signals.announce((WorkKind.RUNS,))

    def _retain(self) -> None:
        retention.prune(self._engine.store, self._now(), days=self._engine.retention_days)

    def _ping_loop(self, ping: Ping) -> None:
        while self._synced_at is None and not self._stopping.wait(_POLL_SECONDS):
            pass
        self._repeat(self._engine.ping_seconds, partial(self._ping, ping))

    def _ping(self, ping: Ping) -> None:
        synced_ago = time.monotonic() - (self._synced_at or 0.0)
        ping_if_working(ping, self._engine.store, self._process.monitor, alive=self.alive, synced_ago=synced_ago)

    def _retention_loop(self) -> None:
        self._stopping.wait(_RETENTION_SECONDS)
        self._repeat(_RETENTION_SECONDS, self._retain)

    def _poll_loop(self) -> None:
        """Wake threads for what other replicas queued and what became due; one read for all of them."""
        seconds = 0.0
        while not self._stopping.wait(seconds):
            seconds = _POLL_SECONDS
            self._guarded(self._poll)
            if self._next_run_in is not None:
                seconds = min(seconds, max(_LEAST_POLL_SECONDS, self._next_run_in.total_seconds()))

    def _poll(self) -> None:
        self._next_run_in = None
        work = find_work(self._engine.store, now=self._now(), reclaim=self._now.is_settled)
        self._next_run_in = work.next_run_in
        there = {WorkKind.RUNS: work.runs, WorkKind.DELIVERIES: work.deliveries, WorkKind.RESCORINGS: work.rescorings}
        self._signals.announce(kind for kind, is_there in there.items() if is_there)

    def _run_loop(self, owner: str) -> None:
        self._loop(WorkKind.RUNS, partial(self._tasks.run_once, owner))

    def _rescoring_loop(self) -> None:
        self._loop(WorkKind.RESCORINGS, self._tasks.rescore_once)

    def _diagnosis_loop(self) -> None:
        # Its queue is in memory and has deadlines.
        self._loop(WorkKind.DIAGNOSES, self._tasks.diagnose_once, poll_seconds=_POLL_SECONDS)

    def _delivery_loop(self, name: str, is_surplus: Callable[[], bool]) -> None:
        deliver = partial(self._tasks.deliver_once, f"{self._engine.owner}:{name}", self._senders.send)
        self._loop(WorkKind.DELIVERIES, deliver, is_surplus)

    def _loop(
        self,
        kind: WorkKind,
        work_once: Callable[[], bool],
        is_surplus: Callable[[], bool] = lambda: False,
        *,
        poll_seconds: float | None = None,
    ) -> None:
        """Work whenever there is work of this kind; without `poll_seconds` only when it is announced, see `_poll`."""
        generation = -1
        while not self._stopping.is_set() and not is_surplus():
            generation = self._signals.wait(kind, generation, poll_seconds)
            try:
                while not self._stopping.is_set() and work_once():
                    pass
            except StoreUnavailableError as error:
                logger.error("store_unavailable", extra={"detail": str(error)})  # noqa: TRY400 - expected, no trace
                self._stopping.wait(_POLL_SECONDS)
            except Exception:
                logger.exception("bug")  # one bad row must not end the thread; its lease runs out and it is retried
                self._stopping.wait(_POLL_SECONDS)

    def _heartbeat(self) -> None:
        keep_leases(
            self._engine.store,
            self._process.monitor,
            lambda: dict(self._tasks.runs_under_way),
            clock=self._now,
            lease=LEASE,
            stopping=self._stopping,
        )
