"""Rules: what one says about a single run, which every check has, and the keys by which alerts are known.

How many runs it takes to open or close an alert is decided in alerting.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from app.domain.conditions import ROUNDING, Condition, bad, bounded, good, mildest, silent
from app.domain.counting import plural
from app.domain.facts import NO_FACTS, RunFacts, judge_facts
from app.domain.model import Aggregates, Bound, Category, EmbedderChange, Rule, RuleKind, Severity
from app.domain.probe_failures import FailureSummary

__all__ = [
    "ALWAYS",
    "ANSWERED_RATIO",
    "DEGRADED_SHARE",
    "LONGEST_KEY",
    "ROUNDING",
    "Condition",
    "condition",
    "dedupe_key",
    "default_rule_key",
    "measure_value",
    "with_default_rules",
]

DEGRADED_SHARE: Final = "degraded_share"
"""Degraded canaries over measured ones."""
ANSWERED_RATIO: Final = "answered_ratio"
"""Of the measured negative canaries of which it can be told, those answered with confidence or, where nothing may be
returned, at all; an entry of the category `negative` alone."""

LONGEST_KEY: Final = 255

ALWAYS: Final = frozenset({RuleKind.PROBE_ERRORS, RuleKind.NO_DATA, RuleKind.EMBEDDING})
"""The kinds every check has without asking."""


def condition(rule: Rule, aggregates: Aggregates, *, unknown: bool, facts: RunFacts = NO_FACTS) -> Condition:
    """Judge one ended run by one rule. `unknown`: the run's verdict is, because too little of it was measured.

    `facts`: what is known of the run beside its aggregates; what is not known is never taken for healthy.

    Raises ValueError for `no_data`, which is about runs that never came.
    """
    match rule.kind:
        case RuleKind.THRESHOLD:
            return _threshold(rule, aggregates, unknown=unknown)
        case RuleKind.PROBE_ERRORS:
            found = _probe_errors(rule, aggregates, unknown=unknown, failure=facts.failure)
            return replace(found, failure=facts.failure)
        case RuleKind.EMBEDDING:
            return _embedding(aggregates, unknown=unknown)
        case RuleKind.DROP | RuleKind.REGRESSION | RuleKind.CANARY | RuleKind.LATENCY:
            return judge_facts(rule, facts, unknown=unknown)
        case RuleKind.NO_DATA:
            raise ValueError("no_data is not judged by runs; see alerting.no_data_due.")


def measure_value(aggregates: Aggregates, measure: str, category: str | None = None) -> float | None:
    """Look up what a rule watches: `health_score`, `coverage`, `degraded_share`, `answered_ratio` or a mean measure.

    None = not measured on this run.
    """
    if category is None and measure == ANSWERED_RATIO:
        category = Category.NEGATIVE
    part = aggregates if category is None else aggregates.categories.get(category)
    if part is None:
        return None
    if measure == "health_score":
        return part.health_score
    if measure == "coverage":
        return part.coverage
    if measure == DEGRADED_SHARE and isinstance(part, Aggregates):
        return part.degraded / part.measured if part.measured else None
    return part.measures.get(measure)


def default_rule_key(
    kind: str, measure: str | None = None, category: str | None = None, canary: str | None = None
) -> str:
    """Name a rule nobody named: kind, measure, category and canary, those present, joined by `-`."""
    return "-".join(part for part in (kind, measure, category, canary) if part)


def with_default_rules(rules: Sequence[Rule], *, disabled: Collection[str] = ()) -> tuple[Rule, ...]:
    """Give the rules in force: a check's own and those it has without asking, less those with a disabled key.

    Without asking it has `probe_errors`, `no_data`, `embedding`, and coverage if nothing else is watched. A disabled
    rule still stands in for the one of its kind: that is how `no_data` is switched off.
    """
    kinds = {rule.kind for rule in rules}
    own: tuple[Rule, ...] = tuple(rules)
    if not kinds - ALWAYS:
        own = (
            Rule(
                key=default_rule_key(RuleKind.THRESHOLD, "coverage"),
                kind=RuleKind.THRESHOLD,
                measure="coverage",
                critical=Bound(below=0.9),
            ),
            *own,
        )
    if RuleKind.PROBE_ERRORS not in kinds:
        own += (Rule(key=default_rule_key(RuleKind.PROBE_ERRORS), kind=RuleKind.PROBE_ERRORS),)
    if RuleKind.NO_DATA not in kinds:
        own += (Rule(key=default_rule_key(RuleKind.NO_DATA), kind=RuleKind.NO_DATA, open_bad=1, open_of=1, close=1),)
    if RuleKind.EMBEDDING not in kinds:  # what known texts say is no matter of chance: one run is enough, either way
        key = default_rule_key(RuleKind.EMBEDDING)
        own += (Rule(key=key, kind=RuleKind.EMBEDDING, open_bad=1, open_of=1, close=1),)
    return tuple(rule for rule in own if rule.key not in disabled)


def dedupe_key(check: str, rule_key: str, scope: str = "") -> str:
    """Name one fault for receivers: the same for every opening, on every replica, after every restart.

    At most 255 ASCII characters (PagerDuty's limit for `dedup_key`); different parts never share a key. A key that
    would be longer ends in a digest instead.
    """
    whole = "/".join(["coalmine", *(quote(part, safe="@") for part in (check, rule_key, scope) if part)])
    if len(whole) <= LONGEST_KEY:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:32]
    return f"{whole[: LONGEST_KEY - len(digest) - 1]}~{digest}"


def _threshold(rule: Rule, aggregates: Aggregates, *, unknown: bool) -> Condition:
    """Compare an aggregate with the rule's bounds."""
    name = f"{rule.measure} of {rule.category}" if rule.category else f"{rule.measure}"
    value = None if unknown or rule.measure is None else measure_value(aggregates, rule.measure, rule.category)
    if value is None:
        return silent("the run is unknown" if unknown else f"{name} was not measured", threshold=mildest(rule))
    return bounded(rule, name, value)


def _probe_errors(rule: Rule, aggregates: Aggregates, *, unknown: bool, failure: FailureSummary | None) -> Condition:
    """Compare the share of failed probes with the rule's, or else with what makes a run unknown; every run counts.

    A run that is unknown though half of its probes measured was ended early, since the last ones failed in a row,
    measured none that expects something, or got too little relevance from outside: it is bad whatever the share, and no
    other rule could say so.
    """
    value = aggregates.failed / aggregates.total if aggregates.total else None
    counted = f"{aggregates.failed} of {aggregates.total} {plural(aggregates.total, 'probe')} failed"
    if value is None:
        return bad(Severity.CRITICAL, None, rule.failed_share, "the run has no probes, so nothing is known (critical)")
    if unknown and (rule.failed_share is None or 2 * aggregates.measured >= aggregates.total):
        why = _why_unknown(aggregates)
        if failure is None or failure.what not in why:
            why += _why_failed(failure, aggregates)
        reason = f"{counted}{why} (critical)"
        return bad(Severity.CRITICAL, value, rule.failed_share, reason)
    clear = True
    if rule.failed_share is not None:
        if value > rule.failed_share + ROUNDING:
            reason = f"{counted}, more than {rule.failed_share:g} of them{_why_failed(failure, aggregates)} (critical)"
            return bad(Severity.CRITICAL, value, rule.failed_share, reason)
        clear = value <= rule.failed_share - rule.margin + ROUNDING
    reason = counted if clear else f"{counted}, within the margin of {rule.margin:g}"
    return good(value, rule.failed_share, reason, beyond_margin=clear)


def _why_unknown(aggregates: Aggregates) -> str:
    """Say after the count of failed probes that the run is unknown, and why where the count does not tell."""
    if aggregates.unknown_reason is None or 2 * aggregates.measured < aggregates.total:
        return ", so the run is unknown"
    return f", and the run is unknown: {aggregates.unknown_reason}"


def _why_failed(failure: FailureSummary | None, aggregates: Aggregates) -> str:
    """Say after the count of failed probes at whom and how they failed."""
    if failure is None:
        return ""
    return f": {failure.what}" + ("" if failure.count == aggregates.failed else f" ({failure.counts})")


def _embedding(aggregates: Aggregates, *, unknown: bool) -> Condition:
    """Say whether the embedder still is the one its reference was learned of; where there is none, nothing is wrong.

    An unknown run is bad as well where the embedder answered as another one: that is measured whatever the probes do,
    and may be why they fail. It is never good: so little of it came about that no alert closes on it.
    """
    if aggregates.embedder is None and aggregates.embedder_reason is not None:
        return silent(aggregates.embedder_reason)
    reason = aggregates.embedder_reason or "there is no embedder"
    if aggregates.embedder not in {None, EmbedderChange.SAME, EmbedderChange.DRIFTED}:
        return bad(Severity.CRITICAL, None, None, f"{reason} (critical)")
    if unknown:
        return silent("the run is unknown")
    return good(None, None, reason)
