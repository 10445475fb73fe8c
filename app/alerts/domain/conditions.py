"""Conditions: the result of judging one run by one rule, and its sentence.

Which rule gives which result is decided in `rules` and `rule_facts`; how many runs open or close an alert, in
`alert_state`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.base.number_text import bound_text, ratio_text, seconds_text
from app.base.values import ROUNDING, Bound, Rule, Severity
from app.retrievers.domain.probe_failures import FailureSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberWriter:
    """How a kind of number is written with its unit; a value has enough digits to differ from its bound."""

    value: Callable[[float, float | None], str]
    bound: Callable[[float], str]


RATIOS: Final = NumberWriter(value=ratio_text, bound=bound_text)
LATENCIES: Final = NumberWriter(value=seconds_text, bound=seconds_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Result of a rule on one run: bad (with a severity), good beyond the margin, or neither."""

    measured: bool
    """False: the run has no value for the rule and enters no window."""
    severity: Severity | None
    value: float | None
    threshold: float | None
    """The bound that was crossed, else the mildest one."""
    good_beyond_margin: bool
    reason: str
    """A sentence without its full stop, for people."""
    baseline: float | None = None
    """What the value was compared with, where that is a baseline."""
    since_run: int | None = None
    """The first bad run, where the rule covers more than this run."""
    at_once: bool = False
    """Whether a bad run opens its alert by itself: its rule has counted earlier runs."""
    recovering: bool = False
    """Whether it is one of several good runs in a row, counted by the detector."""
    failure: FailureSummary | None = None
    """Of a rule about failed probes: why most of them failed."""


def judge_bounds(rule: Rule, name: str, value: float, write: NumberWriter = RATIOS) -> Condition:
    """Condition of a named value by the bounds of a rule, the worst first; `write` adds the unit."""
    for severity, bound in ((Severity.CRITICAL, rule.critical), (Severity.WARNING, rule.warning)):
        limit = None if bound is None else _crossed(value, bound)
        if limit is not None:
            side = "below" if value < limit else "above"
            reason = f"{name} {write.value(value, limit)} is {side} {write.bound(limit)} ({severity})"
            return bad_condition(severity, value, limit, reason)
    mild = rule.warning or rule.critical or Bound()
    is_good = all(_clear(value, bound, rule.margin) for bound in (rule.warning, rule.critical) if bound is not None)
    reason = f"{name} {write.value(value, mildest(rule))} is {_good_range(mild, write)}"
    if not is_good:
        reason += f", but within the margin of {write.bound(rule.margin)}"
    return good_condition(value, mildest(rule), reason, beyond_margin=is_good)


def mildest(rule: Rule) -> float | None:
    """Return the mildest bound of a rule: where its values begin to be bad."""
    mild = rule.warning or rule.critical or Bound()
    return mild.below if mild.below is not None else mild.above


def good_condition(
    value: float | None, threshold: float | None, reason: str, *, beyond_margin: bool = True
) -> Condition:
    """Condition of a run that is not bad."""
    return Condition(
        measured=True,
        severity=None,
        value=value,
        threshold=threshold,
        good_beyond_margin=beyond_margin,
        reason=reason,
    )


def bad_condition(severity: Severity, value: float | None, threshold: float | None, reason: str) -> Condition:
    """Condition of a run that is bad."""
    return Condition(
        measured=True, severity=severity, value=value, threshold=threshold, good_beyond_margin=False, reason=reason
    )


def unmeasured_condition(reason: str, *, threshold: float | None = None) -> Condition:
    """Condition of a run that has no value for the rule, and why."""
    return Condition(
        measured=False, severity=None, value=None, threshold=threshold, good_beyond_margin=False, reason=reason
    )


def _crossed(value: float, bound: Bound) -> float | None:
    """Return the limit a bad value crossed, None if it crossed none."""
    if bound.below is not None and value < bound.below - ROUNDING:
        return bound.below
    if bound.above is not None and value > bound.above + ROUNDING:
        return bound.above
    return None


def _clear(value: float, bound: Bound, margin: float) -> bool:
    """Whether a value keeps the margin on the good side of a bound."""
    high_enough = bound.below is None or value >= bound.below + margin - ROUNDING
    return high_enough and (bound.above is None or value <= bound.above - margin + ROUNDING)


def _good_range(bound: Bound, write: NumberWriter) -> str:
    """Where a good value lies, in words."""
    sides = [f"not below {write.bound(bound.below)}" if bound.below is not None else ""]
    sides.append(f"not above {write.bound(bound.above)}" if bound.above is not None else "")
    return " and ".join(side for side in sides if side) or "not bounded"
