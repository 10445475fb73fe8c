"""The answers of a run on their way to its verdict: reduced to shards, staged, and put together again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.domain.model import Answer, Outcome, Ranking
from app.domain.rankings import settle
from app.services.plans import SHARD, Plan
from app.store.queue import ShardBody


def stage(
    plan: Plan,
    number: int,
    answers: Mapping[int, Answer],
    save: Callable[[Mapping[bytes, Ranking]], dict[bytes, int]],
) -> ShardBody:
    """Reduce the answers of a shard to what is staged; a ranking the canary has already is only referred to."""
    first = number * SHARD
    rankings: list[int | None] = [None] * len(answers)
    new: dict[bytes, Ranking] = {}
    hashes: dict[int, bytes] = {}
    failures: dict[int, tuple[str, int | None, str | None]] = {}
    index_version = None
    for position, answer in answers.items():
        if answer.ranking is None:
            failures[position] = (str(answer.outcome), answer.http_status, answer.detail)
            continue
        index_version = answer.index_version or index_version
        ranking = answer.ranking if answer.ranking.fingerprint else settle(answer.ranking, plan.decimals)
        digest = ranking.fingerprint or b""
        held = plan.held.get(plan.canary_ids[position])
        if held is not None and held.ranking_hash == digest:
            rankings[position - first] = held.ranking_id
        else:
            new[digest] = ranking
            hashes[position] = digest
    if new:
        ids = save(new)
        plan.seen.update((ids[digest], ranking) for digest, ranking in new.items())
        for position, digest in hashes.items():
            rankings[position - first] = ids[digest]
    latencies = np.array([answers[position].latency_seconds for position in sorted(answers)], dtype=np.float16)
    return ShardBody(
        first=first,
        latencies=latencies.tobytes(),
        rankings=rankings,
        failures=failures,
        index_version=index_version,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A run's answers put together over the whole panel."""

    rankings: list[int | None]
    latencies: NDArray[np.float16]
    failures: dict[int, tuple[str, int | None, str | None]]
    index_version: str | None
    complete: bool

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
            outcomes[position] = Outcome(failure[0])
        return outcomes


def gather(plan: Plan, answered: Mapping[int, ShardBody]) -> Gathered:
    """Put the staged shards together; what was never asked is `skipped`."""
    size = len(plan.panel)
    rankings: list[int | None] = [None] * size
    latencies = np.zeros(size, dtype=np.float16)
    failures: dict[int, tuple[str, int | None, str | None]] = {}
    index_version = plan.index_version
    for number in range(plan.shard_count):
        positions = range(number * SHARD, min((number + 1) * SHARD, size))
        body = answered.get(number)
        if body is None:
            failures.update((position, (str(Outcome.SKIPPED), None, "the run ended first")) for position in positions)
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
        complete=len(answered) == plan.shard_count,
    )
