"""Guard: what is bad for certain before the detector knows what is normal for a check."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from app.domain.conditions import ROUNDING, Condition, bad, good, silent
from app.domain.model import Severity

LEAST_SHARE: Final = 0.5
"""Of the first run's coverage; below it a run is bad."""


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
    """Run to compare with from now on: the first one, or this one where nothing can be compared with that.

    `keys_before` and `keys_now` identify the canaries of the last run and of this one. Where most of them are others
    the first run measured something else; where they are not, editing a canary must not hide that it was better.
    """
    if before is None or not before.coverage:
        return now
    common = len({*keys_before} & {*keys_now})
    return before if 2 * common >= len(keys_now) else now


def judge_guard(coverage: float | None, warm_up: WarmUp | None, *, unknown: bool) -> Condition:
    """Critical where coverage is 0 or below half of the first measured run's, until a baseline stands.

    `coverage`: that of the run; None = no canary that expects something was measured. `warm_up`: None = nobody knows
    what the first run was.
    """
    if unknown or coverage is None:
        return silent("the run is unknown" if unknown else "coverage was not measured")
    if warm_up is not None and warm_up.over:
        return good(coverage, None, "the baseline stands, so the detector watches")
    first = None if warm_up is None else warm_up.first
    limit = None if first is None or first.coverage is None else LEAST_SHARE * first.coverage
    if coverage <= ROUNDING:
        bound = limit or None  # nothing is below half of 0: then there is no bound to name
        return bad(Severity.CRITICAL, coverage, bound, "coverage is 0: no canary found what it expects (critical)")
    if first is None or limit is None:
        return silent("there is no first run to compare with")
    compared = f"half of the first run's {first.coverage:.3f} (run {first.run_id}); no baseline yet"
    if coverage < limit - ROUNDING:
        return bad(Severity.CRITICAL, coverage, limit, f"coverage {coverage:.3f} is below {compared}")
    return good(coverage, limit, f"coverage {coverage:.3f} is at least {compared}")
