"""A run that several processes carry out: cut into shards, which are asked lane by lane.

A retriever has as many lanes as it takes requests at a time, four at most, and of all jobs in a lane one is done at a
time: so its limits hold over all runs and processes. The job of a shard has the next one of its lane in the same
transaction that stages its answers. Whoever stages the last shard finalises the run.
"""

import logging
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.errors import ConfigurationError, InvalidInputError
from app.base.jobs.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import Answer
from app.records.store import queue, shards
from app.records.store.queue import ClaimedRun
from app.retrievers.domain.circuit_breaker import CircuitBreaker
from app.retrievers.domain.embeddings import Embed
from app.retrievers.domain.lanes import fan_out, lane_count
from app.retrievers.domain.retrievers import Lane, Probe, ProbeContext
from app.retrievers.service.shared_limits import SHARD_PATIENCE_SECONDS, reserve_rate
from app.retrievers.store.lane_locks import hold_lane
from app.runs.service.finalising import EndedRun, fail, finalise
from app.runs.service.plans import NotExecutableError, Plan, Planner
from app.runs.service.runs import RESUME_WITHIN, check_embedder
from app.runs.service.staging import Batch, breaker_of, stage

logger = logging.getLogger("coalmine.runs")

OWNER: Final = "lanes"
"""Of runs that no process has for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEnd:
    """How a shard ended."""

    is_done: bool = True
    """Else the process stopped in between, and nothing of it was kept."""
    ended: EndedRun | None = None
    """The run, where it ended by it."""


def begin_in_lanes(planner: Planner, claimed: ClaimedRun, clock: Callable[[], datetime]) -> EndedRun | None:
    """Freeze what a run works with, and defer the first shard of each lane; gives a run that cannot be carried out."""
    try:
        plan = planner.plan(claimed, clock())
    except (NotExecutableError, ConfigurationError) as error:
        return fail(planner.store, claimed, OWNER, str(error), clock)
    with planner.store.write() as connection:
        staged = shards.staged_numbers(connection, claimed.id)
        lanes = {lane_of(plan, number) for number in range(plan.shard_count) if number not in staged}
        for lane in sorted(lanes or {lane_of(plan, 0)}):  # of a run whose answers are all there, to be finalised
            _defer_shard(connection, plan, lane)
    return None


def ask_shard(
    planner: Planner,
    probe: Probe,
    claimed: ClaimedRun,
    lane: int,
    *,
    embed: Embed | None = None,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool],
    hold: timedelta | None = None,
) -> ShardEnd:
    """Ask the next shard of a lane; where it is the last of all, the run ends by it."""
    store, run_id = planner.store, claimed.id
    try:
        plan = planner.plan_once(claimed, clock())
        with store.read() as connection:
            staged = shards.staged_numbers(connection, run_id)
            newest = shards.newest_shard(connection, run_id)
        number = _next_shard(plan, lane, staged)
        ends = newest is not None and newest[1].ended_early is not None
        silent_since = max(plan.started_at, from_us(newest[0])) if newest is not None else plan.started_at
        ends = ends or clock() - silent_since > RESUME_WITHIN  # answers this far apart are not one run
        if number is not None and not ends:
            breaker = breaker_of(plan.inputs.retriever.breaker, {} if newest is None else {0: newest[1]})
            answers, breaker = _ask(store, plan, probe, lane, number, breaker, stopping)
            is_full = len(answers) == len(plan.positions(number))
            if not is_full and not breaker.is_open:
                return ShardEnd(is_done=False)
            is_early = breaker.is_open and not (is_full and len(staged) == plan.shard_count - 1)
            batch = Batch(shards={number: answers}, breaker=breaker, ended_early=is_early)
            staged = _stage(store, plan, lane, number, batch, now=to_us(clock()))
            ends = batch.ended_early
    except InvalidInputError as error:
        return ShardEnd(ended=fail(store, claimed, OWNER, str(error), clock))
    if not ends and len(staged) < plan.shard_count:
        return ShardEnd()
    with store.read() as connection:
        answered = shards.staged_shards(connection, run_id)
    embedder = check_embedder(store, embed, plan, now=clock())
    ended = finalise(store, plan, answered, embedder, OWNER, clock, hold=hold)
    planner.forget(run_id)
    return ShardEnd(ended=ended)


def lane_of(plan: Plan, number: int) -> int:
    """Give the lane of a shard. Runs begin in different lanes, so that small ones do not all wait for the first."""
    return (plan.run.id + number) % lane_count(plan.inputs.retriever)


def _next_shard(plan: Plan, lane: int, staged: Collection[int]) -> int | None:
    numbers = range(plan.shard_count)
    return next((number for number in numbers if number not in staged and lane_of(plan, number) == lane), None)


def _defer_shard(connection: Connection, plan: Plan, lane: int) -> None:
    lock = f"retriever:{plan.inputs.retriever.slug}:{lane}"
    defer(connection, [NewJob(JobKind.SHARD, plan.run.id, part=lane, lock=lock)])


def _ask(
    store: Store,
    plan: Plan,
    probe: Probe,
    lane: int,
    number: int,
    breaker: CircuitBreaker,
    stopping: Callable[[], bool],
) -> tuple[dict[int, Answer], CircuitBreaker]:
    """Ask the canaries of a shard, until the breaker opens or the process stops."""
    positions, retriever = plan.positions(number), plan.inputs.retriever
    asks = [ask for ask in plan.inputs.asks if ask.position in positions]
    asking = ProbeContext(
        retriever=retriever,
        k=plan.inputs.yardstick.fetch_k,
        run_id=str(plan.run.id),
        defined_at=plan.started_at,
        patience_seconds=plan.inputs.patience_seconds,
        lane=Lane(
            number=lane,
            concurrency=fan_out(retriever, lane),
            reserve=partial(reserve_rate, store, retriever.slug),
        ),
    )
    answers: dict[int, Answer] = {}
    with (
        hold_lane(store, retriever.slug, lane, alone=False, at_most=SHARD_PATIENCE_SECONDS),
        closing(probe(asking, asks)) as batches,  # type: ignore[type-var] # a generator; Iterator has no close()
    ):
        for batch in batches:
            answers.update(batch)
            breaker = breaker.after(answer for _, answer in batch)
            if breaker.is_open or stopping():
                break
    return answers, breaker


def _stage(store: Store, plan: Plan, lane: int, number: int, batch: Batch, *, now: int) -> set[int]:
    """Stage a shard, and defer the next of its lane; gives the numbers that are staged then."""
    with store.write() as connection:
        if not queue.holds(connection, plan.run.id, OWNER):
            return set()
        shards.commit_shards(connection, plan.run.id, {number: stage(plan, number, batch, connection)}, now=now)
        staged = shards.staged_numbers(connection, plan.run.id)
        if not batch.ended_early and _next_shard(plan, lane, staged) is not None:
            _defer_shard(connection, plan, lane)
        return staged
