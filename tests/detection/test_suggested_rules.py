"""Bounds suggested from a baseline: their numbers, who may adopt one, and what adopting leaves in force."""

from collections.abc import Callable
from typing import Any

import pytest

from app.alerts.service import explanations
from app.alerts.service.explanations import suggested_bound
from app.base.db.engine import Store
from app.catalog.service import references
from tests.conftest import DIALECTS, Databases
from tests.support.fakes import answered, hits
from tests.support.pages_service import Site
from tests.support.watched import made_once
from tests.support.world import CHECK, World, canary, page

KEYS = [f"q{number:02}" for number in range(20)]
BODY: dict[str, Any] = {"suite": "suite", "retriever": "search", "schedule": {"every": "5m"}, "rules": []}


def carry_out(world: World, slug: str, count: int) -> None:
    """Carry out runs in which five of twenty canaries find nothing."""
    world.probe.answers = {key: answered(hits("noise", "more-noise")) for key in KEYS[:5]}
    for _ in range(count):
        world.run(slug)


def _begin(world: World) -> None:
    """Give a check of the API and one of a file, both without rules, a baseline."""
    world.apply(page([canary(key) for key in KEYS], rules=[]))
    assert Site(world=world).client().put("/v1/checks/mine", json=BODY).status_code == 201
    for slug in ("mine", CHECK):
        carry_out(world, slug, 21)


@pytest.fixture
def site(databases: Databases, stores: Callable[..., Store]) -> Site:
    """Give the pages over both."""
    url, clock = made_once(databases, _begin)
    return Site(world=World(store=stores(url), clock=clock))


@pytest.fixture(params=DIALECTS)
def anywhere(request: pytest.FixtureRequest, databases: Databases, stores: Callable[..., Store]) -> Site:
    """Give them on each kind of store."""
    url, clock = made_once(databases, _begin, request.param)
    return Site(world=World(store=stores(url), clock=clock))


@pytest.mark.parametrize(("low", "bound"), [(0.735, 0.715), (0.7, 0.68), (1.0, 0.98), (0.0204, None), (0.0, None)])
def test_a_bound_is_two_hundredths_below_what_is_usual_and_never_at_nothing(low: float, bound: float | None) -> None:
    assert suggested_bound(low) == bound


def test_there_are_no_suggestions_before_a_baseline_stands(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in KEYS], rules=[]))
    carry_out(world, CHECK, 3)
    found = explanations.suggest(sqlite_store, CHECK)
    assert (found.rules, found.note) == ([], "no baseline yet: 3 of 20 identical runs")


@pytest.mark.both
def test_a_baseline_suggests_bounds_with_their_rules_and_yaml(anywhere: Site) -> None:
    answer = anywhere.client().get("/v1/checks/mine/suggested-rules").json()
    found = {one["measure"]: one for one in answer["rules"]}
    assert answer["note"] is None
    assert set(found) == {"coverage", "health_score", "R@5", "NDCG@10"}
    coverage = found["coverage"]
    assert (coverage["usual_low"], coverage["below"], coverage["watched_by"]) == (0.75, 0.73, None)
    assert coverage["rule"] == {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.73}}
    assert coverage["yaml"].splitlines()[0] == "- kind: regression"
    assert "  measure: coverage" in coverage["yaml"]


def test_the_measure_of_the_use_is_suggested_first_recall_beside_it(site: Site) -> None:
    orders = {
        "general": ["coverage", "health_score", "R@5", "NDCG@10"],
        "completeness": ["R@5", "coverage", "health_score", "NDCG@10"],
        "single_answer": ["MRR", "R@5", "coverage", "health_score", "NDCG@10"],
        "graded": ["NDCG@5", "R@5", "coverage", "health_score", "NDCG@10"],
    }
    with site.client() as client:
        for use, order in orders.items():
            assert client.put("/v1/checks/mine", json={**BODY, "use": use}).status_code == 200
            answer = client.get("/v1/checks/mine/suggested-rules").json()
            assert [one["measure"] for one in answer["rules"]] == order
            assert (answer["guide"] is None) is (use == "general")
        assert f"{answer['guide']}." in site.page("/checks/mine").text


def test_the_button_adds_the_bound_and_keeps_the_detector(site: Site) -> None:
    with site.client() as client:
        shown = site.page("/checks/mine")
        (button,) = [one for one in shown.all("button") if one.get("aria-label") == "Alert below 0.73, coverage"]
        assert button.text == "Alert below 0.73"
        revision = str(references.load_definition(site.world.store, "check", "mine").revision)
        form = {"measure": "coverage", "below": "0.73", "revision": revision}
        assert client.post("/checks/mine/suggested-rules", data=form).status_code == 303
        body = references.load_definition(site.world.store, "check", "mine").body
        assert [(rule["kind"], (rule["critical"] or {}).get("below")) for rule in body["rules"]] == [
            ("regression", None),
            ("threshold", 0.73),
        ]
        found = client.get("/v1/checks/mine/suggested-rules").json()["rules"]
        assert {one["measure"]: one["watched_by"] for one in found}["coverage"] == "threshold-coverage"
        assert "Alert below 0.73, coverage" not in {
            one.get("aria-label") for one in site.page("/checks/mine").all("button")
        }
        assert client.post("/checks/mine/suggested-rules", data=form).status_code in {409, 422}


def test_a_check_of_a_file_shows_the_lines_to_commit_and_cannot_be_changed_here(site: Site) -> None:
    shown = site.page(f"/checks/{CHECK}")
    assert any("measure: coverage" in one.text and "below: 0.73" in one.text for one in shown.all("pre"))
    assert not [one for one in shown.all("button") if "Alert below" in one.text]
    revision = str(references.load_definition(site.world.store, "check", CHECK).revision)
    form = {"measure": "coverage", "below": "0.73", "revision": revision}
    assert site.client().post(f"/checks/{CHECK}/suggested-rules", data=form).status_code == 409
    assert references.load_definition(site.world.store, "check", CHECK).body["rules"] == []
