"""The answers of a run on their way to its verdict: reduced to shards, staged, and put together again."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from app.base.db.engine import Connection, Store, blocks
from app.base.rate_control import merge_slowings
from app.base.values import Answer, Outcome, Ranking
from app.records.service.plans import Plan
from app.records.store import recording, results
from app.records.store.queue import Failure, ShardBody
from app.records.store.recording import OpenState
from app.retrievers.domain.probes import ENDED_FIRST, CircuitBreaker
from app.retrievers.domain.retrievers import missing_fields, present_fields
from app.scoring.evaluation import named_by
from app.scoring.rankings import Scores, round_ranking, scores_hold
from app.scoring.runs import RunResponses, missing_relevance, slowing_remarks
from app.scoring.verdicts import cache_remarks

_FLAPPING: Final = 0.2
"""Share of changed answers up to which they are compared with earlier ones too: of an approximate index some flap
between two orders, while a new index changes most for good."""
_READ_AT_ONCE: Final = 1_000
"""Rankings of a run that are read back together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Answers to be staged together, by shard and position, and how the breaker stood when the last of them came."""

    shards: Mapping[int, Mapping[int, Answer]]
    breaker: CircuitBreaker
    ended_early: bool = False
    """These are the last: a shard that is not full will not be filled any more."""


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
    before = results.load_scores(connection, known) if known else {}
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
        recording.save_content_hashes(connection, unnamed)
    if 0 < len(others) <= _FLAPPING * len(settled):
        lately = recording.rankings_lately(connection, plan.run.check_id, list(others.values()))
        similar |= {position: lately.get(canary_id, ()) for position, canary_id in others.items()}
    return equal, similar


def _stored_rankings(connection: Connection, plan: Plan, new: Mapping[int, Ranking]) -> dict[int, int]:
    """Store rankings, and return their ids by position."""
    by_hash = {ranking.fingerprint or b"": ranking for ranking in new.values()}
    ids = recording.save_rankings(connection, plan.inputs.decimals, by_hash)
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


def ended_early(staged: Mapping[int, ShardBody]) -> str | None:
    """Reason why no more requests are to be sent though answers are missing; None = they may be sent."""
    return next((body.ended_early for body in staged.values() if body.ended_early is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A run's answers put together, by position."""

    ranking_ids: Sequence[int | None]
    """The stored rankings; None = not measured."""
    responses: RunResponses
    index_version: str | None
    complete: bool
    """Whether every probe was attempted."""
    generated: Mapping[int, str]
    """Answers that came with the hits, by position."""


def gather(store: Store, plan: Plan, answered: Mapping[int, ShardBody]) -> Gathered:
    """Put the staged shards together; a probe never sent is `skipped`, what has not changed is not judged again."""
    size = len(plan.inputs.canaries)
    ranking_ids: list[int | None] = [None] * size
    latencies = np.zeros(size, dtype=np.float16)
    why = ended_early(answered)
    skipped = Failure(outcome=str(Outcome.SKIPPED), detail=why or ENDED_FIRST)
    failures: dict[int, Failure] = {}
    index_version = plan.index_version
    for number in range(plan.shard_count):
        positions = plan.positions(number)
        body = answered.get(number)
        if body is None:
            failures.update((position, skipped) for position in positions)
            continue
        ranking_ids[positions.start : positions.stop] = body.rankings
        latencies[positions.start : positions.stop] = np.frombuffer(body.latencies, dtype=np.float16)
        failures.update(body.failures)
        index_version = body.index_version or index_version
    present_fields = {field for body in answered.values() for field in body.present}
    too_few, remarks = missing_relevance(
        size,
        scored=sum(body.scored for body in answered.values()),
        unscored=sum(body.unscored for body in answered.values()),
        why=next((body.unscored_detail for body in answered.values() if body.unscored_detail), None),
        lacking_fields=missing_fields(plan.inputs.retriever.response, present_fields),
    )
    remarks += cache_remarks(
        size - sum(failure.outcome == str(Outcome.SKIPPED) for failure in failures.values()),
        cached=sum(body.cached for body in answered.values()),
        sign=next((body.cache_sign for body in answered.values() if body.cache_sign), None),
    )
    changed, kept, aged = _sorted_out(plan, ranking_ids)
    responses = RunResponses(
        started_at=plan.started_at,
        rankings=StoredRankings(store, plan, changed),
        kept=kept,
        aged=StoredRankings(store, plan, aged),
        latencies=latencies,
        failures=dict(sorted(failures.items())),  # whatever came first: of two equally common ones the first is named
        unscored=sorted(position for body in answered.values() for position in body.unscored_at),
        too_few_scored=too_few,
        remarks=(*remarks, *slowing_remarks(body.slowing for body in answered.values())),
        ended_early=why,
    )
    return Gathered(
        ranking_ids=ranking_ids,
        responses=responses,
        index_version=index_version,
        complete=len(answered) == plan.shard_count and why is None,
        generated={position: text for body in answered.values() for position, text in body.generated.items()},
    )


def with_names(store: Store, plan: Plan, gathered: Gathered) -> Gathered:
    """Return the answers with what explains that nothing was found, also of those that are not judged again."""
    places, canaries = gathered.responses.kept.keys(), plan.inputs.canaries
    ranking_ids = {place: ranking_id for place in places if (ranking_id := gathered.ranking_ids[place]) is not None}
    names = {
        place: named_by(canaries[place], ranking) for place, ranking in StoredRankings(store, plan, ranking_ids).items()
    }
    return replace(gathered, responses=replace(gathered.responses, named_by=names))


def _sorted_out(
    plan: Plan, ranking_ids: Sequence[int | None]
) -> tuple[dict[int, int], dict[int, OpenState], dict[int, int]]:
    """Return the rankings that changed, the states that still hold and, where age matters, the rankings of those."""
    changed: dict[int, int] = {}
    kept: dict[int, OpenState] = {}
    canary_ids = plan.inputs.canary_ids
    for position, ranking_id in enumerate(ranking_ids):
        if ranking_id is None:
            continue
        state = plan.held.get(canary_ids[position])
        if state is not None and plan.still_holds(state, ranking_id, position):
            kept[position] = state
        else:
            changed[position] = ranking_id
    canaries = plan.inputs.canaries
    timed = [place for place in plan.inputs.panel.timed if canaries[place].max_age_seconds is not None]
    return changed, kept, {place: kept[place].ranking_id for place in timed if place in kept}


class StoredRankings(Mapping[int, Ranking]):
    """Rankings of a run by position: those the plan keeps, the others read from the store in blocks when iterated."""

    def __init__(self, store: Store, plan: Plan, ranking_ids: Mapping[int, int]) -> None:
        """Read nothing yet."""
        self._store = store
        self._plan = plan
        self._ranking_ids = ranking_ids
        self._block: Mapping[int, Ranking] = {}
        """Of those last read, by id."""

    def __getitem__(self, position: int) -> Ranking:
        """Return a ranking, read alone unless it is in memory."""
        ranking_id = self._ranking_ids[position]
        kept = self._plan.rankings.get(ranking_id, self._block.get(ranking_id))
        return self._read([ranking_id])[ranking_id] if kept is None else kept

    def __iter__(self) -> Iterator[int]:
        """Iterate over the positions; the rankings of those that follow are read beforehand."""
        for block in blocks(list(self._ranking_ids), _READ_AT_ONCE):
            unread = [one for place in block if (one := self._ranking_ids[place]) not in self._plan.rankings]
            self._block = self._read(unread) if unread else {}
            yield from block
        self._block = {}

    def __len__(self) -> int:
        """Count the rankings."""
        return len(self._ranking_ids)

    def _read(self, ranking_ids: Sequence[int]) -> dict[int, Ranking]:
        with self._store.read() as connection:
            return results.load_rankings(connection, ranking_ids)
