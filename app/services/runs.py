"""A run, from claim to verdict: ask, stage, judge, and finalise in one transaction.

`execute` is the story. Scheduling queues runs, alerting decides what a verdict means for people.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from app.domain.embeddings import Embed
from app.domain.errors import ConfigurationError, InvalidInputError
from app.domain.model import Answer, RunStatus, Verdict
from app.domain.retrievers import Ask, Asking, Probe
from app.domain.verdicts import remarks, run_verdict, too_few_scored
from app.services import alerting, embedding_canaries
from app.services.embedding_canaries import Watched
from app.services.findings import find_out
from app.services.plans import SHARD, NotExecutableError, Plan, Planner
from app.services.staging import Batch, breaker_of, ended_early, gather, stage
from app.services.summaries import aggregate_vector, run_body, with_embedder
from app.store import alerts, queue, recording
from app.store.engine import Store, from_us, to_us
from app.store.queue import ClaimedRun, ShardBody

logger = logging.getLogger("coalmine.runs")

_RESUME_WITHIN = timedelta(minutes=15)
_BEGIN_WITHIN = timedelta(minutes=1)  # without one answer by then it is no hiccup, and nothing measured is lost
_COMMIT_EVERY = timedelta(milliseconds=250)  # what a crash can cost, beyond the shards not yet full


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """What a worker hears of a run it ended."""

    id: int
    check: str
    suite: str
    retriever: str
    status: RunStatus
    verdict: Verdict
    probes: Mapping[str, int]
    latencies: Sequence[float]
    duration_seconds: float
    embedder: str | None = None
    """How asking the retriever's embedder for its known texts ended; None = it has none."""


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
    """Carry a claimed run to its end; None where it was let go of: stopping, or taken over by another worker.

    Without `embed` the embedder of a retriever is not watched. News of degraded canaries waits for as long as `hold`
    says: whoever gives it finds out why they are degraded, and lets go of the news then.
    """
    store = planner.store
    try:
        plan = planner.plan(claimed, clock())
    except (NotExecutableError, ConfigurationError) as error:
        return _fail(store, claimed, owner, str(error), clock)
    answered = _answered_before(store, plan)
    try:
        watched = embedding_canaries.watch(store, embed, plan, now=clock()) if embed is not None else None
        if not _ask(store, plan, probe, answered, owner=owner, clock=clock, stopping=stopping):
            return None
    except InvalidInputError as error:
        return _fail(store, claimed, owner, str(error), clock)
    return _finalise(store, plan, answered, watched, owner, clock, hold=hold)


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
    if clock() - plan.started_at > _RESUME_WITHIN:
        return True  # answers this far apart are not one run: it ends partial
    if ended_early(answered):
        return True  # by the breaker, before whoever asked then could finalise it
    for batch in _batches(plan, probe, answered, clock, stopping):
        with store.write() as connection:
            if not queue.holds(connection, plan.run.id, owner):
                return False
            save = partial(recording.save_rankings, connection, plan.decimals)
            staged = {number: stage(plan, number, batch, save) for number in batch.shards}
            queue.commit_shards(connection, plan.run.id, staged)
        answered |= staged
        if batch.ended_early:
            told = {"run": plan.run.id, "check": plan.run.check, "detail": batch.breaker.reason}
            logger.warning("run_ended_early", extra=told)
            return True
    if stopping() and len(answered) < plan.shard_count:
        release(store, owner=owner)
        return False
    return True


def claim(store: Store, *, owner: str, now: datetime, lease: timedelta) -> ClaimedRun | None:
    """Take a run that is due, if there is one."""
    with store.write() as connection:
        return queue.claim_run(connection, owner=owner, now=to_us(now), lease_until=to_us(now + lease))


def renew(store: Store, held: Mapping[str, int], *, now: datetime, lease: timedelta) -> None:
    """Keep the runs, by owner, at which work goes on."""
    with store.write() as connection:
        for owner, run_id in held.items():
            queue.renew_lease(connection, run_id, owner=owner, lease_until=to_us(now + lease))


def release(store: Store, *, owner: str) -> None:
    """Let go of the runs this worker holds; whoever claims them goes on where they stand."""
    with store.write() as connection:
        queue.release_runs(connection, owner=owner)


def give_up(store: Store, claimed: ClaimedRun, *, owner: str, clock: Callable[[], datetime]) -> EndedRun | None:
    """End a run that an error of our own keeps from being carried out, once it has been tried for long enough.

    None before that: its lease runs out, and whoever claims it then tries again. That is a minute where no answer was
    kept: an error in planning or compiling comes again, and while the run goes on its check seems to be well.
    """
    with store.read() as connection:
        answered = queue.has_shards(connection, claimed.id)
    if clock() - from_us(claimed.started_at) <= (_RESUME_WITHIN if answered else _BEGIN_WITHIN):
        return None
    reason = "an error in Coalmine keeps this run from being carried out; the log has the details"
    return _fail(store, claimed, owner, reason, clock, last_resort=True)


def _answered_before(store: Store, plan: Plan) -> dict[int, ShardBody]:
    if not plan.run.resumed:
        return {}
    with store.read() as connection:
        return queue.staged_shards(connection, plan.run.id)


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
    asks = [
        Ask(position=position, query=canary.query, key=canary.key)
        for position, canary in enumerate(plan.panel.canaries)
        if position // SHARD not in answered
    ]
    if not asks:
        return
    left = len(asks)
    breaker = breaker_of(plan.retriever.breaker, answered)
    filling: dict[int, dict[int, Answer]] = {}
    full: dict[int, dict[int, Answer]] = {}
    yielded_at = clock()
    asking = Asking(retriever=plan.retriever, k=plan.yardstick.fetch_k, run_id=str(plan.run.id))
    with closing(probe(asking, asks)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        for batch in batches:
            for position, answer in batch:
                number = position // SHARD
                shard = filling.setdefault(number, {})
                shard[position] = answer
                if len(shard) == len(plan.positions(number)):
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


def _finalise(
    store: Store,
    plan: Plan,
    answered: Mapping[int, ShardBody],
    watched: Watched | None,
    owner: str,
    clock: Callable[[], datetime],
    *,
    hold: timedelta | None,
) -> EndedRun | None:
    """Write what the run amounted to, with everything that follows from it, in one transaction."""
    gathered = gather(plan, answered)
    found = find_out(store, plan, gathered)
    found = replace(found, aggregates=with_embedder(found.aggregates, watched.body if watched else None))
    too_few = too_few_scored(scored=gathered.scored, unscored=gathered.unscored, why_unscored=gathered.unscored_detail)
    verdict, reasons = run_verdict(
        found.aggregates, plan.yardstick.rules, ended_early=gathered.ended_early, too_few_scored=too_few
    )
    reasons += remarks(
        found.aggregates,
        unscored=0 if too_few else gathered.unscored,
        why_unscored=gathered.unscored_detail,
        undated=found.undated,
        lacking=gathered.lacking,
    )
    status = RunStatus.FINISHED if gathered.complete else RunStatus.PARTIAL
    now = clock()
    vector = aggregate_vector(plan.vector_names, found.aggregates)
    run_id, check_id = plan.run.id, plan.run.check_id
    with store.write() as connection:
        alerts.hold_check(connection, check_id)
        aggregates = found.aggregates
        if not recording.finish_run(
            connection,
            run_id,
            owner,
            status=status,
            verdict=verdict,
            reasons=json.dumps(reasons),
            finished_at=to_us(now),
            index_version=gathered.index_version,
            total=aggregates.total,
            measured=aggregates.measured,
            failed=aggregates.failed,
            undefined=aggregates.undefined,
            degraded=aggregates.degraded,
            degraded_positions=found.degraded_positions(gathered) or None,
            aggregates=vector.tobytes(),
            layout_id=plan.vector_layout_id,
        ):
            return None
        rows = [
            (ranking_id, plan.version_ids[position], result.match.to_bytes(), result.vector.tobytes())
            for position, result in found.results.items()
            if (ranking_id := gathered.rankings[position]) is not None
        ]
        recording.save_scores(connection, plan.layout_id, rows)
        recording.change_states(connection, check_id, run_id, closed=found.closed, opened=found.opened)
        recording.save_probes(connection, run_id, gathered.latencies.tobytes(), gathered.failures, gathered.unscored_at)
        recording.add_to_rollups(connection, check_id, plan.vector_layout_id, to_us(now), vector)
        if gathered.index_version is not None:
            recording.mark_index_version(connection, check_id, run_id, to_us(now), gathered.index_version)
        latencies = gathered.measured_latencies
        failed_at = [(failure.step, failure.outcome) for failure in gathered.failures.values()]
        body = run_body(plan.panel, found.aggregates, found.reasons, gathered.outcomes, latencies, failed_at=failed_at)
        recording.save_latest(connection, check_id, run_id, body)
        embedding_canaries.record(connection, run_id, watched)
        hold_until = now + hold if hold is not None and aggregates.degraded and verdict is not Verdict.UNKNOWN else None
        alerting.after_run(connection, check_id, run_id, now=now, hold_until=hold_until)
        queue.drop_shards(connection, run_id)
    return EndedRun(
        id=run_id,
        check=plan.run.check,
        suite=plan.suite,
        retriever=plan.retriever.slug,
        status=status,
        verdict=verdict,
        probes=found.aggregates.probes,
        latencies=latencies,
        duration_seconds=(now - plan.started_at).total_seconds(),
        embedder=None if watched is None else str(watched.outcome),
    )


def _fail(
    store: Store,
    claimed: ClaimedRun,
    owner: str,
    reason: str,
    clock: Callable[[], datetime],
    *,
    last_resort: bool = False,
) -> EndedRun | None:
    """End a run that could not be executed: its verdict is unknown, never healthy.

    As a `last_resort` it ends even where its alerting fails, which may be why it could not be ended before.
    """
    now = clock()
    values: dict[str, Any] = {"status": RunStatus.FAILED, "verdict": Verdict.UNKNOWN, "reasons": json.dumps([reason])}
    with store.write() as connection:
        alerts.hold_check(connection, claimed.check_id)
        if not recording.finish_run(connection, claimed.id, owner, finished_at=to_us(now), **values):
            return None
        recording.save_latest(connection, claimed.check_id, claimed.id, {})
        try:
            with connection.begin_nested():
                alerting.after_run(connection, claimed.check_id, claimed.id, now=now)
        except Exception:
            if not last_resort:
                raise
            logger.exception("bug", extra={"run": claimed.id, "check": claimed.check})  # no_data tells of it in time
        queue.drop_shards(connection, claimed.id)
    return EndedRun(
        id=claimed.id,
        check=claimed.check,
        suite="",
        retriever="",
        status=RunStatus.FAILED,
        verdict=Verdict.UNKNOWN,
        probes={},
        latencies=(),
        duration_seconds=0.0,
    )
