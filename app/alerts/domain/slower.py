"""Rule `slower`: the median latency of a run compared with those of the runs its baseline was learned from."""

from dataclasses import dataclass, replace
from typing import Final

from app.alerts.domain.conditions import Condition, bad_condition, good_condition, unmeasured_condition
from app.base.number_text import seconds_text
from app.base.values import ROUNDING, Rule, RuleKind, Severity

SLOWER_FACTOR: Final = 3.0
"""Times the baseline, where a rule names no factor."""
SLOWER_RISE: Final = 0.2
"""Seconds above the baseline, where a rule names no rise: from 1 ms to 20 ms is noise of the machine."""
SLOWER_OPEN: Final = (3, 4)
"""Bad runs that open the alert, of so many."""
SLOWER_QUANTILE: Final = 0.99
"""Of the median latencies of a baseline's runs: what a run is compared with."""
SLOWER_MEASURE: Final = "latency_p50"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowerLimits:
    """How much slower than the baseline a run must be; both must hold."""

    factor: float
    rise: float
    """Seconds."""

    @classmethod
    def of(cls, factor: float | None, rise: float | None) -> "SlowerLimits":
        """Return the limits of a rule, with the default of what it does not name."""
        return cls(factor=SLOWER_FACTOR if factor is None else factor, rise=SLOWER_RISE if rise is None else rise)

    def threshold(self, baseline: float) -> float:
        """Seconds above which a median latency is bad."""
        return max(self.factor * baseline, baseline + self.rise)

    def words(self, baseline: str) -> str:
        """Write the limits after the word above; `baseline`: what the latency is compared with."""
        return f"{self.factor:g} x {baseline} and {seconds_text(self.rise)} above it"


def default_slower_rule(key: str) -> Rule:
    """Rule that every check has."""
    bad, of = SLOWER_OPEN
    return Rule(key=key, kind=RuleKind.SLOWER, measure=SLOWER_MEASURE, open_bad=bad, open_of=of)


def judge_slower(rule: Rule, median: float | None, baseline: float | str) -> Condition:
    """Warning where the median latency of a known run is above the factor and the rise over its baseline.

    `median`: seconds; None = no probe measured. `baseline`: seconds, or why there is nothing to compare with, without
    a full stop.
    """
    if isinstance(baseline, str):
        return unmeasured_condition(baseline)
    limits = SlowerLimits.of(rule.factor, rule.rise)
    threshold = limits.threshold(baseline)
    if median is None:
        return unmeasured_condition("the median latency was not measured", threshold=threshold)
    level = f"median latency {seconds_text(median, threshold)}"
    usual = seconds_text(baseline)
    if median > threshold + ROUNDING:
        over = limits.words(f"the baseline's {usual}")
        reason = f"{level} is above {over} ({Severity.WARNING})"
        return replace(bad_condition(Severity.WARNING, median, threshold, reason), baseline=baseline)
    is_clear = median <= threshold - rule.margin + ROUNDING
    reason = f"{level} is not above {seconds_text(threshold)} (baseline {usual})"
    reason += "" if is_clear else f", but within the margin of {seconds_text(rule.margin)}"
    return replace(good_condition(median, threshold, reason, beyond_margin=is_clear), baseline=baseline)
