"""What rules look at on one run beside its aggregates, and what those rules say of it that look at nothing else.

Whoever gathers the facts may leave out what no rule of the check looks at. What is not known is never healthy: a rule
says nothing of a run of which it does not know.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.domain.alerts.conditions import LATENCIES, Condition, bad, bounded, good, mildest, silent
from app.domain.alerts.guard import WarmUp
from app.domain.comparison.significance import Difference
from app.domain.counts import counted
from app.domain.model import EMPTY, ROUNDING, Bound, Percentile, Reason, Rule, RuleKind, Severity
from app.domain.number_text import LATENCY_NAMES, bound_text, change_text, ratio_text
from app.domain.probing.probe_failures import FailureSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """What the detector says after a run."""

    open: bool
    """An alarm stands after this run."""
    good: bool
    """This run counts towards its end; while none stands, it is no part of one."""
    severity: Severity = Severity.CRITICAL
    evidence: float | None = None
    since_run: int | None = None
    """While it is open: the first run that is part of it."""
    reason: str = ""
    """A sentence without its full stop, for people."""
    untold: str = ""
    """Why nobody can tell whether all is well, though no alarm stands: the detector knows too little yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of one run."""

    alarm: Alarm | None = None
    """None = nobody watched this run."""
    drops: Mapping[str, Difference | str] = field(default_factory=lambda: EMPTY)
    """By rule key: how its measure differs from the baseline, or a sentence without its full stop why nobody knows."""
    latencies: Mapping[str, float | None] = field(default_factory=lambda: EMPTY)
    """Seconds by percentile; None = nothing was measured."""
    canaries: Mapping[str, Sequence[Reason] | None] = field(default_factory=lambda: EMPTY)
    """By key, why a canary is degraded; () = it is healthy, None = it was not measured; absent = it was not asked."""
    failure: FailureSummary | None = None
    """Why most of the probes that failed did; None = none did, or that was not read: it decides nothing."""
    warm_up: WarmUp | None = None
    """How far the detector was; None = nobody knows."""


NO_FACTS: Final = RunFacts()


def judge_facts(rule: Rule, facts: RunFacts, *, unknown: bool) -> Condition:
    """Judge one ended run by a rule of the kinds `drop`, `regression`, `canary` or `latency`.

    Raises ValueError for others.
    """
    if unknown:
        return silent("the run is unknown", threshold=mildest(rule))
    match rule.kind:
        case RuleKind.DROP:
            return _drop(rule, facts.drops.get(rule.key, "the run was not compared with a baseline"))
        case RuleKind.REGRESSION:
            return _regression(rule, facts.alarm)
        case RuleKind.CANARY:
            return _canary(rule, facts)
        case RuleKind.LATENCY:
            return _latency(rule, facts)
        case _:
            raise ValueError(f"a {rule.kind} rule does not look at facts alone")


def asks_about(rules: Iterable[Rule], *kinds: RuleKind) -> bool:
    """Whether any of these rules is of one of these kinds."""
    return any(rule.kind in kinds for rule in rules)


def named_canaries(rules: Iterable[Rule]) -> set[str]:
    """Return the keys of the canaries that rules are about."""
    return {rule.canary for rule in rules if rule.kind is RuleKind.CANARY and rule.canary is not None}


def unsaid(rules: Iterable[Rule], facts: RunFacts) -> list[str]:
    """Say which rules had nothing to say of a run that measured, and why; sentences without full stops."""
    asked = [rule for rule in rules if rule.kind in _KINDS]
    found = [(rule.key, judge_facts(rule, facts, unknown=False)) for rule in asked]
    return [f"rule '{key}' says nothing: {one.reason}" for key, one in found if not one.measured]


def rule_without_history(reason: str) -> str | None:
    """Give the key of the rule that a sentence of `unsaid` says lacks a history; None for any other reason."""
    if not reason.endswith(f"' says nothing: {NO_HISTORY}"):
        return None
    return reason.removeprefix("rule '").removesuffix(f"' says nothing: {NO_HISTORY}")


NO_HISTORY: Final = "it is told from the runs before, and no detector looked at this one"
_KINDS: Final = frozenset({RuleKind.DROP, RuleKind.REGRESSION, RuleKind.CANARY, RuleKind.LATENCY})


def _drop(rule: Rule, found: Difference | str) -> Condition:
    """Bad where the mean fell by at least so much, and the interval of the difference leaves out zero."""
    if isinstance(found, str):
        return silent(found)
    name = f"{rule.measure} of {rule.category}" if rule.category else f"{rule.measure}"
    fell = -found.difference
    interval = f"{bound_text(found.confidence)} interval {change_text(found.low)} to {change_text(found.high)}"
    levels = f"{name} {ratio_text(found.now)} against {ratio_text(found.before)} in the baseline"
    moved = f"{levels}, {change_text(found.difference)} ({interval})"
    shown = f"{moved}, over {counted(found.pairs, 'canary')}"
    sure = found.high < 0
    for severity, bound in ((Severity.CRITICAL, rule.critical), (Severity.WARNING, rule.warning)):
        if bound is not None and bound.by is not None and fell >= bound.by - ROUNDING and sure:
            reason = f"{shown}: a drop of at least {bound.by:g} ({severity})"
            return _against(bad(severity, found.now, found.before - bound.by, reason), found)
    least = _least(rule)
    threshold = found.before - least
    if fell >= least - ROUNDING:
        reason = f"{shown}: the interval does not leave out zero, so it may be chance"
        return _against(good(found.now, threshold, reason, beyond_margin=False), found)
    clear = fell <= least - rule.margin + ROUNDING
    reason = shown if clear else f"{shown}: no drop of {least:g}, but within the margin of {rule.margin:g}"
    return _against(good(found.now, threshold, reason, beyond_margin=clear), found)


def _least(rule: Rule) -> float:
    """Give the smallest drop that is bad."""
    bounds = [bound.by for bound in (rule.warning or Bound(), rule.critical or Bound()) if bound.by is not None]
    return min(bounds, default=0.0)


def _against(found: Condition, difference: Difference) -> Condition:
    return Condition(
        measured=found.measured,
        severity=found.severity,
        value=found.value,
        threshold=found.threshold,
        good_beyond_margin=found.good_beyond_margin,
        reason=found.reason,
        baseline=difference.before,
    )


def _regression(rule: Rule, alarm: Alarm | None) -> Condition:
    """Say what the detector says: it has counted runs already, so one is enough, either way."""
    if alarm is None:
        return silent(NO_HISTORY)
    if not alarm.open and alarm.untold:
        return silent(alarm.untold)
    if not alarm.open:
        return good(alarm.evidence, None, alarm.reason or "the detector sees no regression")
    if alarm.good:
        reason = f"{alarm.reason or 'a regression'}; this run is good again, {rule.detector_close} in a row end it"
        return replace(good(alarm.evidence, None, reason, beyond_margin=False), recovering=True)
    found = bad(alarm.severity, alarm.evidence, None, f"{alarm.reason or 'a regression'} ({alarm.severity})")
    return replace(found, since_run=alarm.since_run)


def _canary(rule: Rule, facts: RunFacts) -> Condition:
    """Bad where the named canary is degraded."""
    name = f"canary '{rule.canary}'"
    if rule.canary is None or rule.canary not in facts.canaries:
        return silent(f"{name} was not asked")
    reasons = facts.canaries[rule.canary]
    if reasons is None:
        return silent(f"{name} was not measured")
    if reasons:
        why = ", ".join(reasons)
        return bad(rule.severity, None, None, f"{name} is degraded: {why} ({rule.severity})")
    return good(None, None, f"{name} is healthy")


def _latency(rule: Rule, facts: RunFacts) -> Condition:
    """Compare a percentile of the run's latencies with the rule's bounds."""
    percentile = rule.percentile or Percentile.P95
    value = facts.latencies.get(percentile)
    called = LATENCY_NAMES[percentile]
    if value is None:
        return silent(f"the {called} was not measured", threshold=mildest(rule))
    return bounded(rule, called, value, LATENCIES)
