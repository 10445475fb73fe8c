"""Pages of traffic: reach with groups covered and not, suggestions that open a task, deletion, and who sees queries."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.base.db.keys import Scope
from app.traffic.pages import divide_box
from tests.support.api_service import CHECK, Api, api, bearer
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE

QUERIES = ("how long is data kept?", HOSTILE.casefold(), "=cmd()", "who pays?")
TRAFFIC = "/suites/docs/traffic"
SUITE = "/suites/docs?show=traffic"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with a suite, of whose traffic canaries stand for the first query."""
    with api(tmp_path) as opened:
        opened.docs()
        opened.retriever.found = {query: [f"x{place}"] for place, query in enumerate(QUERIES[1:])}
        yield opened


def post(service: Api, path: str, **fields: Any) -> Any:
    return service.client.post(path, data=fields, follow_redirects=True)


def read(service: Api, path: str = TRAFFIC) -> Page:
    return Page(service.client.get(path).text)


def test_without_traffic_the_command_is_shown(service: Api) -> None:
    assert "coalmine traffic queries.csv --suite docs" in read(service).text
    assert [link.get("href") for link in read(service, SUITE).all("a") if link.text == "Send traffic"] == [TRAFFIC]


def test_the_entry_of_the_menu_shows_the_only_suite_and_lists_several(service: Api) -> None:
    assert read(service, "/traffic").one("h1").text == "Traffic of docs"
    service.reached(*QUERIES)
    service.client.put("/v1/suites/other", json={})
    shown = read(service, "/traffic")
    rows = [row.text for row in shown.all("tr")][1:]
    assert rows[0].startswith("docs search 354 25.4 %")
    assert "3 of 4 groups not covered" in rows[0]
    assert rows[1].startswith("other no traffic yet")
    assert shown.all("a", href=TRAFFIC)


def test_reach_is_measured_on_a_page(service: Api) -> None:
    service.reached(*QUERIES)
    service.client.delete("/v1/suites/docs/traffic")
    body = {"files": {"a.csv": "query,count\nhow long is data kept?,3\nwho pays?,1\n"}}
    service.client.post("/v1/suites/docs/traffic", params={"retriever": "search"}, json=body)
    assert [one.text for one in read(service, SUITE).all("button") if "reach" in one.text] == ["Measure reach"]
    asking = Page(post(service, "/suites/docs/reach", retriever="search").text)
    assert "0 of 2 queries asked" in asking.text
    section = asking.one("section", id="traffic-1")
    assert (section.get("hx-get"), section.get("hx-trigger")) == (TRAFFIC, "every 2s")
    service.ask_sample()
    for path, part in ((TRAFFIC, "traffic-1"), (SUITE, "reached")):
        shown = read(service, path)
        assert "Reach 75.0 %" in shown.text
        assert "Groups covered 1 of 2" in shown.text
        assert not shown.one("section", id=part).get("hx-get")
        rows = [row.text for row in shown.all("tr") if "covered" in row.text]
        assert rows == ["c1 75.0 % covered", "x2 25.0 % not covered"]


def test_traffic_for_which_nothing_was_found_is_told_beside_the_shares_that_it_is_missing_in(service: Api) -> None:
    service.retriever.found["who pays?"] = []
    body = {"files": {"a.csv": "query,count\nhow long is data kept?,2\nwho pays?,3\n"}}
    service.client.post("/v1/suites/docs/traffic", params={"retriever": "search"}, json=body)
    post(service, "/suites/docs/reach", retriever="search")
    service.ask_sample()
    found = service.get("/v1/suites/docs/reach", retriever="search")
    assert (found["empty"], found["value"], found["all_groups"]) == (0.6, 0.4, 1)
    told = "For 60.0 % of the traffic the retriever found nothing: it is in no group, and not covered."
    for path in (TRAFFIC, SUITE):
        assert told in read(service, path).text
    service.retriever.found["who pays?"] = ["x2"]
    post(service, "/suites/docs/reach", retriever="search")
    service.ask_sample()
    assert service.get("/v1/suites/docs/reach", retriever="search")["empty"] == 0
    assert "found nothing" not in read(service).text


def test_a_reach_of_before_is_told_beside_newer_traffic_and_an_edited_retriever(service: Api) -> None:
    service.reached(*QUERIES)
    known = service.get("/v1/suites/docs/reach", retriever="search")
    assert known["edited_since"] is False
    assert "Reach is of the" not in read(service).text
    body = {"files": {"a.csv": "query,count\nwho pays?,30\n"}}
    service.client.post("/v1/suites/docs/traffic", params={"retriever": "search"}, json=body)
    older = f"Reach is of the {known['traffic']} queries that had come when its sample was drawn; 30 came since."
    for path in (TRAFFIC, SUITE):
        assert older in read(service, path).text
    retriever = service.get("/v1/retrievers/search")
    service.put(
        "/v1/retrievers/search", {name: retriever[name] for name in ("response", "scorer")} | {"url": "http://b.c"}
    )
    assert service.get("/v1/suites/docs/reach", retriever="search")["edited_since"] is True
    assert "search was edited after this sample was drawn: reach by now is not known." in read(service).text


def test_a_retriever_that_no_check_asks_is_told_wherever_its_reach_stands(service: Api) -> None:
    service.client.put("/v1/suites/other", json={})
    service.reached(*QUERIES)
    asked = service.get("/v1/suites/docs/reach", retriever="search")
    assert asked["checks"] == ["docs"]
    for path in (TRAFFIC, SUITE, "/traffic"):
        assert "no check asks" not in read(service, path).text.casefold()
    service.put("/v1/checks/docs", {**CHECK, "enabled": False})
    watched = ", so nobody would notice if it broke: reach is what a check of the suite would watch"
    found = service.get("/v1/suites/docs/reach", retriever="search")
    assert (found["checks"], found["value"]) == ([], asked["value"])
    assert found["reason"].startswith(f"no check asks search, as docs is disabled{watched}")
    assert service.client.delete("/v1/checks/docs").status_code == 204
    assert service.get("/v1/suites/docs/reach", retriever="search")["reason"].startswith(
        f"no check asks search{watched}"
    )
    for path in (TRAFFIC, SUITE):
        assert f"No check asks search{watched}" in read(service, path).text
    assert "25.4 % no check asks it" in read(service, "/traffic").text
    assert len(service.get("/v1/suites/docs/suggestions", retriever="search")["items"]) == 3, "as with a check"


def test_an_interval_stands_behind_what_is_estimated(service: Api) -> None:
    lines = "\n".join(f'{{"query": "how long is data kept {number}?", "count": 5}}' for number in range(900))
    body = {"files": {"a.jsonl": lines}}
    service.client.post("/v1/suites/docs/traffic", params={"retriever": "search"}, json=body)
    post(service, "/suites/docs/reach", retriever="search")
    service.ask_sample()
    found = service.get("/v1/suites/docs/reach", retriever="search")
    assert found["low"] < found["high"]
    assert f"95 % interval {100 * found['low']:.1f} % to {100 * found['high']:.1f} %" in read(service).text


def test_groups_are_drawn_as_a_map_that_leads_to_their_questions(service: Api) -> None:
    service.reached(*QUERIES)
    shown = read(service)
    tiles = {one.text: one for one in shown.all("title") if "covered" in one.text}
    assert {text.partition(",")[0] for text in tiles} == {"c1", "x0", "x1", "x2"}
    boxes = [one for one in shown.all("rect") if one.get("width").endswith("%")]
    assert sum(float(one.get("width")[:-1]) * float(one.get("height")) for one in boxes) == pytest.approx(
        100 * 280, rel=0.01
    )
    assert [one.get("class") for one in boxes].count("covered") == 1
    assert [one.get("fill") for one in boxes].count("url(#hatched-1)") == 3
    places = {one.get("href")[1:] for one in shown.all("a") if one.get("href").startswith("#group-1-")}
    told = {one.get("id"): one.text for one in shown.all("tr", class_="asked")}
    assert places == told.keys()
    assert any("who pays?" in text for text in told.values())


@pytest.mark.parametrize("values", [[], [1.0], [5.0, 1.0], [8.0, 4.0, 2.0, 1.0, 1.0, 0.5], [1.0] * 50])
def test_a_map_gives_each_group_its_share_and_leaves_no_gap(values: list[float]) -> None:
    boxes = divide_box(values, (0.0, 0.0, 900.0, 280.0))
    assert [width * height for _, _, width, height in boxes] == pytest.approx(
        [900 * 280 * value / sum(values) for value in values]
    )
    for x, y, width, height in boxes:
        assert (x >= 0, y >= 0, x + width <= 900.001, y + height <= 280.001) == (True,) * 4


def test_documents_may_be_grouped(service: Api) -> None:
    names = {query: [f"handbook/{place}/a"] for place, query in enumerate(QUERIES)}
    service.retriever.found = names
    service.reached(*QUERIES)
    assert "Nearly every document here is a single chunk" in read(service).text
    post(service, "/suites/docs/reach", retriever="search", separator="/", parts="1")
    service.ask_sample()
    shown = read(service)
    assert [row.text for row in shown.all("tr") if "covered" in row.text] == ["handbook 100.0 % not covered"]
    assert "Nearly every" not in shown.text
    assert (
        "Documents are grouped by the first part of their names, which '/' divides: a canary counts for" in shown.text
    )
    refused = post(service, "/suites/docs/reach", retriever="search", separator="/", parts="none")
    assert refused.status_code == 422
    assert "parts" in Page(refused.text).text


def test_suggestions_open_a_task(service: Api) -> None:
    service.reached(*QUERIES)
    shown = read(service)
    offered = [one.get("value") for one in shown.all("input") if one.get("name") == "queries"]
    assert offered == list(QUERIES[1:])
    fields = {"retriever": "search", "task": "gaps", "queries": offered[:2]}
    opened = post(service, "/suites/docs/suggestions", **fields)
    assert opened.url.path == "/tasks/gaps"
    task = service.get("/v1/tasks/gaps")
    assert (task["canaries"], len(task["keys"]), task["retrievers"]) == (2, 2, ["search"])
    assert [one.get("value") for one in read(service).all("input") if one.get("name") == "queries"] == offered[2:]
    again = post(service, "/suites/docs/suggestions", **{**fields, "queries": offered[2:]})
    assert again.status_code == 409
    ticked = [one.get("value") for one in Page(again.text).all("input") if "checked" in one.attributes]
    assert ticked == offered[2:], "what was chosen stays"
    post(service, "/suites/docs/suggestions", **{**fields, "task": "rest", "queries": offered[2:]})
    assert "are canaries already and wait for judgments" in read(service).text
    assert "stand for every group" not in read(service).text
    nothing = post(service, "/suites/docs/suggestions", retriever="search", task="other")
    assert nothing.status_code == 422
    assert "choose at least one" in Page(nothing.text).text


def test_queries_are_deleted_on_a_page(service: Api) -> None:
    service.reached(*QUERIES)
    assert "1 query deleted" in Page(post(service, f"{TRAFFIC}/delete", query=" WHO pays? ").text).text
    assert "who pays?" not in read(service).text
    assert post(service, f"{TRAFFIC}/delete").status_code == 422, "what to delete is said, or nothing is"
    done = Page(post(service, f"{TRAFFIC}/delete", retriever="search").text)
    assert "3 queries deleted" in done.text
    assert "No traffic yet" in done.text


def test_queries_are_shown_to_those_who_may_write_alone(service: Api) -> None:
    service.reached(*QUERIES)
    reader, writer = (bearer(service.key(scope)) for scope in (Scope.READ, Scope.WRITE))
    seen = {name: service.client.get(TRAFFIC, headers=headers).text for name, headers in (("r", reader), ("w", writer))}
    assert "who pays?" in seen["w"]
    assert "who pays?" not in seen["r"]
    assert "x2" in seen["r"], "groups are no queries"
    assert "Delete queries" not in seen["r"]


def test_hostile_queries_and_documents_are_harmless(service: Api) -> None:
    service.retriever.found = {QUERIES[1]: [HOSTILE]}
    service.reached(*QUERIES)
    for path in (TRAFFIC, SUITE):
        shown = read(service, path)
        assert not [one for one in shown.all("img") if one.get("src") == "x"]
        assert not [one for one in shown.all("script") if not one.get("src")]
    assert "{{ 7*7 }}" in read(service).text, "it is shown as it was asked"
