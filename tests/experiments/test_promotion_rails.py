"""Guard rails by users: read at the newest look, of users who were asked about what the checks ask by now."""

from datetime import timedelta

import pytest

from app.base.db.engine import Store
from app.base.errors import ForbiddenError
from app.experiments.documents import Exposure, UnitOutcome
from app.experiments.domain.promotions import GateName
from app.experiments.service import experiments, promotions
from app.experiments.views import PromotionView
from tests.support.user_traffic import Users, measured_checks
from tests.support.world import CHECK, RETRIEVER, World, canary, page

WHY = "a loss of so much is acceptable to us"


@pytest.fixture
def users(sqlite_store: Store) -> Users:
    """Give users of two experiments, who are served better with the candidate in the first."""
    found = Users.of_two_checks(sqlite_store)
    for one in ("search", "calm"):
        found.split(one, "old", "new")
    found.serve("search", {"old": 50, "new": 60})
    return found


def promote(users: Users, allowed_loss: float = 0.03, *, rail: str = "calm") -> PromotionView:
    guards = [{"experiment": rail, "allowed_loss": allowed_loss}]
    return users.promote(current=CHECK, candidate="candidate", experiment="search", guards=guards)


@pytest.mark.parametrize(
    ("allowed", "later", "result", "state"),
    [(0.03, 80, "fail", "needs_decision"), (0.06, 86, "pass", "promote")],
)
def test_a_rail_is_read_at_the_newest_look_whatever_its_experiment_was_decided_by(
    users: Users, allowed: float, later: int, result: str, state: str
) -> None:
    first = users.serve("calm", {"old": 90, "new": 85})
    assert first["winner"] == "old"
    found = promote(users, allowed)
    (rail,) = found["gates"][2].guards
    assert (rail.result, found["state"], found["gates"][2].next) == ("inconclusive", "open", "await_guards")
    assert rail.reason.startswith(f"a loss of more than {allowed} is not ruled out: experiment calm -0.07")
    assert "no more units come" not in rail.reason, "those to come may decide it, though its experiment has ended"
    experiment = users.serve("calm", {"old": 90, "new": later}, units=12_000)
    assert experiment["difference"] == first["difference"], "the first look decides the experiment"
    found = users.promotion()
    assert (found["gates"][2].guards[0].result, found["state"]) == (result, state)
    if result == "fail":
        with pytest.raises(ForbiddenError):
            promotions.waive_gate(
                users.store, "hybrid", GateName.EXPOSURE, reason=WHY, by="ana", may_waive_harm=False, now=users.at
            )


def test_a_loss_that_a_rail_was_decided_by_stays_until_a_new_epoch(users: Users) -> None:
    users.serve("calm", {"old": 90, "new": 60})
    assert promote(users, 0.05)["gates"][2].guards[0].result == "fail"
    users.serve("calm", {"old": 90, "new": 99}, units=9_000)
    found = users.promotion()["gates"][2].guards[0]
    assert (found.result, "-0.3" in found.reason) == ("fail", True), "what its units are counted of has changed"
    users.split("calm", "old", "new", delta=0.05)
    users.serve("calm", {"old": 90, "new": 90})
    assert users.promotion()["gates"][2].guards[0].result == "pass"


def test_a_rail_that_was_stopped_undecided_says_that_no_more_units_come(users: Users) -> None:
    users.serve("calm", {"old": 90, "new": 85})
    experiments.stop_experiment(users.store, "calm", now=users.at)
    found = promote(users)
    assert found["gates"][2].guards[0].reason.endswith("(new less old), and no more units come")
    assert "; exposure cannot pass any more: users are served better" in found["reason"]


def test_successes_of_a_rail_that_came_too_late_are_told(users: Users) -> None:
    users.split("slow", "old", "new", window="1m")
    for arm, in_time in (("old", 80), ("new", 85)):
        sent = [Exposure(unit=f"{arm} {one}", arm=arm, at=users.at) for one in range(2_000)]
        experiments.receive_exposures(users.store, "slow", sent, now=users.at)
        outcomes = [
            UnitOutcome(
                event_id=one.unit,
                unit=one.unit,
                value=int(place % 100 < 85 or arm == "old"),
                at=users.at + timedelta(seconds=90 * (place % 100 >= in_time)),
            )
            for place, one in enumerate(sent)
        ]
        experiments.receive_outcomes(users.store, "slow", outcomes, now=users.at + timedelta(minutes=2))
    users.at += timedelta(minutes=10)
    found = promote(users, rail="slow")
    (rail,) = found["gates"][2].guards
    told = "; 400 of old succeeded after the window, which counts as no success"
    assert (rail.result, found["state"]) == ("pass", "promote")
    assert rail.reason.endswith(told), rail.reason
    assert told in found["reason"]


def test_users_of_a_rail_who_saw_another_candidate_let_nothing_pass(sqlite_store: Store) -> None:
    made, world, users = measured_checks(sqlite_store)
    for one in ("search", "calm"):
        users.split(one, "old", "new")
    users.serve("search", {"old": 50, "new": 60})
    users.serve("calm", {"old": 90, "new": 90})
    assert promote(users)["state"] == "promote"
    world.clock.now = users.at
    made["retrievers"][0] = {**RETRIEVER, "url": f"{RETRIEVER['url']}/better"}
    world.apply(made)
    world.run("candidate")
    users.at = world.clock.advance(60)
    users.split("search", "old", "new", delta=0.05)
    users.serve("search", {"old": 50, "new": 60})
    found = users.promotion()
    exposure = found["gates"][2]
    (rail,) = exposure.guards
    assert (rail.result, exposure.result, exposure.next, found["state"]) == (
        "inconclusive",
        "inconclusive",
        "begin_again",
        "open",
    )
    changed = "check 'candidate' asked retriever 'search' before its url changed"
    assert rail.reason.startswith(changed)
    assert (
        ": users were asked about what it was before, so begin a new epoch of experiment calm; no loss" in rail.reason
    )
    assert "exposure cannot pass, as a check was changed: " in found["reason"]
    for name in GateName:
        promotions.waive_gate(users.store, "hybrid", name, reason=WHY, by="ana", may_waive_harm=False, now=users.at)
    assert users.promotion()["state"] == "promote", "who waives that knows it"
    promotions.withdraw_waiver(users.store, "hybrid", GateName.EXPOSURE)
    users.serve("calm", {"old": 90, "new": 60})
    broken = users.promotion()["gates"][2].guards[0]
    assert (broken.result, broken.reason.startswith(changed)) == ("fail", True), "a loss stays a loss"
    users.split("calm", "old", "new", delta=0.05)
    users.serve("calm", {"old": 90, "new": 90})
    assert users.promotion()["gates"][2].guards[0].result == "pass"


def test_a_rail_of_the_same_users_tells_once_what_they_were_asked_about(sqlite_store: Store) -> None:
    made, world, users = measured_checks(sqlite_store)
    users.split("search", "old", "new")
    users.serve("search", {"old": 50, "new": 60})
    assert promote(users, rail="search")["state"] == "promote"
    world.clock.now = users.at
    made["checks"][1]["k"] = 1
    world.apply(made)
    exposure = users.promotion()["gates"][2]
    assert (exposure.guards[0].result, exposure.result) == ("inconclusive", "inconclusive")
    assert exposure.reason.count("users were asked about what it was before, so begin a new epoch") == 1


def test_a_critical_alert_that_was_open_while_users_came_is_told_once_it_is_resolved(sqlite_store: Store) -> None:
    rule = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.5}, "open": {"bad": 1, "of": 1}}
    made = page([canary("c1")], rules=[{**rule, "close": 1}], hooks=[])
    made["checks"].append({**made["checks"][0], "slug": "candidate"})
    world = World(store=sqlite_store)
    world.apply(made)
    world.run()
    users = Users(sqlite_store, world.clock.advance(600))
    for one in ("search", "calm"):
        users.split(one, "old", "new")
        users.serve(one, {"old": 50, "new": 50}, units=500)
    world.clock.now = users.at
    world.degrade()
    users.at = world.clock.advance(60)
    users.serve("search", {"old": 40, "new": 60})
    users.serve("calm", {"old": 90, "new": 90})
    world.clock.now = users.at
    assert promote(users, 0.05)["reason"].startswith("stopped while check watch has 1 open critical alert")
    world.probe.all_answer()
    world.run()
    users.at = world.clock.advance(60)
    found = users.promotion()
    said = "; a critical alert was open of check 'watch' while about 6,000 of 7,000 units came, from 20"
    assert found["critical_alerts"] == []
    assert found["state"] == "promote"
    assert [one.count(said) for one in (found["reason"], found["gates"][2].guards[0].reason)] == [2, 1]
    assert " UTC: what they showed may be of that fault" in found["reason"]
    users.serve("calm", {"old": 90, "new": 90})
    later = users.promotion()["gates"][2].guards[0].reason
    assert "while about 6,000 of 13,000 units came" in later, "those since it was resolved are not among them"
