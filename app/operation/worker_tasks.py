"""What a worker does, one job at a time: runs and their shards, diagnoses, deliveries, re-scorings, reports, retention.

Who does it when is the business of `job_threads`; each of these says when it is to be done again.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from app.alerts.service.shown_alerts import Links
from app.annotation.service import results, tasks
from app.answers.service import answering, labels
from app.answers.service.answering import AnswerTools
from app.base.db.engine import Store
from app.base.db.keys import Vault
from app.base.errors import LocalResourceError, StoreUnavailableError
from app.base.jobs import JobQueue
from app.base.jobs.values import Job, JobKind
from app.base.values import Value
from app.diagnosis.service import diagnoses
from app.experiments.service import shadows
from app.hooks.domain import Send
from app.hooks.service import deliveries
from app.hooks.service.deliveries import Ping
from app.operation.job_threads import Do, Places
from app.operation.service import retention
from app.operation.service.self_monitor import Issue, WorkerClock
from app.plants.service import planting
from app.records.service.plans import Planner
from app.records.store.open_runs import ClaimedRun
from app.reports import metrics
from app.reports.metrics import SnapshotKeeper
from app.reports.service import reports
from app.retrievers.domain.retrievers import Embed, Probe
from app.runs.service import execution, rescoring
from app.runs.service.due_checks import RETENTION_SECONDS
from app.runs.service.execution import ShardEnd
from app.runs.service.finalising import EndedRun
from app.traffic.service import reach

logger = logging.getLogger("coalmine.worker")

_LOCAL_PAUSE: Final = timedelta(seconds=5)
"""How long a run waits that this process has no descriptors or memory for."""
MOST_SENDS: Final = 64
"""At a time: a hanging receiver holds one for its time-out, and only one per hook."""
ANSWER_THREADS: Final = 2
"""Rounds of answers at a time; each judge has one at most."""
PLANT_THREADS: Final = 4
"""Steps of planted documents at a time: each is one request."""
_PAUSE: Final = timedelta(seconds=1)
"""How long a run waits that was let go of."""

Ended = TypeVar("Ended")
Trace = Callable[[ClaimedRun, Callable[[], EndedRun | None]], EndedRun | None]
"""Carries out a run, or a shard of it, under a trace where tracing is on."""


def untraced(_claimed: ClaimedRun, execute: Callable[[], EndedRun | None]) -> EndedRun | None:
    """Carry out a run without a trace."""
    return execute()


def _now() -> datetime:
    return datetime.now(UTC)


class Engine(Value):
    """What a worker works with; the two seams are `probe` and `send`.

    A service passes what its settings say: the defaults here are for a worker on its own, as in tests.
    """

    store: Store
    vault: Vault
    probe: Probe
    send: Send
    links: Links
    owner: str
    """Names this process."""
    answers: AnswerTools | None = None
    """Asks for generated answers, and judges; None = neither is asked."""
    embed: Embed | None = None
    """Sends the known texts to embedders of retrievers; None = they are not watched."""
    trace: Trace = untraced
    clock: Callable[[], datetime] = _now
    retention_days: int = 90
    ping: Ping | None = None
    """Pings a monitor outside while this worker works; None = there is none."""
    ping_seconds: float = 60.0
    run_threads: int = 4
    """Runs at a time; where several processes share the work, shards."""
    delivery_threads: int = MOST_SENDS
    diagnosis_threads: int = 2
    """Their own: a diagnosis of a slow retriever takes half a minute, and no run waits for that."""


class WorkerTasks:
    """The work of a worker, each job in a thread of its own."""

    def __init__(
        self,
        engine: Engine,
        queue: JobQueue,
        process: metrics.ProcessMetrics,
        snapshot: SnapshotKeeper,
        *,
        clock: WorkerClock,
        stopping: threading.Event,
    ) -> None:
        self._engine = engine
        self._is_shared = queue.is_shared
        self._process = process
        self._snapshot = snapshot
        self._now = clock
        self._stopping = stopping
        self._planner = Planner(engine.store, engine.vault)
        self.notify_ended: Callable[[], None] = lambda: None
        """Called whenever a run or a re-scoring has ended."""

    @property
    def doers(self) -> Mapping[JobKind, Do]:
        """Who does which kind of job."""
        return {
            JobKind.RUN: self._run,
            JobKind.SHARD: self._ask_shard,
            JobKind.DELIVERY: self._deliver,
            JobKind.DIAGNOSIS: self._diagnose,
            JobKind.RESCORING: self._rescore,
            JobKind.POOL: self._make_pool,
            JobKind.REPORT: self._report,
            JobKind.RECALL: self._compute_recall,
            JobKind.DRAWING: self._draw_labels,
            JobKind.CALIBRATION: self._calibrate,
            JobKind.REACH: self._ask_sample,
            JobKind.ANSWERS: self._rate_answers,
            JobKind.SHADOW: self._ask_candidate,
            JobKind.PLANT: self._carry_on_plant,
            JobKind.RETENTION: self._retain,
        }

    @property
    def places(self) -> tuple[Places, ...]:
        """How many jobs of which kinds are done at a time."""
        engine = self._engine
        return (
            Places(kinds=(JobKind.RUN, JobKind.SHARD), most=engine.run_threads),
            Places(kinds=(JobKind.DELIVERY,), most=engine.delivery_threads),
            Places(kinds=(JobKind.DIAGNOSIS,), most=engine.diagnosis_threads),
            Places(kinds=(JobKind.RESCORING,), most=1),
            Places(kinds=(JobKind.POOL,), most=1),
            Places(kinds=(JobKind.REPORT,), most=1),
            Places(kinds=(JobKind.RECALL, JobKind.CALIBRATION), most=1),
            Places(kinds=(JobKind.DRAWING,), most=1),
            Places(kinds=(JobKind.REACH,), most=1),
            Places(kinds=(JobKind.ANSWERS,), most=ANSWER_THREADS),
            Places(kinds=(JobKind.SHADOW,), most=1),
            Places(kinds=(JobKind.PLANT,), most=PLANT_THREADS),
            Places(kinds=(JobKind.RETENTION,), most=1),
        )

    def _run(self, job: Job) -> datetime | None:
        """Carry out a run; where several processes share the work, begin it."""
        owner = execution.OWNER if self._is_shared else self._owner(job)
        claimed = execution.begin(self._engine.store, job.key, owner=owner, now=self._now())
        if claimed is None:
            return None
        logger.info("run_started", extra={"run": claimed.id, "check": claimed.check, "resumed": claimed.resumed})
        if self._is_shared:
            begin = partial(execution.begin_in_lanes, self._planner, claimed, self._now)
            self._note_ended(self._guarded(claimed, owner, begin))
            return None
        ended = self._engine.trace(claimed, partial(self._guarded, claimed, owner, self._execution(claimed, owner)))
        self._note_ended(ended)
        if ended is not None:
            return None
        logger.info("run_let_go", extra={"run": claimed.id, "check": claimed.check})
        return self._now() + _PAUSE

    def _execution(self, claimed: ClaimedRun, owner: str) -> Callable[[], EndedRun | None]:
        return partial(
            execution.execute,
            self._planner,
            self._engine.probe,
            claimed,
            embed=self._engine.embed,
            owner=owner,
            clock=self._now,
            stopping=self._stopping.is_set,
            hold=diagnoses.PATIENCE,
        )

    def _ask_shard(self, job: Job) -> datetime | None:
        """Ask a shard of a run, and end the run where it was the last."""
        claimed = execution.begin(self._engine.store, job.key, owner=execution.OWNER, now=self._now())
        if claimed is None:
            return None
        end = ShardEnd(is_done=False)

        def ask() -> EndedRun | None:
            nonlocal end
            end = execution.ask_shard(
                self._planner,
                self._engine.probe,
                claimed,
                job.part,
                embed=self._engine.embed,
                clock=self._now,
                stopping=self._stopping.is_set,
                hold=diagnoses.PATIENCE,
            )
            return end.ended

        ended = self._engine.trace(claimed, partial(self._guarded, claimed, execution.OWNER, ask))
        self._note_ended(ended)
        return None if end.is_done or ended is not None else self._now() + _PAUSE

    def _guarded(self, claimed: ClaimedRun, owner: str, work: Callable[[], EndedRun | None]) -> EndedRun | None:
        """Do something of a run; ends the run where an error of our own keeps it from being carried out."""
        try:
            return work()
        except StoreUnavailableError:
            raise
        except LocalResourceError as error:
            self._process.monitor.report(Issue.RESOURCES, str(error))
            if not self._is_shared:
                execution.restart(self._engine.store, claimed, owner=owner)
            self._stopping.wait(_LOCAL_PAUSE.total_seconds())
            return None
        except Exception:
            logger.exception("bug", extra={"run": claimed.id, "check": claimed.check})
            return execution.give_up(self._engine.store, claimed, owner=owner, clock=self._now)

    def _note_ended(self, ended: EndedRun | None) -> None:
        if ended is None:
            return
        self._process.run_ended(ended)
        self.notify_ended()
        logger.info(
            "run_ended", extra={"run": ended.id, "check": ended.check, "status": ended.status, "verdict": ended.verdict}
        )
        self._snapshot.note_run(ended.check_id)

    def _diagnose(self, job: Job) -> None:
        """Diagnose the canaries that a run degraded."""
        diagnoses.diagnose_run(
            self._planner, self._engine.probe, job.key, clock=self._now, stopping=self._stopping.is_set
        )

    def _deliver(self, job: Job) -> datetime | None:
        """Attempt what is due to a hook, and say when there is more."""
        engine = self._engine
        while True:
            due = deliveries.next_attempt(engine.store, job.key, self._now())  # a read: most jobs are of one message
            if due is None or due > self._now() or self._stopping.is_set():
                return due
            sent = deliveries.attempt_next(
                engine.store,
                engine.vault,
                engine.send,
                job.key,
                owner=self._owner(job),
                links=engine.links,
                clock=self._now,
            )
            if sent is None:  # it is not needed any more, or somebody else is at it
                return self._now() + _PAUSE
            self._process.delivered(sent)
            logger.log(
                logging.INFO if sent.error is None else logging.WARNING,
                "delivery_attempted",
                extra={"delivery": sent.id, "hook": sent.hook, "state": sent.state, "detail": sent.reason},
            )
            self._snapshot.note_delivery()

    def _rescore(self, job: Job) -> datetime | None:
        """Carry on a re-scoring."""
        store, owner = self._engine.store, self._owner(job)
        claimed = rescoring.claim_as_worker(store, job.key, owner=owner, now=self._now())
        if claimed is None:
            return None  # a command is at it, or it waits after an error: see `recall_work`
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
        return None if done else self._now() + _PAUSE

    def _make_pool(self, job: Job) -> datetime | None:
        """Ask the retrievers of an annotation task for what has no pool yet."""
        return self._note_end("pool", done=self._ask(tasks.make_pool, self._engine.probe, job), task=job.key)

    def _report(self, job: Job) -> None:
        """Write a report that is due, for its deliveries to be sent."""
        if reports.write_report(self._engine.store, job.key, now=self._now()):
            logger.info("report_written", extra={"report": job.key})

    def _compute_recall(self, job: Job) -> None:
        """Compute what the annotations of a task say of the recall of its retrievers."""
        results.compute_recall(self._engine.store, job.key, now=self._now())

    def _draw_labels(self, job: Job) -> datetime | None:
        """Draw the answers or pairs that people label in a task."""
        answers = self._engine.answers
        shadows.draw_pairs(self._engine.store, job.key, now=self._now())
        if answers is None:
            return None
        return self._note_end("draw", done=self._ask(labels.draw_labels, answers.ask_judge, job), task=job.key)

    def _calibrate(self, job: Job) -> None:
        """Compute how far the labels of a task confirm its judge."""
        labels.calibrate(self._engine.store, job.key, now=self._now())

    def _ask_sample(self, job: Job) -> datetime | None:
        """Ask a sample of the traffic of a suite."""
        done = self._ask(reach.ask_sample, self._engine.probe, job)
        return self._note_end("reach", done=done, reach=job.key)

    def _rate_answers(self, job: Job) -> datetime | None:
        """Have the generated answers of a run judged."""
        if self._engine.answers is None:
            return None
        done = self._ask(answering.rate_run, self._engine.answers, job)
        logger.info("answers_rated" if done else "answers_let_go", extra={"run": job.key})
        self.notify_ended()
        return None if done else self._now() + _PAUSE

    def _ask_candidate(self, job: Job) -> datetime | None:
        """Ask the candidate of a shadow what users asked."""
        again = self._ask(shadows.ask_candidate, self._engine.probe, job)
        logger.info("shadow_ended" if again is None else "shadow_let_go", extra={"shadow": job.key})
        return again

    def _carry_on_plant(self, job: Job) -> datetime | None:
        """Do the steps of a planted document that are due."""
        return self._ask(planting.carry_on, self._engine.probe, job)

    def _retain(self, _job: Job) -> datetime:
        """Delete what has expired, and say when that is to be done again."""
        retention.prune(self._engine.store, self._now(), days=self._engine.retention_days)
        return self._now() + timedelta(seconds=RETENTION_SECONDS)

    def _ask(self, work: Callable[..., Ended], asks: object, job: Job) -> Ended:
        """Do work that asks others with `asks`, until it has ended or this worker stops."""
        engine = self._engine
        return work(engine.store, engine.vault, asks, job.key, clock=self._now, stopping=self._stopping.is_set)

    def _note_end(self, work: str, *, done: bool, **about: int) -> datetime | None:
        """Log whether work ended or was let go of, and say when to go on with it."""
        event = f"{work}_ended" if done else f"{work}_let_go"
        logger.info(event, extra=about)
        return None if done else self._now() + _PAUSE

    def _owner(self, job: Job) -> str:
        """Name this process at this job: should it come back from the dead, nothing it writes counts."""
        return f"{self._engine.owner}:{job.id}.{job.attempt}"
