"""A check of which no canary expects anything measures nothing of what is retrieved, and is not told as healthy."""

from typing import Any

import pytest

from app.base.db.engine import Store
from app.reports.pages.overviews import make_badge
from app.reports.rendering.reports import report_html, report_markdown
from app.reports.service import check_details
from app.reports.service.reports import load_report
from tests.support.pages_service import Site
from tests.support.world import World, canary, page

CLAUSE = "what is retrieved is not measured: no canary expects anything"
RECALL = {"kind": "threshold", "measure": "R@5", "critical": {"below": 0.75}}


def world_of(store: Store, rules: list[dict[str, Any]], **more: Any) -> World:
    """Run a check whose canaries expect chunks, and again when they expect nothing any more, each with `more`."""
    world = World(store=store)
    canaries = [canary(key) for key in ("ant", "bee", "cat")]
    world.apply(page(canaries, rules=rules))
    world.run()
    emptied = [{name: value for name, value in one.items() if name != "expected_chunks"} | more for one in canaries]
    world.apply(page(emptied, rules=rules))
    world.run()
    return world


def badge_of(world: World) -> str:
    """Return what the badge of the check says."""
    return make_badge(world.store, check_details.load_line(world.store, "watch", world.clock())).value


@pytest.mark.parametrize("rules", [[RECALL], []])
def test_a_check_of_which_no_canary_expects_anything_is_not_told_as_healthy(
    sqlite_store: Store, rules: list[dict[str, Any]]
) -> None:
    world = world_of(sqlite_store, rules)
    site = Site(world=world)
    head = site.page("/checks/watch").one("section", **{"class": "headline recovering"}).text
    assert f"{CLAUSE[0].upper()}{CLAUSE[1:]}." in head
    assert "nothing measured" in head
    assert "No rule is violated" not in head
    overview = site.page("/").text
    assert "nothing measured" in overview
    assert CLAUSE in overview
    assert badge_of(world) == "nothing measured"
    told = {one["kind"]: one for one in site.client().get("/v1/checks/watch/alerting").json()["rules"]}
    watching = told["threshold"] if rules else told["regression"]
    name = "R@5" if rules else "coverage"
    assert (watching["state"], watching["reason"]) == (
        "unknown", f"{name} is not measured: no canary expects anything"
    )  # fmt: skip
    assert told["probe_errors"]["state"] == "ok"
    assert world.alerts() == [], "it pages nobody"
    assert f"{CLAUSE[0].upper()}{CLAUSE[1:]}." in site.page("/runs/2").text
    assert CLAUSE[1:] not in site.page("/runs/1").text
    report = load_report(sqlite_store, "2")
    assert report["unwatched"] == CLAUSE
    assert report_markdown(report).startswith("# Nothing measured: watch")
    assert f"- {CLAUSE}" in report_markdown(report)
    assert CLAUSE in report_html(report)
    assert CLAUSE in site.client().get("/v1/runs/2/report?format=junit").text
    assert load_report(sqlite_store, "1")["unwatched"] is None


@pytest.mark.parametrize(
    ("rule", "more"),
    [
        ({"kind": "threshold", "measure": "health_score", "critical": {"below": 0.1}}, {}),
        (RECALL, {"forbidden_chunks": ["secret"]}),
        (RECALL, {"expect_empty": True}),
    ],
)
def test_what_canaries_without_an_expected_chunk_are_asked_for_is_measured(
    sqlite_store: Store, rule: dict[str, Any], more: dict[str, Any]
) -> None:
    world = world_of(sqlite_store, [rule], **more)
    assert badge_of(world) != "nothing measured"
    assert CLAUSE not in Site(world=world).page("/checks/watch").text
