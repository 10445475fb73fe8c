"""What looks say that come after the one that decided: the first one decides, but users may be served otherwise by now.

Novelty wears off, and a candidate changes. The interval holds at every look, so a later one that contradicts the first
is no chance: what the units are counted of has changed meanwhile.
"""

from collections.abc import Sequence
from typing import Final

from app.base.texts import counted
from app.base.values import replace
from app.comparison.domain.outcomes import Side
from app.experiments.domain.experiments import (
    FEWEST_OF_A_KIND,
    ExperimentDecision,
    ExperimentPlan,
    ExperimentState,
    Look,
    PreferenceDecision,
    Preferences,
    RateDifference,
    difference_text,
    estimate_difference,
    estimate_preference,
    say_power,
)


def hold_against_looks(decision: ExperimentDecision, looks: Sequence[Look], plan: ExperimentPlan) -> ExperimentDecision:
    """Return a decision that says where the newest look contradicts the one that it was made by."""
    if not decision.ended or not looks or looks[-1] == decision.look:
        return decision
    newest = estimate_difference(*looks[-1].counts)
    if newest is None:
        return decision
    units = counted(sum(one.units for one in looks[-1].counts), "unit")
    says = f"after {units}, {plan.names[1]} less {plan.names[0]} is {difference_text(newest)}"
    how = _contradiction(decision.difference, newest, delta=plan.delta)
    return replace(decision, reason=_say(decision.reason, says, how), later=newest if how in _STRONG else None)


def hold_against_clicks(
    decision: PreferenceDecision, newest: Preferences, decided: Preferences | None, names: tuple[str, str]
) -> PreferenceDecision:
    """Return the decision of an interleaving that says where the clicks by now contradict it.

    Where fewer than 30 units prefer one of the rankings, `later` is as if 30 did, which is nearer to zero. `names`: of
    both rankings.
    """
    if not decision.ended or newest == decided:
        return decision
    found, over = estimate_preference(newest), f"over {counted(newest.a + newest.b, 'unit')}"
    if found is not None:
        says = f"{over}, the preference is {difference_text(found)}"
        how = _contradiction(decision.difference, found, delta=0.0)
        return replace(decision, reason=_say(decision.reason, says, how), later=found if how in _STRONG else None)
    nearer = Preferences(a=max(newest.a, FEWEST_OF_A_KIND), b=max(newest.b, FEWEST_OF_A_KIND))
    known = estimate_preference(nearer)  # of fewer there is no interval, and this one is nearer to zero than they are
    says = f"{over}, {newest.a:,} prefer {names[0]} and {newest.b:,} {names[1]}"
    how = "" if known is None else _contradiction(decision.difference, known, delta=0.0)
    return replace(decision, reason=_say(decision.reason, says, how), later=known if how in _STRONG else None)


def say_power_by_now(plan: ExperimentPlan, decision: ExperimentDecision) -> str:
    """Say what an experiment can show; of one that ended undecided, and that later units contradict, that they do."""
    if decision.later is not None and decision.state is not ExperimentState.WINNER:
        return "it has ended, and units that came later show more than those that it ended by"
    return say_power(plan, decision)


_OPPOSITE: Final = "the opposite of what it was decided by: begin a new epoch"
_APART: Final = "outside of the interval that it was decided by: begin a new epoch"
_SHOWN: Final = "a difference that was not shown then: begin a new epoch"
_STRONG: Final = frozenset({_OPPOSITE, _APART, _SHOWN})
_WITH_ZERO: Final = "which does not leave out zero any more"


def _contradiction(decided: RateDifference | None, newest: RateDifference, *, delta: float) -> str:
    """Say how the newest interval contradicts the one that was decided by; empty where it does not."""
    before, now = _winner(decided), _winner(newest)
    if now is not None and before not in {None, now}:
        return _OPPOSITE
    if now is not None and before is None and not (-delta < newest.low and newest.high < delta):
        return _SHOWN
    if decided is not None and (newest.low > decided.high or newest.high < decided.low):
        return _APART
    return _WITH_ZERO if before is not None and now is None else ""


def _winner(found: RateDifference | None) -> Side | None:
    if found is None:
        return None
    return Side.B if found.low > 0 else Side.A if found.high < 0 else None


def _say(reason: str, says: str, how: str) -> str:
    return f"{reason}; but by now, {says}, {how}" if how else reason
