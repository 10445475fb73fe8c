"""Rules: how a rule judges a run and which rules cannot, which a check has by default and at the gate, their keys.

The result of judging a run is a `Condition` with its sentence, of `conditions`. How many runs it takes to open or close
an alert is decided in `state`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from app.alerts.domain.conditions import (
    LATENCIES,
    Condition,
    Leaks,
    NumberWriter,
    WarmUp,
    bad_condition,
    crossed,
    default_index_rule,
    default_leak_rule,
    default_slower_rule,
    good_condition,
    judge_bounds,
    judge_guard,
    judge_index,
    judge_leaks,
    judge_slower,
    mildest,
    unmeasured_condition,
)
from app.base.texts import (
    LATENCY_NAMES,
    bound_text,
    change_text,
    corrected_label,
    corrected_text,
    counted,
    judge_mark,
    judged_text,
    named_text,
    p_text,
    plural,
    ratio_text,
)
from app.base.values import (
    ANSWER_MEASURES,
    ANSWERED_RATIO,
    BY_LABELS,
    COVERAGE,
    DEGRADED_SHARE,
    DETECTOR_CLOSE,
    EMPTY,
    ROUNDING,
    Aggregates,
    Bound,
    Category,
    CorrectedRateView,
    EmbedderChange,
    Percentile,
    Reason,
    Rule,
    RuleKind,
    Severity,
    Value,
    field,
    judged_name,
    replace,
)
from app.catalog.domain import PooledNote, labelled, recall_label
from app.comparison.domain.estimates import Difference
from app.index_facts.domain import KnownFact
from app.retrievers.domain.probes import FailureSummary


def watches_answers(kind: str, measure: str | None) -> bool:
    """Whether a rule of a kind and a measure is about generated answers, not about what was retrieved."""
    return kind == RuleKind.THRESHOLD and measure in ANSWER_MEASURES


class Alarm(Value):
    """State of the detector after a run."""

    open: bool
    """Whether an alarm is open after this run."""
    good: bool
    """Whether this run counts towards its end; while none is open, the run is normal."""
    severity: Severity = Severity.CRITICAL
    evidence: float | None = None
    since_run: int | None = None
    """While it is open: the first run that is part of it."""
    reason: str = ""
    """A sentence without its full stop, for people."""
    undecided_reason: str = ""
    """Why the run cannot be judged though no alarm is open: the detector has learned too little yet."""


class RepeatedFailures(Value):
    """Canaries that were not measured in any of the last runs."""

    keys: Sequence[str]
    since_run: int
    """The first of these runs."""
    failure: FailureSummary | None = None
    """Why most of them failed in the newest run."""

    def sentence(self, already: str = "") -> str:
        """Write it as a sentence without its full stop, and without the failure where it is in `already`."""
        why = f": {self.failure.what}" if self.failure is not None and self.failure.what not in already else ""
        names = named_text(self.keys)
        who = f"canary {names} was" if len(self.keys) == 1 else f"canaries {names} were"
        return f"{who} not measured in {REPEATED} runs in a row{why}"


class RunFacts(Value):
    """Facts of one run."""

    alarm: Alarm | None = None
    """None = no detector evaluated this run."""
    drops: Mapping[str, Difference | str] = field(default_factory=lambda: EMPTY)
    """By rule key: how its measure differs from the baseline, or why that is unknown, without a full stop."""
    latencies: Mapping[str, float | None] = field(default_factory=lambda: EMPTY)
    """Seconds by percentile; None = nothing was measured."""
    canaries: Mapping[str, Sequence[Reason] | None] = field(default_factory=lambda: EMPTY)
    """By key, why a canary is degraded; () = it is healthy, None = it was not measured; absent = it was not asked."""
    failure: FailureSummary | None = None
    """Why most of the failed probes failed; None = none did, or it was not read: it decides nothing."""
    repeated: RepeatedFailures | None = None
    """Canaries that this run and the ones before it did not measure."""
    corrected: Mapping[str, CorrectedRateView] = field(default_factory=lambda: EMPTY)
    """By what a judge says: what people would say, where enough of them labelled answers of the check."""
    rated: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """By what a judge says, where it did not rate all answers: of how many it is, `84 of 140 rated`."""
    confirmed: Collection[str] = ()
    """What people confirmed of the judge as it rated this run, whatever it is now: else it is a warning at most."""
    unjudged: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """By what a judge says: a clause where it said nothing of many answers. Such a run is never good, and bad (a
    warning) where it said nothing of any."""
    leaks: Leaks | None = None
    """What the run found of the chunks that its canaries forbid; known of unknown runs too."""
    warm_up: WarmUp | None = None
    """State of the detector's warm-up; None = unknown."""
    baseline_latency: float | str | None = None
    """99 % quantile of the median latencies of the baseline's runs, in seconds; or why it is unknown, without a full
    stop; None = no detector evaluated this run."""
    self_judged: bool = False
    """Whether the retriever itself brought up much of what is expected: said of its recall."""
    pooled: Sequence[PooledNote] = ()
    """Pooled recall, said beside recall; both decide nothing."""
    index: Sequence[KnownFact] | None = None
    """Facts of the index, with what they were in earlier runs; None = the run has none. Known of unknown runs too."""


NO_FACTS: Final = RunFacts()
REPEATED: Final = 3
"""Runs in a row without a measurement of a canary that are bad by `probe_errors`."""


def _judge_facts(rule: Rule, facts: RunFacts, *, unknown: bool) -> Condition:
    """Condition of one ended run by a rule of the kinds `drop`, `regression`, `canary`, `latency` or `slower`.

    Raises ValueError for others.
    """
    if unknown:
        return unmeasured_condition("the run is unknown", threshold=mildest(rule))
    match rule.kind:
        case RuleKind.DROP:
            return _drop(rule, facts)
        case RuleKind.REGRESSION:
            return _regression(rule, facts.alarm)
        case RuleKind.CANARY:
            return _canary(rule, facts)
        case RuleKind.LATENCY:
            return _latency(rule, facts)
        case RuleKind.SLOWER:
            baseline = NO_HISTORY if facts.baseline_latency is None else facts.baseline_latency
            return judge_slower(rule, facts.latencies.get(Percentile.P50), baseline)
        case _:
            raise ValueError(f"a {rule.kind} rule is not judged by facts alone")


def alarm_close(rules: Iterable[Rule]) -> int:
    """Good runs in a row after which an alarm of the detector ends, by the rules of a check."""
    return next((rule.detector_close for rule in rules if rule.kind is RuleKind.REGRESSION), DETECTOR_CLOSE)


def has_kind(rules: Iterable[Rule], *kinds: RuleKind) -> bool:
    """Whether any of these rules is of one of these kinds."""
    return any(rule.kind in kinds for rule in rules)


def watches_latency(rules: Iterable[Rule]) -> bool:
    """Whether any of these rules is about how long answers take."""
    return has_kind(rules, RuleKind.LATENCY, RuleKind.SLOWER)


def watches_recall(rules: Iterable[Rule]) -> bool:
    """Whether any of these rules is about recall, whose label says where the judgments came from."""
    return any(recall_label(rule.measure or "", self_judged=True) for rule in rules)


def named_canaries(rules: Iterable[Rule]) -> set[str]:
    """Keys of the canaries that rules are about."""
    return {rule.canary for rule in rules if rule.kind is RuleKind.CANARY and rule.canary is not None}


def silent_rules(rules: Iterable[Rule], facts: RunFacts) -> list[str]:
    """Sentences, without full stops, on the rules that could not judge a measured run, and why.

    Not on `slower` before a baseline stood: that could not judge the run when it ended either.
    """
    before_baseline = isinstance(facts.baseline_latency, str)
    judged = [rule for rule in rules if rule.kind in _KINDS and not (rule.kind is RuleKind.SLOWER and before_baseline)]
    conditions = [
        (
            rule.key,
            judge_index(rule, facts.index, unknown=False)
            if rule.kind is RuleKind.INDEX
            else _judge_facts(rule, facts, unknown=False),
        )
        for rule in judged
    ]
    return [f"rule '{key}' says nothing: {one.reason}" for key, one in conditions if not one.measured]


def rule_without_history(reason: str) -> str | None:
    """Key of the rule that lacks a history by a sentence of `silent_rules`; None for any other sentence."""
    if not reason.endswith(f"' says nothing: {NO_HISTORY}"):
        return None
    return reason.removeprefix("rule '").removesuffix(f"' says nothing: {NO_HISTORY}")


NO_HISTORY: Final = "it compares with earlier runs, and no detector evaluated this one"
_KINDS: Final = frozenset(
    {
        RuleKind.DROP,
        RuleKind.REGRESSION,
        RuleKind.CANARY,
        RuleKind.LATENCY,
        RuleKind.SLOWER,
        RuleKind.INDEX,
    }
)


def _drop(rule: Rule, facts: RunFacts) -> Condition:
    """Bad where the mean fell by at least so much, and that is claimed: by its interval and by its p value."""
    difference = facts.drops.get(rule.key, "the run was not compared with a baseline")
    if isinstance(difference, str):
        return unmeasured_condition(difference)
    name, fell = _measure_name(rule, facts), -difference.difference
    levels = f"{name} {ratio_text(difference.now)} against {ratio_text(difference.before)} in the baseline"
    moved = f"{levels}, {change_text(difference.difference)} ({_evidence(difference)})"
    shown = f"{moved}, over {counted(difference.pairs, 'canary')}"
    sure = difference.claimed and difference.difference < 0
    for severity, bound in ((Severity.CRITICAL, rule.critical), (Severity.WARNING, rule.warning)):
        if bound is not None and bound.by is not None and fell >= bound.by - ROUNDING and sure:
            reason = f"{shown}: a drop of at least {bound.by:g} ({severity})"
            bad = bad_condition(severity, difference.now, difference.before - bound.by, reason)
            return replace(bad, baseline=difference.before)
    least = min((bound.by for bound in (rule.warning, rule.critical) if bound and bound.by is not None), default=0.0)
    clear, reason = fell <= least - rule.margin + ROUNDING, shown
    if fell >= least - ROUNDING:
        includes_zero = not difference.leaves_out_zero or difference.p is None
        doubt = "includes zero" if includes_zero else "does not include zero, but p is too large"
        clear, reason = False, f"{shown}: the interval {doubt}, so it may be chance"
    elif not clear:
        reason = f"{shown}: no drop of {least:g}, but within the margin of {rule.margin:g}"
    good = good_condition(difference.now, difference.before - least, reason, beyond_margin=clear)
    return replace(good, baseline=difference.before)


def _measure_name(rule: Rule, facts: RunFacts) -> str:
    """Return what a rule watches; recall with its label."""
    own, of_part = facts.self_judged, rule.category is not None
    name = labelled(rule.measure or "value", self_judged=own, pooled=facts.pooled, of_part=of_part)
    return f"{name} of {rule.category}" if rule.category else name


def _evidence(difference: Difference) -> str:
    """Return the interval of a difference and its p value."""
    interval = (
        f"{bound_text(100 * difference.confidence)} % between {change_text(difference.low)} and "
        f"{change_text(difference.high)}"
    )
    if difference.p is None:
        return interval
    return f"{interval}, p {p_text(difference.p)} corrected over the drop rules of the check"


def _regression(rule: Rule, alarm: Alarm | None) -> Condition:
    """Condition by the detector's alarm: the detector counts runs itself, so one run opens or closes."""
    if alarm is None:
        return unmeasured_condition(NO_HISTORY)
    if not alarm.open and alarm.undecided_reason:
        return unmeasured_condition(alarm.undecided_reason)
    if not alarm.open:
        return good_condition(alarm.evidence, None, alarm.reason or "the detector sees no regression")
    if alarm.good:
        reason = f"{alarm.reason or 'a regression'}; this run is good again, {rule.detector_close} in a row end it"
        return replace(good_condition(alarm.evidence, None, reason, beyond_margin=False), recovering=True)
    reason = f"{alarm.reason or 'a regression'} ({alarm.severity})"
    return replace(bad_condition(alarm.severity, alarm.evidence, None, reason), since_run=alarm.since_run)


def _canary(rule: Rule, facts: RunFacts) -> Condition:
    name = f"canary '{rule.canary}'"
    if rule.canary is None or rule.canary not in facts.canaries:
        return unmeasured_condition(f"{name} was not asked")
    reasons = facts.canaries[rule.canary]
    if reasons is None:
        return unmeasured_condition(f"{name} was not measured")
    if reasons:
        why = ", ".join(reasons)
        return bad_condition(rule.severity, None, None, f"{name} is degraded: {why} ({rule.severity})")
    return good_condition(None, None, f"{name} is healthy")


def _latency(rule: Rule, facts: RunFacts) -> Condition:
    percentile = rule.percentile or Percentile.P95
    value = facts.latencies.get(percentile)
    called = LATENCY_NAMES[percentile]
    if value is None:
        return unmeasured_condition(f"the {called} was not measured", threshold=mildest(rule))
    return judge_bounds(rule, called, value, LATENCIES)


GATE_COVERAGE: Final = 0.9
"""Least coverage of a single run of a check without rules, where there is nothing to compare it with."""

FAILED_SHARE: Final = 0.1
"""Share of failed probes above which a run is bad, where a rule names none."""
_FAILED_LEAST: Final = 2
"""Fewest failed probes that make a run bad by `FAILED_SHARE`."""

ALWAYS: Final = frozenset(
    {
        RuleKind.PROBE_ERRORS,
        RuleKind.NO_DATA,
        RuleKind.EMBEDDING,
        RuleKind.SLOWER,
        RuleKind.LEAK,
        RuleKind.INDEX,
    }
)
"""The kinds every check has by default."""
BETWEEN_RUNS: Final = frozenset({RuleKind.NO_DATA, RuleKind.PLANT})
"""The kinds that no run is judged by; see `between_runs`."""
RESERVED_KEYS: Final = ALWAYS - {RuleKind.SLOWER, RuleKind.LEAK, RuleKind.INDEX}
"""Keys that only a rule of that kind may have; the others came when checks might have had a rule with these keys."""


def condition(rule: Rule, aggregates: Aggregates, *, unknown: bool, facts: RunFacts = NO_FACTS) -> Condition:
    """Condition of one ended run by one rule. `unknown`: too little of the run was measured for a verdict.

    `facts`: those of the run beside its aggregates; a missing fact is never taken for healthy. Raises ValueError for
    `BETWEEN_RUNS`, which are about no run.
    """
    match rule.kind:
        case RuleKind.THRESHOLD:
            return _threshold(rule, aggregates, facts, unknown=unknown)
        case RuleKind.PROBE_ERRORS:
            return replace(_probe_errors(rule, aggregates, facts, unknown=unknown), failure=facts.failure)
        case RuleKind.EMBEDDING:
            return _embedding(aggregates, unknown=unknown)
        case RuleKind.GUARD | RuleKind.LEAK | RuleKind.INDEX:
            return _judge_chunks(rule, aggregates, facts, unknown=unknown)
        case RuleKind.LATENCY | RuleKind.SLOWER if not unknown and is_outage(
            aggregates.failed, aggregates.total, rule.outage_share
        ):
            failed = _failed_of(aggregates)
            return unmeasured_condition(f"{failed}: the latency of the others says nothing", threshold=mildest(rule))
        case RuleKind.DROP | RuleKind.REGRESSION | RuleKind.CANARY | RuleKind.LATENCY | RuleKind.SLOWER:
            return _judge_facts(rule, facts, unknown=unknown)
        case RuleKind.NO_DATA | RuleKind.PLANT:
            raise ValueError(f"{rule.kind} is not judged by runs; see alerts.domain.between_runs.")


def _judge_chunks(rule: Rule, aggregates: Aggregates, facts: RunFacts, *, unknown: bool) -> Condition:
    if rule.kind is RuleKind.INDEX:
        return judge_index(rule, facts.index, unknown=unknown)
    if rule.kind is RuleKind.LEAK:  # known of unknown runs too
        return judge_leaks(rule, facts.leaks, unknown=unknown)
    return judge_guard(None if unknown else aggregates.coverage, facts.warm_up, unknown=unknown)


def measure_value(aggregates: Aggregates, measure: str, category: str | None = None) -> float | None:
    """Value of what a rule watches: `health_score`, `coverage`, `degraded_share`, `answered_ratio` or a mean measure.

    None = not measured on this run.
    """
    if category is None and measure == ANSWERED_RATIO:
        category = Category.NEGATIVE
    part = aggregates if category is None else aggregates.categories.get(category)
    if part is None:
        return None
    if measure == "health_score":
        return part.health_score
    if measure == COVERAGE:
        return part.coverage
    if measure == DEGRADED_SHARE and isinstance(part, Aggregates):
        return part.degraded / part.measured if part.measured else None
    return part.measures.get(measure)


def default_rule_key(
    kind: str, measure: str | None = None, category: str | None = None, canary: str | None = None
) -> str:
    """Key of a rule without one: kind, measure, category and canary, those present, joined by `-`."""
    return "-".join(part for part in (kind, measure, category, canary) if part)


def is_silent_about_quality(kinds: Iterable[RuleKind]) -> bool:
    """Whether no rule of a check, by kind and disabled ones included, is about quality: it has those of every check."""
    return not {*kinds} - ALWAYS - {RuleKind.GUARD, RuleKind.PLANT}


def with_default_rules(
    rules: Sequence[Rule], *, disabled: Collection[str] = (), has_history: bool = True, plants: bool = False
) -> tuple[Rule, ...]:
    """Rules in force: a check's own and the default ones, without those with a disabled key.

    Every check has `probe_errors`, `no_data`, `embedding`, `leak`, `slower` and `index`; one without rules of its own
    has `regression`. Until a baseline stands a `regression` needs a `guard`, unless another rule bounds the coverage of
    the check. A disabled rule still stands in for the one of its kind: that is how `no_data` is switched off. Without a
    history nothing has a baseline of latencies, so no `slower` is added, and no `index`. `plants`: it plants documents,
    which `plant` watches.
    """
    own = tuple(rules)
    if is_silent_about_quality(rule.kind for rule in own):
        own = (_at_once(RuleKind.REGRESSION), *own)
    named = {rule.kind for rule in own} | {rule.key for rule in own}
    in_force = [rule for rule in own if rule.key not in disabled]
    watched = any(rule.kind is RuleKind.REGRESSION for rule in in_force)
    if watched and RuleKind.GUARD not in named and not any(_bounds_coverage(rule) for rule in in_force):
        own += (Rule(key=default_rule_key(RuleKind.GUARD), kind=RuleKind.GUARD, measure=COVERAGE),)
    if plants and not any(rule.kind is RuleKind.PLANT for rule in own):
        plant = _at_once(RuleKind.PLANT)
        own += (replace(plant, key=_free_key(RuleKind.PLANT, {rule.key for rule in own})),)
    return _with_those_of_every_check(own, disabled, has_history=has_history)


def with_gate_rules(
    rules: Sequence[Rule], *, compared: bool, disabled: Collection[str] = ()
) -> tuple[tuple[Rule, ...], str | None]:
    """Rules in force where there is no history, and a sentence on what a check without rules is held against.

    `compared`: there is a saved report to compare with; `regression` is then judged by it, as a service judges by the
    past. The sentence has no full stop; None where the check has rules of its own.
    """
    is_silent = is_silent_about_quality(rule.kind for rule in rules)
    if compared or not is_silent:
        why = "the check has no rules: it is compared with the saved report" if is_silent else None
        return with_default_rules(rules, disabled=disabled, has_history=False), why
    why = (
        f"the check has no rules and a single run no history: coverage must be at least {GATE_COVERAGE:g} "
        "(a service has no such bound: it compares with earlier runs)"
    )
    key = default_rule_key(RuleKind.THRESHOLD, COVERAGE)
    stand_in = Rule(key=key, kind=RuleKind.THRESHOLD, measure=COVERAGE, critical=Bound(below=GATE_COVERAGE))
    return _with_those_of_every_check((stand_in, *rules), disabled, has_history=False), why


def _with_those_of_every_check(
    rules: tuple[Rule, ...], disabled: Collection[str], *, has_history: bool = True
) -> tuple[Rule, ...]:
    kinds, keys = {rule.kind for rule in rules}, {rule.key for rule in rules}
    if RuleKind.PROBE_ERRORS not in kinds:
        rules += (Rule(key=default_rule_key(RuleKind.PROBE_ERRORS), kind=RuleKind.PROBE_ERRORS),)
    # An embedder's vectors of the reference texts do not vary by chance: one run opens or closes.
    rules += tuple(_at_once(kind) for kind in (RuleKind.NO_DATA, RuleKind.EMBEDDING) if kind not in kinds)
    if RuleKind.LEAK not in kinds:
        rules += (default_leak_rule(_free_key(RuleKind.LEAK, keys)),)
    if has_history and RuleKind.SLOWER not in kinds:
        rules += (default_slower_rule(_free_key(RuleKind.SLOWER, keys)),)
    if has_history and not any(rule.kind is RuleKind.INDEX and rule.fact is None for rule in rules):
        rules += (default_index_rule(_free_key(RuleKind.INDEX, keys)),)
    in_force = tuple(rule for rule in rules if rule.key not in disabled)
    share = outage_share(in_force)
    return tuple(replace(rule, outage_share=share) if watches_latency([rule]) else rule for rule in in_force)


def _free_key(kind: RuleKind, taken: Collection[str]) -> str:
    """Key of a default rule; another one where a check's own rule of another kind has it."""
    return f"{kind}-default" if kind in taken else default_rule_key(kind)


def _at_once(kind: RuleKind) -> Rule:
    """Default rule of a kind whose alert opens and closes with one run."""
    return Rule(key=default_rule_key(kind), kind=kind, open_bad=1, open_of=1, close=1)


def _bounds_coverage(rule: Rule) -> bool:
    """Whether a rule bounds the coverage of the whole check from below."""
    is_whole = rule.kind is RuleKind.THRESHOLD and rule.measure == COVERAGE and rule.category is None
    return is_whole and any(one is not None and one.below is not None for one in (rule.warning, rule.critical))


def _threshold(rule: Rule, aggregates: Aggregates, facts: RunFacts, *, unknown: bool) -> Condition:
    """Condition by the bounds of a rule; of `faithful` and corrected rates by people's labels, where these tell."""
    said = judged_name(rule.measure)
    hint = said is not None and said not in facts.confirmed
    judged = replace(rule, warning=rule.warning or rule.critical, critical=None) if hint else rule
    found = replace(_bounded(judged, aggregates, facts, unknown=unknown, hint=hint), uncalibrated=hint)
    unjudged = facts.unjudged.get(said or "")
    if unjudged is None or found.severity is not None:
        return found
    reason = f"{found.reason}; {unjudged}"
    if found.measured or said is None or measure_value(aggregates, said) is not None:
        return replace(found, good_beyond_margin=False, reason=reason, unjudged=unjudged)
    bad = bad_condition(Severity.WARNING, None, found.threshold, f"{reason} ({Severity.WARNING})")
    return replace(bad, uncalibrated=hint)


def _bounded(rule: Rule, aggregates: Aggregates, facts: RunFacts, *, unknown: bool, hint: bool) -> Condition:
    rate = facts.corrected.get(judged_name(rule.measure) or "")
    if rate is not None and not unknown and rule.measure in BY_LABELS:
        return _by_labels(rule, rate, hint=hint)
    mark = judge_mark(rule.measure, uncalibrated=hint, corrected=rate is not None)
    name = f"{_measure_name(rule, facts)}{mark}"
    value = None if unknown or rule.measure is None else measure_value(aggregates, rule.measure, rule.category)
    if value is None:
        why = "the run is unknown" if unknown else f"{name} was not measured"
        return unmeasured_condition(why, threshold=mildest(rule))
    rated = facts.rated.get(rule.measure or "", "") if rate is None else ""
    write = NumberWriter(value=lambda value, bound: judged_text(value, rate, rated, bound), bound=bound_text)
    return replace(judge_bounds(rule, name, value, write), beside=rate, rated=rated)


def _by_labels(rule: Rule, rate: CorrectedRateView, *, hint: bool) -> Condition:
    """Condition of a corrected rate: bad beyond a bound, if its whole interval is or the judge's own rate is as well.

    Where neither is, the rate may be there by chance: the run is neither bad nor good.
    """
    write = NumberWriter(value=lambda value, bound: corrected_text(value, rate, bound), bound=bound_text)
    label, value = corrected_label(rule.measure or "", uncalibrated=hint), rate["value"]
    shown = replace(rule, warning=_shown(rule.warning, rate), critical=_shown(rule.critical, rate))
    found, alone = (judge_bounds(one, f"{label},", value, write) for one in (shown, rule))
    if found.severity is None and alone.severity is not None:
        why = f"{alone.reason.rpartition(' (')[0]}, which its interval includes: it may be chance"
        alone = good_condition(value, alone.threshold, why, beyond_margin=False)
    return replace(alone if found.severity is None else found, corrected=rate)


def _shown(bound: Bound | None, rate: CorrectedRateView) -> Bound | None:
    """Return a bound that the interval of a rate crosses as a whole, or the judge's own rate crosses too; else None."""
    limit = None if bound is None else crossed(rate["value"], bound)
    if bound is None or limit is None:
        return None
    ends = {crossed(end, bound) for end in (rate["low"], rate["high"])}
    return bound if ends == {limit} or crossed(rate["judge_rate"], bound) == limit else None


def _probe_errors(rule: Rule, aggregates: Aggregates, facts: RunFacts, *, unknown: bool) -> Condition:
    """Condition by whether the run is unknown, by the share of failed probes, and by canaries that fail in every run.

    A run that is unknown is bad whatever the share: no other rule could open for it.
    """
    failure = facts.failure
    share = FAILED_SHARE if rule.failed_share is None else rule.failed_share
    value = aggregates.failed / aggregates.total if aggregates.total else None
    counted = _failed_of(aggregates)
    if value is None:
        return bad_condition(Severity.CRITICAL, None, share, "the run has no probes, so nothing is known (critical)")
    if unknown:
        why = _why_unknown(aggregates)
        if failure is None or failure.what not in why:
            why += _why_failed(failure, aggregates)
        return bad_condition(Severity.CRITICAL, value, share, f"{counted}{why} (critical)")
    least = _FAILED_LEAST if rule.failed_share is None else 1
    repeated = facts.repeated
    over = is_outage(aggregates.failed, aggregates.total, rule.failed_share)
    reasons = [f"{counted}, more than {100 * share:g} % of them{_why_failed(failure, aggregates)}"] if over else []
    reasons += [repeated.sentence(already="".join(reasons))] if repeated is not None else []
    if reasons:
        bad = bad_condition(Severity.WARNING, value, share, f"{'; '.join(reasons)} (warning)")
        return bad if repeated is None else replace(bad, since_run=repeated.since_run, at_once=True)
    clear = aggregates.failed < least or value <= share - rule.margin + ROUNDING
    reason = counted if clear else f"{counted}, within the margin of {100 * rule.margin:g} %"
    return good_condition(value, share, reason, beyond_margin=clear)


def is_outage(failed: int, total: int, failed_share: float | None) -> bool:
    """Whether a run is bad by how many of its probes failed; `failed_share`: as in Rule."""
    share, least = (FAILED_SHARE, _FAILED_LEAST) if failed_share is None else (failed_share, 1)
    return failed >= least and failed > (share + ROUNDING) * total


def outage_share(rules: Iterable[Rule]) -> float | None:
    """Return the `failed_share` of the `probe_errors` in force; 1 where there is none, so that no run is an outage."""
    return next((rule.failed_share for rule in rules if rule.kind is RuleKind.PROBE_ERRORS), 1.0)


def _failed_of(aggregates: Aggregates) -> str:
    return f"{aggregates.failed} of {aggregates.total} {plural(aggregates.total, 'probe')} failed"


def _why_unknown(aggregates: Aggregates) -> str:
    """Clause after the count of failed probes: the run is unknown, and why where the count does not explain it."""
    if aggregates.unknown_reason is None or 2 * aggregates.measured < aggregates.total:
        return ", so the run is unknown"
    return f", and the run is unknown: {aggregates.unknown_reason}"


def _why_failed(failure: FailureSummary | None, aggregates: Aggregates) -> str:
    """Clause after the count of failed probes: where and how they failed."""
    if failure is None:
        return ""
    return f": {failure.what}" + ("" if failure.count == aggregates.failed else f" ({failure.counts})")


def _embedding(aggregates: Aggregates, *, unknown: bool) -> Condition:
    """Condition by whether the embedder is the one its reference was learned from; good where there is none.

    An unknown run is bad as well where the embedder changed: that is measured whatever the probes do, and may be why
    they fail. It is never good: an unknown run measured too little to close an alert.
    """
    if aggregates.embedder is None and aggregates.embedder_reason is not None:
        return unmeasured_condition(aggregates.embedder_reason)
    reason = aggregates.embedder_reason or "there is no embedder"
    if aggregates.embedder not in {None, EmbedderChange.SAME, EmbedderChange.DRIFTED}:
        return bad_condition(Severity.CRITICAL, None, None, f"{reason} (critical)")
    if unknown:
        return unmeasured_condition("the run is unknown")
    return good_condition(None, None, reason)
