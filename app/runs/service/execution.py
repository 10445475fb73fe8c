"""A run, from its beginning to its verdict: ask, stage, judge, and finalise in one transaction.

`execute` is the story where one process does it all: answers are reduced to shards by `stage`, and `finalising` ends
the run. Where several share the work it is cut into shards, from `begin_in_lanes` on. A run whose process died is
carried on by whoever gets its job: what is staged is not asked again, and after `RESUME_WITHIN` it ends with what it
has. Scheduling queues runs, alerting decides what a verdict means for people. At the end, the trial of one canary as it
is stored, and the lanes and rates within which all processes ask a retriever (`share_limits`).
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Final

import numpy as np

from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.errors import ConfigurationError, ConflictError, InvalidInputError
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.limits import merge_slowings
from app.base.values import Answer, Outcome, Ranking, Value, replace
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service.references import find_check
from app.catalog.store import require
from app.index_facts.domain import Fact
from app.index_facts.service import read_facts
from app.records.service.plans import SHARD, NotExecutableError, Plan, Planner
from app.records.store import open_runs, ranking_rows, state_rows
from app.records.store.open_runs import ClaimedRun, Failure, ShardBody
from app.records.views import ResultView
from app.retrievers import store as retriever_rows
from app.retrievers.domain.probes import CircuitBreaker, ask_in_turn
from app.retrievers.domain.retrievers import Embed, Lane, Probe, ProbeContext, ProbeQuery, fan_out, lane_count
from app.retrievers.service import embedders, trials
from app.retrievers.store import hold_lane
from app.runs.service.finalising import EndedRun as EndedRun  # noqa: PLC0414 - what carrying out a run gives
from app.runs.service.finalising import ended_early, fail, finalise
from app.runs.service.gate import Target, measure
from app.scoring.rankings import Scores, present_fields, round_ranking, scores_hold

logger = logging.getLogger("coalmine.runs")
_lane_logger = logging.getLogger("coalmine.probing")

RESUME_WITHIN: Final = timedelta(minutes=15)
"""After which the answers of a run are too far apart for one."""
_BEGIN_WITHIN = timedelta(minutes=1)  # without one answer by then it is no hiccup, and nothing measured is lost
_COMMIT_EVERY = timedelta(milliseconds=250)  # what a crash can cost `execute`, beyond the shards not yet full
_FLAPPING: Final = 0.2
"""Share of changed answers up to which they are compared with earlier ones too: of an approximate index some flap
between two orders, while a new index changes most for good."""


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
    answered: dict[int, ShardBody] = {}
    if claimed.resumed:
        with store.read() as connection:
            answered = open_runs.staged_shards(connection, claimed.id)
    try:
        embedder = embedders.check_embedder(store, embed, plan.inputs.retriever, run_id=claimed.id, now=clock())
        if not _ask(store, plan, probe, answered, owner=owner, clock=clock, stopping=stopping):
            return None
    except InvalidInputError as error:
        return fail(store, claimed, owner, str(error), clock)
    facts = _read_index(store, plan, probe, answered, stopping=stopping)
    return finalise(store, plan, answered, embedder, owner, clock, hold=hold, facts=facts)


def _read_index(
    store: Store,
    plan: Plan,
    probe: Probe,
    answered: Mapping[int, ShardBody],
    *,
    lane: Lane | None = None,
    stopping: Callable[[], bool],
) -> Sequence[Fact]:
    """Return the facts of the index, once every answer of the run is there."""
    ranking_ids: list[int | None] = [None] * len(plan.inputs.canaries)
    for number, body in answered.items():
        positions = plan.positions(number)
        ranking_ids[positions.start : positions.stop] = body.rankings
    why = ended_early(answered)
    return read_facts(store, probe, plan, ranking_ids, lane=lane, ended_early=why, stopping=stopping)


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
    """Ask what is not answered yet, and stage full shards now and then; False where the run was let go of or lost."""
    if clock() - plan.started_at > RESUME_WITHIN:
        return True  # answers this far apart are not one run: it ends partial
    if ended_early(answered):
        return True  # by the breaker, before whoever asked then could finalise it
    for batch in _batches(plan, probe, answered, clock, stopping):
        with store.write() as connection:
            if not open_runs.holds(connection, plan.run.id, owner):
                return False
            staged = {number: stage(plan, number, batch, connection) for number in batch.shards}
            open_runs.commit_shards(connection, plan.run.id, staged, now=to_us(clock()))
        answered |= staged
        if batch.ended_early:
            fields = {"run": plan.run.id, "check": plan.run.check, "detail": batch.breaker.reason}
            logger.warning("run_ended_early", extra=fields)
            return True
    return not stopping() or len(answered) == plan.shard_count


def begin(store: Store, run_id: int, *, owner: str, now: datetime) -> ClaimedRun | None:
    """Begin a run or carry it on as `owner`; None where it has ended, or has to wait for another run of its check."""
    with store.write() as connection:
        return open_runs.begin_run(connection, run_id, owner=owner, now=to_us(now))


def restart(store: Store, claimed: ClaimedRun, *, owner: str) -> None:
    """Let a run begin anew: this process could not ask, so nothing is known about the retriever."""
    with store.write() as connection:
        open_runs.restart_run(connection, claimed.id, owner=owner)


def give_up(store: Store, claimed: ClaimedRun, *, owner: str, clock: Callable[[], datetime]) -> EndedRun | None:
    """End a run that an error of our own keeps from being carried out, once it has been tried for long enough.

    None before that: it is to be tried again. That is a minute where no answer was kept: an error in planning or
    compiling comes again, and while the run goes on its check seems to be well.
    """
    with store.read() as connection:
        answered = open_runs.has_shards(connection, claimed.id)
    if clock() - from_us(claimed.started_at) <= (RESUME_WITHIN if answered else _BEGIN_WITHIN):
        return None
    reason = "an error in Coalmine keeps this run from being carried out; the log has the details"
    return fail(store, claimed, owner, reason, clock, last_resort=True)


class Batch(Value):
    """Answers to be staged together, by shard and position, and how the breaker stood when the last of them came."""

    shards: Mapping[int, Mapping[int, Answer]]
    breaker: CircuitBreaker
    ended_early: bool = False
    """These are the last: a shard that is not full will not be filled any more."""


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
    with closing(probe(plan.asking(), asks)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
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


def stage(plan: Plan, number: int, batch: Batch, connection: Connection) -> ShardBody:
    """Reduce the answers of a shard to what is staged; rankings that are new are stored, the others referred to."""
    answers, decimals = batch.shards[number], plan.inputs.decimals
    positions = plan.positions(number)
    ended_early = batch.breaker.reason if batch.ended_early else None
    failures = {
        position: Failure(outcome=str(Outcome.SKIPPED), detail=ended_early)
        for position in positions
        if position not in answers
    }
    latencies = np.zeros(len(positions), dtype=np.float16)
    settled: dict[int, Ranking] = {}
    for position, answer in answers.items():
        latencies[position - positions.start] = answer.latency_seconds
        if answer.ranking is None:
            failures[position] = Failure(
                outcome=str(answer.outcome),
                http_status=answer.http_status,
                detail=answer.detail,
                step=str(answer.step),
                address=answer.address,
            )
        else:
            ranking = answer.ranking
            settled[position] = ranking if ranking.fingerprint else round_ranking(ranking, decimals)
    unscored = {position: answer.unscored for position, answer in answers.items() if answer.unscored is not None}
    ranking_ids = _held_rankings(connection, plan, settled, unscored.keys())
    if len(ranking_ids) < len(settled):
        new = {position: ranking for position, ranking in settled.items() if position not in ranking_ids}
        ranking_ids |= _stored_rankings(connection, plan, new)
    cache_signs = [one.cache_sign for one in answers.values() if one.cache_sign is not None]
    versions = [answers[position].index_version for position in settled if answers[position].index_version]
    return ShardBody(
        first=positions.start,
        latencies=latencies.tobytes(),
        rankings=[ranking_ids.get(position) for position in positions],
        failures=failures,
        index_version=versions[-1] if versions else None,
        unscored=len(unscored),
        unscored_detail=next(iter(unscored.values()), None),
        arrived=batch.breaker.arrived,
        row=dict(batch.breaker.failures),
        ended_early=ended_early,
        scored=sum(ranking.relevance is not None for ranking in settled.values()),
        unscored_at=sorted(unscored),
        present=sorted(present_fields(settled.values())),
        generated={position: one.generated for position, one in answers.items() if one.generated is not None},
        cached=len(cache_signs),
        cache_sign=next(iter(cache_signs), None),
        slowing=merge_slowings(one.slowing for one in answers.values()),
    )


def _held_rankings(
    connection: Connection, plan: Plan, settled: Mapping[int, Ranking], unscored: Collection[int]
) -> dict[int, int]:
    """Return the stored rankings, by position, of the answers that are what their canary has already, or had lately.

    So is one whose scores alone have moved, by less than the retriever's tolerance: scores jitter. So is one nobody
    could score: a scorer that is away for a while is not news of every canary; that its relevance is not of this run
    is noted beside, by position.
    """
    held_ids, candidates = _equal_and_similar(connection, plan, settled)
    known = {ranking_id for ranking_ids in candidates.values() for ranking_id in ranking_ids}
    before = ranking_rows.load_scores(connection, known) if known else {}
    for position, ranking_ids in candidates.items():
        ranking, held = settled[position], plan.held[plan.inputs.canary_ids[position]]
        for ranking_id in ranking_ids:
            content_hash, scores = before[ranking_id]
            lacks_relevance = position in unscored and plan.still_holds(held, ranking_id, position)
            now = Scores(of_hits=ranking.scores, relevance=scores.relevance if lacks_relevance else ranking.relevance)
            is_same = content_hash is not None and content_hash == ranking.content_fingerprint
            if is_same and scores_hold(scores, now, plan.inputs.retriever.score_tolerance):
                held_ids[position] = ranking_id
                break
    return held_ids


def _equal_and_similar(
    connection: Connection, plan: Plan, settled: Mapping[int, Ranking]
) -> tuple[dict[int, int], dict[int, Sequence[int]]]:
    """Return, by position, the stored ranking that an answer equals, and those that it may be but for its scores."""
    equal: dict[int, int] = {}
    similar: dict[int, Sequence[int]] = {}
    others: dict[int, int] = {}
    unnamed: dict[int, bytes | None] = {}
    for position, ranking in settled.items():
        canary_id = plan.inputs.canary_ids[position]
        held = plan.held.get(canary_id)
        if held is None:
            continue
        if held.ranking_hash == ranking.fingerprint:
            equal[position] = held.ranking_id
            if held.content_hash is None:
                unnamed[held.ranking_id] = ranking.content_fingerprint
        elif held.content_hash is not None and held.content_hash == ranking.content_fingerprint:
            similar[position] = (held.ranking_id,)
        else:
            others[position] = canary_id
    if unnamed:
        ranking_rows.save_content_hashes(connection, unnamed)
    if 0 < len(others) <= _FLAPPING * len(settled):
        lately = state_rows.rankings_lately(connection, plan.run.check_id, list(others.values()))
        similar |= {position: lately.get(canary_id, ()) for position, canary_id in others.items()}
    return equal, similar


def _stored_rankings(connection: Connection, plan: Plan, new: Mapping[int, Ranking]) -> dict[int, int]:
    """Store rankings, and return their ids by position."""
    by_hash = {ranking.fingerprint or b"": ranking for ranking in new.values()}
    ids = ranking_rows.save_rankings(connection, plan.inputs.decimals, by_hash)
    plan.keep_rankings({ids[digest]: ranking for digest, ranking in by_hash.items()})
    return {position: ids[ranking.fingerprint or b""] for position, ranking in new.items()}


def breaker_of(limit: int | None, staged: Mapping[int, ShardBody]) -> CircuitBreaker:
    """Give the breaker as it stood when the newest of these shards was staged."""
    newest = max(staged.values(), key=lambda body: body.arrived, default=None)
    return (
        CircuitBreaker(limit=limit)
        if newest is None
        else CircuitBreaker(limit=limit, arrived=newest.arrived, failures=newest.row)
    )


OWNER: Final = "lanes"
"""Of runs that no process has for itself."""


class ShardEnd(Value):
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
        staged = open_runs.staged_numbers(connection, claimed.id)
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
    store = planner.store
    try:
        plan = planner.plan_once(claimed, clock())
        progress = _read_progress(store, plan, clock())
        number = _next_shard(plan, lane, progress.staged)
        if number is not None and not progress.is_over:
            batch = _ask_lane(store, plan, probe, lane, number, progress, stopping)
            if batch is None:
                return ShardEnd(is_done=False)
            staged = _stage(store, plan, lane, batch, now=to_us(clock()))
            progress = replace(progress, staged=staged, is_over=batch.ended_early)
    except InvalidInputError as error:
        return ShardEnd(ended=fail(store, claimed, OWNER, str(error), clock))
    if not progress.is_over and len(progress.staged) < plan.shard_count:
        return ShardEnd()
    with store.read() as connection:
        answered = open_runs.staged_shards(connection, claimed.id)
    embedder = embedders.check_embedder(store, embed, plan.inputs.retriever, run_id=claimed.id, now=clock())
    facts = _read_index_in_lane(store, plan, probe, lane, answered, stopping)
    ended = finalise(store, plan, answered, embedder, OWNER, clock, hold=hold, facts=facts)
    planner.forget(claimed.id)
    return ShardEnd(ended=ended)


class _Progress(Value):
    """What the lanes of a run have staged so far."""

    staged: Collection[int]
    """Numbers of shards."""
    newest: ShardBody | None
    is_over: bool
    """Whether no more is asked: the breaker ended the run, or the newest answers are too old to be of one run."""


def _read_progress(store: Store, plan: Plan, now: datetime) -> _Progress:
    with store.read() as connection:
        staged = open_runs.staged_numbers(connection, plan.run.id)
        newest = open_runs.newest_shard(connection, plan.run.id)
    if newest is None:
        return _Progress(staged=staged, newest=None, is_over=now - plan.started_at > RESUME_WITHIN)
    staged_at, shard = max(plan.started_at, from_us(newest[0])), newest[1]
    is_over = shard.ended_early is not None or now - staged_at > RESUME_WITHIN
    return _Progress(staged=staged, newest=shard, is_over=is_over)


def lane_of(plan: Plan, number: int) -> int:
    """Give the lane of a shard. Runs begin in different lanes, so that small ones do not all wait for the first."""
    return (plan.run.id + number) % lane_count(plan.inputs.retriever)


def _next_shard(plan: Plan, lane: int, staged: Collection[int]) -> int | None:
    numbers = range(plan.shard_count)
    return next((number for number in numbers if number not in staged and lane_of(plan, number) == lane), None)


def _defer_shard(connection: Connection, plan: Plan, lane: int) -> None:
    lock = f"retriever:{plan.inputs.retriever.slug}:{lane}"
    defer(connection, [NewJob(JobKind.SHARD, plan.run.id, part=lane, lock=lock)])


def _ask_lane(
    store: Store, plan: Plan, probe: Probe, lane: int, number: int, progress: _Progress, stopping: Callable[[], bool]
) -> Batch | None:
    """Ask the canaries of a shard, until the breaker opens; None where the process stopped in between."""
    positions, retriever = plan.positions(number), plan.inputs.retriever
    breaker = breaker_of(retriever.breaker, {} if progress.newest is None else {0: progress.newest})
    asks = [ask for ask in plan.inputs.asks if ask.position in positions]
    reserve = partial(reserve_rate, store, retriever.slug)
    asking = plan.asking(Lane(number=lane, concurrency=fan_out(retriever, lane), reserve=reserve))
    with hold_lane(store, retriever.slug, lane, alone=False, at_most=SHARD_LANE_SECONDS):
        answers, breaker = ask_in_turn(probe, asking, asks, breaker, stopping=stopping)
    is_full = len(answers) == len(positions)
    if not is_full and not breaker.is_open:
        return None
    is_last = is_full and len(progress.staged) == plan.shard_count - 1  # then there was nothing left to spare
    return Batch(shards={number: answers}, breaker=breaker, ended_early=breaker.is_open and not is_last)


def _read_index_in_lane(
    store: Store,
    plan: Plan,
    probe: Probe,
    lane: int,
    answered: Mapping[int, ShardBody],
    stopping: Callable[[], bool],
) -> Sequence[Fact]:
    """Return the facts of the index, asked for within the limits that all processes share."""
    retriever = plan.inputs.retriever
    if not retriever.facts and retriever.exact is None:
        return ()
    reserve = partial(reserve_rate, store, retriever.slug)
    asking = Lane(number=lane, concurrency=fan_out(retriever, lane), reserve=reserve)
    with hold_lane(store, retriever.slug, lane, alone=False, at_most=SHARD_LANE_SECONDS):
        return _read_index(store, plan, probe, answered, lane=asking, stopping=stopping)


def _stage(store: Store, plan: Plan, lane: int, batch: Batch, *, now: int) -> set[int]:
    """Stage a shard, and defer the next of its lane; gives the numbers that are staged then."""
    with store.write() as connection:
        if not open_runs.holds(connection, plan.run.id, OWNER):
            return set()
        bodies = {number: stage(plan, number, batch, connection) for number in batch.shards}
        open_runs.commit_shards(connection, plan.run.id, bodies, now=now)
        staged = open_runs.staged_numbers(connection, plan.run.id)
        if not batch.ended_early and _next_shard(plan, lane, staged) is not None:
            _defer_shard(connection, plan, lane)
        return staged


class CanaryTrial(Value):
    """What one request for a canary found."""

    result: ResultView
    index_version: str | None
    reasons: Sequence[str]
    """Reasons of the verdict of a run with this result alone."""
    asked_at: datetime


def try_canary(
    probe: Probe, store: Store, vault: Vault, slug: str, key: str, *, run_id: str, clock: Callable[[], datetime]
) -> CanaryTrial:
    """Ask for a canary once, as it and its check are defined now.

    Whether it regressed only runs show. It takes no longer than the retriever's time-outs allow: nothing is asked
    twice. Raises NotFoundError for what is not in force, ConflictError for an archived check, and InvalidInputError
    where the retriever cannot be asked at all.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        if check.archived_at is not None:
            raise ConflictError(f"check '{slug}' is archived: nobody is asked for it any more")
        suite_slug = str(check.body["suite"])
        suite = require(catalog.find_definition(connection, "suite", suite_slug), f"suite '{suite_slug}'")
        row = next(iter(catalog.list_canaries(connection, suite.id, keys=[key])), None)
    if row is None:
        raise ConflictError(f"canary '{key}' is archived: nobody asks it any more")
    retriever = trials.stored_retriever(store, vault, str(check.body["retriever"]), {})
    target = Target(
        check=parse_document(CheckDocument, check.body),
        suite=SuiteDocument(slug=suite_slug, canaries=(parse_document(CanaryDocument, row.body),)),
        retriever=retriever.model_copy(update={"retries": 0}),
    )
    asked_at = clock()
    report = measure(target, probe, run_id=run_id, clock=clock)
    return CanaryTrial(
        result=report["results"][0],
        index_version=report["run"]["index_version"],
        reasons=report["run"]["reasons"],
        asked_at=asked_at,
    )


LANE_SECONDS: Final = 30.0
"""Longest wait for a lane. Whoever holds it for longer is frozen, or slower than anybody should wait for."""
SHARD_LANE_SECONDS: Final = 5.0
"""Longest wait of a shard of a run: whoever holds a lane, or waits for it, may be frozen."""
ROUNDS: Final = 4
"""Queries, for each request at a time, that are asked before others get the lane."""


def share_limits(store: Store, probe: Probe) -> Probe:
    """Return a probe whose limits hold over all processes of this database; on SQLite there is one."""
    return SharedProbe(store, probe) if store.dialect == "postgresql" else probe


class SharedProbe:
    """Asks in the lane of a context, and where it has none, in one of the retriever's."""

    def __init__(self, store: Store, probe: Probe, *, patience: float = LANE_SECONDS) -> None:
        self._store = store
        self._probe = probe
        self._patience = patience
        self._turns = count()
        """Spread over the lanes."""

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Send every query; see `Probe`. Raises StoreUnavailableError where no lane can be held."""
        if context.lane is not None:
            return self._probe(context, queries)
        self._probe(context, ())  # raises at once where the retriever cannot be asked; asks nobody
        return self._ask_in_a_lane(context, queries)

    def _ask_in_a_lane(
        self, context: ProbeContext, queries: Sequence[ProbeQuery]
    ) -> Iterator[Sequence[tuple[int, Answer]]]:
        retriever = context.retriever
        number = next(self._turns) % lane_count(retriever)
        reserve = partial(reserve_rate, self._store, retriever.slug)
        lane = Lane(number=number, concurrency=fan_out(retriever, number), reserve=reserve)
        in_lane = replace(context, lane=lane)
        size = ROUNDS * lane.concurrency
        for start in range(0, len(queries), size):
            block = queries[start : start + size]
            with hold_lane(self._store, retriever.slug, number, alone=True, at_most=self._patience) as is_held:
                if not is_held:
                    _lane_logger.warning(
                        "lane_not_held", extra={"retriever": retriever.slug, "seconds": self._patience}
                    )
                with closing(self._probe(in_lane, block)) as batches:  # type: ignore[type-var] # a generator
                    yield from batches


def reserve_rate(store: Store, retriever: str, count: int, interval: float) -> float:
    """Reserve requests in the rate that all processes have in common; gives the seconds until the first."""
    with store.write() as connection:
        width = round(count * interval * 1_000_000)
        return retriever_rows.reserve(connection, retriever, microseconds=width) / 1_000_000
