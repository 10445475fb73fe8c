"""What is tried on users: experiments, interleaving and shadows, decided with reasons.

An experiment is decided at every look from what its arms amount to.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Final

from app.annotation.domain.agreement import LEFT, RIGHT
from app.base.statistics import Proportion, clopper_pearson, hash_share
from app.base.texts import bound_text, change_text, counted, percent_text, ratio_text
from app.base.values import Value
from app.comparison.domain.outcomes import Side
from app.scoring.rankings import rbo

ALPHA: Final = 0.05
OPTIMISED_FOR: Final = 5_000
"""Number of units at which the interval is narrowest."""
FEWEST_OF_A_KIND: Final = 30
"""Successes and failures that each arm needs before the interval is looked at: it holds asymptotically only. Without
this, at a rate of .05 and a share of .05, experiments without a difference found a winner in .15."""
RHO_SQUARED: Final = (-2 * math.log(ALPHA) + math.log(1 - 2 * math.log(ALPHA))) / OPTIMISED_FOR


class ArmCounts(Value):
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

    @property
    def turned(self) -> "RateDifference":
        """Rate of the first arm less that of the second."""
        return RateDifference(value=-self.value, low=-self.high, high=-self.low)


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
    """The arms do not get the shares that they should, so that no winner and no difference is told."""
    WINNER = "winner"
    EQUIVALENT = "equivalent"
    """All of the interval lies within delta of zero."""
    INCONCLUSIVE = "inconclusive"
    """The last unit came, and the interval neither leaves out zero nor lies within delta of it."""


class ExperimentPlan(Value):
    """What an epoch is decided by."""

    names: tuple[str, str]
    share: float
    """Of the units that the first arm gets."""
    delta: float
    """Differences below it matter to nobody."""
    max_units: int


class Look(Value):
    """The final outcomes of each arm until one moment."""

    at: int
    """In microseconds UTC."""
    counts: tuple[ArmCounts, ArmCounts]


class ExperimentDecision(Value):
    """Where an epoch stands, and why."""

    state: ExperimentState
    reason: str
    look: Look | None
    """The one that decided, the newest where none has; None = nothing was counted yet."""
    difference: RateDifference | None
    """Rate of the second arm less that of the first at that look; None = too few outcomes for an interval, or the
    shares mismatch."""
    winner: Side | None = None
    later: RateDifference | None = None
    """The same at the newest look, where that contradicts the look that decided."""

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
        reason, look = _say_mismatch(exposed, plan), looks[-1] if looks else None
        return ExperimentDecision(state=ExperimentState.MISMATCH, reason=reason, look=look, difference=None)
    if not looks:
        nothing = "no outcome is final yet" if sum(exposed) else "no unit was exposed to it so far"
        return ExperimentDecision(state=ExperimentState.RUNNING, reason=nothing, look=None, difference=None)
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
            reason = f"after {number} {_arms(found, plan)}, all of it within {bound_text(plan.delta)} of zero"
            return ExperimentState.EQUIVALENT, reason, None
    if units >= plan.max_units:
        reason = f"{number} of at most {plan.max_units:,} came, and {_undecided(found, plan)}"
        return ExperimentState.INCONCLUSIVE, reason, None
    return ExperimentState.RUNNING, f"{number} so far: {_undecided(found, plan)}", None


def _undecided(found: RateDifference | None, plan: ExperimentPlan) -> str:
    if found is None:
        return f"each arm needs at least {FEWEST_OF_A_KIND} successes and {FEWEST_OF_A_KIND} failures"
    return _arms(found, plan)


def _arms(found: RateDifference, plan: ExperimentPlan) -> str:
    return f"{plan.names[1]} less {plan.names[0]} is {difference_text(found)}"


def difference_text(one: RateDifference) -> str:
    """Format a difference with its interval: `+0.081 (95 % interval +0.042 to +0.120)`."""
    return f"{change_text(one.value)} (95 % interval {change_text(one.low)} to {change_text(one.high)})"


def _say_mismatch(exposed: tuple[int, int], plan: ExperimentPlan) -> str:
    share = exposed[0] / sum(exposed)
    seen, agreed = percent_text(share), percent_text(plan.share)
    if seen == agreed:
        seen, agreed = ratio_text(share, plan.share), ratio_text(plan.share, share)
    return (
        f"of {counted(sum(exposed), 'unit')} {seen} went to {plan.names[0]}, and {agreed} should have: either units of "
        "one arm are lost on their way, or your flags deal other shares (answers to exposures count what differs from "
        "the published assignment as unlike_assignment); no difference is told, and more units do not mend that: mend "
        "the loss and begin a new epoch, or set the shares that are dealt, which begins one"
    )


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


def sound_looks(looks: Sequence[Look], plan: ExperimentPlan) -> Sequence[Look]:
    """Return the looks before the first at which the shares of final units raise an alarm."""
    units = [[one.units for one in look.counts] for look in looks]
    wrong = (place for place, (first, other) in enumerate(units) if is_mismatch(first, first + other, plan.share))
    return looks[: next(wrong, len(looks))]


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


USUAL_POWER: Final = 0.8
USUAL_RATE: Final = 0.5
"""At which most units are needed; it stands for a rate that is not known yet."""
SEEN_DIFFERENCE: Final = 0.05
"""The difference that the number of units is told for, unless it matters to nobody."""


def power_by(units: int, difference: float, *, rate: float, share: float, second: float | None = None) -> float:
    """Probability that any look at so many units or fewer shows a difference, within .02 by simulation.

    `rate` is that of both arms, about their middle, or with `second` that of the first; `share` that of the second arm.

    With u = n rho^2 + 1 and L = ln(sqrt(u) / alpha) the sum of n units has to cross g = sqrt(2 u L / rho^2) times the
    standard deviation of one. g bends down all the way, so that its tangent at the last unit, g - n g' + g' t, lies
    above it; a Brownian motion with drift crosses a line with a known probability (Siegmund, "Sequential Analysis",
    1985). One look at the end alone would find less than that.
    """
    other = rate if second is None else second
    drift = difference / math.sqrt(rate * (1 - rate) / (1 - share) + other * (1 - other) / share)
    u = units * RHO_SQUARED + 1
    log = math.log(math.sqrt(u) / ALPHA)
    height = math.sqrt(2 * u * log / RHO_SQUARED)
    slope = (log + 1 / 2) / height
    begin, rest, root = height - units * slope, drift - slope, math.sqrt(units)
    exponent = 2 * begin * rest
    before = math.exp(exponent) * _below(-rest * root - begin / root) if exponent < _LARGEST_EXPONENT else 0.0
    return min(_below(rest * root - begin / root) + before, 1.0)


def _below(z: float) -> float:
    """Probability that a normal number lies below z; exact far below 0, where it is multiplied by a large one."""
    return math.erfc(-z / math.sqrt(2)) / 2


_LARGEST_EXPONENT: Final = 700.0
"""Beyond it nearly all cross by the end, as the other term says."""


def detectable_difference(*, rate: float, share: float, units: int, of_first: bool = False) -> float:
    """Smallest difference that an experiment of so many units shows with `USUAL_POWER`, about a rate.

    `of_first`: the rate is that of the first arm, and the difference may go up or down from there.
    """

    def is_shown(difference: float) -> bool:
        seconds = _seconds(rate, difference) if of_first else ()
        powers = [power_by(units, difference, rate=rate, share=share, second=one) for one in seconds or (None,)]
        return min(powers) >= USUAL_POWER

    low, high = 0.0, 1.0
    while not is_shown(high):
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not is_shown(middle):
            low = middle
        else:
            high = middle
    return high


_HALVINGS: Final = 40


def _seconds(rate: float, difference: float) -> tuple[float, ...]:
    """Rates that the second arm may have, where it differs from the first by so much, up or down."""
    return tuple(one for one in (rate - difference, rate + difference) if 0 < one < 1)


def _can_show(difference: float, *, rate: float, share: float, units: int) -> bool:
    """Whether a second arm that differs by so much has a rate at all, and enough of each kind within so many units."""
    return any(units_for_enough(rate=one, share=share) <= units for one in _seconds(rate, difference))


def units_each_way(difference: float, *, rate: float, share: float) -> dict[float, float]:
    """Return the same as `units_needed` for a first arm of a rate, by the rates that the second one may have.

    Both arms have enough of each kind by then. It is empty where the second one can have no such rate.
    """
    return {
        second: max(
            units_needed(difference, rate=rate, share=share, second=second),
            units_for_enough(rate=second, share=share),
            units_for_enough(rate=rate, share=1 - share),
        )
        for second in _seconds(rate, difference)
    }


def units_from(difference: float, *, rate: float, share: float) -> float:
    """Return the most of them: enough whichever way the second arm differs."""
    ways = units_each_way(difference, rate=rate, share=share)
    return max(ways.values(), default=units_needed(difference, rate=rate, share=share))


def units_needed(difference: float, *, rate: float, share: float, second: float | None = None) -> int:
    """Fewest units by which an experiment shows a difference with `USUAL_POWER`; rates as in `power_by`.

    Raises ValueError unless all three lie between 0 and 1.
    """
    if not (0 < difference < 1 and 0 < rate < 1 and 0 < share < 1):
        raise ValueError(f"a difference of {difference} at a rate of {rate} and a share of {share} cannot be")

    def power(units: int) -> float:
        return power_by(max(units, 1), difference, rate=rate, share=share, second=second)

    most = 1
    while power(most) < USUAL_POWER:
        most *= 2
    return bisect_left(range(most), USUAL_POWER, key=power)


def units_for_enough(*, rate: float, share: float) -> float:
    """Units after which an arm of a share has `FEWEST_OF_A_KIND` of the rarer kind with `USUAL_POWER`; may be infinite.

    The expected number m of the rarer kind solves m - z sqrt(m) = `FEWEST_OF_A_KIND` - 1/2, as a count of rare events
    varies by sqrt(m).
    """
    z, rarer = NormalDist().inv_cdf(USUAL_POWER), min(rate, 1 - rate)
    expected = ((z + math.sqrt(z * z + 4 * FEWEST_OF_A_KIND - 2)) / 2) ** 2
    return math.ceil(expected / (share * rarer)) if rarer else math.inf


def say_power(plan: ExperimentPlan, decision: ExperimentDecision) -> str:
    """Say what an experiment can show, about the rate of its first arm as far as that is known."""
    counts = (ArmCounts(units=0, successes=0),) * 2 if decision.look is None else decision.look.counts
    units, share = counts[0].units + counts[1].units, 1 - plan.share
    arms = list(zip(plan.names, counts, (plan.share, share), strict=True))
    name, first = next(((name, arm) for name, arm, _ in arms if _is_seen(arm)), (plan.names[0], None))
    rate = USUAL_RATE if first is None else first.rate
    difference = max(SEEN_DIFFERENCE, plan.delta)  # a smaller one ends as equivalent
    begin = f"with {percent_text(share)} of the units in {plan.names[1]} it"
    if decision.state is ExperimentState.MISMATCH:
        return "it shows nothing while the arms get other shares than they should"
    few = f"at least {FEWEST_OF_A_KIND} successes and {FEWEST_OF_A_KIND} failures"
    # Units that each arm needs for so many, the arm that needs most last; one without units is taken as the other is.
    rule = sorted(
        (units_for_enough(rate=arm.rate if _is_seen(arm) else rate, share=of_all), place)
        for place, (_, arm, of_all) in enumerate(arms)
    )
    least_units, place = rule[-1]
    open_ = decision.difference is None
    if (
        open_
        and first is not None
        and (rate in {0, 1} or least_units > units_needed(difference, rate=rate, share=share))
    ):
        rare, arm = arms[place][:2] if _is_seen(arms[place][1]) else (name, first)
        return f"{begin} shows nothing before each arm has {few}; {_say_rare(rare, arm, least_units, plan)}"
    of_other = share if name == plan.names[0] else plan.share
    count = units_needed if first is None else units_from
    needed = count(difference, rate=rate, share=of_other)
    least = detectable_difference(rate=rate, share=of_other, units=plan.max_units, of_first=first is not None)
    word = "taken as" if first is None else "is" if first.enough else "so far"
    ways = () if first is None else _seconds(rate, difference)
    what = "difference"
    if len(ways) == 1:  # the other way is no rate
        what = "loss" if (ways[0] < rate) is (name == plan.names[0]) else "gain"
    seen = f"a {what} of {bound_text(difference)}"
    enough = f"{needed:,.0f} units, with probability {USUAL_POWER} (rate of {name} {word} {ratio_text(rate)})"
    most = f"at most {plan.max_units:,} come, which are enough for one of {ratio_text(least)}"
    if open_ and least_units > plan.max_units:
        most = f"at most {plan.max_units:,} come, too few for {few} in each arm, before which it shows nothing"
    elif open_ and not _can_show(least, rate=rate, share=of_other, units=plan.max_units):
        most = (
            f"at most {plan.max_units:,} come, too few to expect that any difference is shown, as each arm needs {few}"
        )
    undecided = decision.state is not ExperimentState.WINNER
    if undecided and units >= needed and open_:
        return f"{begin} shows nothing before each arm has {few}"
    if undecided and units >= needed:
        more = f"; {most}" if decision.state is ExperimentState.RUNNING else ""
        shown = f"{units:,} are counted: one as large would probably have shown by now"
        return f"{begin} shows {seen} by about {enough}, and {shown}{more}"
    known = f"with probability {USUAL_POWER} (rate of {name} {word} {ratio_text(rate)})"
    if first is not None and (both := _say_both_ways(plan, difference, rate=rate, of_first=name == plan.names[0])):
        told = f"{begin} shows {both}, {known}"
        return f"{told}; at most {plan.max_units:,} come" if needed > plan.max_units else told
    reach = f"{begin} shows {seen} by about {enough}"
    beyond = f"{begin} cannot be expected to show {seen}: that takes about {enough}, and {most}"
    return reach if needed <= plan.max_units else beyond


def _say_both_ways(plan: ExperimentPlan, difference: float, *, rate: float, of_first: bool) -> str:
    """Say how many units a loss and a gain take, where one takes many more than the other; empty where not.

    `of_first`: the rate is that of the first arm, and the second one is what may lose.
    """
    ways = units_each_way(difference, rate=rate, share=1 - plan.share if of_first else plan.share)
    sooner, *later = sorted(ways, key=ways.__getitem__) or [0.0]
    if not later or ways[sooner] > plan.max_units or ways[later[0]] <= _UNLIKE * ways[sooner]:
        return ""
    words = ["loss", "gain"] if (sooner < rate) is of_first else ["gain", "loss"]
    first = f"a {words[0]} of {bound_text(difference)} by about {ways[sooner]:,.0f} units"
    return f"{first} and a {words[1]} by about {ways[later[0]]:,.0f}"


_UNLIKE: Final = 1.5
"""Where one way takes so many times more units than the other, both are told."""


def _is_seen(arm: ArmCounts) -> bool:
    """Whether an arm has units enough to go by their rate."""
    return arm.units >= FEWEST_OF_A_KIND


def _say_rare(name: str, arm: ArmCounts, least_units: float, plan: ExperimentPlan) -> str:
    """Say how many units it takes until an arm has enough of the rarer kind, by what was seen of it so far."""
    failures = arm.units - arm.successes
    number = min(arm.successes, failures)
    kinds = ("success", "successes") if arm.successes <= failures else ("failure", "failures")
    seen = f"{arm.units:,} units of {name} had {number:,} {kinds[number != 1]} so far"
    if not number:
        return seen
    most = f", and at most {plan.max_units:,} come" if least_units > plan.max_units else ""
    return f"that takes about {least_units:,.0f} units, with probability {USUAL_POWER} ({seen}){most}"


_HALF: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedHit:
    """A chunk of a merged list; `team` is the ranking that contributed it, null = a click on it says nothing."""

    id: str
    team: Side | None
    """None = the other ranking had nothing left to contribute."""


class Preferences(Value):
    """Units by the ranking that got more of their clicks; ties are in neither."""

    a: int
    b: int


class PreferenceDecision(Value):
    """Where an interleaving stands, and why."""

    state: ExperimentState
    reason: str
    difference: RateDifference | None
    """Share of the units for B less that of those for A; None below 30 units for each."""
    winner: str | None = None
    later: RateDifference | None = None
    """The same by now, where that contradicts what it was decided by."""

    @property
    def ended(self) -> bool:
        """Whether further clicks change nothing."""
        return self.state is not ExperimentState.RUNNING


def interleave(slug: str, epoch: int, unit: str, a: Sequence[str], b: Sequence[str]) -> list[MergedHit]:
    """Merge two rankings by team draft, as long as the longer of them; the same for the same unit and epoch.

    The ranking that has contributed less goes next and contributes its best chunk that is not in the list yet. Where
    both have contributed as much, A goes next if u < 1/2 with u of `assign_arm` for "unit:rounds", `rounds` being the
    number of chunks that each has contributed. Raises ValueError for a ranking that names a chunk twice.
    """
    if len(set(a)) < len(a) or len(set(b)) < len(b):
        raise ValueError("a ranking names a chunk twice")
    merged: list[MergedHit] = []
    taken: set[str] = set()
    counts = {Side.A: 0, Side.B: 0}
    while len(merged) < max(len(a), len(b)):
        best = {
            side: next((hit for hit in ranking if hit not in taken), None)
            for side, ranking in ((Side.A, a), (Side.B, b))
        }
        if counts[Side.A] != counts[Side.B]:
            side = min(counts, key=counts.__getitem__)
        else:
            side = Side.A if hash_share(f"{slug}:{epoch}:{unit}:{counts[Side.A]}") < _HALF else Side.B
        hit = best[side]
        if hit is None or None in best.values():
            break
        counts[side] += 1
        taken.add(hit)
        merged.append(MergedHit(id=hit, team=side))
    rest = [hit for hit in (*a, *b) if hit not in taken]
    return merged + [MergedHit(id=hit, team=None) for hit in rest[: max(len(a), len(b)) - len(merged)]]


def estimate_preference(found: Preferences) -> RateDifference | None:
    """Share of the units for B less that of those for A; None below 30 units for each.

    With x = 1 for B and -1 for A the variance of one unit is that of x, and the radius that of experiments, so that it
    holds at every look.
    """
    if min(found.a, found.b) < FEWEST_OF_A_KIND:
        return None
    n = found.a + found.b
    mean = (found.b - found.a) / n
    side = radius((1 - mean**2) * n / (n - 1), n)
    return RateDifference(value=mean, low=mean - side, high=mean + side)


def decide_preference(found: Preferences, names: tuple[str, str], *, units: int, max_units: int) -> PreferenceDecision:
    """Decide an interleaving by what its units prefer so far; `units` counts those without a preference, too."""
    one = estimate_preference(found)
    state, winner = ExperimentState.RUNNING, None
    if one is None:
        reason = f"each ranking needs {FEWEST_OF_A_KIND} units that prefer it; {found.a} and {found.b} do"
    else:
        reason = f"no preference is shown: {difference_text(one)} over {counted(found.a + found.b, 'unit')}"
        if one.low > 0 or one.high < 0:
            winner, other = names if one.high < 0 else names[::-1]
            state, reason = ExperimentState.WINNER, f"{winner} is preferred to {other}{reason[reason.index(':') :]}"
    if winner is None and units >= max_units:
        state = ExperimentState.INCONCLUSIVE
        # How many have come by now is no part of the decision: units that come later change nothing of it.
        reason = f"{counted(max_units, 'unit')} or more came, as many as it waits for, and {reason}"
    return PreferenceDecision(state=state, reason=reason, difference=one, winner=winner)


class ComparedPair(Value):
    """A pair that people compared: their consensus, a side or neither, None = open or disputed."""

    grade: int | None
    candidate_right: bool


class PairPreferences(Value):
    """Pairs by what is preferred."""

    candidate: int
    current: int
    alike: int
    undecided: int
    share: Proportion
    """Of the candidate among the pairs in which one side is preferred, with its exact 95 % interval."""


def count_preferences(pairs: Iterable[ComparedPair]) -> PairPreferences:
    """Count the preferences of some pairs."""
    candidate = current = alike = undecided = 0
    for pair in pairs:
        if pair.grade is None:
            undecided += 1
        elif pair.grade not in {LEFT, RIGHT}:
            alike += 1
        elif (pair.grade == RIGHT) is pair.candidate_right:
            candidate += 1
        else:
            current += 1
    share = clopper_pearson(candidate, candidate + current)
    return PairPreferences(candidate=candidate, current=current, alike=alike, undecided=undecided, share=share)


_JACCARD_DEPTH: Final = 10
"""Hits that Jaccard's index is of."""
SHOWN_HITS: Final = 5
"""Hits of each side that people compare."""


class ShadowHit(Value):
    """A hit of a pair: its id and, where it is known, its text."""

    id: str
    text: str | None = None


Hits = Sequence[ShadowHit]


class PairOverlap(Value):
    """How alike two rankings of one query are: 1 = the same."""

    rbo: float
    """Rank-biased overlap with p = .9."""
    jaccard: float
    """Share of the chunks among the first ten of either that both have."""


def compare_pair(a: Sequence[str], b: Sequence[str]) -> PairOverlap:
    """Compare two rankings of distinct ids; two empty ones are the same."""
    first, second = set(a[:_JACCARD_DEPTH]), set(b[:_JACCARD_DEPTH])
    union = first | second
    return PairOverlap(rbo=rbo(a, b), jaccard=len(first & second) / len(union) if union else 1.0)


def is_asked(slug: str, query: str, *, share: float) -> bool:
    """Whether the candidate of a shadow is asked a query: decided by its hash, so a query is always asked or never."""
    return hash_share(f"shadow:{slug}:{query}") < share


def cut_to(b: Hits, a: Hits) -> Hits:
    """Cut the candidate's ranking to the length of what users got, so that depth alone makes no difference."""
    return b[: len(a)] if a else b


def shown_texts(hits: Hits) -> tuple[str, ...] | None:
    """Return the texts that people see of a ranking; None where one is not known."""
    texts = [one.text for one in hits[:SHOWN_HITS]]
    known = tuple(text for text in texts if text)
    return known if len(known) == len(texts) else None
