"""The engine room: ticks, runs, diagnoses, deliveries and the metrics snapshot, each in threads of its own.

Every replica may run one. APScheduler only says "look now" (memory store, anchored triggers); the database
decides who works. What is done every few seconds is timed by the monotonic clock, since the wall clock may be set.
Stopping lets go of what is under way so that it goes on elsewhere or later, nothing twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from apscheduler.schedulers.background import BackgroundScheduler

from app import metrics
from app.domain.embeddings import Embed
from app.domain.errors import LocalResourceError, StoreUnavailableError
from app.domain.hooks import Send
from app.domain.retrievers import Probe
from app.domain.schedules import trigger
from app.services import alerting, deliveries, diagnosis, rescoring, retention, runs, scheduling
from app.services.delivery_threads import MOST_THREADS, DeliveryThreads
from app.services.diagnosing import Diagnoses
from app.services.heartbeat import keep_leases
from app.services.notices import Links
from app.services.outward_ping import Ping, ping_if_working
from app.services.overload import report_overload
from app.services.plans import Planner
from app.services.runs import EndedRun
from app.services.scheduling import ScheduledCheck
from app.services.self_monitor import Issue
from app.services.store_watch import report_store
from app.services.vault import Vault
from app.services.work_queue import has_work
from app.services.worker_clock import WorkerClock
from app.store.engine import Store
from app.store.queue import ClaimedRun

logger = logging.getLogger("coalmine.worker")

_LOOK_SECONDS = 1.0
_SYNC_SECONDS = 5
_LEASE = timedelta(seconds=30)
_RETENTION_SECONDS = 600
_LOCAL_PAUSE_SECONDS = 5.0
"""How long a run waits that this process has no descriptors or memory for."""

Trace = Callable[[ClaimedRun, Callable[[], EndedRun | None]], EndedRun | None]
"""Has a claimed run carried out, and follows it where traces are wanted."""


def untraced(_claimed: ClaimedRun, execute: Callable[[], EndedRun | None]) -> EndedRun | None:
    """Have a run carried out, and nothing else."""
    return execute()


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a worker works with; the two seams are `probe` and `send`."""

    store: Store
    vault: Vault
    probe: Probe
    send: Send
    links: Links
    owner: str
    """Names this process; each of its threads holds leases in a name of its own, or two could hold the same one."""
    embed: Embed | None = None
    """Watches the embedders of retrievers; None = nobody does."""
    trace: Trace = untraced
    clock: Callable[[], datetime] = _now
    retention_days: int = 90
    ping: Ping | None = None
    """Tells somebody outside that this worker works; None = nobody is told."""
    ping_seconds: float = 60.0
    run_threads: int = 4
    delivery_threads: int = MOST_THREADS
    """At most; one waits for what is due, the others are started while sends are under way."""
    diagnosis_threads: int = 2
    """Their own: a slow retriever is asked why for half a minute, and no run waits for that."""


class Worker:
    """Runs the engine until it is stopped."""

    def __init__(self, engine: Engine, process: metrics.ProcessMetrics, snapshot: metrics.Snapshot) -> None:
        self._engine = engine
        self._planner = Planner(engine.store, engine.vault)
        self._process = process
        self._snapshot = snapshot
        self._stopping = threading.Event()
        self._at_work: dict[str, int] = {}
        """The run each thread is at, by the name in which it holds it."""
        self._scheduling = threading.Lock()
        self._wake = threading.Condition()
        self._looks = 0
        self._now = WorkerClock(engine.clock, process.monitor)
        self._times_set = 0
        """How often the clock was set when the scheduler was given its instants."""
        self._synced_at: float | None = None
        """When the scheduler last had every check looked after, by the monotonic clock."""
        self._threads: list[threading.Thread] = []
        self._scheduler = BackgroundScheduler(timezone=UTC)
        self._scheduled: dict[int, int] = {}
        self._diagnoses = Diagnoses(
            planner=self._planner,
            probe=engine.probe,
            clock=self._now,
            stopping=self._stopping.is_set,
            threads=engine.diagnosis_threads,
        )
        self._senders = DeliveryThreads(self._delivery_loop, engine.send, most=engine.delivery_threads)
        self._rescorer = f"{engine.owner}:rescoring"
        self._owners = [f"{engine.owner}:run-{number}" for number in range(engine.run_threads)]

    def start(self) -> None:
        """Catch up once on what was missed, then work in the background."""
        self._now()
        self._scheduler.start()
        loops: list[tuple[str, Callable[[], None]]] = [
            ("sync", partial(self._repeat, _SYNC_SECONDS, self._sync)),
            ("show", partial(self._repeat, _SYNC_SECONDS, self._show)),
            ("queue", partial(self._repeat, _LOOK_SECONDS, self._poll_queues)),
            ("retention", self._retention_loop),
            ("heartbeat", self._heartbeat),
            ("rescoring", self._rescoring_loop),
        ]
        loops += [(f"run-{number}", partial(self._run_loop, owner)) for number, owner in enumerate(self._owners)]
        loops += [(f"diagnosis-{number}", self._diagnosis_loop) for number in range(self._engine.diagnosis_threads)]
        if self._engine.ping is not None:
            loops.append(("ping", partial(self._ping_loop, self._engine.ping)))
        self._senders.start()
        for name, loop in loops:
            thread = threading.Thread(target=loop, name=f"coalmine-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def wake(self) -> None:
        """Say that there may be work now: a run was queued, a delivery written, a definition changed."""
        with self._wake:
            self._looks += 1
            self._wake.notify_all()

    def stop(self, *, patience: float = 20.0) -> None:
        """Stop ticking and claiming, end what is under way cleanly, and let go of its leases."""
        self._stopping.set()
        self.wake()
        with self._scheduling:  # no job comes in behind the scheduler's back
            self._scheduler.shutdown(wait=False)
        deadline = time.monotonic() + patience
        for thread in (*self._threads, *self._senders.threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        try:
            for owner in self._owners:
                runs.release(self._engine.store, owner=owner)
            rescoring.release(self._engine.store, owner=self._rescorer)
            self._diagnoses.close()
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
        """Follow the catalog: one job a check, catch-up for what is new, missing data, what is to be told again."""
        checks = scheduling.scheduled_checks(self._engine.store)
        with self._scheduling:
            if self._stopping.is_set():
                return
            self._follow(checks)
        self._synced_at = time.monotonic()
        firing = alerting.checks_at_tick(self._engine.store)
        for check in checks:
            self._look_after(check, firing=check.id in firing)

    def _look_after(self, check: ScheduledCheck, *, firing: bool) -> None:
        store = self._engine.store
        try:
            self._tick(check.id)
            now = self._now()
            own = self._process.monitor.has(Issue.RESOURCES)  # it cannot ask: that is no silence of the check
            if not own and scheduling.watch_for_silence(
                store, check.id, started_at=now - self._now.steady_for, now=now
            ):
                self.wake()
            if firing and alerting.at_tick(store, check.id, now=now):  # a silence is over, a reminder is due
                self.wake()
        except StoreUnavailableError:
            raise
        except Exception:
            logger.exception("bug", extra={"check": check.slug})  # of this check: the others go on

    def _show(self) -> None:
        """Take the metrics snapshot anew; on a clock of its own, so that a store that is gone is seen to be gone."""
        self._now()
        report_store(self._process.monitor, self._engine.store)
        self._snapshot.refresh(self._engine.store)
        report_overload(self._process.monitor, self._snapshot.state)

    def _follow(self, checks: Sequence[ScheduledCheck]) -> None:
        wanted = {check.id: check.version_id for check in checks}
        if self._times_set != self._now.times_set:  # the scheduler waits for instants of the clock as it was
            self._times_set = self._now.times_set
            self._scheduled = {}
        for check in checks:
            if self._scheduled.get(check.id) != check.version_id:
                self._scheduler.add_job(
                    self._guarded,
                    trigger(check.schedule),
                    [partial(self._tick, check.id)],
                    id=str(check.id),
                    replace_existing=True,
                    coalesce=True,
                    max_instances=1,
                    misfire_grace_time=None,  # late is better than never: the tick itself asks which instant is due
                )
        for job in self._scheduler.get_jobs():
            if int(job.id) not in wanted:
                job.remove()
        self._scheduled = wanted

    def _tick(self, check_id: int) -> None:
        now = self._now()
        due = scheduling.tick(self._engine.store, check_id, now)
        if due is not None:
            self._process.scheduler_lag((now - due).total_seconds())
            self.wake()

    def _retain(self) -> None:
        retention.prune(self._engine.store, self._now(), days=self._engine.retention_days)

    def _ping_loop(self, ping: Ping) -> None:
        while self._synced_at is None and not self._stopping.wait(_LOOK_SECONDS):
            pass
        self._repeat(self._engine.ping_seconds, partial(self._ping, ping))

    def _ping(self, ping: Ping) -> None:
        synced_ago = time.monotonic() - (self._synced_at or 0.0)
        ping_if_working(ping, self._engine.store, self._process.monitor, alive=self.alive, synced_ago=synced_ago)

    def _retention_loop(self) -> None:
        self._stopping.wait(_RETENTION_SECONDS)
        self._repeat(_RETENTION_SECONDS, self._retain)

    def _poll_queues(self) -> None:
        """Wake the threads for what other replicas queued and what became due; one read for all of them."""
        if has_work(self._engine.store, now=self._now(), reclaim=self._now.is_settled):
            self.wake()

    def _run_loop(self, owner: str) -> None:
        self._loop(partial(self._run_once, owner))

    def _rescoring_loop(self) -> None:
        self._loop(self._rescore_once)

    def _diagnosis_loop(self) -> None:
        self._loop(self._diagnose_once, poll_seconds=_LOOK_SECONDS)  # its queue is in memory and has deadlines

    def _delivery_loop(self, name: str, is_surplus: Callable[[], bool]) -> None:
        self._loop(partial(self._deliver_once, f"{self._engine.owner}:{name}"), is_surplus)

    def _loop(
        self,
        work_once: Callable[[], bool],
        is_surplus: Callable[[], bool] = lambda: False,
        *,
        poll_seconds: float | None = None,
    ) -> None:
        """Work whenever woken; without `poll_seconds` only then, see `_poll_queues`."""
        seen = -1
        while not self._stopping.is_set() and not is_surplus():
            with self._wake:
                if seen == self._looks:
                    self._wake.wait(poll_seconds)
                seen = self._looks
            try:
                while not self._stopping.is_set() and work_once():
                    pass
            except StoreUnavailableError as error:
                logger.error("store_unavailable", extra={"detail": str(error)})  # noqa: TRY400 - expected, no trace
                self._stopping.wait(_LOOK_SECONDS)
            except Exception:
                logger.exception("bug")  # one bad row must not end the thread; its lease runs out and it is retried
                self._stopping.wait(_LOOK_SECONDS)

    def _run_once(self, owner: str) -> bool:
        engine = self._engine
        claimed = runs.claim(engine.store, owner=owner, now=self._now(), lease=_LEASE, reclaim=self._now.is_settled)
        if claimed is None:
            return False
        logger.info("run_started", extra={"run": claimed.id, "check": claimed.check, "resumed": claimed.resumed})
        self._at_work[owner] = claimed.id
        try:
            ended = self._engine.trace(claimed, partial(self._execute, claimed, owner))
        finally:
            del self._at_work[owner]  # else the heartbeat would keep for ever what a bug has ended
        if ended is None:
            logger.info("run_let_go", extra={"run": claimed.id, "check": claimed.check})
            return True
        self._process.run_ended(ended)
        logger.info(
            "run_ended",
            extra={"run": claimed.id, "check": claimed.check, "status": ended.status, "verdict": ended.verdict},
        )
        self._snapshot.refresh(engine.store)
        self._diagnoses.add(ended)
        self.wake()
        return True

    def _diagnose_once(self) -> bool:
        worked = self._diagnoses.work_once()
        if worked:
            self.wake()  # for the news that waited for it, and for who waits for the same retriever
        return worked

    def _execute(self, claimed: ClaimedRun, owner: str) -> EndedRun | None:
        engine = self._engine
        try:
            return runs.execute(
                self._planner,
                engine.probe,
                claimed,
                embed=engine.embed,
                owner=owner,
                clock=self._now,
                stopping=self._stopping.is_set,
                hold=diagnosis.PATIENCE,
            )
        except StoreUnavailableError:
            raise
        except LocalResourceError as error:
            self._process.monitor.report(Issue.RESOURCES, str(error))
            runs.restart(engine.store, claimed, owner=owner)
            self._stopping.wait(_LOCAL_PAUSE_SECONDS)
            return None
        except Exception:
            logger.exception("bug", extra={"run": claimed.id, "check": claimed.check})
            return runs.give_up(engine.store, claimed, owner=owner, clock=self._now)

    def _deliver_once(self, owner: str) -> bool:
        engine = self._engine
        sent = deliveries.attempt_next(
            engine.store,
            engine.vault,
            self._senders.send,
            owner=owner,
            links=engine.links,
            clock=self._now,
            lease=_LEASE,
        )
        if sent is None:
            return False
        self._process.delivered(sent)
        logger.log(
            logging.INFO if sent.error is None else logging.WARNING,
            "delivery_attempted",
            extra={"delivery": sent.id, "hook": sent.hook, "state": sent.state, "detail": sent.reason},
        )
        self._snapshot.refresh(engine.store)
        return True

    def _rescore_once(self) -> bool:
        store, owner = self._engine.store, self._rescorer
        claimed = rescoring.claim(store, owner=owner, now=self._now())
        if claimed is None:
            return False
        logger.info("rescoring_started", extra={"rescoring": claimed})
        done = rescoring.carry_on(store, claimed, owner=owner, clock=self._now, stopping=self._stopping.is_set)
        logger.info("rescoring_ended" if done else "rescoring_let_go", extra={"rescoring": claimed})
        return True

    def _heartbeat(self) -> None:
        keep_leases(
            self._engine.store,
            self._process.monitor,
            lambda: dict(self._at_work),
            clock=self._now,
            lease=_LEASE,
            stopping=self._stopping,
        )
