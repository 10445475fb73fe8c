"""Decision of an experiment: when it ends and how, from what its arms amount to at every look."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Final

from app.annotation.domain.agreement import hash_share
from app.base.texts import bound_text, change_text, counted, ratio_text
from app.comparison.domain.outcomes import Side

ALPHA: Final = 0.05
OPTIMISED_FOR: Final = 5_000
"""Number of units at which the interval is narrowest."""
FEWEST_OF_A_KIND: Final = 30
"""Successes and failures that each arm needs before the interval is looked at: it holds asymptotically only. Without
this, at a rate of .05 and a share of .05, experiments without a difference found a winner in .15."""
RHO_SQUARED: Final = (-2 * math.log(ALPHA) + math.log(1 - 2 * math.log(ALPHA))) / OPTIMISED_FOR


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCounts:
    """Units of an arm whose outcome is final, and how many of them are a success."""

    units: int
    successes: int

    @property
    def rate(self) -> float:
        """Share of successes. Raises ZeroDivisionError without units."""
        return self.successes / self.units

    @property
    def variance(self) -> float:
        """Sample variance of the outcomes; needs two units."""
        return self.rate * (1 - self.rate) * self.units / (self.units - 1)

    @property
    def enough(self) -> bool:
        """Whether there are enough successes and enough failures for the interval to hold."""
        return min(self.successes, self.units - self.successes) >= FEWEST_OF_A_KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class RateDifference:
    """Rate of the second arm less that of the first, with its 95 % interval, which holds at every look."""

    value: float
    low: float
    high: float


def radius(variance: float, n: int) -> float:
    """Half the width of the interval of a mean over n units, given the variance of one of them.

    sqrt(V * 2(n rho^2 + 1) / (n^2 rho^2) * ln(sqrt(n rho^2 + 1) / alpha)).
    """
    scaled = n * RHO_SQUARED
    return math.sqrt(variance * 2 * (scaled + 1) / (n * scaled) * math.log(math.sqrt(scaled + 1) / ALPHA))


def estimate_difference(a: ArmCounts, b: ArmCounts) -> RateDifference | None:
    """Difference of the rates with its interval; None until each arm has enough successes and failures.

    With n = n_A + n_B units the variance is n (s_A^2 / n_A + s_B^2 / n_B).
    """
    if not (a.enough and b.enough):
        return None
    n = a.units + b.units
    side = radius(n * (a.variance / a.units + b.variance / b.units), n)
    value = b.rate - a.rate
    return RateDifference(value=value, low=value - side, high=value + side)


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


_SECOND: Final = 1_000_000
_SPANS: Final = ((6 * 3_600, 3_600), (1_800, 300), (0, 60))
"""(window from which on, span of time that is counted together), in seconds."""

Total = tuple[int, int, int, int]
"""(begin of the span, arm, units, successes)."""


def bucket_us(window: int) -> int:
    """Length of the spans of time that units are counted in, in microseconds, for a window in microseconds."""
    return next(span * _SECOND for least, span in _SPANS if window >= least * _SECOND)


def bucket_of(at: int, length: int) -> int:
    """Begin of the span that a moment lies in."""
    return at - at % length


def make_looks(totals: Iterable[Total], *, window: int, now: int) -> list[Look]:
    """Return a look for every span whose units are final by now, in the order of time, each with all before it."""
    length = bucket_us(window)
    units, successes = [0, 0], [0, 0]
    looks: list[Look] = []
    for bucket, arm, number, good in sorted(totals):
        end = bucket + length
        if end + window > now:
            break
        units[arm] += number
        successes[arm] += good
        if looks and looks[-1].at == end:
            looks.pop()
        counts = [ArmCounts(units=units[place], successes=successes[place]) for place in (0, 1)]
        looks.append(Look(at=end, counts=(counts[0], counts[1])))
    return looks


def count_exposed(totals: Iterable[Total]) -> tuple[int, int]:
    """Units that were exposed to each arm, whether their outcome is final or not."""
    exposed = [0, 0]
    for _, arm, number, _ in totals:
        exposed[arm] += number
    return exposed[0], exposed[1]


def count_pending(totals: Iterable[Total], *, window: int, now: int) -> tuple[int, int | None]:
    """Units that no look has yet, and when the last of them is final, in microseconds; None = there are none.

    A span of time is final as a whole, once the window since its end has passed.
    """
    final_at = [(bucket + bucket_us(window) + window, number) for bucket, _, number, _ in totals]
    pending = [(at, number) for at, number in final_at if at > now and number]
    return sum(number for _, number in pending), max((at for at, _ in pending), default=None)


def thin_looks(looks: Sequence[Look], most: int) -> list[Look]:
    """Return at most so many looks, evenly spread, the last one always."""
    step = -(-len(looks) // most) if looks else 1
    return list(looks[::-1][::step][::-1])


CONCENTRATION: Final = 100.0
"""How close to the agreed share the alternative expects the true one: the weight of its Beta prior, in units."""
ALARM: Final = 1_000.0
"""Evidence that raises an alarm. By Ville's inequality it is ever reached under true shares with probability .001."""


def log_mismatch_evidence(first: int, n: int, share: float) -> float:
    """Logarithm of the evidence that the first arm does not get its share: with `first` of n units, `share` agreed.

    E = B(cw + k, c(1 - w) + n - k) / B(cw, c(1 - w)) / (w^k (1 - w)^(n - k)): a Beta mixture against the share w, valid
    at every look. Lindon and Malek, "Anytime-valid inference for multinomial count data" (NeurIPS 2022). Raises
    ValueError unless 0 < share < 1 and 0 <= first <= n.
    """
    if not (0 < share < 1 and 0 <= first <= n):
        raise ValueError(f"{first} of {n} units at a share of {share} cannot be")
    a, b = CONCENTRATION * share, CONCENTRATION * (1 - share)
    likelihood = first * math.log(share) + (n - first) * math.log1p(-share)
    return _log_beta(a + first, b + n - first) - _log_beta(a, b) - likelihood


def is_mismatch(first: int, n: int, share: float) -> bool:
    """Whether the evidence raises an alarm."""
    return log_mismatch_evidence(first, n, share) >= math.log(ALARM)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def assign_arm(slug: str, epoch: int, unit: str, shares: Sequence[float]) -> int:
    """Position of the arm of a unit: the first whose cumulative share is above the hash of the unit.

    The hash is u = int(first 13 hex digits of sha256("slug:epoch:unit"), 16) / 2^52, in [0, 1); the shares are added in
    their order, and the last arm gets whatever they leave. Another epoch gives every unit another u.
    """
    position = hash_share(f"{slug}:{epoch}:{unit}")
    upper = 0.0
    for place, share in enumerate(shares[:-1]):
        upper += share
        if position < upper:
            return place
    return len(shares) - 1


_NORMAL: Final = NormalDist()
USUAL_POWER: Final = 0.8


def power_at(difference: float, *, rate: float, share: float, units: int) -> float:
    """Probability that the interval leaves out zero when all units came, for a difference between the arms.

    An experiment may end before, so this is a lower bound. `rate` is that of the arm with 1 - `share`; both rates have
    to lie strictly between 0 and 1.
    """
    side, error = _widths(rate, min(max(rate + difference, _EDGE), 1 - _EDGE), share, units)
    return _NORMAL.cdf((abs(difference) - side) / error)


def detectable_difference(*, rate: float, share: float, units: int, power: float = USUAL_POWER) -> float:
    """Smallest difference that an experiment of so many units shows with this probability, about a rate."""
    side, error = _widths(rate, rate, share, units)
    return side + error * _NORMAL.inv_cdf(power)


def _widths(one: float, other: float, share: float, units: int) -> tuple[float, float]:
    """Half the width of the interval, and the standard error of the difference."""
    variance = one * (1 - one) / (1 - share) + other * (1 - other) / share
    return radius(variance, units), math.sqrt(variance / units)


_EDGE: Final = 1e-6
