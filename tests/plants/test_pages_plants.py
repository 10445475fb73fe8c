"""The page and the REST routes of planted documents."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.values import replace
from app.reports.pages.overviews import make_badge
from app.reports.service import check_details
from tests.plants.test_plant_alerts import plant
from tests.plants.test_planting import Planted, described
from tests.support.html_pages import Page
from tests.support.pages_service import Site, site
from tests.support.planted import retriever_of, source
from tests.support.world import CHECK, World

HERE = f"/checks/{CHECK}/plants"


@pytest.fixture
def planted(sqlite_store: Store) -> Iterator[Planted]:
    with source() as (held, served):
        world = World(store=sqlite_store)
        world.apply(described(retriever_of(served)))
        yield Planted(world=world, source=held)


def pages(planted: Planted) -> Site:
    return site(planted.world.store)


def api(planted: Planted) -> dict[str, Any]:
    body: dict[str, Any] = pages(planted).client().get(f"/v1{HERE}").json()
    return body


def test_before_the_first_the_page_says_how(planted: Planted) -> None:
    shown = pages(planted).page(HERE)
    assert shown.one("h1").text == f"Planted documents of {CHECK}"
    assert shown.all("a", href="/help/plants")
    assert "The first is planted" in shown.text
    assert "Give the check a plant" not in shown.text, "it has one"
    assert api(planted)["items"] == []
    assert pages(planted).client().get("/v1/checks/nobody/plants").status_code == 404


def test_what_was_measured_is_shown_and_the_check_leads_there(planted: Planted) -> None:
    for _ in range(11):
        plant(planted)
    planted.source.stopped = True
    plant(planted)
    shown = pages(planted).page(HERE)
    rows = [row.text for row in shown.all("tr")][1:]
    assert len(rows) == 12
    assert "not found" in rows[0]
    assert "removed; looked for again for 24 h" in rows[0]
    assert "found" in rows[1]
    assert "A planted document was not found after 1 min (usually 0 s)" in shown.text
    (chart,) = [one for one in shown.all("svg") if "planted documents were found" in (one.get("aria-label") or "")]
    assert (chart.get("aria-label") or "").endswith("; 1 were not found")
    listed = api(planted)
    assert [one["finding"] for one in listed["items"]] == ["not_found", *["found"] * 11]
    assert listed["usual"] == {
        "plants": 11,
        "median_seconds": 0,
        "high_seconds": 0,
        "slow_above_seconds": 10,
    }
    client = pages(planted).client()
    first = client.get(f"/v1{HERE}", params={"limit": 5}).json()
    rest = client.get(f"/v1{HERE}", params={"limit": 10, "after": first["next"]}).json()
    assert [*first["items"], *rest["items"]] == listed["items"]
    assert rest["next"] is None
    of_check = pages(planted).page(f"/checks/{CHECK}")
    assert HERE in [link.get("href") for link in of_check.all("a")]
    assert "a planted document was not found after 1 min (usually 0 s)" in of_check.text
    assert "Look at the pipeline that fills the index" in of_check.text
    pages(planted).page("/")
    for path in ("/alerts/1", "/incidents/1"):
        found = pages(planted).page(path)
        assert found.all("a", href=HERE), path
        assert "Run again" not in found.text, path
        assert "did not resolve by a run" not in found.text, path
    for path in ("/alerts", "/alerts/1", "/incidents/1", f"/checks/{CHECK}/edit"):
        assert "planted" in pages(planted).page(path).text.casefold(), path


def test_a_time_that_nobody_measured_is_shown_as_a_bound_and_not_drawn(planted: Planted) -> None:
    for _ in range(2):
        plant(planted)
    planted.source.stopped = True
    planted.world.clock.advance(600)
    planted.due()
    planted.step()
    planted.source.stopped = False
    planted.source.work()
    planted.world.clock.advance(18)
    planted.walk(60)
    shown = pages(planted).page(HERE)
    assert "at most 18" in [row.text for row in shown.all("tr")][1]
    (chart,) = [one for one in shown.all("svg") if "planted documents were found" in (one.get("aria-label") or "")]
    assert (chart.get("aria-label") or "").startswith(
        "Time until 2 planted documents were found, the newest after 0 s;"
    )


def test_the_overview_says_what_is_wrong_and_of_nothing_that_it_is_healthy_again(planted: Planted) -> None:
    planted.world.probe.all_answer()
    planted.world.run()
    planted.source.stopped = True
    plant(planted)
    shown = pages(planted).page("/")
    (row,) = [row for row in shown.all("tr") if CHECK in row.text]
    assert "A planted document was not found after 1 min: new documents do not reach the index." in row.text
    assert "alert open" in [one.text for one in shown.all("span", class_="critical")]
    assert "healthy again" not in row.text
    of_check = pages(planted).page(f"/checks/{CHECK}")
    assert "Healthy in this run" not in of_check.text
    assert of_check.one("section", class_="headline").get("class") == "headline degraded"
    line = check_details.load_line(planted.world.store, CHECK, planted.world.clock())
    badge = make_badge(planted.world.store, replace(line, overdue=False))
    assert (badge.value, badge.kind) == ("alert open", "degraded")


@pytest.mark.parametrize("runs", [0, 1])
def test_the_page_of_a_check_whose_alert_no_run_began(planted: Planted, runs: int) -> None:
    for _ in range(runs):
        planted.world.run()
    planted.source.stopped = True
    plant(planted)
    of_check = pages(planted).page(f"/checks/{CHECK}")
    told = of_check.one("p", class_="what").text
    assert told.startswith("A planted document was not found after 1 min since ")


def test_what_is_left_behind_is_said_first(planted: Planted) -> None:
    planted.source.refusing = {"DELETE"}
    plant(planted)
    shown = pages(planted).page(HERE)
    assert "is left behind, and no other is planted until it is removed" in shown.text
    assert "503" in shown.text
    assert not [one for one in shown.all("button") if one.text == "Plant now"]


def test_a_document_is_planted_now_but_not_beside_another(planted: Planted) -> None:
    client = pages(planted).client()
    answer = client.post(f"/v1{HERE}")
    assert answer.status_code == 202
    assert answer.json()["state"] == "due"
    assert client.post(f"/v1{HERE}").status_code == 409
    assert isinstance(pages(planted).page(HERE), Page)
