"""Which arm of an experiment a promotion takes for the candidate, in its own experiment and in those of guard rails."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.base.db.engine import Store
from app.experiments.documents import Exposure, UnitOutcome
from app.experiments.domain.promotion_evidence import ExperimentArms
from app.experiments.service import experiments
from app.experiments.views import PromotionView
from tests.support.api_service import CHECK, api
from tests.support.html_pages import Page
from tests.support.present import present
from tests.support.user_traffic import Users
from tests.support.world import CHECK as DOCS


@pytest.fixture
def users(sqlite_store: Store) -> Users:
    """Give users of a service that has two checks."""
    return Users.of_two_checks(sqlite_store)


def promote(users: Users, **more: Any) -> PromotionView:
    return users.promote(**{"current": DOCS, "candidate": "candidate", "experiment": "search", **more})


@pytest.mark.parametrize(
    ("names", "candidate"),
    [
        (("old", "new"), "new"),
        (("new", "old"), "new"),
        (("new", "vector"), "new"),
        (("hybrid", "old"), "hybrid"),
        (("vector", "hybrid"), "hybrid"),
    ],
)
def test_an_arm_of_the_same_name_is_the_same_arm(names: tuple[str, str], candidate: str) -> None:
    found = ExperimentArms(current="old", candidate="new").place_in(names)
    assert found.candidate == candidate
    assert {found.current, found.candidate} == set(names)


def test_a_guard_rail_whose_arms_stand_in_the_other_order_is_read_by_their_names(users: Users) -> None:
    users.split("search", "old", "new")
    users.serve("search", {"old": 50, "new": 60})
    users.split("calm", "new", "old")
    users.serve("calm", {"old": 95, "new": 85})
    found = promote(users, guards=[{"experiment": "calm", "allowed_loss": 0.02}])
    exposure = found["gates"][2]
    rail = present(users.load("calm")["difference"])
    assert (found["state"], exposure.result, exposure.guards[0].result) == ("needs_decision", "fail", "fail")
    interval = f"experiment calm {-rail.high:.3f} to {-rail.low:.3f} (new less old)"
    assert exposure.guards[0].reason == f"a loss of more than 0.02 is shown: {interval}"
    assert exposure.losses == {"experiment calm": (-rail.high, -rail.low)}


def test_a_guard_rail_with_other_arms_names_those_that_are_read(users: Users) -> None:
    users.split("search", "old", "new")
    users.split("calm", "vector", "hybrid")
    users.serve("calm", {"vector": 90, "hybrid": 90})
    (rail,) = promote(users, guards=[{"experiment": "calm", "allowed_loss": 0.2}])["gates"][2].guards
    assert (rail.result, rail.reason.endswith(" (hybrid less vector)")) == ("pass", True), rail.reason


def test_a_promotion_names_the_arm_that_it_takes_for_the_candidate(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.docs()
        service.put("/v1/checks/docs-hybrid", {**CHECK, "hooks": []})
        arms = [{"name": name, "share": 0.5} for name in ("old", "new")]
        service.put("/v1/experiments/search", {"arms": arms})
        compared = {"current": "docs", "candidate": "docs-hybrid"}
        made = service.put("/v1/promotions/hybrid", {**compared, "experiment": "search"})
        text = Page(service.client.get("/promotions/hybrid").text).text
        unasked = service.put("/v1/promotions/hybrid", compared)
        assert service.put("/v1/promotions/hybrid", made) == made, "an answer is sent back as it came"
    assert (made["candidate_arm"], unasked["candidate_arm"]) == ("new", None)
    assert "experiment search. In the experiment the candidate is arm new." in text


def test_what_did_not_pass_beside_users_who_decide_is_named_without_a_next_step(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.docs()
        service.put("/v1/checks/docs-hybrid", {**CHECK, "hooks": []})
        users = Users(service.service.store)
        users.split("search", "old", "new")
        compared = {"current": "docs", "candidate": "docs-hybrid", "experiment": "search"}
        service.put("/v1/promotions/hybrid", compared)
        waiting = Page(service.client.get("/promotions/hybrid").text).text
        users.serve("search", {"old": 50, "new": 60})
        assert service.get("/v1/promotions/hybrid")["state"] == "promote"
        decided = Page(service.client.get("/promotions/hybrid").text).text
    assert "Not passed: offline (inconclusive), judge (inconclusive), exposure (inconclusive). What to do" in waiting
    assert "Next: run the checks that lack a run or answers, or wait until their answers are judged." in waiting
    assert "Not passed: offline (inconclusive), judge (inconclusive). What users do overrules them." in decided
    assert "Next:" not in decided


def test_a_name_stays_the_candidate_s_whatever_places_the_arms_change(users: Users) -> None:
    users.split("search", "old", "new")
    users.split("search", "new", "old")
    assert promote(users)["candidate_arm"] == "old", "nobody was exposed yet"
    users.split("search", "old", "new")
    users.serve("search", {"old": 60, "new": 50})
    assert promote(users)["state"] == "stopped"
    users.split("search", "new", "old")
    found = users.serve("search", {"old": 60, "new": 50})
    assert found["winner"] == "old"
    stopped = users.promotion()
    assert (stopped["candidate_arm"], stopped["state"], stopped["gates"][2].result) == ("new", "stopped", "fail")
    assert "; arm new stays the candidate's, though the arms changed places" in stopped["gates"][2].reason
    assert stopped["gates"][2].losses["users"][1] < 0


@pytest.mark.parametrize("told", [True, False])
def test_a_guard_rail_that_deals_its_users_itself_decides_nothing(users: Users, *, told: bool) -> None:
    for one in ("search", "calm"):
        users.split(one, "old", "new")
    users.serve("search", {"old": 50, "new": 60})
    saw = [("old", "new")[one % 2] if told else None for one in range(4_000)]
    sent = [Exposure(unit=f"unit {one}", arm=arm, at=users.at) for one, arm in enumerate(saw)]
    experiments.receive_exposures(users.store, "calm", sent, now=users.at)
    outcomes = [
        UnitOutcome(event_id=one.unit, unit=one.unit, value=int(place // 2 % 10 > 0), at=users.at)
        for place, one in enumerate(sent)
    ]
    experiments.receive_outcomes(users.store, "calm", outcomes, now=users.at)
    users.at += timedelta(minutes=5)
    found = promote(users, guards=[{"experiment": "calm", "allowed_loss": 0.2}])
    (rail,) = found["gates"][2].guards
    assert (rail.result, found["state"]) == (("pass", "promote") if told else ("inconclusive", "open")), rail.reason
    said = (
        "4,000 units came without `arm`, so that this experiment dealt the arm, and users may have seen the other one"
    )
    assert (said in rail.reason) is not told


def test_successes_that_came_too_late_are_told_where_they_may_decide(users: Users) -> None:
    users.split("slow", "old", "new", window="1m")
    for arm, served in (("old", 50), ("new", 30)):
        sent = [Exposure(unit=f"{arm} {one}", arm=arm, at=users.at) for one in range(2_000)]
        experiments.receive_exposures(users.store, "slow", sent, now=users.at)
        outcomes = []
        for place, one in enumerate(sent):
            is_slow = arm == "new" and place % 100 >= 80  # one in five of its users needs longer
            at = users.at + timedelta(seconds=90 * is_slow)
            value = int(place % 100 < served or is_slow)
            outcomes.append(UnitOutcome(event_id=one.unit, unit=one.unit, value=value, at=at))
        experiments.receive_outcomes(users.store, "slow", outcomes, now=users.at + timedelta(minutes=2))
    users.at += timedelta(minutes=10)
    found = users.load("slow")
    assert [arm["late"] for arm in found["arms"]] == [0, 400]
    told = "; 400 of new succeeded after the window, which counts as no success"
    assert found["reason"].startswith("after 4,000 units old beats new by 0.200")
    assert found["reason"].endswith(told)
    exposure = users.promote(current=DOCS, candidate="candidate", experiment="slow")["gates"][2]
    assert told in exposure.reason
