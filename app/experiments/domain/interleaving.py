"""Team-draft interleaving: two rankings merged into one, whose clicks tell with few units which ranking is better.

Radlinski, Kurup and Joachims, "How does clickthrough data reflect retrieval quality?" (CIKM 2008). Each user judges
both rankings at once, so that what differs between users does not stand in the way.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from app.annotation.domain.agreement import LEFT, RIGHT, hash_share
from app.answers.domain.measures import Proportion, clopper_pearson
from app.base.texts import change_text, counted
from app.comparison.domain.outcomes import Side
from app.experiments.domain.experiments import FEWEST_OF_A_KIND, ExperimentState, radius

_HALF: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedHit:
    """A chunk of a merged list; `team` is the ranking that contributed it, null = a click on it says nothing."""

    id: str
    team: Side | None
    """None = the other ranking had nothing left to contribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """Units by the ranking that got more of their clicks; ties are in neither."""

    a: int
    b: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceEstimate:
    """What units prefer: share of those for B less share of those for A, with its interval at this number of units."""

    value: float
    low: float
    high: float
    winner: Side | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceDecision:
    """Where an interleaving stands, and why."""

    state: ExperimentState
    reason: str
    estimate: PreferenceEstimate | None
    winner: str | None = None

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
        best = {side: _best(ranking, taken) for side, ranking in ((Side.A, a), (Side.B, b))}
        side = _next_side(f"{slug}:{epoch}:{unit}", counts)
        hit = best[side]
        if hit is None or None in best.values():
            break
        counts[side] += 1
        taken.add(hit)
        merged.append(MergedHit(id=hit, team=side))
    rest = [hit for hit in (*a, *b) if hit not in taken]
    return merged + [MergedHit(id=hit, team=None) for hit in rest[: max(len(a), len(b)) - len(merged)]]


def credit_clicks(merged: Sequence[MergedHit], clicked: Collection[str]) -> int:
    """Preference of a unit by its clicks: 1 = for B, -1 = for A, 0 = as many clicks for both."""
    teams = [hit.team for hit in merged if hit.id in clicked]
    credit = teams.count(Side.B) - teams.count(Side.A)
    return (credit > 0) - (credit < 0)


def estimate_preference(found: Preferences) -> PreferenceEstimate | None:
    """Estimate what units prefer; None below 30 units for each.

    With x = 1 for B and -1 for A the variance of one unit is that of x, and the radius that of experiments, so that it
    holds at every look.
    """
    if min(found.a, found.b) < FEWEST_OF_A_KIND:
        return None
    n = found.a + found.b
    mean = (found.b - found.a) / n
    side = radius((1 - mean**2) * n / (n - 1), n)
    low, high = mean - side, mean + side
    winner = Side.B if low > 0 else Side.A if high < 0 else None
    interval = f"{change_text(mean)} (95 % interval {change_text(low)} to {change_text(high)})"
    says = "no preference is shown" if winner is None else f"units prefer {winner.upper()}"
    return PreferenceEstimate(
        value=mean, low=low, high=high, winner=winner, reason=f"{says}: {interval} over {counted(n, 'unit')}"
    )


def decide_preference(found: Preferences, names: tuple[str, str], *, units: int, max_units: int) -> PreferenceDecision:
    """Decide an interleaving by what its units prefer so far; `units` counts those without a preference, too."""
    estimate = estimate_preference(found)
    if estimate is None:
        reason = f"each ranking needs {FEWEST_OF_A_KIND} units that prefer it; {found.a} and {found.b} do"
    else:
        reason = estimate.reason
        if estimate.winner is not None:
            winner, other = names[:: 1 if estimate.winner is Side.A else -1]
            reason = f"{winner} is preferred to {other}: {estimate.reason.partition(': ')[2]}"
            return PreferenceDecision(state=ExperimentState.WINNER, reason=reason, estimate=estimate, winner=winner)
    if units >= max_units:
        reason = f"{counted(units, 'unit')} of at most {max_units:,} came, and {reason}"
        return PreferenceDecision(state=ExperimentState.INCONCLUSIVE, reason=reason, estimate=estimate)
    return PreferenceDecision(state=ExperimentState.RUNNING, reason=reason, estimate=estimate)


def _next_side(unit: str, counts: dict[Side, int]) -> Side:
    if counts[Side.A] != counts[Side.B]:
        return min(counts, key=counts.__getitem__)
    return Side.A if hash_share(f"{unit}:{counts[Side.A]}") < _HALF else Side.B


def _best(ranking: Sequence[str], taken: Collection[str]) -> str | None:
    return next((hit for hit in ranking if hit not in taken), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPair:
    """A pair that people compared: their consensus, a side or neither, None = open or disputed."""

    grade: int | None
    candidate_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPreferences:
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
