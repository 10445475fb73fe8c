"""Looks after the one that decided: what contradicts it is told, and neither promotes nor is waived with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.errors import ForbiddenError
from app.base.web import pages as rendering
from app.experiments.domain.experiments import (
    ArmCounts,
    ExperimentDecision,
    ExperimentPlan,
    ExperimentState,
    Look,
    Preferences,
    decide_experiment,
    decide_preference,
    say_power,
)
from app.experiments.domain.later_looks import hold_against_clicks, hold_against_looks, say_power_by_now
from app.experiments.domain.promotions import GateName, PromotionState
from app.experiments.service import promotions
from app.experiments.views import PromotionView
from tests.support.api_service import api
from tests.support.user_traffic import Users
from tests.support.world import CHECK

PLAN = ExperimentPlan(names=("old", "new"), share=0.5, delta=0.02, max_units=100_000)
WHY = "a loss of so much is acceptable to us"


@pytest.fixture
def users(sqlite_store: Store) -> Users:
    """Give users of a service that has two checks."""
    return Users.of_two_checks(sqlite_store)


def promote(users: Users, **more: Any) -> PromotionView:
    return users.promote(current=CHECK, candidate="candidate", experiment="search", **more)


def waive(users: Users, *names: GateName, admin: bool = True) -> PromotionView:
    for name in names:
        promotions.waive_gate(users.store, "hybrid", name, reason=WHY, by="ana", may_waive_harm=admin, now=users.at)
    return users.promotion()


def look(old: tuple[int, int], new: tuple[int, int], *, at: int) -> Look:
    counts = (ArmCounts(units=old[0], successes=old[1]), ArmCounts(units=new[0], successes=new[1]))
    return Look(at=at, counts=counts)


def decide(*looks: Look, plan: ExperimentPlan = PLAN) -> ExperimentDecision:
    return hold_against_looks(decide_experiment(looks, (1, 1), plan), looks, plan)


BETTER = look((3_000, 1_500), (3_000, 1_800), at=1)
BARELY = look((3_000, 1_500), (3_000, 1_630), at=1)
SAME = look((40_000, 2_000), (40_000, 2_010), at=1)
SHORT = ExperimentPlan(names=PLAN.names, share=0.5, delta=0.02, max_units=4_000)
UNDECIDED = look((2_000, 1_000), (2_000, 1_020), at=1)


@pytest.mark.parametrize(
    ("first", "later", "plan"),
    [
        (SAME, look((60_000, 3_000), (60_000, 6_000), at=2), PLAN),
        (UNDECIDED, look((9_000, 4_500), (9_000, 3_900), at=2), SHORT),
    ],
)
def test_what_later_units_show_is_not_said_to_have_had_to_show_by_now(
    first: Look, later: Look, plan: ExperimentPlan
) -> None:
    before, now = decide(first, plan=plan), decide(first, later, plan=plan)
    assert say_power_by_now(plan, before) == say_power(plan, before)
    assert (
        say_power_by_now(plan, now) == "it has ended, and units that came later show more than those that it ended by"
    )


@pytest.mark.parametrize(
    ("first", "later", "plan", "says", "contradicted"),
    [
        (BETTER, look((9_000, 4_500), (9_000, 3_900), at=2), PLAN, "the opposite of what it was decided by: b", True),
        (BETTER, look((60_000, 30_000), (60_000, 30_900), at=2), PLAN, "outside of the interval that it was dec", True),
        (BARELY, look((6_000, 3_000), (6_000, 3_100), at=2), PLAN, "which does not leave out zero any more", False),
        (BETTER, look((6_000, 3_000), (6_000, 3_600), at=2), PLAN, "", False),
        (SAME, look((60_000, 3_000), (60_000, 6_000), at=2), PLAN, "a difference that was not shown then: begin", True),
        (UNDECIDED, look((9_000, 4_500), (9_000, 3_900), at=2), SHORT, "a difference that was not shown then", True),
        (UNDECIDED, look((2_500, 1_250), (2_500, 1_275), at=2), SHORT, "", False),
    ],
)
def test_a_decision_says_where_the_newest_look_contradicts_it(
    first: Look, later: Look, plan: ExperimentPlan, says: str, *, contradicted: bool
) -> None:
    before, found = decide(first, plan=plan), decide(first, later, plan=plan)
    assert before.ended
    assert (found.state, found.look, found.difference) == (before.state, first, before.difference)
    assert found.reason.startswith(before.reason)
    units = f"{sum(one.units for one in later.counts):,} units"
    assert (f"; but by now, after {units}, new less old is " in found.reason) is bool(says)
    assert says in found.reason
    assert (found.later is not None) is contradicted


def test_nothing_is_promoted_of_which_later_looks_show_harm(users: Users) -> None:
    users.split("search", "old", "new")
    assert users.serve("search", {"old": 50, "new": 60})["winner"] == "new"
    assert promote(users)["state"] is PromotionState.PROMOTE
    found = users.serve("search", {"old": 50, "new": 35}, units=6_000)
    assert (found["state"], found["winner"]) == (ExperimentState.WINNER, "new"), "the first look decides"
    assert found["later"] is not None
    assert found["later"].high < 0
    assert "; but by now, after 18,000 units, new less old is -0.067 (95 % interval -0.090 to -0.0" in found["reason"]
    stopped = users.promotion()
    exposure = stopped["gates"][2]
    assert (stopped["state"], exposure.result) == (PromotionState.STOPPED, "fail")
    assert exposure.reason == found["reason"]
    assert exposure.losses == {"users": (found["later"].low, found["later"].high)}
    with pytest.raises(ForbiddenError):
        waive(users, GateName.EXPOSURE, admin=False)


def test_nothing_is_promoted_of_which_later_looks_show_no_gain(users: Users) -> None:
    users.split("search", "old", "new")
    users.serve("search", {"old": 50, "new": 60})
    assert promote(users)["state"] is PromotionState.PROMOTE
    found = users.serve("search", {"old": 50, "new": 48}, units=12_000)
    assert found["later"] is not None
    assert found["later"].low < 0 < found["later"].high
    waiting = users.promotion()
    assert (waiting["state"], waiting["gates"][2].result, waiting["gates"][2].next) == (
        PromotionState.OPEN,
        "inconclusive",
        "begin_again",
    )
    assert "exposure is contradicted by later looks: after 6,000 units new beats old by 0.100" in waiting["reason"]
    waived = waive(users, *GateName)
    assert "a person decided so, although later looks contradict what exposure decided; " in waived["reason"]


def test_a_waiver_of_harm_covers_no_greater_harm_of_later_looks(users: Users) -> None:
    users.split("search", "old", "new")
    users.serve("search", {"old": 60, "new": 50})
    promote(users)
    assert waive(users, *GateName)["state"] is PromotionState.PROMOTE
    users.serve("search", {"old": 60, "new": 20})
    found = users.promotion()
    assert (found["state"], found["gates"][2].result) == (PromotionState.STOPPED, "fail")
    assert "the waiver of exposure by ana does not cover that" in found["reason"]
    assert waive(users, GateName.EXPOSURE)["state"] is PromotionState.PROMOTE


def test_a_guard_rail_that_held_is_broken_by_a_later_loss(users: Users) -> None:
    users.split("search", "old", "new")
    users.serve("search", {"old": 50, "new": 60})
    users.split("calm", "old", "new", delta=0.1)
    assert users.serve("calm", {"old": 90, "new": 90})["state"] is ExperimentState.EQUIVALENT
    promote(users, guards=[{"experiment": "calm", "allowed_loss": 0.1}])
    assert users.promotion()["gates"][2].guards[0].result == "pass"
    users.serve("calm", {"old": 90, "new": 60}, units=6_000)
    found = users.promotion()
    assert (found["state"], found["gates"][2].guards[0].result) == (PromotionState.NEEDS_DECISION, "fail")


def test_the_state_of_what_is_contradicted_is_no_plain_success() -> None:
    text = '{% import "experiments/_states.html" as states %}{{ states.experiment(one) }}'
    draw: Callable[..., str] = rendering._environment().from_string(text).render
    one = {"state": "winner", "winner": "new", "later": {"value": -0.1}}
    assert "new won, contradicted since" in draw(one=one)
    assert 'class="badge warning"' in draw(one=one)
    assert 'class="badge healthy"' in draw(one={**one, "later": None})


@pytest.mark.parametrize(
    ("newest", "is_told"), [((900, 0), True), ((671, 29), True), ((240, 439), False), ((20, 25), False)]
)
def test_clicks_that_all_turned_contradict_though_too_few_are_left_for_an_interval(
    newest: tuple[int, int], *, is_told: bool
) -> None:
    decided = Preferences(a=240, b=439)
    decision = decide_preference(decided, ("old", "new"), units=679, max_units=5_000)
    a, b = newest
    found = hold_against_clicks(decision, Preferences(a=a, b=b), decided, ("old", "new"))
    says = f"; but by now, over {a + b:,} units, {a:,} prefer old and {b:,} new, the opposite of what"
    assert (says in found.reason) is is_told
    assert (found.later is not None and found.later.high < 0) is is_told, "so no state of it is a plain success"
    assert found.winner == "new", "the first look decides"


def test_an_interleaving_says_where_the_clicks_by_now_contradict_it(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.put("/v1/interleavings/search", {"a": "vector", "b": "hybrid"})
        for first, numbers in (("one", {"a": 100, "b": 300}), ("two", {"a": 3_000, "b": 0})):
            clicks = [
                {"event_id": "1", "unit": f"{first}-{team}-{one}", "team": team}
                for team, number in numbers.items()
                for one in range(number)
            ]
            assert service.client.post("/v1/interleavings/search/clicks", json=clicks).is_success
        found = service.get("/v1/interleavings/search")
    assert (found["state"], found["winner"]) == ("winner", "hybrid")
    assert "hybrid is preferred to vector: +0.500 " in found["reason"]
    assert "; but by now, over 3,400 units, the preference is -0.824 (95 % interval -0.8" in found["reason"]
    assert found["reason"].endswith("the opposite of what it was decided by: begin a new epoch")
    assert found["later"]["high"] < 0
