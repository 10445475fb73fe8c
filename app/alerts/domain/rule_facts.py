"""Facts of one run beside its aggregates, and the rules that are judged by these facts alone.

The caller may leave out facts that no rule of the check uses. Unknown is never healthy: without its fact a rule does
not judge the run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.alerts.domain.conditions import (
    LATENCIES,
    Condition,
    bad_condition,
    good_condition,
    judge_bounds,
    mildest,
    unmeasured_condition,
)
from app.alerts.domain.slower import judge_slower
from app.base.counts import counted
from app.base.number_text import LATENCY_NAMES, bound_text, change_text, p_text, ratio_text
from app.base.values import EMPTY, ROUNDING, Bound, Percentile, Reason, Rule, RuleKind, Severity
from app.comparison.domain.significance import Difference
from app.detection.domain.guard import WarmUp
from app.retrievers.domain.probe_failures import FailureSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedFailures:
    """Canaries that were not measured in any of the last runs."""

    keys: Sequence[str]
    since_run: int
    """The first of these runs."""
    failure: FailureSummary | None = None
    """Why most of them failed in the newest run."""

    def sentence(self, already: str = "") -> str:
        """Write it as a sentence without its full stop, and without the failure where it is in `already`."""
        one = len(self.keys) == 1
        more = f" and {len(self.keys) - _NAMED:,} more" if len(self.keys) > _NAMED else ""
        names = ", ".join(self.keys[:_NAMED]) + more
        why = f": {self.failure.what}" if self.failure is not None and self.failure.what not in already else ""
        who = f"canary {names} was" if one else f"canaries {names} were"
        return f"{who} not measured in {REPEATED} runs in a row{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
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
    warm_up: WarmUp | None = None
    """State of the detector's warm-up; None = unknown."""
    baseline_latency: float | str | None = None
    """99 % quantile of the median latencies of the baseline's runs, in seconds; or why it is unknown, without a full
    stop; None = no detector evaluated this run."""


NO_FACTS: Final = RunFacts()
REPEATED: Final = 3
"""Runs in a row without a measurement of a canary that are bad by `probe_errors`."""
_NAMED: Final = 5


def judge_facts(rule: Rule, facts: RunFacts, *, unknown: bool) -> Condition:
    """Condition of one ended run by a rule of the kinds `drop`, `regression`, `canary`, `latency` or `slower`.

    Raises ValueError for others.
    """
    if unknown:
        return unmeasured_condition("the run is unknown", threshold=mildest(rule))
    match rule.kind:
        case RuleKind.DROP:
            return _drop(rule, facts.drops.get(rule.key, "the run was not compared with a baseline"))
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


def has_kind(rules: Iterable[Rule], *kinds: RuleKind) -> bool:
    """Whether any of these rules is of one of these kinds."""
    return any(rule.kind in kinds for rule in rules)


def watches_latency(rules: Iterable[Rule]) -> bool:
    """Whether any of these rules is about how long answers take."""
    return has_kind(rules, RuleKind.LATENCY, RuleKind.SLOWER)


def named_canaries(rules: Iterable[Rule]) -> set[str]:
    """Keys of the canaries that rules are about."""
    return {rule.canary for rule in rules if rule.kind is RuleKind.CANARY and rule.canary is not None}


def silent_rules(rules: Iterable[Rule], facts: RunFacts) -> list[str]:
    """Sentences, without full stops, on the rules that could not judge a measured run, and why.

    Not on `slower` before a baseline stood: that could not judge the run when it ended either.
    """
    before_baseline = isinstance(facts.baseline_latency, str)
    judged = [rule for rule in rules if rule.kind in _KINDS and not (rule.kind is RuleKind.SLOWER and before_baseline)]
    conditions = [(rule.key, judge_facts(rule, facts, unknown=False)) for rule in judged]
    return [f"rule '{key}' says nothing: {one.reason}" for key, one in conditions if not one.measured]


def rule_without_history(reason: str) -> str | None:
    """Key of the rule that lacks a history by a sentence of `silent_rules`; None for any other sentence."""
    if not reason.endswith(f"' says nothing: {NO_HISTORY}"):
        return None
    return reason.removeprefix("rule '").removesuffix(f"' says nothing: {NO_HISTORY}")


NO_HISTORY: Final = "it compares with earlier runs, and no detector evaluated this one"
_KINDS: Final = frozenset({RuleKind.DROP, RuleKind.REGRESSION, RuleKind.CANARY, RuleKind.LATENCY, RuleKind.SLOWER})


def _drop(rule: Rule, difference: Difference | str) -> Condition:
    """Bad where the mean fell by at least so much, and that is claimed: by its interval and by its p value."""
    if isinstance(difference, str):
        return unmeasured_condition(difference)
    name = f"{rule.measure} of {rule.category}" if rule.category else f"{rule.measure}"
    fell = -difference.difference
    levels = f"{name} {ratio_text(difference.now)} against {ratio_text(difference.before)} in the baseline"
    moved = f"{levels}, {change_text(difference.difference)} ({_evidence(difference)})"
    shown = f"{moved}, over {counted(difference.pairs, 'canary')}"
    sure = difference.claimed and difference.difference < 0
    for severity, bound in ((Severity.CRITICAL, rule.critical), (Severity.WARNING, rule.warning)):
        if bound is not None and bound.by is not None and fell >= bound.by - ROUNDING and sure:
            reason = f"{shown}: a drop of at least {bound.by:g} ({severity})"
            condition = bad_condition(severity, difference.now, difference.before - bound.by, reason)
            return replace(condition, baseline=difference.before)
    least = _least(rule)
    threshold = difference.before - least
    if fell >= least - ROUNDING:
        reason = f"{shown}: {_doubt(difference)}, so it may be chance"
        condition = good_condition(difference.now, threshold, reason, beyond_margin=False)
        return replace(condition, baseline=difference.before)
    clear = fell <= least - rule.margin + ROUNDING
    reason = shown if clear else f"{shown}: no drop of {least:g}, but within the margin of {rule.margin:g}"
    condition = good_condition(difference.now, threshold, reason, beyond_margin=clear)
    return replace(condition, baseline=difference.before)


def _doubt(difference: Difference) -> str:
    """Clause on why a difference is not claimed."""
    if not difference.leaves_out_zero or difference.p is None:
        return "the interval includes zero"
    return "the interval does not include zero, but p is too large"


def _evidence(difference: Difference) -> str:
    """Return the interval of a difference and its p value."""
    interval = (
        f"{bound_text(100 * difference.confidence)} % between {change_text(difference.low)} and "
        f"{change_text(difference.high)}"
    )
    if difference.p is None:
        return interval
    return f"{interval}, p {p_text(difference.p)} corrected over the drop rules of the check"


def _least(rule: Rule) -> float:
    bounds = [bound.by for bound in (rule.warning or Bound(), rule.critical or Bound()) if bound.by is not None]
    return min(bounds, default=0.0)


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
