"""What came of asking the canaries of a run, before it is judged."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.domain.model import Answer, Outcome, Ranking
from app.domain.probing.circuit_breaker import ENDED_FIRST
from app.domain.probing.mapped_fields import missing_fields, present_fields
from app.domain.probing.probe_failures import FailedProbe, ProbeFailure
from app.domain.runs.evaluation import Stored
from app.domain.runs.rankings import settle
from app.domain.runs.run_inputs import RunInputs
from app.domain.runs.verdicts import remarks, too_few_scored


def _empty() -> Mapping[int, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResponses:
    """What came of asking the canaries of a run, by position along them."""

    started_at: datetime | None
    """When the canaries were asked; None = what the moment of an answer means is known already."""
    rankings: Mapping[int, Ranking] = field(default_factory=_empty)
    """Settled rankings that are to be judged."""
    kept: Mapping[int, Stored] = field(default_factory=_empty)
    """Results of rankings that were judged before."""
    aged: Mapping[int, Ranking] = field(default_factory=_empty)
    """Of canaries with a maximum age, the rankings that were judged before."""
    latencies: NDArray[np.float16]
    """Seconds, as exactly as runs keep them; they say nothing of probes that failed."""
    failures: Mapping[int, FailedProbe]
    """How the probes ended that measured nothing."""
    unscored: Collection[int] = ()
    """Where a scorer outside the retriever could not measure relevance."""
    too_few_scored: str | None = None
    """Why too little relevance was measured to judge the run; a sentence without its full stop."""
    remarks: tuple[str, ...] = ()
    """What the answers lack whoever judges them; sentences without full stops."""
    index_version: str | None = None
    """As the retriever reports it."""
    ended_early: str | None = None
    """Why, where the circuit breaker ended the run; a sentence without its full stop."""

    @property
    def measured_latencies(self) -> list[float]:
        """Seconds of the probes that measured."""
        return measured_latencies(self.latencies, self.failures.keys())

    def outcomes(self, total: int) -> list[Outcome]:
        """Return how the probes of so many canaries ended."""
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


def not_asked(ended_early: str | None) -> Answer:
    """Return what stands for the answer to a canary that was not asked."""
    return Answer(outcome=Outcome.SKIPPED, latency_seconds=0.0, detail=ended_early or ENDED_FIRST)


def responses_of(
    inputs: RunInputs, answers: Sequence[Answer], *, started_at: datetime | None = None, ended_early: str | None = None
) -> RunResponses:
    """Return what came of asking all canaries at once, given the answers by position; see `not_asked`."""
    decimals = inputs.decimals
    rankings = {
        position: settle(answer.ranking, decimals)
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
        remarks=gaps,
        index_version=versions[-1] if versions else None,
        ended_early=ended_early,
    )
