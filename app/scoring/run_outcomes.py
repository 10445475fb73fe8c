"""The outcome of a run: all numbers, reasons and the verdict, decided in one place.

Live and resumed runs, the gate, re-scoring, trials and history call `evaluate`. The detector's alarm needs earlier
runs, so it is passed in as a fact; the detector needs the scores, so `score` can be called first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.rule_facts import NO_FACTS, RunFacts, named_canaries, silent_rules, watches_latency
from app.alerts.domain.rules import differs_from_gate, silent_bounds
from app.base.aggregates import Aggregates
from app.base.values import EmbedderChange, Outcome, Verdict
from app.retrievers.domain.latency_summary import latency_summary
from app.retrievers.domain.probe_failures import failure_kinds, failure_reasons
from app.scoring.aggregate_vectors import aggregate_vector
from app.scoring.evaluation import judge, judge_timings
from app.scoring.run_inputs import RunInputs
from app.scoring.run_responses import RunResponses
from app.scoring.scored_rankings import ScoredRankings
from app.scoring.tally import Tally, known_reasons
from app.scoring.text_changes import UNCHANGED, ChangedTexts
from app.scoring.verdicts import is_unknown, remarks, run_verdict
from app.scoring.wrong_fields import NamedBy, named_by, wrong_fields_remark


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFacts:
    """Facts about a run besides its responses."""

    rule_facts: RunFacts = NO_FACTS
    """Inputs of rules: the alarm of the detector, drops below a baseline, the state of the detector's warm-up."""
    regressed: NDArray[np.intp] | None = None
    """Positions of the canaries an alarm names; None = no detector ran, and stored results keep `regressed`."""
    embedder: EmbedderChange | None = None
    embedder_reason: str | None = None
    """Finding of the embedding canaries; both None = the retriever has no embedder."""
    cause: str | None = None
    """The cause that explains the whole run; a sentence without its full stop."""
    cause_detail: str | None = None
    """The beginning of a reason that makes `cause` redundant."""
    names_silent_rules: bool = False
    """Whether the reasons list the rules that cannot be decided without a detector."""
    note: str | None = None
    """A reason that is added unless the verdict is unknown."""


WITHOUT_HISTORY: Final = HistoryFacts()
_JUDGED_AT_ONCE: Final = 1_000
"""Rankings; matches and arrays of more than these are never in memory together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScores:
    """The scores of a run's canaries."""

    tally: Tally
    results: ScoredRankings
    """Of the rankings that were judged."""
    undated: int
    """Number of measured canaries with a maximum age whose hits have no date."""
    unknown: bool
    """Whether the verdict is unknown, whatever the scores."""
    texts: ChangedTexts = UNCHANGED
    """How the texts of the same chunks changed since canaries were whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The outcome of a run. Positions count along its canaries."""

    verdict: Verdict
    reasons: list[str]
    """Sentences without full stops."""
    aggregates: Aggregates
    vector: NDArray[np.float64]
    """The aggregates stored with a run, in the order of the inputs' `vector_names`; NaN = not measured."""
    outcomes: Sequence[Outcome]
    """Probe outcomes by position."""
    latencies: Sequence[float]
    """Seconds of the probes that measured."""
    canary_reasons: NDArray[np.int64]
    """Reasons of the canaries in this run, as bits by position."""
    lasting_reasons: NDArray[np.int64]
    """The same with the reasons about relevance as of its last measurement."""
    results: ScoredRankings = field(repr=False)
    """Of the rankings that were judged."""

    @property
    def degraded(self) -> NDArray[np.intp]:
        """The positions of the degraded canaries; one whose probe failed is unknown, not degraded."""
        places = np.flatnonzero(self.canary_reasons)
        return places[[self.outcomes[place] is Outcome.OK for place in places.tolist()]] if len(places) else places


def score(inputs: RunInputs, responses: RunResponses, tally: Tally | None = None) -> RunScores:
    """Return the scores of a run: new rankings judged, stored results added, and the timing of every answer judged.

    `tally`: the results of earlier runs, updated in place.
    """
    tally = Tally(inputs.yardstick, inputs.panel) if tally is None else tally
    results = ScoredRankings(tally)
    rankings = iter(responses.rankings.items())
    while block := dict(islice(rankings, _JUDGED_AT_ONCE)):
        results.add(judge(inputs.yardstick, inputs.panel, block))
    tally.add_stored(responses.kept)
    undated = _judge_timings(inputs, responses, tally) if responses.started_at is not None else 0
    expects, failed = inputs.panel.expects, list(responses.failures)
    unknown = is_unknown(
        total=len(expects),
        measured=len(expects) - len(failed),
        expecting=int(expects.sum()),
        undefined=int((~expects).sum() - (~expects[failed]).sum()),
    )
    silent = bool(responses.too_few_scored or responses.ended_early)
    return RunScores(tally=tally, results=results, undated=undated, unknown=unknown or silent)


def evaluate(
    inputs: RunInputs,
    responses: RunResponses,
    facts: HistoryFacts = WITHOUT_HISTORY,
    scores: RunScores | None = None,
) -> RunOutcome:
    """Return the outcome of a run; `scores` are those of `score`, where the facts needed them first."""
    scores = score(inputs, responses) if scores is None else scores
    lasting = scores.tally if facts.regressed is None else scores.tally.with_regressed(facts.regressed)
    tally = lasting.without_relevance(responses.unscored)
    rules, outcomes = inputs.yardstick.rules, responses.outcomes(len(inputs.panel))
    latencies = responses.measured_latencies
    aggregates = tally.aggregates(outcomes)
    if facts.embedder is not None or facts.embedder_reason is not None:
        aggregates = replace(aggregates, embedder=facts.embedder, embedder_reason=facts.embedder_reason)
    failures = failure_kinds(responses.failures.values(), len(inputs.panel))
    rule_facts = _rule_facts(inputs, responses, tally.reasons, latencies, facts.rule_facts)
    rule_facts = replace(rule_facts, failure=next(iter(failures), None))
    verdict, reasons = run_verdict(
        aggregates, rules, ended_early=responses.ended_early, too_few_scored=responses.too_few_scored, facts=rule_facts
    )
    if facts.names_silent_rules and verdict is not Verdict.UNKNOWN:
        reasons += [*silent_bounds(rules, aggregates), *silent_rules(rules, rule_facts)]
    reasons += failure_reasons(failures, reasons)
    reasons += responses.remarks
    reasons += remarks(aggregates.total, undated=scores.undated)
    hint = wrong_fields_remark(aggregates.coverage, _named_by(inputs, responses))
    reasons += [] if hint is None else [hint]
    differs = differs_from_gate(rules, aggregates.coverage, rule_facts.warm_up) if verdict is Verdict.HEALTHY else None
    reasons += [] if differs is None else [differs]
    reasons += [] if facts.cause is None or _has_reason(reasons, facts.cause_detail) else [facts.cause]
    reasons += [] if facts.note is None or verdict is Verdict.UNKNOWN else [facts.note]
    return RunOutcome(
        verdict=verdict,
        reasons=reasons,
        aggregates=aggregates,
        vector=aggregate_vector(inputs.vector_names, aggregates),
        outcomes=outcomes,
        latencies=latencies,
        canary_reasons=tally.reasons,
        lasting_reasons=lasting.reasons,
        results=scores.results,
    )


def finds_nothing(scores: RunScores, responses: RunResponses, total: int) -> bool:
    """Whether no canary of a run found what it expects; `total` = its canaries."""
    return scores.tally.aggregates(responses.outcomes(total)).coverage == 0


def _named_by(inputs: RunInputs, responses: RunResponses) -> Iterator[NamedBy | None]:
    expects = inputs.panel.expects
    yield from (one for place, one in responses.named_by.items() if expects[place])
    yield from (named_by(inputs.canaries[place], one) for place, one in responses.rankings.items() if expects[place])


def _judge_timings(inputs: RunInputs, responses: RunResponses, tally: Tally) -> int:
    """Judge age and latency of every answer with such a limit; return for how many canaries the hits have no date.

    An unchanged ranking is judged too: it has become older.
    """
    assert responses.started_at is not None  # noqa: S101 - the caller checks
    measured = [
        position
        for position in inputs.panel.timed
        if position not in responses.failures and position < len(responses.latencies)
    ]
    latencies = {position: float(responses.latencies[position]) for position in measured}
    changed, aged = responses.rankings, [place for place in measured if _has_max_age(inputs, place)]
    rankings = {place: changed[place] if place in changed else responses.aged[place] for place in aged}
    timings = judge_timings(inputs.yardstick, inputs.panel, latencies, rankings, responses.started_at)
    tally.add_timings(timings)
    return sum(timing.undated for timing in timings.values())


def _has_max_age(inputs: RunInputs, position: int) -> bool:
    return inputs.canaries[position].max_age_seconds is not None


def _rule_facts(
    inputs: RunInputs,
    responses: RunResponses,
    reasons: NDArray[np.int64],
    latencies: Sequence[float],
    facts: RunFacts,
) -> RunFacts:
    """Return the facts with those of the responses, equal to what history reads back later."""
    rules, named = inputs.yardstick.rules, named_canaries(inputs.yardstick.rules)
    places = {one.key: place for place, one in enumerate(inputs.canaries) if one.key in named} if named else {}
    return replace(
        facts,
        latencies=(responses.percentiles or latency_summary(latencies)) if watches_latency(rules) else {},
        canaries={
            key: None
            if place in responses.failures
            else known_reasons(int(reasons[place]), unscored=place in responses.unscored)
            for key, place in places.items()
        },
    )


def _has_reason(reasons: Sequence[str], detail: str | None) -> bool:
    return bool(detail) and any(one.startswith(detail or "") for one in reasons)
