"""Summary of an alert in one sentence: the check, what happened, how much, since when, and the cause.

Hooks, pages and reports take their titles from here. A summary holds no retrieved text: only counts, causes, and the
names that people gave to checks, canaries and categories.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from app.alerts.domain.alert_state import TransitionType
from app.alerts.domain.canary_changes import ChangedCanaries, cause_suffix, changed_text, predicate_text
from app.alerts.domain.slower import SlowerLimits
from app.base.counts import counted
from app.base.number_text import LATENCY_NAMES, bound_text, duration_text, ratio_text, seconds_text, short_name
from app.base.values import Percentile, RuleKind, Severity
from app.catalog.domain.judgment_sources import labelled
from app.retrievers.domain.embeddings import EMBEDDER_AT
from app.retrievers.domain.probe_failures import FailureSummary

NOT_ABOUT_CANARIES: Final = frozenset({RuleKind.PROBE_ERRORS, RuleKind.NO_DATA, RuleKind.LATENCY, RuleKind.SLOWER})
"""Kinds of rules whose alerts list no canaries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFacts:
    """Inputs of a summary. None = unknown, or not of this kind of rule."""

    check: str
    kind: RuleKind
    change: TransitionType | None = None
    """What just happened to the alert; None = its current state."""
    reason: str = ""
    """The rule's own sentence, used where no numbers are known; may end with a full stop."""
    measure: str | None = None
    self_judged: bool = False
    """Whether the measure is recall over judgments of the retriever's own first hits alone."""
    category: str | None = None
    canary: str | None = None
    percentile: Percentile = Percentile.P95
    value: float | None = None
    threshold: float | None = None
    baseline: float | None = None
    slower: SlowerLimits | None = None
    """For a `slower` alert: how much slower than the baseline is bad."""
    bad: int | None = None
    """Bad runs of the last `of` evaluated ones."""
    of: int | None = None
    run_id: int | None = None
    """The run that brought the change."""
    since_run: int | None = None
    """The first bad run."""
    index_version: str | None = None
    """The version that came shortly before or with the first bad run."""
    runs_after_index: int = 0
    began_at: datetime | None = None
    """When the first bad run ended or, without data, when the last run completed."""
    retriever: str = ""
    """For an alert about latency: name and address of the retriever (embedders are not measured). For failed probes:
    its name."""
    opened_at: datetime | None = None
    at: datetime | None = None
    """The moment of the change."""
    due_at: datetime | None = None
    """Without data: when the second scheduled run was due."""
    unknown: bool = False
    """Whether the run measured too little for a verdict."""
    failure: FailureSummary | None = None
    measured: int | None = None
    total: int | None = None
    """Canaries of the run: with a measurement, and all."""
    coverage: float | None = None
    changed: ChangedCanaries | None = None
    retired: str = ""
    """Why the alert closed without a good run."""
    dated: bool = False
    """Whether every time has its date, as pages need that show it in the zone of their viewer."""


def alert_summary(facts: AlertFacts) -> str:
    """Return the sentence, without a full stop; it begins with the name of the check."""
    if facts.change is TransitionType.RESOLVED:
        return f"{facts.check}: {_resolved(facts)}"
    claim = _CLAIMS[facts.kind](facts)
    if facts.change is TransitionType.REMINDED:
        span = f" after {duration_text(facts.at - facts.opened_at)}" if facts.at and facts.opened_at else ""
        return f"{facts.check}: still firing{span}: {claim}"
    if facts.change is TransitionType.ACKNOWLEDGED:
        return f"{facts.check}: acknowledged: {claim}"
    return f"{facts.check}: {claim}"


def measure_text(measure: str | None, category: str | None, *, self_judged: bool = False) -> str:
    """Name of what a rule watches: `coverage`, `health score`, `R@5 (self-judged) of complex factual`."""
    name = labelled(measure or "value", self_judged=self_judged).replace("_", " ")
    return f"{name} of {category.replace('_', ' ')}" if category else name


def _threshold(facts: AlertFacts) -> str:
    name = measure_text(facts.measure, facts.category, self_judged=facts.self_judged)
    if facts.value is None:
        return _reason_text(facts)
    level = f"{name} {ratio_text(facts.value, facts.threshold)}"
    return f"{level}{_bound(facts, bound_text)}{_since(facts)}{_with_canaries(facts)}"


def _drop(facts: AlertFacts) -> str:
    if facts.value is None or facts.baseline is None:
        return _reason_text(facts)
    name = measure_text(facts.measure, facts.category, self_judged=facts.self_judged)
    fell = f"{name} fell from {ratio_text(facts.baseline)} to {ratio_text(facts.value, facts.baseline)}"
    return f"{fell}{_since(facts)}{_with_canaries(facts)}"


def _regression(facts: AlertFacts) -> str:
    changed = facts.changed
    if changed is None or not changed.count:
        return _reason_text(facts)
    return f"{changed_text(changed)}{_since(facts)}{cause_suffix(changed)}"


def _canary(facts: AlertFacts) -> str:
    changed = facts.changed
    name = f"canary {facts.canary}"
    if changed is None or not changed.reasons:
        return f"{name} is degraded{_since(facts)}"
    one = ChangedCanaries(count=1, of=1, reasons=changed.reasons[:1], compared=changed.compared)
    cause = cause_suffix(changed) if changed.count == 1 else ""
    return f"{name} {predicate_text(one)}{_since(facts)}{cause}"


def _latency(facts: AlertFacts) -> str:
    if facts.value is None:
        return _reason_text(facts)
    level = f"{LATENCY_NAMES[facts.percentile]} {seconds_text(facts.value, facts.threshold)}"
    usual = "" if facts.baseline is None else f" (usually {seconds_text(facts.baseline)})"
    who = f": {facts.retriever}" if facts.retriever else ""
    return f"{level}{usual}{_bound(facts, seconds_text)}{_since(facts)}{who}"


def _slower(facts: AlertFacts) -> str:
    if facts.value is None or facts.threshold is None or facts.baseline is None or facts.slower is None:
        return _reason_text(facts)
    level = f"{LATENCY_NAMES[Percentile.P50]} {seconds_text(facts.value, facts.threshold)}"
    usual, who = seconds_text(facts.baseline), f": {facts.retriever}" if facts.retriever else ""
    if facts.value <= facts.threshold:
        return f"{level}, not above {seconds_text(facts.threshold)} (baseline {usual}){_since(facts)}{who}"
    counted_runs = f", in {facts.bad} of {counted(facts.of or 0, 'run')}" if facts.bad else ""
    over = facts.slower.words(f"the baseline's {usual}")
    return f"{level}, above {over}{counted_runs}{_since(facts)}{who}"


def _probe_errors(facts: AlertFacts) -> str:
    since = f" since {_clock(facts.began_at, facts)}" if facts.began_at is not None else ""
    if facts.failure is None:
        why = _without_severity(facts.reason.rstrip("."))
        return f"not measurable{since}{f', {why}' if why else ''}"
    what = f"{facts.failure.who(facts.retriever)} {facts.failure.error}"
    if facts.unknown or facts.failure.failed >= facts.failure.total:
        return f"not measurable{since}, {what} ({facts.failure.counts})"
    failed, total = facts.failure.failed, facts.failure.total
    others = "" if facts.failure.count == failed else f" ({facts.failure.count:,} of them)"
    verb = "fails" if failed == 1 else "fail"
    return f"{failed:,} of {counted(total, 'probe')} {verb}{since}, {what}{others}"


def _no_data(facts: AlertFacts) -> str:
    since = f" since {_clock(facts.began_at, facts)}" if facts.began_at is not None else ""
    due = f", two scheduled runs were due by {_clock(facts.due_at, facts)}" if facts.due_at is not None else ""
    return f"no run completed{since}{due}"


def _embedding(facts: AlertFacts) -> str:
    what = _first_clause(facts.reason).removeprefix(EMBEDDER_AT)
    return f"embedder changed{_since(facts)}{f': {what}' if what else ''}"


_CLAIMS: Final = {
    RuleKind.THRESHOLD: _threshold,
    RuleKind.DROP: _drop,
    RuleKind.REGRESSION: _regression,
    RuleKind.CANARY: _canary,
    RuleKind.LATENCY: _latency,
    RuleKind.PROBE_ERRORS: _probe_errors,
    RuleKind.NO_DATA: _no_data,
    RuleKind.EMBEDDING: _embedding,
    RuleKind.GUARD: _threshold,
    RuleKind.SLOWER: _slower,
}


def _resolved(facts: AlertFacts) -> str:
    span = f" after {duration_text(facts.at - facts.opened_at)}" if facts.at and facts.opened_at else ""
    if facts.retired:
        return f"closed{span}: {facts.retired}"
    run = f" (run {facts.run_id})" if facts.run_id is not None else ""
    return f"recovered{span}{run}: {_recovered(facts)}"


def _recovered(facts: AlertFacts) -> str:
    latency = "" if facts.value is None else f" {seconds_text(facts.value, facts.threshold)}"
    answered = f"{facts.measured or 0:,} of {counted(facts.total or 0, 'probe')} answered"
    simple = {
        RuleKind.NO_DATA: "a run completed",
        RuleKind.PROBE_ERRORS: answered if facts.total else "probes are answered again",
        RuleKind.LATENCY: f"{LATENCY_NAMES[facts.percentile]}{latency}",
        RuleKind.SLOWER: f"{LATENCY_NAMES[Percentile.P50]}{latency}",
        RuleKind.EMBEDDING: "the embedder answers as it did before",
        RuleKind.CANARY: f"canary {facts.canary} is healthy",
    }
    return simple.get(facts.kind) or _recovered_canaries(facts)


def _recovered_canaries(facts: AlertFacts) -> str:
    watched = facts.kind in {RuleKind.THRESHOLD, RuleKind.DROP, RuleKind.GUARD} and facts.value is not None
    name = measure_text(facts.measure, facts.category, self_judged=facts.self_judged) if watched else "coverage"
    value = facts.value if watched else facts.coverage
    level = f"{name} {ratio_text(value)}, " if value is not None else ""
    unmeasured = (facts.total or 0) - (facts.measured or 0)
    if unmeasured > 0:
        return f"{level}{unmeasured:,} of {counted(facts.total or 0, 'canary')} not measured"
    left = facts.changed.count if facts.changed is not None and facts.changed.compared else 0
    if left:
        return f"{level}{left:,} of the changed canaries {'is' if left == 1 else 'are'} still degraded"
    return f"{level}no canary is worse than before the alert"


def _since(facts: AlertFacts) -> str:
    if facts.since_run is None:
        return ""
    run, version = f"run {facts.since_run}", facts.index_version
    after = f"{counted(facts.runs_after_index, 'run')} after " if facts.runs_after_index else ""
    index = "" if version is None else f"{after}index {short_name(version)}"
    if facts.began_at is None:
        return f" since {run}{f' ({index})' if index else ''}"
    return f" since {_clock(facts.began_at, facts)} ({run}{f', {index}' if index else ''})"


def _with_canaries(facts: AlertFacts) -> str:
    changed = facts.changed
    if changed is None or not changed.compared:
        return ""
    if not changed.count:
        count = counted(changed.recovered_on_retry, "canary")
        verb = "was" if changed.recovered_on_retry == 1 else "were"
        return f", {count} degraded and {verb} healthy on retry" if changed.recovered_on_retry else ""
    return f", {changed_text(changed)}{cause_suffix(changed)}"


def _bound(facts: AlertFacts, write: Callable[[float], str]) -> str:
    if facts.value is None or facts.threshold is None:
        return ""
    side = "below" if facts.value < facts.threshold else "above"
    return f", {side} {write(facts.threshold)}"


def _reason_text(facts: AlertFacts) -> str:
    """Return the rule's own sentence, where the numbers are not known."""
    return (
        f"{_first_clause(facts.reason)}{_since(facts)}" if facts.reason else f"rule {facts.kind} broken{_since(facts)}"
    )


def _first_clause(reason: str) -> str:
    return _without_severity(reason.rstrip(".").partition("; ")[0])


def _without_severity(reason: str) -> str:
    """Return a reason without the severities in brackets: hooks and pages show the severity beside the summary."""
    return _SEVERITY.sub("", reason)


_SEVERITY = re.compile(rf" \((?:{'|'.join(Severity)})\)(?=$|[;,.:])")


def _clock(moment: datetime | None, facts: AlertFacts) -> str:
    """Return a time of the day of the change as 14:05 UTC, another one with its date."""
    if moment is None:
        return ""
    utc = moment.astimezone(UTC)
    today = not facts.dated and facts.at is not None and facts.at.astimezone(UTC).date() == utc.date()
    return f"{utc:%H:%M} UTC" if today else f"{utc:%Y-%m-%d %H:%M} UTC"
