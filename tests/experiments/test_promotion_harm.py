"""Harm that exposure has shown stays known: after a mismatch, to earlier waivers, and in other promotions."""

import re
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.errors import ForbiddenError
from app.experiments.domain.experiments import ExperimentState
from app.experiments.domain.promotions import FEWEST_CANARIES, GateName
from app.experiments.service import experiments, promotions
from app.experiments.tables import experiment_units
from app.experiments.views import PromotionView
from tests.support.user_traffic import Users, measured_checks
from tests.support.world import CHECK, RETRIEVER, World, canary, page

WHY = "a loss of so much is acceptable to us"


@pytest.fixture
def users(sqlite_store: Store) -> Users:
    """Give users of a service that has two checks, and an experiment that a promotion reads."""
    found = Users.of_two_checks(sqlite_store)
    found.split("search", "old", "new")
    return found


def promote(users: Users, *rails: str) -> PromotionView:
    guards = [{"experiment": one, "allowed_loss": 0.02} for one in rails]
    return users.promote(current=CHECK, candidate="candidate", experiment="search", guards=guards)


def waive(users: Users, *names: GateName, admin: bool = False, slug: str = "hybrid") -> PromotionView:
    for name in names:
        promotions.waive_gate(users.store, slug, name, reason=WHY, by="ana", may_waive_harm=admin, now=users.at)
    return users.promotion(slug)


@pytest.mark.parametrize("rail", [False, True])
def test_harm_is_not_forgotten_where_the_shares_mismatch_later(users: Users, *, rail: bool) -> None:
    which = "calm" if rail else "search"
    users.split("calm", "old", "new")
    users.serve(which, {"old": 60, "new": 50})
    assert promote(users, "calm")["gates"][2].evidence == "fail"
    assert users.serve(which, {"old": 60})["state"] is ExperimentState.MISMATCH
    exposure = users.promotion()["gates"][2]
    assert exposure.evidence == "inconclusive"
    harm = exposure.losses["experiment calm" if rail else "users"]
    assert harm[1] < 0
    before = "; before the shares mismatched it had shown: after 6,000 units old beats new by 0.100"
    assert before in (exposure.guards[0].reason if rail else exposure.reason)
    with pytest.raises(ForbiddenError):
        waive(users, GateName.EXPOSURE)
    users.split(which, "old", "new", delta=0.05)
    with pytest.raises(ForbiddenError):
        waive(users, GateName.EXPOSURE)
    assert waive(users, *GateName, admin=True)["state"] == "promote"


def test_a_waiver_covers_no_harm_of_an_earlier_epoch_that_is_shown_after_it(users: Users) -> None:
    users.split("search", "old", "new", window="1h")
    users.serve("search", {"old": 60, "new": 50})
    users.split("search", "old", "new", window="1h", delta=0.05)
    promote(users)
    assert waive(users, *GateName)["state"] == "promote", "nothing is known of users"
    users.at += timedelta(hours=2)
    found = users.promotion()
    assert "epoch 2 had shown: after 6,000 units old beats new" in found["gates"][2].reason
    assert (found["gates"][2].result, found["state"]) == ("inconclusive", "open")
    assert "; the waiver of exposure by ana does not cover that: it was given before that was found" in found["reason"]
    assert waive(users, GateName.EXPOSURE, admin=True)["state"] == "promote"


def test_a_win_that_was_shown_before_the_shares_mismatched_is_told(users: Users) -> None:
    users.serve("search", {"old": 50, "new": 60})
    assert promote(users)["state"] == "promote"
    assert users.serve("search", {"new": 60})["state"] is ExperimentState.MISMATCH
    found = users.promotion()
    assert found["state"] == "open"
    told = "; before the shares mismatched it had shown: after 6,000 units new beats old by 0.100"
    assert told in found["gates"][2].reason


def test_a_waiver_of_harm_covers_the_same_harm_after_a_new_epoch(users: Users) -> None:
    users.serve("search", {"old": 60, "new": 50})
    promote(users)
    assert waive(users, *GateName, admin=True)["state"] == "promote"
    users.split("search", "old", "new", delta=0.05)
    assert users.promotion()["state"] == "promote"
    users.serve("search", {"old": 60, "new": 20})
    assert users.promotion()["state"] == "stopped"


def test_harm_counts_in_every_promotion_of_the_same_checks(users: Users) -> None:
    users.serve("search", {"old": 60, "new": 50})
    promote(users)
    users.split("fresh", "old", "new")
    users.split("nobody", "old", "new")
    said = "experiment 'search' of promotion 'hybrid' of the same checks says: after 6,000 units old beats new by 0.100"
    for experiment in ("nobody", None):
        second = users.promote("second", current=CHECK, candidate="candidate", experiment=experiment)
        exposure = second["gates"][2]
        assert (exposure.evidence, exposure.result, second["state"]) == ("fail", "fail", "stopped")
        assert exposure.reason.startswith("no difference is shown (no ")
        assert f"), but {said}" in exposure.reason
        assert exposure.losses["users"][1] < 0
        with pytest.raises(ForbiddenError):
            waive(users, GateName.EXPOSURE, slug="second")
    found = waive(users, *GateName, admin=True, slug="second")
    assert "a person decided so, although it had been shown that users are served worse" in found["reason"]
    users.serve("fresh", {"old": 50, "new": 60})
    better = users.promote("third", current=CHECK, candidate="candidate", experiment="fresh")
    assert (better["state"], better["gates"][2].evidence) == ("needs_decision", "fail")
    assert better["reason"].startswith("users are served better (after 6,000 units new beats old by 0.100")
    assert f"), but {said}" in better["reason"]
    assert "; an admin decides: keep what is current, or waive exposure, and also offline and judge" in better["reason"]
    with pytest.raises(ForbiddenError):
        waive(users, GateName.EXPOSURE, slug="third")
    decided = waive(users, *GateName, admin=True, slug="third")
    assert (decided["state"], said in decided["reason"]) == ("promote", True)
    assert "a person decided so, although it had been shown that users are served worse" in decided["reason"]
    turned = users.promote("fourth", current="candidate", candidate=CHECK, experiment="nobody")
    assert said not in turned["gates"][2].reason
    won = "experiment 'fresh' of promotion 'third' of the same checks says: after 6,000 units new beats old by 0.100"
    assert won in turned["gates"][2].reason, "which is harm where the checks are exchanged"
    assert ", and new is there what is current here" in turned["gates"][2].reason
    assert turned["gates"][2].losses["users"][1] < 0


def test_two_promotions_that_exchange_the_same_checks_are_both_for_a_person_to_decide(users: Users) -> None:
    users.serve("search", {"old": 50, "new": 60})
    assert promote(users)["state"] == "promote"
    users.split("back", "old", "new")
    users.serve("back", {"old": 50, "new": 60})
    back = users.promote("back", current="candidate", candidate=CHECK, experiment="back")
    users.split("worse", "old", "new")
    users.serve("worse", {"old": 60, "new": 50})
    users.promote("worse", current=CHECK, candidate="candidate", experiment="worse")
    there = users.promotion()
    assert [one["state"] for one in (there, back, users.promotion("worse"))] == [
        "needs_decision",
        "needs_decision",
        "stopped",
    ]
    assert "new beats old by 0.100" in there["gates"][2].reason
    for named in ("experiment 'back' of promotion 'back'", "experiment 'worse' of promotion 'worse'"):
        assert f"{named} of the same checks says: after 6,000 units" in there["gates"][2].reason, "each harm is named"


def test_harm_of_another_experiment_is_told_beside_that_of_an_earlier_epoch(users: Users) -> None:
    users.split("other", "old", "new")
    users.serve("other", {"old": 60, "new": 50})
    users.promote("other", current=CHECK, candidate="candidate", experiment="other")
    users.serve("search", {"old": 60, "new": 50})
    users.split("search", "old", "new", delta=0.05)
    reason = promote(users)["gates"][2].reason
    assert "epoch 1 had shown: " in reason
    assert "experiment 'other' of promotion 'other' of the same checks says: " in reason
    users.serve("search", {"old": 50, "new": 60})
    assert users.promotion()["state"] == "needs_decision", "the new epoch undoes the harm of its own experiment alone"


def test_harm_counts_in_promotions_of_other_checks_that_ask_the_same(sqlite_store: Store) -> None:
    made = page([canary("c1")], rules=[], hooks=[])
    [retriever], [check] = made["retrievers"], made["checks"]
    new = {**retriever, "slug": "new", "url": "http://retriever.example/new"}
    made["retrievers"] += [
        new,
        {**new, "slug": "copy", "concurrency": 2},
        {**new, "slug": "newer", "url": f"{new['url']}er"},
    ]
    named = {"candidate": "new", "copied": "copy", "deeper": "new", "unlike": "newer"}
    made["checks"] += [{**check, "slug": slug, "retriever": name} for slug, name in named.items()]
    made["checks"][3] |= {"k": 3}
    world = World(store=sqlite_store)
    world.apply(made)
    users = Users(sqlite_store)
    users.split("search", "old", "new")
    users.serve("search", {"old": 60, "new": 50})
    promote(users)
    said = "experiment 'search' of promotion 'hybrid' of checks that ask the same says: after 6,000 units old beats new"
    told = {
        slug: said in users.promote(slug, current=CHECK, candidate=slug)["reason"]
        for slug in ("copied", "deeper", "unlike")
    }
    assert told == {"copied": True, "deeper": False, "unlike": False}
    with pytest.raises(ForbiddenError):
        waive(users, GateName.EXPOSURE, slug="copied")


def test_retrievers_that_differ_in_name_alone_are_told(sqlite_store: Store) -> None:
    made = page([canary(f"c{one}") for one in range(FEWEST_CANARIES)], rules=[], hooks=[])
    [retriever], [check] = made["retrievers"], made["checks"]
    made["retrievers"].append({**retriever, "slug": "copy"})
    made["checks"].append({**check, "slug": "copied", "retriever": "copy"})
    world = World(store=sqlite_store)
    world.apply(made)
    for slug in (CHECK, "copied"):
        world.run(slug)
    found = Users(sqlite_store).promote(current=CHECK, candidate="copied")
    shared = f"the checks ask '{retriever['slug']}' and 'copy', which differ in name alone: nothing else is compared"
    assert shared in found["gates"][0].reason


def test_harm_of_an_epoch_is_over_once_a_later_one_showed_that_users_are_served_better(users: Users) -> None:
    users.serve("search", {"old": 60, "new": 50})
    users.split("search", "old", "new", delta=0.05)
    assert "epoch 1 had shown" in promote(users)["gates"][2].reason
    users.serve("search", {"old": 50, "new": 60})
    assert users.promotion()["state"] == "promote"
    users.split("search", "old", "new", delta=0.04)
    exposure = users.promotion()["gates"][2]
    assert (exposure.losses, "epoch 1" in exposure.reason) == ({}, False)


def test_units_of_an_earlier_epoch_that_are_not_final_are_told(users: Users) -> None:
    users.split("search", "old", "new", window="1h")
    users.serve("search", {"old": 60, "new": 50})
    users.split("search", "old", "new", window="1h", delta=0.05)
    assert "; epoch 2: 6,000 units are not final yet and may still decide it" in promote(users)["gates"][2].reason


def test_a_promotion_that_harm_stopped_becomes_none_of_other_checks(users: Users) -> None:
    users.serve("search", {"old": 60, "new": 50})
    promote(users)
    with pytest.raises(ForbiddenError, match="another experiment, other guard rails or other checks"):
        users.promote(admin=False, current="candidate", candidate=CHECK, experiment="search")
    assert users.promote(admin=False, current=CHECK, candidate="candidate", experiment="search")["state"] == "stopped"
    assert users.promote(current="candidate", candidate=CHECK, experiment="search")["candidate"] == CHECK


def test_users_who_saw_another_candidate_promote_none(sqlite_store: Store) -> None:
    made, world, users = measured_checks(sqlite_store)
    users.split("search", "old", "new")
    users.serve("search", {"old": 50, "new": 60})
    assert promote(users)["state"] == "promote"
    world.clock.advance(3_600)
    made["checks"][1]["rules"] = [{"kind": "threshold", "measure": "coverage", "critical": {"below": 0.1}}]
    world.apply(made)
    assert users.promotion()["state"] == "promote", "rules change no answer"
    made["checks"][1]["retriever"] = "other"
    world.apply(made)
    found = users.promotion()
    exposure = found["gates"][2]
    assert (found["state"], exposure.result, exposure.next) == ("open", "inconclusive", "begin_again")
    assert exposure.reason.startswith(
        "check 'candidate' asked retriever 'search', and the check asks 'other' by now: users were asked about what it "
        "was before, so begin a new epoch; after 6,000 units new beats old by 0.100"
    )
    assert "exposure cannot pass, as a check was changed: " in found["reason"]
    users.at = world.clock.advance(60)
    users.split("search", "old", "new", delta=0.05)
    users.serve("search", {"old": 50, "new": 60})
    assert users.promotion()["state"] == "promote", "a new epoch asks users about what it is now"
    world.clock.advance(3_600)
    made["checks"][0]["retriever"] = "other"
    world.apply(made)
    exposure = users.promotion()["gates"][2]
    assert exposure.reason.startswith("check 'watch' asked retriever 'search', and the check asks 'other' by now: ")


@pytest.mark.parametrize(("runs", "rerun"), [(1, False), (1, True), (0, True), (0, False)])
def test_a_retriever_that_was_edited_after_its_users_is_told_of_a_check_younger_than_the_experiment(
    sqlite_store: Store, *, runs: int, rerun: bool
) -> None:
    made, world, users = measured_checks(sqlite_store)
    users.split("search", "old", "new")
    world.clock.now = users.at + timedelta(minutes=2)
    made["retrievers"].append({**RETRIEVER, "slug": "young"})
    made["checks"].append({**made["checks"][0], "slug": "late", "retriever": "young"})
    world.apply(made)
    for _ in range(runs):
        world.run("late")
    users.at = world.clock.advance(60)
    users.serve("search", {"old": 50, "new": 60})
    assert users.promote(current=CHECK, candidate="late", experiment="search")["state"] == "promote"
    world.clock.now = users.at + timedelta(minutes=1)
    made["retrievers"][-1]["url"] = f"{RETRIEVER['url']}/better"
    world.apply(made)
    if rerun:
        world.run("late")
    users.at = world.clock.advance(60)
    found = users.promotion()
    told = "asked retriever 'young' before its url changed" if runs else "asked retriever 'young' with another url"
    assert found["state"] == "open"
    assert found["gates"][2].reason.startswith(f"check 'late' {told}: users were asked about what it was before")


def test_users_of_a_first_epoch_who_came_before_it_are_held_against_what_was_asked_then(sqlite_store: Store) -> None:
    made, world, users = measured_checks(sqlite_store)
    came = users.at + timedelta(minutes=1)
    world.clock.now = came + timedelta(hours=1)
    made["retrievers"][0] = {**RETRIEVER, "url": f"{RETRIEVER['url']}/better"}
    world.apply(made)
    world.run("candidate")
    users.at = world.clock.advance(60)
    users.split("search", "old", "new")
    users.at = came
    users.serve("search", {"old": 50, "new": 60})
    users.at = world.clock.advance(3_600)
    reason = promote(users)["gates"][2].reason
    both = [f"check '{one}' asked retriever 'search' before its url changed" for one in ("candidate", CHECK)]
    assert reason.startswith(f"{'; '.join(both)}: users were asked about what it was before, so begin a new epoch")


@pytest.mark.parametrize("rail", [{"calm": 20}, {"calm": 50}, {}])
def test_a_check_that_changed_after_its_users_is_told_whatever_the_rails_say(
    sqlite_store: Store, rail: dict[str, int]
) -> None:
    made, world, users = measured_checks(sqlite_store)
    for one in ("search", *rail):
        users.split(one, "old", "new")
    users.serve("search", {"old": 60, "new": 50})
    users.split("search", "old", "new", delta=0.05)
    users.serve("search", {"old": 50, "new": 60})
    for one, rate in rail.items():
        users.serve(one, {"old": 50, "new": rate})
    promote(users, *rail)
    if rail != {"calm": 50}:
        before = waive(users, *(GateName if rail else [GateName.OFFLINE]), admin=True)
        assert before["state"] == "promote"
        assert "though epoch 1 had shown: after 6,000 units old beats new" in before["gates"][2].reason
    world.clock.now = users.at
    made["checks"][1]["k"] = 1
    world.apply(made)
    found = users.promotion()
    changed = "check 'candidate' was of k 5, which is 1 by now: users were asked about what it was before"
    assert changed in found["gates"][2].reason
    assert (found["state"] == "promote", found["gates"][2].result in {"fail", "inconclusive"}) == (False, True)
    users.at = world.clock()
    again = waive(users, *GateName, admin=True)
    assert again["state"] == "promote"
    assert "although users were asked about something else than what the checks ask by now" in again["reason"]
    assert "although a guard rail is not known" not in again["reason"]


@pytest.mark.parametrize(
    ("edit", "users_came", "how"),
    [
        ({"url": "http://search.test/away"}, True, "asked retriever 'other' with another url"),
        ({"url": "http://search.test/away"}, False, ""),
        ({"timeout": 3}, True, ""),
        ({"k": 3}, True, "was of k 3"),
    ],
)
def test_what_was_changed_while_users_came_and_changed_back_lets_exposure_pass_no_more(
    sqlite_store: Store, edit: dict[str, Any], how: str, *, users_came: bool
) -> None:
    made = page([canary("c1")], rules=[], hooks=[])
    check = made["checks"][0]
    made["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    candidate = {**check, "slug": "candidate", "retriever": "other"}
    made["checks"].append(candidate)
    world = World(store=sqlite_store)
    world.apply(made)
    users = Users(sqlite_store, world.clock.advance(60))
    users.split("search", "old", "new")
    world.clock.advance(60)
    away = {"retrievers": [RETRIEVER, {**made["retrievers"][1], **edit}]}
    world.apply({**made, **({"checks": [check, {**candidate, **edit}]} if "k" in edit else away)})
    users.at = world.clock.advance(60)
    if not users_came:
        world.apply(made)
        users.at = world.clock.advance(60)
    users.serve("search", {"old": 50, "new": 60})
    if users_came:
        world.clock.now = users.at
        world.apply(made)
    found = promote(users)
    exposure = found["gates"][2]
    if not how:
        assert (exposure.result, found["state"], "while users came" in exposure.reason) == ("pass", "promote", False)
        return
    assert (exposure.result, exposure.next, found["state"]) == ("inconclusive", "begin_again", "open")
    assert f" UTC on, check 'candidate' {how}: what users showed is not of what it asks by now alone" in exposure.reason
    assert "exposure cannot pass, as a check was changed: while users came, from " in found["reason"]
    waived = waive(users, *GateName)
    assert waived["state"] == "promote"
    assert "although users were asked about something else than what the checks ask by now" in waived["reason"]


def test_a_run_of_something_else_while_users_came_tells_of_a_version_that_came_back_for_a_while(
    sqlite_store: Store,
) -> None:
    made = page([canary("c1")], rules=[], hooks=[])
    made["checks"].append({**made["checks"][0], "slug": "candidate"})
    away = {"retrievers": [{**RETRIEVER, "url": "http://search.test/away"}]}
    world = World(store=sqlite_store)
    world.apply({**made, **away})
    world.clock.advance(60)
    world.apply(made)
    users = Users(sqlite_store, world.clock.advance(60))
    users.split("search", "old", "new")
    users.serve("search", {"old": 50, "new": 60}, units=10)
    world.apply({**made, **away})
    strayed = world.run("candidate").id
    users.at = world.clock.advance(60)
    users.serve("search", {"old": 50, "new": 60})
    world.clock.now = users.at
    world.apply(made)
    exposure = promote(users)["gates"][2]
    told = f"while users came, run {strayed} of check 'candidate' asked retriever 'search' before its url changed: what"
    assert (exposure.result, exposure.reason.startswith(told)) == ("inconclusive", True), exposure.reason


def test_what_users_may_not_have_seen_is_told_beside_what_they_showed(sqlite_store: Store) -> None:
    made = page([canary("c1")], rules=[], hooks=[])
    made["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    made["checks"].append({**made["checks"][0], "slug": "candidate"})
    world = World(store=sqlite_store)
    world.apply(made)
    world.run("candidate")
    users = Users(sqlite_store, world.clock.advance(60))
    users.split("search", "old", "new")
    made["checks"][1]["retriever"] = "other"
    world.clock.advance(60)
    world.apply(made)
    world.clock.advance(60)
    made["checks"][1]["retriever"] = "search"
    made["checks"].append({**made["checks"][0], "slug": "late", "k": 3})
    made["checks"].append({**made["checks"][1], "slug": "alike"})
    users.at = world.clock.advance(60)
    users.serve("search", {"old": 50, "new": 60})
    world.clock.now = users.at
    world.apply(made)
    exposure = promote(users)["gates"][2]
    assert (exposure.result, exposure.next) == ("inconclusive", "begin_again")
    assert re.match(
        r"while users came, from [-\d]+ [\d:]+ UTC on, check 'candidate' asked retriever 'other': ", exposure.reason
    )
    late = users.promote("second", current=CHECK, candidate="late", experiment="search")["gates"][2].reason
    assert "; check 'late' was made after the last of these users was exposed: see that they saw" in late
    assert "; promotion 'hybrid' reads the same users for 'candidate' in place of 'watch'" in late
    assert "promotion 'second' reads the same users for 'late'" in users.promotion()["gates"][2].reason
    alike = users.promote("third", current=CHECK, candidate="alike", experiment="search")["gates"][2].reason
    assert "reads the same users for 'candidate'" not in alike, "they saw both, which ask the same"


@pytest.mark.parametrize(
    ("before", "restarted", "kept", "says"),
    [
        (20, False, True, ""),
        (-10, False, True, "was"),
        (20, False, False, "may have been"),
        (20, True, False, ""),
        (-10, True, False, "may have been"),
    ],
)
def test_a_check_is_held_against_the_unit_that_came_last_and_else_against_the_begin_of_the_epoch(
    before: int, *, restarted: bool, kept: bool, says: str, sqlite_store: Store
) -> None:
    made = page([canary("c1")], rules=[], hooks=[])
    world = World(store=sqlite_store)
    world.apply(made)
    users = Users(sqlite_store, world.clock().replace(second=40, microsecond=0) + timedelta(minutes=5))
    if restarted:
        users.split("search", "old", "new", window="1h")
        users.at += timedelta(minutes=1)
    users.split("search", "old", "new")
    world.clock.now = users.at - timedelta(seconds=before)
    made["checks"].append({**made["checks"][0], "slug": "candidate"})
    world.apply(made)  # in the span of time in which all units are counted
    users.serve("search", {"old": 50, "new": 60})
    if not kept:
        with sqlite_store.write() as connection:
            connection.execute(sa.delete(experiment_units))
    reason = users.promote(current=CHECK, candidate="candidate", experiment="search")["gates"][2].reason
    told = f"check 'candidate' {says} made after the last of these users was exposed: see that they saw what it asks"
    assert (told in reason) is bool(says), reason
    assert ("made after" in reason) is bool(says)


def test_units_that_are_not_final_may_decide_a_stopped_experiment(users: Users) -> None:
    users.split("search", "old", "new", window="1h")
    promote(users)
    users.serve("search", {"old": 60, "new": 50})
    running = users.promotion()["gates"][2]
    assert "6,000 units are not final yet and may still decide it, the last at" in running.reason
    assert running.next == "await_users"
    experiments.stop_experiment(users.store, "search", now=users.at)
    stopped = users.promotion()["gates"][2]
    assert "6,000 units are not final yet and may still decide it, the last at" in stopped.reason
    assert stopped.next == "await_outcomes"
    assert "more units change nothing" not in users.promotion()["reason"]
    users.at += timedelta(hours=2)
    assert users.promotion()["gates"][2].evidence == "fail"


def test_nothing_is_promoted_while_no_alert_would_stop_it(sqlite_store: Store) -> None:
    made = page([canary("c1")], rules=[], hooks=[])
    made["checks"].append({**made["checks"][0], "slug": "candidate"})
    world = World(store=sqlite_store)
    world.apply(made)
    users = Users(sqlite_store)
    users.split("search", "old", "new")
    users.serve("search", {"old": 50, "new": 60})
    assert promote(users)["state"] == "promote"
    made["checks"][1]["enabled"] = False
    world.apply(made)
    found = users.promotion()
    says = "stopped while check candidate is disabled, so that no alert would tell of a fault; else it may go to all"
    assert (found["state"], found["reason"].startswith(says)) == ("stopped", True)
    unheeded = users.promote(current=CHECK, candidate="candidate", experiment="search", stop_on_critical=False)
    assert (unheeded["state"], unheeded["reason"].startswith(says)) == ("stopped", True)
    bare = users.promote(current=CHECK, candidate="candidate")
    assert bare["state"] == "open"
    assert bare["reason"].endswith("besides, check candidate is disabled, so that no alert would tell of a fault")
    promote(users)
    del made["checks"][1]
    world.apply(made)
    assert users.promotion()["reason"].startswith("stopped while check candidate is archived, so that no alert")


def test_a_waiver_that_ended_by_an_edit_does_not_come_back_with_the_new_epoch(sqlite_store: Store) -> None:
    made, world, users = measured_checks(sqlite_store)
    users.split("search", "old", "new")
    users.serve("search", {"old": 50, "new": 50}, units=500)
    promote(users)
    assert waive(users, *GateName)["state"] == "promote"
    world.clock.now = users.at
    made["retrievers"][0] = {**RETRIEVER, "url": f"{RETRIEVER['url']}/better"}
    world.apply(made)
    for one in (CHECK, "candidate"):
        world.run(one)
    users.at = world.clock.advance(60)
    assert users.promotion()["state"] == "open"
    users.split("search", "old", "new", delta=0.05)
    found = users.promotion()
    assert (found["state"], found["gates"][2].result) == ("open", "inconclusive"), "nobody decided so of what it is now"
    assert (
        "; the waiver of exposure by ana does not cover that: it was given before a check was changed (check "
        "'candidate' asked retriever 'search' with another url"
    ) in found["reason"]
    assert waive(users, GateName.EXPOSURE)["state"] == "promote"
    world.clock.now = users.at
    made["retrievers"][0] = {**made["retrievers"][0], "timeout": 3}
    world.apply(made)
    assert users.promotion()["state"] == "promote", "another timeout is no other answer"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"retriever": "other"}, "asked retriever 'search', and the check asks 'other' by now"),
        ({"k": 3}, "was of k 5, which is 3 by now"),
    ],
)
def test_a_check_without_a_run_says_what_it_asks_by_now_too(
    sqlite_store: Store, edit: dict[str, Any], says: str
) -> None:
    made = page([canary("c1")], rules=[], hooks=[])
    made["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    made["checks"].append({**made["checks"][0], "slug": "candidate"})
    world = World(store=sqlite_store)
    world.apply(made)
    users = Users(sqlite_store, world.clock.advance(60))
    users.split("search", "old", "new")
    users.serve("search", {"old": 50, "new": 60})
    world.clock.now = users.at
    made["checks"][1] |= edit
    world.apply(made)
    reason = promote(users)["gates"][2].reason
    assert reason.startswith(f"check 'candidate' {says}: users were asked about what it was before, so begin a new")
