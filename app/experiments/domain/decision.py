"""Decision of an experiment: when it ends and how, from what its arms amount to at every look."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.base.counts import counted
from app.base.number_text import bound_text, change_text, ratio_text
from app.comparison.domain.outcomes import Side
from app.experiments.domain.confidence_sequence import FEWEST_OF_A_KIND, ArmCounts, RateDifference, estimate_difference
from app.experiments.domain.sample_ratio import is_mismatch


class ExperimentState(StrEnum):
    """Where an epoch of an experiment stands."""

    RUNNING = "running"
    MISMATCH = "mismatch"
    """The arms do not get the shares that they should, so that no winner is named."""
    WINNER = "winner"
    EQUIVALENT = "equivalent"
    """All of the interval lies within delta of zero."""
    INCONCLUSIVE = "inconclusive"
    """The last unit came, and the interval neither leaves out zero nor lies within delta of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPlan:
    """What an epoch is decided by."""

    names: tuple[str, str]
    share: float
    """Of the units that the first arm gets."""
    delta: float
    """Differences below it matter to nobody."""
    max_units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The final outcomes of each arm until one moment."""

    at: int
    """In microseconds UTC."""
    counts: tuple[ArmCounts, ArmCounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentDecision:
    """Where an epoch stands, and why."""

    state: ExperimentState
    reason: str
    look: Look | None
    """The one that decided, the newest where none has; None = nothing was counted yet."""
    difference: RateDifference | None
    """Rate of the second arm less that of the first at that look; None = too few outcomes for an interval."""
    winner: Side | None = None

    @property
    def ended(self) -> bool:
        """Whether further units change nothing."""
        return self.state in {ExperimentState.WINNER, ExperimentState.EQUIVALENT, ExperimentState.INCONCLUSIVE}


def decide_experiment(looks: Sequence[Look], exposed: tuple[int, int], plan: ExperimentPlan) -> ExperimentDecision:
    """Decide an epoch from its looks in their order: the first at which it ends decides, whatever comes later.

    `exposed` are the units of each arm by now, whether their outcome is final or not: an alarm about the shares
    overrules a winner, also one that was found before it.
    """
    if is_mismatch(exposed[0], sum(exposed), plan.share):
        return _mismatch(looks[-1] if looks else None, exposed, plan)
    if not looks:
        return ExperimentDecision(
            state=ExperimentState.RUNNING, reason="no outcome is final yet", look=None, difference=None
        )
    return next(
        (decision for look in looks if (decision := decide_look(look, plan)).ended), decide_look(looks[-1], plan)
    )


def decide_look(look: Look, plan: ExperimentPlan) -> ExperimentDecision:
    """Decide by one look, whatever came before it, taking the shares as right."""
    a, b = look.counts
    found = estimate_difference(a, b)
    state, reason, winner = _ending(found, a.units + b.units, plan)
    return ExperimentDecision(state=state, reason=reason, look=look, difference=found, winner=winner)


def _ending(found: RateDifference | None, units: int, plan: ExperimentPlan) -> tuple[ExperimentState, str, Side | None]:
    number = counted(units, "unit")
    if found is not None:
        if found.low > 0 or found.high < 0:
            winner = Side.B if found.low > 0 else Side.A
            better, other = plan.names if winner is Side.A else plan.names[::-1]
            low, high = sorted((abs(found.low), abs(found.high)))
            gain = f"{ratio_text(abs(found.value))} (95 % interval {ratio_text(low)} to {ratio_text(high)})"
            return ExperimentState.WINNER, f"after {number} {better} beats {other} by {gain}", winner
        if -plan.delta < found.low and found.high < plan.delta:
            reason = f"after {number} {_interval(found, plan)}, all of it within {bound_text(plan.delta)} of zero"
            return ExperimentState.EQUIVALENT, reason, None
    if units >= plan.max_units:
        reason = f"{number} of at most {plan.max_units:,} came, and {_undecided(found, plan)}"
        return ExperimentState.INCONCLUSIVE, reason, None
    return ExperimentState.RUNNING, f"{number} so far: {_undecided(found, plan)}", None


def _undecided(found: RateDifference | None, plan: ExperimentPlan) -> str:
    if found is None:
        return f"each arm needs at least {FEWEST_OF_A_KIND} successes and {FEWEST_OF_A_KIND} failures"
    return _interval(found, plan)


def _interval(found: RateDifference, plan: ExperimentPlan) -> str:
    interval = f"{change_text(found.low)} to {change_text(found.high)}"
    return f"{plan.names[1]} less {plan.names[0]} is {change_text(found.value)} (95 % interval {interval})"


def _mismatch(look: Look | None, exposed: tuple[int, int], plan: ExperimentPlan) -> ExperimentDecision:
    reason = (
        f"of {counted(sum(exposed), 'unit')} {plan.names[0]} got {ratio_text(exposed[0] / sum(exposed))}, not "
        f"{ratio_text(plan.share)}: units of one arm are lost, so its rate says nothing; no winner is named"
    )
    found = estimate_difference(*look.counts) if look is not None else None
    return ExperimentDecision(state=ExperimentState.MISMATCH, reason=reason, look=look, difference=found)
