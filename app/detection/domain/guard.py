"""Guard rule: bounds on coverage until the detector of a check has a baseline."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from app.alerts.domain.conditions import Condition, bad_condition, good_condition, unmeasured_condition
from app.base.values import ROUNDING, Severity

GUARD_BOUNDS: Final = ((Severity.CRITICAL, 0.5, "half of"), (Severity.WARNING, 0.8, "80 % of"))
"""Shares of the first run's coverage below which a run is bad, the gravest first.

The detector learns a canary from ten passes on: without the warning, the loss of a third of an index before that would
be learned as normal.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRun:
    """The measured run a guard compares with."""

    run_id: int
    coverage: float | None
    """None = no canary that expects something was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """How far the detector of a check was at a run."""

    over: bool
    """A baseline stood, or people have accepted the present since: the guard has nothing to guard."""
    first: FirstRun | None = None


def first_run(
    before: FirstRun | None, now: FirstRun, *, keys_before: Collection[object], keys_now: Collection[object]
) -> FirstRun:
    """Run to compare with from now on: the first one, or this one where the first is not comparable.

    `keys_before` and `keys_now` identify the canaries of the last run and of this one. Where most of them are others
    the first run measured something else; where they are not, editing a canary must not hide that it was better.
    """
    if before is None or not before.coverage:
        return now
    common = len({*keys_before} & {*keys_now})
    return before if 2 * common >= len(keys_now) else now


def judge_guard(coverage: float | None, warm_up: WarmUp | None, *, unknown: bool) -> Condition:
    """Critical where coverage is 0 or below half of the first measured run's, until there is a baseline.

    Below 80 % of that it is a warning. `coverage`: that of the run; None = no canary that expects something was
    measured. `warm_up`: None = the first run is unknown.
    """
    if unknown or coverage is None:
        return unmeasured_condition("the run is unknown" if unknown else "coverage was not measured")
    if warm_up is not None and warm_up.over:
        return good_condition(coverage, None, "the baseline stands, so the detector watches")
    first = None if warm_up is None else warm_up.first
    start = None if first is None else first.coverage
    if coverage <= ROUNDING:
        bound = (
            GUARD_BOUNDS[0][1] * start if start else None
        )  # nothing is below half of 0: then there is no bound to name
        return bad_condition(
            Severity.CRITICAL, coverage, bound, "coverage is 0: no canary found what it expects (critical)"
        )
    if first is None or start is None:
        return unmeasured_condition("there is no first run to compare with")
    compared = f"the first run's {start:.3f} (run {first.run_id}); no baseline yet"
    for severity, share, words in GUARD_BOUNDS:
        if coverage < share * start - ROUNDING:
            return bad_condition(
                severity, coverage, share * start, f"coverage {coverage:.3f} is below {words} {compared}"
            )
    _, share, words = GUARD_BOUNDS[-1]
    return good_condition(coverage, share * start, f"coverage {coverage:.3f} is at least {words} {compared}")
