"""Sentences on rules: when a run is bad, and when the alert opens and closes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from app.alerts.domain.rule_facts import REPEATED
from app.alerts.domain.rules import FAILED_SHARE
from app.alerts.domain.slower import SlowerLimits
from app.base.counts import counted
from app.base.number_text import percent_text
from app.base.values import Bound, Percentile, Rule, RuleKind, Severity
from app.detection.domain.guard import GUARD_BOUNDS
from app.detection.domain.views import WarmUpView


def rule_in_words(rule: Rule) -> str:
    """When a run is bad by a rule, and when its alert opens and closes: a sentence without its full stop."""
    sentence = _WORDS[rule.kind](rule)
    if rule.kind in _AT_ONCE:
        return sentence
    runs = "measured runs" if rule.kind is not RuleKind.PROBE_ERRORS else "runs"
    opens = "at once" if rule.open_of == 1 else f"on {rule.open_bad} bad of {rule.open_of} {runs}"
    return f"{sentence}; opens {opens}, closes after {counted(rule.close, 'good run')}"


def protection_text(rules: Iterable[Rule], warm_up: WarmUpView, *, waits: str | None) -> str | None:
    """When an alert opens while no baseline stands, and when smaller losses are noticed too; None = no rule does.

    Sentences with their full stops. `waits`: why nothing is learned at present, without a full stop.
    """
    known = list(rules)
    limit = next((one for rule in known if (one := _coverage_limit(rule)) is not None), None)
    if limit is None:
        return None
    sentence = f"Protected now: alerts when coverage {limit}."
    if not any(rule.kind is RuleKind.REGRESSION for rule in known):
        return sentence
    if waits is not None:
        return f"{sentence} Smaller losses later: {waits}."
    identical, runs = warm_up.identical_runs_needed - warm_up.identical_runs, warm_up.runs_needed - warm_up.runs
    left = f"{counted(identical, 'more run')} with the same results" if identical < runs else counted(runs, "more run")
    return f"{sentence} After {left}: smaller losses too."


def _coverage_limit(rule: Rule) -> str | None:
    """When coverage of the whole check opens the alert of a rule, after the word coverage; None = it does not."""
    if rule.kind is RuleKind.GUARD:
        falls = f"falls below {percent_text(GUARD_BOUNDS[-1][1])} of the first run's"
    elif rule.kind is RuleKind.THRESHOLD and rule.measure == "coverage" and rule.category is None:
        bounds = [bound.below for bound in (rule.warning, rule.critical) if bound is not None and bound.below]
        if not bounds:
            return None
        falls = f"falls below {max(bounds):g}"
    else:
        return None
    if rule.open_of == 1:
        return f"{falls} in one run"
    return f"{falls} in {rule.open_bad} of {rule.open_of} runs"


def _threshold(rule: Rule) -> str:
    of = f" of {_spoken(rule.category)} canaries" if rule.category else ""
    return f"{_spoken(rule.measure or '')}{of} is {_bounds(rule, _side)}{_margin(rule)}"


def _drop(rule: Rule) -> str:
    of = f" of {_spoken(rule.category)} canaries" if rule.category else ""
    sentence = f"{_spoken(rule.measure or '')}{of} fell against the baseline {_bounds(rule, _by)}"
    return f"{sentence}, significant at {100 * rule.confidence:g} % confidence"


def _latency(rule: Rule) -> str:
    which = _PERCENTILES[rule.percentile or Percentile.P95]
    return f"{which} is {_bounds(rule, _over)}{_margin(rule)}"


def _probe_errors(rule: Rule) -> str:
    share = FAILED_SHARE if rule.failed_share is None else rule.failed_share
    least = ", at least two," if rule.failed_share is None else ""
    return (
        f"the run is unknown (critical), more than {100 * share:g} % of its probes{least} fail, or the same canary is "
        f"not measured in {REPEATED} runs in a row (warning)"
    )


def _slower(rule: Rule) -> str:
    limits = SlowerLimits.of(rule.factor, rule.rise).words("the baseline (99 % quantile of its runs)")
    return f"once a baseline stands: the median latency is above {limits} (warning){_margin(rule)}"


def _regression(rule: Rule) -> str:
    sentence = "more canaries are lost or worse than chance explains by what they did in the baseline"
    return (
        f"{sentence}; the detector opens it by itself, and closes it after {counted(rule.detector_close, 'good run')}"
    )


_WORDS: Final[Mapping[RuleKind, Callable[[Rule], str]]] = {
    RuleKind.THRESHOLD: _threshold,
    RuleKind.DROP: _drop,
    RuleKind.REGRESSION: _regression,
    RuleKind.CANARY: lambda rule: f"the canary {rule.canary} is degraded ({rule.severity})",
    RuleKind.LATENCY: _latency,
    RuleKind.PROBE_ERRORS: _probe_errors,
    RuleKind.NO_DATA: lambda _: "nothing has completed by the second scheduled time after the last run (critical)",
    RuleKind.GUARD: lambda _: (
        "until a baseline stands: coverage is 0 or below half (critical), or below 80 % (warning), of the first "
        "measured run's"
    ),
    RuleKind.SLOWER: _slower,
    RuleKind.EMBEDDING: lambda _: "the embedder of the retriever answers known texts as another model would (critical)",
}
_AT_ONCE = {RuleKind.REGRESSION, RuleKind.NO_DATA, RuleKind.EMBEDDING}
_PERCENTILES: Final[Mapping[Percentile, str]] = {
    Percentile.P50: "the median latency",
    Percentile.P95: "the latency of the slowest twentieth (p95)",
    Percentile.MAX: "the longest latency",
}


def _bounds(rule: Rule, bound_sentence: Callable[[Bound], str]) -> str:
    sides = ((Severity.WARNING, rule.warning), (Severity.CRITICAL, rule.critical))
    return " or ".join(f"{bound_sentence(bound)} ({severity})" for severity, bound in sides if bound is not None)


def _side(bound: Bound) -> str:
    return f"below {bound.below:g}" if bound.below is not None else f"above {bound.above:g}"


def _by(bound: Bound) -> str:
    return f"by {bound.by:g} or more"


def _over(bound: Bound) -> str:
    return f"above {bound.above:g} s"


def _margin(rule: Rule) -> str:
    return f"; to be good it must be {rule.margin:g} on the other side" if rule.margin else ""


def _spoken(name: str) -> str:
    return name.replace("_", " ")
