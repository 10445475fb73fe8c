"""Endings of experiments: winner, equivalent, inconclusive, mismatch, and the first look that decides."""

from pathlib import Path

import numpy as np
import pytest

from app.base.values import replace
from app.comparison.domain.outcomes import Side
from app.experiments.domain.experiments import (
    ArmCounts,
    ExperimentDecision,
    ExperimentPlan,
    ExperimentState,
    Look,
    decide_experiment,
    say_power,
    units_each_way,
    units_for_enough,
    units_from,
    units_needed,
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
    assert decision.reason == (
        "of 20,000 units 52 % went to vector, and 50 % should have: either units of one arm are lost on their way, or "
        "your flags deal other shares (answers to exposures count what differs from the published assignment as "
        "unlike_assignment); no difference is told, and more units do not mend that: mend the loss and begin a new "
        "epoch, or set the shares that are dealt, which begins one"
    )
    assert decision.difference is None
    shows_nothing = "it shows nothing while the arms get other shares than they should"
    assert say_power(PLAN, decision) == shows_nothing == say_power(PLAN, decide(exposed=(10_400, 9_600)))


def test_shares_that_mismatch_are_never_written_alike() -> None:
    few, many = decide(exposed=(504_000, 496_000)), decide(exposed=(50_040_000, 49_960_000))
    assert few.reason.startswith("of 1,000,000 units 0.504 went to vector, and 0.500 should have: either")
    assert many.reason.startswith("of 100,000,000 units 0.5004 went to vector, and 0.5000 should have: either")


def test_units_are_told_for_a_difference_that_matters() -> None:
    coarse = ExperimentPlan(names=PLAN.names, share=0.5, delta=0.1, max_units=20_000)
    needed = units_needed(0.1, rate=0.5, share=0.5)
    assert f"it shows a difference of 0.1 by about {needed:,} units" in say_power(coarse, decide(plan=coarse))


@pytest.mark.parametrize("share", [0.05, 0.95])
def test_unequal_shares_are_no_mismatch_where_they_are_agreed(share: float) -> None:
    first = round(20_000 * share)
    plan = ExperimentPlan(names=PLAN.names, share=share, delta=0.02, max_units=100_000)
    found = look((first, first // 2), (20_000 - first, (20_000 - first) // 2))
    assert decide(found, plan=plan).state is ExperimentState.RUNNING


# --- what it can show ----------------------------------------------------------------------------------------


def test_the_document_says_what_the_service_says_before_the_first_unit() -> None:
    plan = ExperimentPlan(names=("vector", "hybrid"), share=0.95, delta=0.02, max_units=20_000)
    written = " ".join((Path(__file__).parents[2] / "docs/experiments.md").read_text(encoding="utf-8").split())
    said = say_power(plan, decide(plan=plan))
    assert said.endswith("which are enough for one of 0.060")
    assert f"*{said}*" in written


@pytest.mark.parametrize("most", [150, 200, 250, 300])
def test_no_difference_is_promised_that_leaves_an_arm_too_few_of_a_kind(most: int) -> None:
    plan = replace(PLAN, max_units=most)
    said = say_power(plan, decide(plan=plan))
    assert said.endswith(
        f"at most {most} come, too few to expect that any difference is shown, as each arm needs at least 30 successes "
        "and 30 failures"
    )
    more = replace(PLAN, max_units=350)
    assert say_power(more, decide(plan=more)).endswith("at most 350 come, which are enough for one of 0.264")


def test_near_the_end_of_rates_only_the_difference_that_can_be_is_told() -> None:
    high = decide(look((1_000, 970), (1_000, 969)))
    assert "shows a loss of 0.05 by about" in say_power(PLAN, high), "1.020 is no rate"
    low = decide(look((1_000, 31), (1_000, 32)))
    assert "shows a gain of 0.05 by about" in say_power(PLAN, low)


def test_what_was_to_show_by_now_is_not_told_as_if_it_were_to_come() -> None:
    needed = units_from(0.05, rate=0.6, share=0.5)
    before = decide(look((2_400, 1_440), (2_400, 1_459)))
    after = decide(look((4_000, 2_400), (4_000, 2_420)))
    assert (before.state, after.state) == (ExperimentState.RUNNING, ExperimentState.RUNNING)
    planned = f"it shows a difference of 0.05 by about {needed:,} units, with probability 0.8 (rate of vector is 0.600)"
    assert say_power(PLAN, before) == f"with 50 % of the units in hybrid {planned}"
    assert say_power(PLAN, after) == (
        f"with 50 % of the units in hybrid {planned}, and 8,000 are counted: one as large would probably have shown by "
        "now; at most 100,000 come, which are enough for one of 0.012"
    )


def test_what_has_ended_waits_for_no_units() -> None:
    short = ExperimentPlan(names=PLAN.names, share=0.5, delta=0.02, max_units=8_000)
    undecided = decide(look((4_000, 2_400), (4_000, 2_420)), plan=short)
    assert say_power(short, undecided).endswith("8,000 are counted: one as large would probably have shown by now")
    won = decide(look((4_000, 2_400), (4_000, 2_700)))
    assert won.state is ExperimentState.WINNER
    assert "would probably have shown" not in say_power(PLAN, won)
    lost = decide(look((4_000, 2_400), (4_000, 2_420)), exposed=(9_000, 4_000))
    assert lost.state is ExperimentState.MISMATCH
    assert "would probably have shown" not in say_power(PLAN, lost), "it shows nothing at all"


RULE = "it shows nothing before each arm has at least 30 successes and 30 failures"


@pytest.mark.parametrize(
    ("found", "most", "says"),
    [
        (
            look((5_000, 20), (5_000, 25)),
            100_000,
            "that takes about 17,220 units, with probability 0.8 (5,000 units of vector had 20 successes so far)",
        ),
        (
            look((1_000, 2), (1_000, 3)),
            3_000,
            (
                "that takes about 34,440 units, with probability 0.8 (1,000 units of vector had 2 successes so far), "
                "and at most 3,000 come"
            ),
        ),
        (
            look((1_000, 400), (1_000, 999)),
            100_000,
            "that takes about 68,879 units, with probability 0.8 (1,000 units of hybrid had 1 failure so far)",
        ),
        (look((1_000, 0), (1_000, 3)), 100_000, "1,000 units of vector had 0 successes so far"),
    ],
)
def test_too_few_of_a_kind_show_nothing_however_many_units_come(found: Look, most: int, says: str) -> None:
    plan = ExperimentPlan(names=PLAN.names, share=0.5, delta=0.02, max_units=most)
    assert say_power(plan, decide(found, plan=plan)) == f"with 50 % of the units in hybrid {RULE}; {says}"


def test_a_rate_that_is_seen_already_is_not_taken_as_another_one() -> None:
    decision = decide(look((200, 24), (200, 30)))
    needed = units_from(0.05, rate=0.12, share=0.5)
    assert say_power(PLAN, decision).endswith(
        f"by about {needed:,} units, with probability 0.8 (rate of vector so far 0.120)"
    )
    assert needed > units_needed(0.05, rate=0.12, share=0.5), "the other arm may have .17"
    assert "(rate of vector taken as 0.500)" in say_power(PLAN, decide(look((29, 3), (20, 2))))


@pytest.mark.parametrize(("rate", "share"), [(0.925, 0.5), (0.113, 0.5), (0.909, 0.1), (0.719, 0.2)])
def test_units_from_a_rate_show_a_difference_whichever_way_it_goes(rate: float, share: float) -> None:
    units = units_from(0.05, rate=rate, share=share)
    for second in (rate - 0.05, rate + 0.05):
        assert units >= units_needed(0.05, rate=rate, share=share, second=second)
        assert units >= units_for_enough(rate=second, share=share), "before 30 of each kind nothing is shown"
    assert units_from(0.3, rate=0.9, share=0.5) >= units_needed(0.3, rate=0.9, share=0.5, second=0.6)


def test_a_rate_near_its_end_is_told_with_both_ways() -> None:
    found = decide(look((1_000, 946), (1_000, 944)))
    ways = units_each_way(0.05, rate=0.946, share=0.5)
    lower, higher = (ways[one] for one in sorted(ways))
    assert say_power(PLAN, found) == (
        f"with 50 % of the units in hybrid it shows a loss of 0.05 by about {lower:,.0f} units and a gain by about "
        f"{higher:,.0f}, with probability 0.8 (rate of vector is 0.946)"
    )
    short = ExperimentPlan(names=PLAN.names, share=0.5, delta=0.02, max_units=10_000)
    assert say_power(short, decide(look((1_000, 946), (1_000, 944)), plan=short)).endswith("; at most 10,000 come")
    assert (lower < 3_000, higher > 10_000) == (True, True)


def test_an_arm_that_gets_too_few_units_for_the_rule_is_not_promised_a_difference() -> None:
    plan = ExperimentPlan(names=PLAN.names, share=0.999, delta=0.02, max_units=20_000)
    assert say_power(plan, decide(plan=plan)).endswith(
        "too few for at least 30 successes and 30 failures in each arm, before which it shows nothing"
    )


@pytest.mark.parametrize(("rate", "share"), [(0.002, 0.5), (0.01, 0.05), (0.97, 0.5)])
def test_an_arm_has_enough_of_a_kind_by_the_units_that_are_told(rate: float, share: float) -> None:
    units = round(units_for_enough(rate=rate, share=share) * share)
    rarer = np.random.default_rng(3).binomial(units, min(rate, 1 - rate), 20_000)
    assert np.mean(rarer >= 30) == pytest.approx(0.8, abs=0.02)
