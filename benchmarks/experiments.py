"""How often experiments err, and how many units they need: simulated units with known rates.

    python -m benchmarks.experiments [REPETITIONS]
    python -m benchmarks.experiments --promotions [WORLDS]

Each row is REPETITIONS (default 2,000) experiments of up to 20,000 units with fixed seeds, looked at after every 50
units. It fails unless winners without a difference, false equivalences and false alarms about shares stay within .05.
With `--promotions` each row is WORLDS (default 200) candidates of one true nature: 600 canaries, 140 judged answers
with a guard rail for faithfulness of .05, and users until the experiment ends. It fails if more than .05 of the harmful
ones are promoted.
Interleaving is in `python -m benchmarks.interleaving`, the rate of intake in `python -m benchmarks.experiment_intake`.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.comparison.domain.estimates import estimate
from app.comparison.domain.outcomes import ComparisonVerdict
from app.experiments.domain.experiments import (
    ALPHA,
    FEWEST_OF_A_KIND,
    RHO_SQUARED,
    ArmCounts,
    ExperimentPlan,
    ExperimentState,
    Look,
    decide_experiment,
    estimate_difference,
    is_mismatch,
    say_power,
)
from app.experiments.domain.promotion_evidence import (
    ExposureEvidence,
    GuardEvidence,
    JudgedQuestion,
    JudgeEvidence,
    Margin,
    OfflineEvidence,
)
from app.experiments.domain.promotions import (
    PromotionState,
    decide_promotion,
)

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

UNITS: Final = 20_000
STEP: Final = 50
"""Units between two looks."""
DELTA: Final = 0.03
BLOCK: Final = 100
"""Experiments simulated at once."""
Z: Final = 1.959964
MOST_FALSE: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Rates of both arms, and the share of the units that the second one gets."""

    a: float
    b: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """Counts at every look of some experiments: arrays of (experiments, looks)."""

    units: tuple[Counts, Counts]
    successes: tuple[Counts, Counts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endings:
    """Shares of the experiments of a design; `median` is the median number of units at which a winner was found."""

    peeked: float
    """A z-test at 0.05 that ends at the first look at which it is significant."""
    won: float
    without_rule: float
    """Winners if there were no least number of successes and failures."""
    equivalent: float
    median: float


def main(repetitions: int = 2_000) -> None:
    """Print the tables, then hold them against what the documentation promises."""
    failures = [*_print_false_winners(repetitions), *_print_power(repetitions), *_print_mismatch(repetitions)]
    assert not failures, failures


def _print_false_winners(repetitions: int) -> Iterator[str]:
    print("| rate of both | share of B | z-test at each look | Coalmine | without the rule of 30 | equivalent |")
    print("|---|---|---|---|---|---|")
    for rate in (0.6, 0.3, 0.05):
        for share in (0.5, 0.05):
            found = simulate(Design(a=rate, b=rate, share=share), repetitions)
            numbers = f"{found.peeked:.3f} | {found.won:.4f} | {found.without_rule:.4f} | {found.equivalent:.3f}"
            row = f"| {rate} | {share} | {numbers} |"
            print(row, flush=True)
            if found.won > MOST_FALSE:
                yield f"false winners: {row}"


def _print_power(repetitions: int) -> Iterator[str]:
    print("\n| rates | share of B | winner found | median units | equivalent (delta .03) |\n|---|---|---|---|---|")
    for a, b in ((0.6, 0.65), (0.6, 0.63), (0.05, 0.07)):
        for share in (0.5, 0.05):
            found = simulate(Design(a=a, b=b, share=share), repetitions)
            numbers = f"{found.won:.3f} | {found.median:,.0f} | {found.equivalent:.3f}"
            row = f"| {a} against {b} | {share} | {numbers} |"
            print(row, flush=True)
            if b - a >= DELTA - 1e-9 and found.equivalent > MOST_FALSE:
                yield f"false equivalence: {row}"


def _print_mismatch(repetitions: int) -> Iterator[str]:
    print("\n| share agreed | true share | alarm within 20,000 units |\n|---|---|---|")
    for agreed, true in ((0.5, 0.5), (0.5, 0.51), (0.5, 0.52), (0.95, 0.95), (0.95, 0.94)):
        share = share_of_alarms(agreed, true, repetitions)
        row = f"| {agreed} | {true} | {share:.3f} |"
        print(row, flush=True)
        if agreed == true and share > MOST_FALSE:
            yield f"false alarms: {row}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nature:
    """What a candidate truly does: to the scores of canaries, to faithfulness, and to the rate of satisfied users."""

    name: str
    canaries: float
    faithfulness: float
    users: float
    harmful: bool


NATURES: Final = (
    Nature(name="wins offline, users .05 worse", canaries=0.03, faithfulness=0.0, users=-0.05, harmful=True),
    Nature(name="wins offline, users .02 worse", canaries=0.03, faithfulness=0.0, users=-0.02, harmful=True),
    Nature(name="users .05 better, faithfulness .12 worse", canaries=0.0, faithfulness=-0.12, users=0.05, harmful=True),
    Nature(name="as what is current", canaries=0.0, faithfulness=0.0, users=0.0, harmful=False),
    Nature(name="users .05 better", canaries=0.0, faithfulness=0.0, users=0.05, harmful=False),
)
RATE: Final = 0.6
FAITHFUL: Final = 0.85


def print_promotions(worlds: int = 200) -> None:
    """Print what becomes of candidates whose truth is known, nobody waiving anything."""
    states = list(PromotionState)
    print(f"| candidate | share of B | {' | '.join(states)} |\n|---|---|{'---|' * len(states)}")
    failures = []
    for nature in NATURES:
        random = np.random.default_rng(23)
        evidence = [_evidence(nature, random) for _ in range(worlds)]
        for share in (0.5, 0.05):
            looks = draw(Design(a=RATE, b=RATE + nature.users, share=share), worlds, random)
            found = Counter(
                decide_promotion(offline, judge, _exposure(looks, world, share), {}, guards=[guard]).state
                for world, (offline, judge, guard) in enumerate(evidence)
            )
            numbers = " | ".join(f"{found[state] / worlds:.3f}" for state in states)
            row = f"| {nature.name} | {share} | {numbers} |"
            print(row, flush=True)
            if nature.harmful and found[PromotionState.PROMOTE] > MOST_FALSE * worlds:
                failures.append(row)
    assert not failures, failures


def _evidence(nature: Nature, random: np.random.Generator) -> tuple[OfflineEvidence, JudgeEvidence, GuardEvidence]:
    """Draw what canaries and judged answers say of a candidate."""
    old = random.choice([0.0, 1 / 3, 0.5, 1.0], size=600, p=[0.15, 0.1, 0.15, 0.6])
    new = np.where(random.random(600) < 0.3, random.permutation(old), old)
    new = np.clip(new + np.where(random.random(600) < 0.2, 5 * nature.canaries, 0.0), 0.0, 1.0)
    ranked = estimate("MRR@10", old, new)
    verdict = ComparisonVerdict.BETTER if (ranked.lower or 0) > 0 else ComparisonVerdict.NO_DIFFERENCE_SHOWN
    margin = Margin(low=ranked.lower, high=ranked.upper)
    offline = OfflineEvidence(canaries=600, verdict=verdict, measures={"MRR@10": margin, "NDCG@10": margin})
    judged = {}
    for name, change in (("faithfulness", nature.faithfulness), ("answer_relevance", 0.0)):
        same, before = random.random(140) < 0.8, random.random(140) < FAITHFUL
        # Answers that stay the same are rated the same; the others carry all of the change.
        after = np.where(same, before, random.random(140) < FAITHFUL + change / 0.2)
        one = estimate(name, before.astype(float), after.astype(float))
        judged[name] = Margin(low=one.lower, high=one.upper)
    judge = JudgeEvidence(
        measures={
            name: {name: JudgedQuestion(answers=140, calibrated=True, margin=one)} for name, one in judged.items()
        }
    )
    return offline, judge, GuardEvidence(name="faithfulness", allowed_loss=0.05, found=judged["faithfulness"])


def _exposure(looks: Looks, world: int, share: float) -> ExposureEvidence:
    """Return what an experiment decides, at the first look at which it ends."""
    plan = ExperimentPlan(names=("vector", "hybrid"), share=1 - share, delta=DELTA, max_units=UNITS)
    made = [
        Look(
            at=place,
            counts=(
                ArmCounts(units=int(looks.units[0][world, place]), successes=int(looks.successes[0][world, place])),
                ArmCounts(units=int(looks.units[1][world, place]), successes=int(looks.successes[1][world, place])),
            ),
        )
        for place in range(looks.units[0].shape[1])
    ]
    exposed = made[-1].counts[0].units, made[-1].counts[1].units
    decision = decide_experiment(made, exposed, plan)
    return ExposureEvidence(
        difference=decision.difference,
        mismatch=decision.state is ExperimentState.MISMATCH,
        reason=decision.reason,
        power=say_power(plan, decision),
    )


def simulate(design: Design, repetitions: int, *, seed: int = 17) -> Endings:
    """Simulate experiments of a design, each as if it were looked at to its last unit by every rule."""
    random = np.random.default_rng(seed)
    peeked, won, without, equivalent, units = [], [], [], [], []
    for begin in range(0, repetitions, BLOCK):
        looks = draw(design, min(BLOCK, repetitions - begin), random)
        low, high, enough = intervals(looks)
        _hold_against_domain(looks, low, high, enough)
        outside = (low > 0) | (high < 0)
        winner, same = first(outside & enough), first((low > -DELTA) & (high < DELTA) & enough)
        peeked.append(first(z_scores(looks) > Z) < _NEVER)
        won.append((winner < _NEVER) & (winner < same))
        equivalent.append((same < _NEVER) & (same < winner))
        without.append(first(outside) < _NEVER)
        units.append(winner[won[-1]])
    ended = np.concatenate(units)
    return Endings(
        peeked=float(np.concatenate(peeked).mean()),
        won=float(np.concatenate(won).mean()),
        without_rule=float(np.concatenate(without).mean()),
        equivalent=float(np.concatenate(equivalent).mean()),
        median=float(np.median((ended + 1) * STEP)) if len(ended) else float("nan"),
    )


def draw(design: Design, experiments: int, random: np.random.Generator) -> Looks:
    """Draw the units of some experiments and count them at every look."""
    second = random.random((experiments, UNITS), dtype=np.float32) < design.share
    success = random.random((experiments, UNITS), dtype=np.float32) < np.where(second, design.b, design.a)
    return Looks(
        units=(_at_looks(~second), _at_looks(second)),
        successes=(_at_looks(success & ~second), _at_looks(success & second)),
    )


def intervals(looks: Looks) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return the interval at every look, NaN where undefined, and whether each arm has enough of both kinds."""
    rates, variances = [], []
    with np.errstate(invalid="ignore", divide="ignore"):
        for units, successes in zip(looks.units, looks.successes, strict=True):
            rate = successes / units
            rates.append(rate)
            variances.append(rate * (1 - rate) * units / (units - 1) / units)
        n = looks.units[0] + looks.units[1]
        scaled = n * RHO_SQUARED
        side = np.sqrt(
            n * (variances[0] + variances[1]) * 2 * (scaled + 1) / (n * scaled) * np.log(np.sqrt(scaled + 1) / ALPHA)
        )
        value = rates[1] - rates[0]
    kinds = [*looks.successes, *(units - good for units, good in zip(looks.units, looks.successes, strict=True))]
    return value - side, value + side, np.minimum.reduce(kinds) >= FEWEST_OF_A_KIND


def z_scores(looks: Looks) -> Floats:
    """Absolute values of the two-sample z-test with pooled variance; 0 where it is undefined."""
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = sum(looks.successes) / sum(looks.units)
        error = np.sqrt(pooled * (1 - pooled) * sum(1 / units for units in looks.units))
        rates = [good / units for units, good in zip(looks.units, looks.successes, strict=True)]
        scores: Floats = np.abs(rates[1] - rates[0]) / error
    return np.nan_to_num(scores, nan=0.0, posinf=0.0)


def first(holds: NDArray[np.bool_]) -> Counts:
    """Return the first look of each experiment at which something holds; `_NEVER` where it never does."""
    return np.where(holds.any(axis=1), holds.argmax(axis=1), _NEVER)


def share_of_alarms(agreed: float, true: float, repetitions: int, *, seed: int = 71) -> float:
    """Share of experiments with an alarm about the shares, by Coalmine's own function at every look."""
    random = np.random.default_rng(seed)
    alarms = 0
    for _ in range(repetitions):
        at_looks = random.binomial(STEP, true, UNITS // STEP).cumsum()
        alarms += any(is_mismatch(int(k), (look + 1) * STEP, agreed) for look, k in enumerate(at_looks))
    return alarms / repetitions


def _hold_against_domain(looks: Looks, low: Floats, high: Floats, enough: NDArray[np.bool_]) -> None:
    """Assert that the arrays are what Coalmine's own function gives, at one look of each experiment."""
    for place in range(len(low)):
        look = (place * 7) % low.shape[1]
        arms = [
            ArmCounts(units=int(units[place, look]), successes=int(good[place, look]))
            for units, good in zip(looks.units, looks.successes, strict=True)
        ]
        found = estimate_difference(*arms)
        assert (found is not None) == enough[place, look]
        if found is not None:
            assert np.allclose([found.low, found.high], [low[place, look], high[place, look]])


def _at_looks(happened: NDArray[np.bool_]) -> Counts:
    """Count what happened until every look."""
    steps = happened.reshape(len(happened), UNITS // STEP, STEP)
    counts: Counts = steps.sum(axis=2).cumsum(axis=1)
    return counts


_NEVER: Final = UNITS // STEP

if __name__ == "__main__":
    if sys.argv[1:2] == ["--promotions"]:
        print_promotions(*map(int, sys.argv[2:3]))
    else:
        main(*map(int, sys.argv[1:]))
