"""What the threads of a worker do, one piece of work at a time: a run, a diagnosis, a delivery, a re-scoring.

Who does it when is the worker's business; each of these says whether there was something to do.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from app import metrics
from app.domain.delivery.hooks import Send
from app.domain.errors import LocalResourceError, StoreUnavailableError
from app.domain.probing.embeddings import Embed
from app.domain.probing.retrievers import Probe
from app.metrics.snapshot_keeper import SnapshotKeeper
from app.services.alerts.alert_links import Links
from app.services.catalog.vault import Vault
from app.services.delivery import resends
from app.services.delivery.outward_ping import Ping
from app.services.delivery.sender_threads import MOST_THREADS
from app.services.diagnosis import diagnoses
from app.services.diagnosis.diagnosis_queue import Diagnoses
from app.services.runs import rescoring, runs
from app.services.runs.plans import Planner
from app.services.runs.runs import EndedRun
from app.services.runs.work_signals import WorkKind, WorkSignals
from app.services.self_monitor import Issue
from app.services.worker_clock import WorkerClock
from app.store.engine import Store
from app.store.runs.queue import ClaimedRun

logger = logging.getLogger("coalmine.worker")

LEASE: Final = timedelta(seconds=30)
_LOCAL_PAUSE_SECONDS = 5.0
"""How long a run waits that this process has no descriptors or memory for."""

Trace = Callable[[ClaimedRun, Callable[[], EndedRun | None]], EndedRun | None]
"""Carries out a claimed run, under a trace where tracing is on."""


def untraced(_claimed: ClaimedRun, execute: Callable[[], EndedRun | None]) -> EndedRun | None:
    """Carry out a run without a trace."""
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
    """Sends the known texts to embedders of retrievers; None = they are not watched."""
    is_alone: bool = False
    """Whether no other worker can be at work on the store: what others hold was left behind."""
    trace: Trace = untraced
    clock: Callable[[], datetime] = _now
    retention_days: int = 90
    ping: Ping | None = None
    """Pings a monitor outside while this worker works; None = there is none."""
    ping_seconds: float = 60.0
    run_threads: int = 4
    delivery_threads: int = MOST_THREADS
    """At most; one waits for what is due, the others are started while sends are under way."""
    diagnosis_threads: int = 2
    """Their own: a diagnosis of a slow retriever takes half a minute, and no run waits for that."""


class WorkerTasks:
    """The work of a worker. Several threads may do it, each run and delivery under the lease of an owner."""

    def __init__(
        self,
        engine: Engine,
        process: metrics.ProcessMetrics,
        snapshot: SnapshotKeeper,
        *,
        clock: WorkerClock,
        signals: WorkSignals,
        stopping: threading.Event,
    ) -> None:
        self._engine = engine
        self._process = process
        self._snapshot = snapshot
        self._now = clock
        self._signals = signals
        self._stopping = stopping
        self._planner = Planner(engine.store, engine.vault)
        self._diagnoses = Diagnoses(
            planner=self._planner,
            probe=engine.probe,
            clock=clock,
            stopping=stopping.is_set,
            threads=engine.diagnosis_threads,
        )
        self._rescorer = f"{engine.owner}:rescoring"
        self.run_owners = [f"{engine.owner}:run-{number}" for number in range(engine.run_threads)]
        self.runs_under_way: dict[str, int] = {}
        """The run of each thread, by the name in which it holds it."""
        self.notify_ended: Callable[[], None] = lambda: None
        """Called whenever a run or a re-scoring has ended."""

    def run_once(self, owner: str) -> bool:
        """Carry out a run that is due; False where there is none."""
        engine = self._engine
        claimed = runs.claim(engine.store, owner=owner, now=self._now(), lease=LEASE, reclaim=self._now.is_settled)
        if claimed is None:
            return False
        logger.info("run_started", extra={"run": claimed.id, "check": claimed.check, "resumed": claimed.resumed})
        self.runs_under_way[owner] = claimed.id
        try:
            ended = self._engine.trace(claimed, partial(self._execute, claimed, owner))
        finally:
            del self.runs_under_way[owner]  # else the heartbeat would keep for ever what a bug has ended
        if ended is None:
            logger.info("run_let_go", extra={"run": claimed.id, "check": claimed.check})
            return True
        self._process.run_ended(ended)
        self.notify_ended()
        logger.info(
            "run_ended",
            extra={"run": claimed.id, "check": claimed.check, "status": ended.status, "verdict": ended.verdict},
        )
        self._snapshot.note_run(claimed.check_id)
        self._diagnoses.add(ended)
        self._signals.announce({WorkKind.DIAGNOSES} | ({WorkKind.DELIVERIES} if ended.notifies else set()))
        return True

    def diagnose_once(self) -> bool:
        """Diagnose a canary that waits for it; False where there is none."""
        did_work = self._diagnoses.work_once()
        if did_work:
            self._signals.announce()  # for the news that waited for it, and for who waits for the same retriever
        return did_work

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
                hold=diagnoses.PATIENCE,
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

    def deliver_once(self, owner: str, send: Send) -> bool:
        """Attempt a delivery that is due; False where there is none."""
        engine = self._engine
        sent = resends.attempt_next(
            engine.store,
            engine.vault,
            send,
            owner=owner,
            links=engine.links,
            clock=self._now,
            lease=LEASE,
        )
        if sent is None:
            return False
        self._process.delivered(sent)
        logger.log(
            logging.INFO if sent.error is None else logging.WARNING,
            "delivery_attempted",
            extra={"delivery": sent.id, "hook": sent.hook, "state": sent.state, "detail": sent.reason},
        )
        self._snapshot.note_delivery()
        return True

    def rescore_once(self) -> bool:
        """Carry on a re-scoring that waits; False where there is none."""
        store, owner = self._engine.store, self._rescorer
        claimed = rescoring.claim(store, owner=owner, now=self._now())
        if claimed is None:
            return False
        logger.info("rescoring_started", extra={"rescoring": claimed})
        try:
            done = rescoring.carry_on(store, claimed, owner=owner, clock=self._now, stopping=self._stopping.is_set)
        except StoreUnavailableError:
            raise
        except Exception as error:
            logger.exception("bug", extra={"rescoring": claimed})
            rescoring.put_off(store, claimed, owner=owner, error=error, now=self._now())
            done = False
        self.notify_ended()
        logger.info("rescoring_ended" if done else "rescoring_let_go", extra={"rescoring": claimed})
        return True

    def release(self) -> None:
        """Let go of all leases, once no thread works any more. Raises StoreUnavailableError."""
        for owner in self.run_owners:
            runs.release(self._engine.store, owner=owner)
        rescoring.release(self._engine.store, owner=self._rescorer)
        self._diagnoses.close()
