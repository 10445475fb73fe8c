"""A run, from its beginning to its verdict: ask, stage, judge, and finalise in one transaction.

`execute` is the story where one process does it all; where several share the work it is cut into shards, see `lanes`.
Scheduling queues runs, alerting decides what a verdict means for people.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from typing import Final

from app.base.db.engine import Store, from_us, to_us
from app.base.errors import ConfigurationError, InvalidInputError
from app.base.values import Answer
from app.records.store import queue, shards
from app.records.store.queue import ClaimedRun
from app.records.store.shards import ShardBody
from app.retrievers.domain.embeddings import Embed
from app.retrievers.domain.retrievers import Probe, ProbeContext
from app.retrievers.service import embedding_canaries
from app.retrievers.service.embedding_canaries import EmbedderRecord
from app.runs.service.finalising import EndedRun as EndedRun  # noqa: PLC0414 - what carrying out a run gives
from app.runs.service.finalising import fail, finalise
from app.runs.service.plans import SHARD, NotExecutableError, Plan, Planner
from app.runs.service.staging import Batch, breaker_of, ended_early, stage

logger = logging.getLogger("coalmine.runs")

RESUME_WITHIN: Final = timedelta(minutes=15)
"""After which the answers of a run are too far apart for one."""
_BEGIN_WITHIN = timedelta(minutes=1)  # without one answer by then it is no hiccup, and nothing measured is lost
_COMMIT_EVERY = timedelta(milliseconds=250)  # what a crash can cost, beyond the shards not yet full


def execute(
    planner: Planner,
    probe: Probe,
    claimed: ClaimedRun,
    *,
    embed: Embed | None = None,
    owner: str,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool],
    hold: timedelta | None = None,
) -> EndedRun | None:
    """Carry a run that was begun to its end; None where it was let go of: stopping, or taken over by another worker.

    Without `embed` the embedder of a retriever is not watched. News of degraded canaries waits for as long as `hold`
    says: whoever gives it finds out why they are degraded, and lets go of the news then.
    """
    store = planner.store
    try:
        plan = planner.plan(claimed, clock())
    except (NotExecutableError, ConfigurationError) as error:
        return fail(store, claimed, owner, str(error), clock)
    answered = _answered_before(store, plan)
    try:
        embedder = check_embedder(store, embed, plan, now=clock())
        if not _ask(store, plan, probe, answered, owner=owner, clock=clock, stopping=stopping):
            return None
    except InvalidInputError as error:
        return fail(store, claimed, owner, str(error), clock)
    return finalise(store, plan, answered, embedder, owner, clock, hold=hold)


def check_embedder(store: Store, embed: Embed | None, plan: Plan, *, now: datetime) -> EmbedderRecord | None:
    """Send the embedder of a run's retriever its known texts; None = it has none, or it is not watched."""
    if embed is None:
        return None
    return embedding_canaries.check_embedder(store, embed, plan.inputs.retriever, run_id=plan.run.id, now=now)


def _ask(
    store: Store,
    plan: Plan,
    probe: Probe,
    answered: dict[int, ShardBody],
    *,
    owner: str,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool],
) -> bool:
    """Ask what is not answered yet, committing shard by shard; False where the run was let go of or lost."""
    if clock() - plan.started_at > RESUME_WITHIN:
        return True  # answers this far apart are not one run: it ends partial
    if ended_early(answered):
        return True  # by the breaker, before whoever asked then could finalise it
    for batch in _batches(plan, probe, answered, clock, stopping):
        with store.write() as connection:
            if not queue.holds(connection, plan.run.id, owner):
                return False
            staged = {number: stage(plan, number, batch, connection) for number in batch.shards}
            shards.commit_shards(connection, plan.run.id, staged, now=to_us(clock()))
        answered |= staged
        if batch.ended_early:
            fields = {"run": plan.run.id, "check": plan.run.check, "detail": batch.breaker.reason}
            logger.warning("run_ended_early", extra=fields)
            return True
    return not stopping() or len(answered) == plan.shard_count


def begin(store: Store, run_id: int, *, owner: str, now: datetime) -> ClaimedRun | None:
    """Begin a run or carry it on as `owner`; None where it has ended, or has to wait for another run of its check."""
    with store.write() as connection:
        return queue.begin_run(connection, run_id, owner=owner, now=to_us(now))


def restart(store: Store, claimed: ClaimedRun, *, owner: str) -> None:
    """Let a run begin anew: this process could not ask, so nothing is known about the retriever."""
    with store.write() as connection:
        queue.restart_run(connection, claimed.id, owner=owner)


def give_up(store: Store, claimed: ClaimedRun, *, owner: str, clock: Callable[[], datetime]) -> EndedRun | None:
    """End a run that an error of our own keeps from being carried out, once it has been tried for long enough.

    None before that: it is to be tried again. That is a minute where no answer was kept: an error in planning or
    compiling comes again, and while the run goes on its check seems to be well.
    """
    with store.read() as connection:
        answered = shards.has_shards(connection, claimed.id)
    if clock() - from_us(claimed.started_at) <= (RESUME_WITHIN if answered else _BEGIN_WITHIN):
        return None
    reason = "an error in Coalmine keeps this run from being carried out; the log has the details"
    return fail(store, claimed, owner, reason, clock, last_resort=True)


def _answered_before(store: Store, plan: Plan) -> dict[int, ShardBody]:
    if not plan.run.resumed:
        return {}
    with store.read() as connection:
        return shards.staged_shards(connection, plan.run.id)


def _batches(
    plan: Plan,
    probe: Probe,
    answered: Mapping[int, ShardBody],
    clock: Callable[[], datetime],
    stopping: Callable[[], bool],
) -> Iterator[Batch]:
    """Ask what is not answered yet and yield the shards that are full, now and then.

    Ends early when stopping, which leaves out what is not full, and when the breaker opens, which does not.
    """
    asks = [ask for ask in plan.inputs.asks if ask.position // SHARD not in answered]
    if not asks:
        return
    left, sizes = len(asks), [len(plan.positions(number)) for number in range(plan.shard_count)]
    breaker = breaker_of(plan.inputs.retriever.breaker, answered)
    filling: dict[int, dict[int, Answer]] = {}
    full: dict[int, dict[int, Answer]] = {}
    yielded_at = clock()
    asking = ProbeContext(
        retriever=plan.inputs.retriever,
        k=plan.inputs.yardstick.fetch_k,
        run_id=str(plan.run.id),
        defined_at=plan.started_at,
        patience_seconds=plan.inputs.patience_seconds,
    )
    with closing(probe(asking, asks)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        for batch in batches:
            for position, answer in batch:
                number = position // SHARD
                shard = filling.setdefault(number, {})
                shard[position] = answer
                if len(shard) == sizes[number]:
                    full[number] = filling.pop(number)
            left -= len(batch)
            breaker = breaker.after(answer for _, answer in batch)
            if breaker.is_open and left:
                break
            if full and clock() - yielded_at >= _COMMIT_EVERY:
                yield Batch(shards=full, breaker=breaker)
                full, yielded_at = {}, clock()
            if stopping():
                break
    if breaker.is_open and left:
        yield Batch(shards=full | filling, breaker=breaker, ended_early=True)
    elif full:
        yield Batch(shards=full, breaker=breaker)
