"""Endings of experiments: winner, equivalent, inconclusive, mismatch, and the first look that decides."""

import pytest

from app.comparison.domain.outcomes import Side
from app.experiments.domain.experiments import (
    ArmCounts,
    ExperimentDecision,
    ExperimentPlan,
    ExperimentState,
    Look,
    decide_experiment,
)

PLAN = ExperimentPlan(names=("vector", "hybrid"), share=0.5, delta=0.02, max_units=100_000)


def look(a: tuple[int, int], b: tuple[int, int], *, at: int = 1) -> Look:
    counts = (ArmCounts(units=a[0], successes=a[1]), ArmCounts(units=b[0], successes=b[1]))
    return Look(at=at, counts=counts)


def decide(*looks: Look, exposed: tuple[int, int] | None = None, plan: ExperimentPlan = PLAN) -> ExperimentDecision:
    newest = looks[-1].counts if looks else (ArmCounts(units=0, successes=0),) * 2
    return decide_experiment(looks, exposed or (newest[0].units, newest[1].units), plan)


def test_nothing_counted_is_running_without_a_difference() -> None:
    decision = decide()
    assert (decision.state, decision.difference, decision.ended) == (ExperimentState.RUNNING, None, False)


def test_an_interval_above_zero_is_a_win_of_the_second_arm_and_below_of_the_first() -> None:
    better = decide(look((3_000, 1_800), (3_000, 1_980)))
    assert (better.state, better.winner) == (ExperimentState.WINNER, Side.B)
    assert better.reason == "after 6,000 units hybrid beats vector by 0.060 (95 % interval 0.022 to 0.098)"
    worse = decide(look((3_000, 1_980), (3_000, 1_800)))
    assert (worse.state, worse.winner) == (ExperimentState.WINNER, Side.A)
    assert worse.reason == "after 6,000 units vector beats hybrid by 0.060 (95 % interval 0.022 to 0.098)"


def test_an_interval_within_delta_is_equivalent() -> None:
    decision = decide(look((40_000, 2_000), (40_000, 2_010)))
    assert decision.state is ExperimentState.EQUIVALENT
    assert "all of it within 0.02 of zero" in decision.reason


def test_the_last_unit_without_a_decision_is_inconclusive() -> None:
    found = look((2_000, 1_000), (2_000, 1_020))
    assert decide(found).state is ExperimentState.RUNNING
    short = ExperimentPlan(names=PLAN.names, share=0.5, delta=0.02, max_units=4_000)
    assert decide(found, plan=short).state is ExperimentState.INCONCLUSIVE


def test_fewer_than_30_of_a_kind_decide_nothing_however_large_the_difference() -> None:
    decision = decide(look((1_000, 29), (1_000, 900)))
    assert decision.state is ExperimentState.RUNNING
    assert "each arm needs at least 30 successes" in decision.reason


def test_the_first_look_that_ends_decides_whatever_comes_later() -> None:
    found = [look((3_000, 1_800), (3_000, 1_980), at=1), look((9_000, 5_400), (9_000, 5_400), at=2)]
    decision = decide(*found)
    assert (decision.state, decision.look) == (ExperimentState.WINNER, found[0])


def test_no_winner_is_named_where_the_arms_do_not_get_their_shares() -> None:
    decision = decide(look((3_000, 1_800), (3_000, 1_980)), exposed=(10_400, 9_600))
    assert (decision.state, decision.winner) == (ExperimentState.MISMATCH, None)
    assert decide(exposed=(10_400, 9_600)).state is ExperimentState.MISMATCH
    assert decision.reason.startswith("of 20,000 units 52 % went to vector, and 50 % should have: units of")


@pytest.mark.parametrize("share", [0.05, 0.95])
def test_unequal_shares_are_no_mismatch_where_they_are_agreed(share: float) -> None:
    first = round(20_000 * share)
    plan = ExperimentPlan(names=PLAN.names, share=share, delta=0.02, max_units=100_000)
    found = look((first, first // 2), (20_000 - first, (20_000 - first) // 2))
    assert decide(found, plan=plan).state is ExperimentState.RUNNING
