"""The answers of a run on their way to its verdict: reduced to shards, staged, and put together again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from app.domain.model import Answer, Outcome, Ranking
from app.domain.probing.circuit_breaker import ENDED_FIRST, Breaker
from app.domain.probing.mapped_fields import lacking, present
from app.domain.runs.rankings import settle
from app.services.runs.plans import Plan
from app.store.runs.queue import Failure, ShardBody
from app.store.runs.recording import OpenState


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Answers to be staged together, by shard and position, and how the breaker stood when the last of them came."""

    shards: Mapping[int, Mapping[int, Answer]]
    breaker: Breaker
    ended_early: bool = False
    """These are the last: a shard that is not full will not be filled any more."""


def stage(
    plan: Plan, number: int, batch: Batch, save: Callable[[Mapping[bytes, Ranking]], dict[bytes, int]]
) -> ShardBody:
    """Reduce the answers of a shard to what is staged; a ranking the canary has already is only referred to.

    So is one nobody could score, where but for its relevance it is the one the canary has: a scorer that is away for a
    while is not news of every canary. That its relevance is not of this run is noted beside, by position.
    """
    answers, decimals, canary_ids = batch.shards[number], plan.inputs.decimals, plan.inputs.canary_ids
    positions = plan.positions(number)
    ended_early = batch.breaker.reason if batch.ended_early else None
    rankings: list[int | None] = [None] * len(positions)
    new: dict[bytes, Ranking] = {}
    hashes: dict[int, bytes] = {}
    failures = {
        position: Failure(outcome=str(Outcome.SKIPPED), detail=ended_early)
        for position in positions
        if position not in answers
    }
    latencies = np.zeros(len(positions), dtype=np.float16)
    for position, answer in answers.items():
        place = position - positions.start
        latencies[place] = answer.latency_seconds
        if answer.ranking is None:
            failures[position] = Failure(
                outcome=str(answer.outcome),
                http_status=answer.http_status,
                detail=answer.detail,
                step=str(answer.step),
                address=answer.address,
            )
            continue
        ranking = answer.ranking if answer.ranking.fingerprint else settle(answer.ranking, decimals)
        digest = ranking.fingerprint or b""
        held = plan.held.get(canary_ids[position])
        if held is not None and (held.ranking_hash == digest or _lacks_relevance(plan, position, answer, held)):
            rankings[place] = held.ranking_id
        else:
            new[digest] = ranking
            hashes[place] = digest
    if new:
        ids = save(new)
        plan.seen.update((ids[digest], ranking) for digest, ranking in new.items())
        for place, digest in hashes.items():
            rankings[place] = ids[digest]
    measured = [answer for answer in answers.values() if answer.ranking is not None]
    unscored = {position: answer.unscored for position, answer in answers.items() if answer.unscored is not None}
    versions = [answer.index_version for answer in measured if answer.index_version]
    return ShardBody(
        first=positions.start,
        latencies=latencies.tobytes(),
        rankings=rankings,
        failures=failures,
        index_version=versions[-1] if versions else None,
        unscored=len(unscored),
        unscored_detail=next(iter(unscored.values()), None),
        arrived=batch.breaker.arrived,
        row=dict(batch.breaker.row),
        ended_early=ended_early,
        scored=sum(answer.ranking is not None and answer.ranking.relevance is not None for answer in measured),
        unscored_at=sorted(unscored),
        present=sorted(present(answer.ranking for answer in measured if answer.ranking is not None)),
    )


def _lacks_relevance(plan: Plan, position: int, answer: Answer, held: OpenState) -> bool:
    """Whether a ranking nobody could score is the one that holds, less the relevance, which is its top score."""
    if answer.ranking is None or answer.unscored is None or not plan.still_holds(held, held.ranking_id, position):
        return False
    scored = settle(replace(answer.ranking, relevance=held.top_score), plan.inputs.decimals)
    return scored.fingerprint == held.ranking_hash


def breaker_of(limit: int | None, staged: Mapping[int, ShardBody]) -> Breaker:
    """Give the breaker as it stood when the newest of these shards was staged."""
    newest = max(staged.values(), key=lambda body: body.arrived, default=None)
    return Breaker(limit=limit) if newest is None else Breaker(limit=limit, arrived=newest.arrived, row=newest.row)


def ended_early(staged: Mapping[int, ShardBody]) -> str | None:
    """Say why nothing more is to be asked though something is missing; None = all of it may be asked."""
    return next((body.ended_early for body in staged.values() if body.ended_early is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A run's answers put together over the whole panel."""

    rankings: list[int | None]
    latencies: NDArray[np.float16]
    failures: dict[int, Failure]
    index_version: str | None
    complete: bool
    ended_early: str | None
    """Why, where the breaker ended it."""
    scored: int
    unscored: int
    unscored_detail: str | None
    unscored_at: list[int]
    """Positions of answers whose relevance could not be measured."""
    lacking: tuple[str, ...]
    """The mapped fields that not one hit had."""

    @property
    def measured_latencies(self) -> list[float]:
        """Seconds of the probes that measured."""
        latencies: list[float] = self.latencies.astype(np.float64).tolist()
        return [seconds for position, seconds in enumerate(latencies) if position not in self.failures]

    @property
    def outcomes(self) -> list[Outcome]:
        """How each probe ended, by position."""
        outcomes = [Outcome.OK] * len(self.rankings)
        for position, failure in self.failures.items():
            outcomes[position] = Outcome(failure.outcome)
        return outcomes


def gather(plan: Plan, answered: Mapping[int, ShardBody]) -> Gathered:
    """Put the staged shards together; what was never asked is `skipped`."""
    size = len(plan.inputs.panel)
    rankings: list[int | None] = [None] * size
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
        rankings[positions.start : positions.stop] = body.rankings
        latencies[positions.start : positions.stop] = np.frombuffer(body.latencies, dtype=np.float16)
        failures.update(body.failures)
        index_version = body.index_version or index_version
    return Gathered(
        rankings=rankings,
        latencies=latencies,
        failures=failures,
        index_version=index_version,
        complete=len(answered) == plan.shard_count and why is None,
        ended_early=why,
        scored=sum(body.scored for body in answered.values()),
        unscored=sum(body.unscored for body in answered.values()),
        unscored_at=sorted(position for body in answered.values() for position in body.unscored_at),
        unscored_detail=next((body.unscored_detail for body in answered.values() if body.unscored_detail), None),
        lacking=lacking(
            plan.inputs.retriever.response, {field for body in answered.values() for field in body.present}
        ),
    )
