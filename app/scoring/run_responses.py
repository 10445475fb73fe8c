"""Responses to the probes of a run, before they are judged."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.base.rate_control import merge_slowings, slowing_text
from app.base.values import Answer, Outcome, Ranking, Slowing
from app.retrievers.domain.circuit_breaker import ENDED_FIRST
from app.retrievers.domain.mapped_fields import missing_fields, present_fields
from app.retrievers.domain.probe_failures import FailedProbe, ProbeFailure
from app.scoring.rankings import round_ranking
from app.scoring.run_inputs import RunInputs
from app.scoring.tally import StoredResult
from app.scoring.verdicts import cache_remarks, remarks, too_few_scored
from app.scoring.wrong_fields import NamedBy


def _empty() -> Mapping[int, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResponses:
    """Responses to the probes of a run, by position of the canary."""

    started_at: datetime | None
    """When the run started; None = stored results already contain the judgment of the timing."""
    rankings: Mapping[int, Ranking] = field(default_factory=_empty)
    """Rounded rankings that are to be judged."""
    kept: Mapping[int, StoredResult] = field(default_factory=_empty)
    """Stored results of rankings that were judged before."""
    aged: Mapping[int, Ranking] = field(default_factory=_empty)
    """Rankings judged before, for canaries with a maximum age."""
    named_by: Mapping[int, NamedBy | None] = field(default_factory=_empty)
    """Of `kept`, where no canary found what it expects: see `named_by`."""
    latencies: NDArray[np.float16]
    """Seconds in the precision of stored runs; meaningless for failed probes."""
    percentiles: Mapping[str, float | None] | None = None
    """Of latency, as the run had them; None = those of `latencies`, which are less exact once they are stored."""
    failures: Mapping[int, FailedProbe]
    """Probes that measured nothing."""
    unscored: Collection[int] = ()
    """Positions where a scorer outside the retriever could not measure relevance."""
    too_few_scored: str | None = None
    """Why too little relevance was measured to judge the run; a sentence without its full stop."""
    remarks: tuple[str, ...] = ()
    """What the answers lack, independent of judgments; sentences without full stops."""
    index_version: str | None = None
    """The index version the retriever reported."""
    ended_early: str | None = None
    """Why the circuit breaker ended the run, if it did; a sentence without its full stop."""

    @property
    def measured_latencies(self) -> list[float]:
        """Seconds of the probes that measured."""
        return measured_latencies(self.latencies, self.failures.keys())

    def outcomes(self, total: int) -> list[Outcome]:
        """Return the probe outcomes of `total` canaries."""
        outcomes = [Outcome.OK] * total
        for position, failure in self.failures.items():
            outcomes[position] = Outcome(failure.outcome)
        return outcomes


def measured_latencies(latencies: NDArray[np.float16], failed: Collection[int]) -> list[float]:
    """Return the seconds of probes but for those that failed, given by position."""
    measured = np.ones(len(latencies), dtype=np.bool_)
    measured[[position for position in failed if position < len(measured)]] = False
    seconds: list[float] = latencies[measured].astype(np.float64).tolist()
    return seconds


def missing_relevance(
    total: int, *, scored: int, unscored: int, why: str | None, lacking_fields: Sequence[str]
) -> tuple[str | None, tuple[str, ...]]:
    """Return why too little relevance was measured, and the remarks on what answers to `total` canaries lack."""
    too_few = too_few_scored(scored=scored, unscored=unscored, why_unscored=why)
    counted = 0 if too_few else unscored
    return too_few, tuple(remarks(total, unscored=counted, why_unscored=why, undated=0, lacking=lacking_fields))


def slowing_remarks(slowings: Iterable[Slowing | None]) -> tuple[str, ...]:
    """Return the remark on a retriever that refused requests, from what slowed the parts of a run."""
    slowing = merge_slowings(slowings)
    return () if slowing is None else (slowing_text(slowing),)


def skipped_answer(ended_early: str | None) -> Answer:
    """Return the answer of a probe that was not sent."""
    return Answer(outcome=Outcome.SKIPPED, latency_seconds=0.0, detail=ended_early or ENDED_FIRST)


def build_responses(
    inputs: RunInputs, answers: Sequence[Answer], *, started_at: datetime | None = None, ended_early: str | None = None
) -> RunResponses:
    """Return the responses of a run whose answers are all at hand, by position; see `skipped_answer`."""
    decimals = inputs.decimals
    rankings = {
        position: round_ranking(answer.ranking, decimals)
        for position, answer in enumerate(answers)
        if answer.ranking is not None
    }
    unscored = {position: answer.unscored for position, answer in enumerate(answers) if answer.unscored is not None}
    too_few, gaps = missing_relevance(
        len(answers),
        scored=sum(ranking.relevance is not None for ranking in rankings.values()),
        unscored=len(unscored),
        why=next(iter(unscored.values()), None),
        lacking_fields=missing_fields(inputs.retriever.response, present_fields(rankings.values())),
    )
    signs = [answer.cache_sign for answer in answers if answer.cache_sign is not None]
    sent = sum(answer.outcome is not Outcome.SKIPPED for answer in answers)
    versions = [answer.index_version for answer in answers if answer.index_version]
    return RunResponses(
        started_at=started_at,
        rankings=rankings,
        latencies=np.array([answer.latency_seconds for answer in answers], dtype=np.float16),
        failures={
            position: ProbeFailure.of(answer)
            for position, answer in enumerate(answers)
            if answer.outcome is not Outcome.OK
        },
        unscored=unscored.keys(),
        too_few_scored=too_few,
        remarks=(
            *gaps,
            *cache_remarks(sent, cached=len(signs), sign=next(iter(signs), None)),
            *slowing_remarks(answer.slowing for answer in answers),
        ),
        index_version=versions[-1] if versions else None,
        ended_early=ended_early,
    )
