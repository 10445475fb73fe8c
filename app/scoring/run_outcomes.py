"""A run as it is judged: the responses to its probes, and its outcome, which is decided in one place.

`RunInputs`, of `run_inputs`, and `RunResponses` are all that numbers, reasons and verdict are made of; who has answers
at hand makes the latter by `build_responses`.

Live and resumed runs, the gate, re-scoring, trials and history call `evaluate`. The detector's alarm needs earlier
runs, so it is passed in as a fact; the detector needs the scores, so `score` can be called first.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.conditions import Leak, Leaks
from app.alerts.domain.rules import (
    NO_FACTS,
    RunFacts,
    condition,
    measure_value,
    named_canaries,
    silent_rules,
    watches_answers,
    watches_latency,
)
from app.alerts.domain.state import IncidentClass, class_of
from app.base.limits import merge_slowings, slowing_text
from app.base.values import (
    Aggregates,
    Answer,
    Confidential,
    EmbedderChange,
    Outcome,
    Ranking,
    Rule,
    RuleKind,
    Slowing,
    Value,
    Verdict,
    field,
    replace,
)
from app.retrievers.domain.probes import ENDED_FIRST, FailedProbe, failure_kinds, failure_reasons, latency_summary
from app.scoring.evaluation import (
    FORBIDDEN,
    NamedBy,
    Result,
    StoredResult,
    Tally,
    judge,
    judge_timings,
    known_reasons,
    named_by,
    unpack_reasons,
    wrong_fields_remark,
)
from app.scoring.rankings import Match, missing_fields, present_fields, round_ranking
from app.scoring.run_inputs import RunInputs
from app.scoring.text_changes import UNCHANGED, ChangedTexts
from app.scoring.verdicts import (
    cache_remarks,
    differs_from_gate,
    is_unknown,
    lacking_fields,
    remarks,
    run_verdict,
    too_few_scored,
)


def _empty() -> Mapping[int, Any]:
    return {}


class RunResponses(Value):
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
        failures={at: answer for at, answer in enumerate(answers) if answer.outcome is not Outcome.OK},
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


class HistoryFacts(Value):
    """Facts about a run besides its responses."""

    rule_facts: RunFacts = NO_FACTS
    """Inputs of rules: the alarm of the detector, drops below a baseline, the state of the detector's warm-up."""
    regressed: NDArray[np.intp] | None = None
    """Positions of the canaries an alarm names; None = no detector ran, and stored results keep `regressed`."""
    embedder: EmbedderChange | None = None
    embedder_reason: str | None = None
    """Finding of the embedding canaries; both None = the retriever has no embedder."""
    cause: str | None = None
    """The cause that explains the whole run, where it is known before the verdict; a sentence without its full stop."""
    names_silent_rules: bool = False
    """Whether the reasons list the rules that cannot be decided without a detector."""
    note: str | None = None
    """A reason that is added unless the verdict is unknown."""


WITHOUT_HISTORY: Final = HistoryFacts()
_JUDGED_AT_ONCE: Final = 1_000
"""Rankings; matches and arrays of more than these are never in memory together."""


class ScoredRankings(Mapping[int, Result]):
    """Results by position of the panel: matches in their stored form, numbers and reasons as the tally has them."""

    def __init__(self, tally: Tally) -> None:
        """Hold nothing yet."""
        self._tally = tally
        self._matches: dict[int, bytes] = {}

    def add(self, results: Mapping[int, Result]) -> None:
        """Add results that were just judged, also to the tally."""
        self._tally.add(results)
        self._matches.update((position, result.match.to_bytes()) for position, result in results.items())

    def match_bytes(self, position: int) -> bytes:
        """Return the match of a ranking in its stored form."""
        return self._matches[position]

    def vector(self, position: int) -> NDArray[np.float64]:
        """Return the measures of a ranking in the yardstick's order; NaN = undefined."""
        return self._tally.vector(position)

    def top_score(self, position: int) -> float | None:
        """Return the relevance of the first hit."""
        return self._tally.top_score(position)

    def __getitem__(self, position: int) -> Result:
        """Return the result of a ranking; its reasons include those of the timing."""
        return Result(
            match=Match.from_bytes(self._matches[position]),
            vector=self.vector(position),
            top_score=self.top_score(position),
            reasons=unpack_reasons(int(self._tally.reasons[position])),
        )

    def __iter__(self) -> Iterator[int]:
        """Iterate over the positions."""
        return iter(self._matches)

    def __len__(self) -> int:
        """Count the rankings."""
        return len(self._matches)


class RunScores(Value):
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


class RunOutcome(Confidential):
    """The outcome of a run. Positions count along its canaries."""

    hidden: ClassVar = ("results",)

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
    results: ScoredRankings
    """Of the rankings that were judged."""
    is_worse: bool = False
    """Whether a rule about what canaries find is broken."""

    def with_cause(self, cause: str, detail: str | None) -> "RunOutcome":
        """Return it with the cause that explains the whole run, a sentence without its full stop, as a reason.

        `detail`: the beginning of a reason that makes it redundant.
        """
        if detail and any(one.startswith(detail) for one in self.reasons):
            return self
        return replace(self, reasons=[*self.reasons, cause])

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
    inputs: RunInputs, responses: RunResponses, facts: HistoryFacts = WITHOUT_HISTORY, scores: RunScores | None = None
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
        reasons += [*_silent_bounds(rules, aggregates), *silent_rules(rules, rule_facts)]
    reasons += failure_reasons(failures, reasons)
    reasons += responses.remarks
    reasons += remarks(aggregates.total, undated=scores.undated)
    unjudged = None if rule_facts.leaks is None else rule_facts.leaks.unjudged
    reasons += [] if unjudged is None else [unjudged]
    hint = wrong_fields_remark(aggregates.coverage, _named_by(inputs, responses))
    reasons += [] if hint is None else [hint]
    differs = differs_from_gate(rules, aggregates.coverage, rule_facts.warm_up) if verdict is Verdict.HEALTHY else None
    reasons += [] if differs is None else [differs]
    reasons += [] if facts.cause is None else [facts.cause]
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
        is_worse=verdict is Verdict.DEGRADED and _breaks_a_rule_of_quality(rules, aggregates, rule_facts),
    )


def _breaks_a_rule_of_quality(rules: Iterable[Rule], aggregates: Aggregates, facts: RunFacts) -> bool:
    return any(
        condition(rule, aggregates, unknown=False, facts=facts).severity is not None
        for rule in rules
        if class_of(rule.kind) is IncidentClass.QUALITY and not watches_answers(rule.kind, rule.measure)
    )


def _silent_bounds(rules: Iterable[Rule], aggregates: Aggregates) -> list[str]:
    """Return sentences, without full stops, on the bounds whose measure a measured run does not have.

    A suite whose canaries expect nothing has no coverage, for example, so that no bound on it is ever broken.
    """
    bounds = [rule for rule in rules if rule.kind is RuleKind.THRESHOLD]
    conditions = [(rule.key, condition(rule, aggregates, unknown=False)) for rule in bounds]
    why = "" if aggregates.expecting else ", for no canary of the suite expects a chunk"
    return [f"rule '{key}' says nothing: {one.reason}{why}" for key, one in conditions if not one.measured]


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
        for position in sorted({*inputs.panel.aged, *inputs.panel.limited})
        if position not in responses.failures and position < len(responses.latencies)
    ]
    latencies = {position: float(responses.latencies[position]) for position in measured}
    changed = responses.rankings
    aged = set(inputs.panel.aged).intersection(measured)
    rankings = {place: changed[place] if place in changed else responses.aged[place] for place in aged}
    timings = judge_timings(inputs.yardstick, inputs.panel, latencies, rankings, responses.started_at)
    tally.add_timings(timings)
    return sum(timing.undated for timing in timings.values())


def _rule_facts(
    inputs: RunInputs, responses: RunResponses, reasons: NDArray[np.int64], latencies: Sequence[float], facts: RunFacts
) -> RunFacts:
    """Return the facts with those of the responses, equal to what history reads back later."""
    rules, named = inputs.yardstick.rules, named_canaries(inputs.yardstick.rules)
    places = {key: place for place, key in enumerate(inputs.suite.keys) if key in named} if named else {}
    return replace(
        facts,
        latencies=(responses.percentiles or latency_summary(latencies)) if watches_latency(rules) else {},
        canaries={
            key: None
            if place in responses.failures
            else known_reasons(int(reasons[place]), unscored=place in responses.unscored)
            for key, place in places.items()
        },
        leaks=_leaks(inputs, responses, reasons),
    )


def _leaks(inputs: RunInputs, responses: RunResponses, reasons: NDArray[np.int64]) -> Leaks:
    forbidding = inputs.suite.forbidding
    measured = [place for place in forbidding if place not in responses.failures]
    canaries = [inputs.canaries[place] for place in measured if reasons[place] & FORBIDDEN]
    found = [Leak(key=canary.key, asked_as=inputs.vars_of(canary)) for canary in canaries]
    lacking = lacking_fields(responses.remarks)
    return Leaks(
        forbidding=len(forbidding),
        unmeasured=len(forbidding) - len(measured),
        found=found,
        blind=len(inputs.suite.blind_to_leaks(lacking)),
        lacking=lacking,
    )


def aggregate_vector(names: Sequence[str], aggregates: Aggregates) -> NDArray[np.float64]:
    """Return the aggregates of these names in their order; NaN = not measured."""
    values = [_value(aggregates, name) for name in names]
    return np.array([np.nan if value is None else value for value in values])


def _value(aggregates: Aggregates, name: str) -> float | None:
    category, _, measure = name.rpartition("/")
    return measure_value(aggregates, measure, category or None)
