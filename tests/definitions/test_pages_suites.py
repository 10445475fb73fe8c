"""The pages of suites, canaries, checks and imports: looked at, filtered, edited by forms; files stay in charge."""

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.documents.fields import parse_document
from app.base.values import Outcome, replace
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.canary_files import read_canary_files
from app.catalog.service import references, suites
from tests.retrievers.test_pages_wizard import chosen, fields_of
from tests.runs.test_steps import RERANKED
from tests.support.fakes import FakeProbe, answered, failed, hits
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE, Bench, Site, csrf, page, site
from tests.support.world import COVERAGE, HOOK, canary
from tests.support.world import page as canary_page

PROSE = "Logs are kept for thirty days in the hot tier and for a year in the archive."
ADD = "/suites/mine/add"
ANT = {"key": "ant", "query": "Who carries leaves?", "tags": ["insects", "small"]}


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a suite of a file with its check, and an empty suite of the API."""
    made = Bench(world=site(sqlite_store).world, probe=FakeProbe())
    negative = {"key": "none", "query": "Who lives on the moon?", "category": "negative"}
    made.world.apply(canary_page([{**canary("ant"), **ANT}, canary("bee"), negative]))
    assert made.client().post("/suites", data={"slug": "mine"}).status_code == 303
    return made


def sent(pages: Site, path: str, status: int = 200, /, **form: Any) -> Page:
    """Send a form as somebody on the open service."""
    return page(pages.client().post(path, data=form), status)


def body_of(pages: Site, key: str, suite: str = "mine") -> Mapping[str, Any]:
    """Read a canary in force."""
    return references.load_canary(pages.world.store, suite, key).body


# --- looking -------------------------------------------------------------------------------------------------


def test_every_suite_is_listed_with_what_it_may_miss(pages: Site) -> None:
    rows = [row.text for row in pages.page("/suites").all("tr")][1:]
    assert len(rows) == 2
    assert "mine" in rows[0]
    assert "No canary expects anything, so no loss is noticed." in rows[0]
    assert "watch" in rows[1]
    assert "canaries.yaml:1" in rows[1]


def test_a_suite_shows_what_each_canary_expects_and_how_it_stands(pages: Site) -> None:
    shown = pages.page("/suites/suite")
    assert "unknown" in shown.one("tbody").text
    pages.world.probe.answers["Who carries leaves?"] = answered(hits("noise"))
    pages.world.run()
    rows = [row.text for row in pages.page("/suites/suite").all("tr")[1:]]
    assert "degraded" in rows[0]
    assert "doc-ant" in rows[0]
    assert "insects" in rows[0]
    assert "no good answer" in rows[1], "it fails, so it comes before the one that does not"
    assert "healthy" in rows[2]
    assert "/checks/watch/canaries/ant" in {link.get("href") for link in pages.page("/suites/suite").all("a")}


def test_canaries_are_found_by_what_they_are_like(pages: Site) -> None:
    pages.world.probe.answers["Who carries leaves?"] = answered(hits("noise"))
    pages.world.probe.answers["Who lives on the moon?"] = answered(hits("noise", scores=[0.1]))
    pages.world.run()
    for query, keys in [
        ("text=CARRIES", ["ant"]),
        ("text=be", ["bee"]),
        ("tag=small", ["ant"]),
        ("category=negative", ["none"]),
        ("state=degraded", ["ant"]),
        ("state=healthy&category=simple_factual", ["bee"]),
        ("page=2", ["ant", "bee", "none"]),
        ("tag=gone", []),
    ]:
        shown = pages.page(f"/suites/suite?{query}")
        assert _edited(shown) == keys, query


def test_a_probe_that_failed_leaves_its_canary_unknown(pages: Site) -> None:
    pages.world.run()
    pages.world.probe.answers["bee"] = failed(Outcome.TIMEOUT)
    pages.world.run()
    shown = pages.page("/suites/suite?state=unknown")
    assert next(link.text for link in shown.all("a") if "/canaries/bee" in link.get("href")) == "bee"


def test_relevance_that_was_not_measured_is_not_held_against_a_canary(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply({**canary_page([canary("ant"), canary("bee")]), "retrievers": [RERANKED]})
    low, right = replace(hits("doc-ant"), relevance=0.1), replace(hits("doc-bee"), relevance=0.8)
    pages.world.probe.answers |= {"ant": answered(low), "bee": answered(right)}
    pages.world.run()
    assert _stands(pages) == {"ant": "degraded", "bee": "healthy"}
    pages.world.probe.answers["ant"] = replace(answered(hits("doc-ant")), unscored="the reranker timed out")
    run = pages.world.run()
    assert pages.world.results(run)["ant"]["verdict"] == "healthy"
    assert _stands(pages) == {"ant": "healthy", "bee": "healthy"}


def test_a_verdict_of_an_earlier_version_of_a_canary_is_not_told_of_the_one_in_force(pages: Site) -> None:
    pages.world.probe.answers["Who carries leaves?"] = answered(hits("noise"))
    pages.world.run()
    negative = {"key": "none", "query": "Who lives on the moon?", "category": "negative"}
    tagged = {**canary("bee"), "tags": ["insects"], "category": "procedural"}
    pages.world.apply(canary_page([{**canary("ant"), **ANT, "expected_chunks": ["noise"]}, tagged, negative]))
    assert _stands(pages) == {
        "ant": "degraded expectations changed, not run yet",
        "bee": "healthy",  # neither tags nor the name of a category judge
        "none": "degraded",
    }
    pages.world.apply(canary_page([canary("ant"), {**tagged, "category": "negative"}, negative]))
    assert _stands(pages)["bee"] == "healthy expectations changed, not run yet"
    pages.world.apply(canary_page([{**canary("ant"), "query": "Who is strong?"}, tagged, negative]))
    assert _stands(pages)["ant"] == "unknown query changed, not run yet"
    assert "1 canary of 3" in pages.page("/suites/suite?state=unknown").text
    pages.world.probe.answers["Who is strong?"] = answered(hits("doc-ant"))
    pages.world.run()
    assert _stands(pages)["ant"] == "healthy"


def _stands(pages: Site) -> dict[str, str]:
    """Give how each canary of the suite is said to stand, by key."""
    shown = pages.page("/suites/suite")
    return dict(zip(_edited(shown), [one.text for one in shown.all("span", class_="states")], strict=True))


def _edited(shown: Page) -> list[str]:
    """Give the canaries of a page of a suite whose definitions it leads to, in order."""
    links = [one for one in shown.all("a") if one.get("href").startswith("/suites/suite/canaries/")]
    return [one.text.removeprefix("Edit ") for one in links if "#" not in one.get("href")]


def test_canaries_that_fail_in_most_checks_come_first_and_lead_to_where_they_fail(pages: Site) -> None:
    negative = {"key": "none", "query": "Who lives on the moon?", "category": "negative"}
    made = canary_page([{**canary("ant"), **ANT}, canary("bee"), negative, canary("cat")])
    made["checks"] += [{**made["checks"][0], "slug": slug} for slug in ("second", "third", "fourth", "fifth", "sixth")]
    pages.world.apply(made)
    pages.world.probe.answers["Who lives on the moon?"] = answered(hits("noise", scores=[0.1]))
    pages.world.probe.answers["Who carries leaves?"] = answered(hits("doc-ant"))
    for slug in ("watch", "second"):
        pages.world.run(slug)
    pages.world.probe.answers["cat"] = answered(hits("noise"))
    pages.world.run("third")
    pages.world.probe.answers["bee"] = answered(hits("noise"))
    for slug in ("fourth", "fifth", "sixth"):
        pages.world.run(slug)
    shown = pages.page("/suites/suite")
    assert _stands(pages) == {
        "cat": "degraded in 4 healthy in 2 fifth, fourth, sixth and 1 more",
        "bee": "degraded in 3 healthy in 3 fifth, fourth, sixth",
        "ant": "healthy in 6",
        "none": "healthy in 6",
    }
    links = [(link.text, link.get("href")) for link in shown.all("a")]
    assert ("cat", "/checks/fifth/canaries/cat") in links
    assert ("degraded in 4", "/suites/suite/canaries/cat#history") in links
    assert ("sixth", "/checks/sixth/canaries/bee") in links
    told = pages.page("/suites/suite/canaries/cat").one("p", id="history").text
    assert told == "History in fifth, fourth, second, sixth, third, watch"
    pages.world.apply({**made, "canaries": [canary("ant"), *made["canaries"][1:]]})  # the suite is not that of the runs
    assert list(_stands(pages)) == ["cat", "bee", "ant", "none"], "degraded, unknown, healthy"
    assert _stands(pages)["ant"].startswith("unknown in 6 query changed, not run yet")


def test_parts_of_a_suite_are_read_one_at_a_time_without_scripts(pages: Site) -> None:
    tabs = {"Canaries": "", "Traffic": "?show=traffic", "Composition": "?show=composition", "Export": "?show=export"}
    for label, query in tabs.items():
        shown = pages.page(f"/suites/suite{query}")
        assert [link.text for link in shown.all("a", **{"aria-current": "page"}) if link.text in tabs] == [label]
        assert {link.get("href") for link in shown.all("a")} >= {f"/suites/suite{one}" for one in tabs.values()}
        parts = {"Canaries": "f-text", "Traffic": "reach", "Composition": "composition", "Export": "out"}
        ids = {one.get("id") for one in shown.elements}
        assert ids & {*parts.values()} == {parts[label]}
    assert pages.page("/suites/suite?show=nothing").all("table", class_="canaries")


def test_large_suites_come_in_parts(pages: Site) -> None:
    many = [{"key": f"k{place:03}", "query": f"Question {place}?"} for place in range(130)]
    assert pages.client().post("/v1/suites/mine/canaries", json=many).status_code == 201
    shown = pages.page("/suites/mine?text=question")
    assert "130 canaries of 130, 1 to 50 shown" in shown.text
    following = next(link.get("href") for link in shown.all("a") if link.text == "Next")
    assert following == "/suites/mine?text=question&page=2"
    last = pages.page(next(link.get("href") for link in shown.all("a") if link.text == "Page 3"))
    assert "101 to 130 shown" in last.text
    assert len(last.all("tr")) == 31
    assert not [link for link in last.all("a") if link.text == "Next"]
    assert "101 to 130 shown" in pages.page("/suites/mine?page=9").text


def test_a_suite_goes_out_as_files(pages: Site) -> None:
    plain = pages.client().get("/suites/suite/export")
    assert plain.headers["content-disposition"] == 'attachment; filename="suite.yaml"'
    assert [one.key for one in read_canary_files([("a", plain.text)], {}, None).suites[0].canaries or ()] == [
        "ant",
        "bee",
        "none",
    ]
    assert "Who carries leaves?" in pages.client().get("/suites/suite/export?format=csv").text
    packed = zipfile.ZipFile(io.BytesIO(pages.client().get("/suites/suite/export?format=trec").content))
    assert sorted(packed.namelist()) == ["qrels.txt", "topics.tsv"]
    pages.page("/suites/suite/export?format=word", 422)


# --- editing canaries ----------------------------------------------------------------------------------------


def test_a_suite_is_made_by_its_name(pages: Site) -> None:
    taken = "there is a suite 'mine' already; choose another name, such as 'mine-2',"
    assert taken in sent(pages, "/suites", 409, slug="mine").text
    assert "try 'my-questions'" in sent(pages, "/suites", 422, slug="My questions").text
    wrong = sent(pages, "/suites", 422, slug="Not A Slug")
    assert wrong.one("input", name="slug").get("value") == "Not A Slug"
    assert wrong.one("span", id="wrong-slug").text


def test_that_the_next_run_asks_a_saved_canary_is_said_where_runs_come_by_themselves(pages: Site) -> None:
    def told(suite: str) -> str:
        shown = pages.page(f"/suites/{suite}?saved=bee")
        return (shown.all("p", role="status") or shown.all("section", role="status"))[0].text

    assert told("suite") == "Canary bee is saved; the next run sends it."
    assert told("mine").startswith("Canary bee is saved. No check uses this suite yet. Next: Done: A retriever: ")
    assert "A hook: who is notified" in told("mine")
    check = {"suite": "mine", "retriever": "search", "schedule": {"every": "5m"}, "enabled": False}
    assert pages.client().put("/v1/checks/paused", json=check).status_code == 201
    assert "its check does not run by itself, so it is sent by the next run that somebody starts" in told("mine")
    pages.client().put("/v1/checks/going", json={**check, "enabled": True})
    assert "; the next run sends it" in told("mine")


def test_the_first_button_of_a_suite_is_the_next_step(pages: Site) -> None:
    def buttons(suite: str, of: str = "") -> list[str]:
        return [one.text for one in pages.page(f"/suites/{suite}{of}").all("a", class_="button")][:2]

    assert buttons("mine")[0] == "Add a canary"
    assert buttons("suite", "?saved=imported") == ["Add a canary", "New check"]
    pages.client().post("/v1/suites/mine/canaries", json=[{"key": "ant", "query": "Who?", "expected_chunks": ["a"]}])
    assert buttons("mine", "?saved=imported") == ["New check", "Add a canary"]
    shown = pages.page("/suites/mine?saved=imported")
    assert shown.one("li", **{"aria-current": "step"}).text.startswith("A check: ")
    assert shown.all("a", href="/new-check?suite=mine")


def test_a_canary_is_written_by_its_form(pages: Site) -> None:
    form = {
        "query": "How long are logs kept?",
        "category": "procedural",
        "tags": "logs, headline",
        "min_relevance_score": "0.8",
        "max_latency": "800ms",
        "floors": "NDCG@10: 0.75",
        "expected_chunks[0].id": "run_logs",
        "expected_chunks[0].grade": "3",
        "expected_chunks[4].text": PROSE,
        "forbidden_chunks[0].document": "tenant-b.pdf",
        "do": "save",
    }
    answer = pages.client().post(ADD, data=form)
    assert answer.headers["location"] == "/suites/mine?saved=how-long-are-logs-kept"
    body = body_of(pages, "how-long-are-logs-kept")
    assert [(chunk["id"], chunk["text"], chunk["grade"]) for chunk in body["expected_chunks"]] == [
        ("run_logs", None, 3),
        (None, PROSE, 1),
    ]
    assert body["forbidden_chunks"][0]["document"] == "tenant-b.pdf"
    assert (body["floors"], body["max_latency"], body["tags"]) == ({"NDCG@10": 0.75}, 0.8, ["logs", "headline"])
    assert "how-long-are-logs-kept" in pages.page(answer.headers["location"]).one("section", class_="info").text


def test_saving_a_canary_as_it_stands_changes_nothing(pages: Site) -> None:
    whole = {
        "key": "whole",
        "query": "Everything?",
        "expected_chunks": [{"id": "a", "text": "two\nlines", "grade": 2}, {"document": "d"}],
        "forbidden_chunks": ["f"],
        "floors": {"MRR": 0.5},
        "max_age": "2d",
        "max_latency": "1500ms",
        "min_relevance_score": 0.35,
        "tags": ["x"],
    }
    assert pages.client().put("/v1/suites/mine/canaries/whole", json=whole).status_code == 201
    before = references.load_canary(pages.world.store, "mine", "whole")
    form = {**fields_of(pages.page("/suites/mine/canaries/whole")), "do": "save"}
    assert pages.client().post("/suites/mine/canaries/whole", data=form).status_code == 303
    after = references.load_canary(pages.world.store, "mine", "whole")
    assert (after.body, after.version_id) == (before.body, before.version_id)


def test_what_is_wrong_with_a_canary_is_said_at_its_field_and_nothing_is_stored(pages: Site) -> None:
    for form, field in [
        ({"query": ""}, "query"),
        ({"key": "-bad key"}, "key"),
        ({"min_relevance_score": "much"}, "min_relevance_score"),
        ({"max_age": "soon"}, "max_age"),
        ({"floors": "NDCG: high"}, "floors"),
        ({"floors": "nonsense"}, "floors"),
        ({"tags": "a, a"}, "tags"),
        ({"expected_chunks[0].id": "a", "expected_chunks[3].id": "a"}, "expected_chunks-1"),
        ({"expected_chunks[0].id": "a", "expected_chunks[0].grade": "9"}, "expected_chunks-0-grade"),
        ({"expected_chunks[0].id": "a", "forbidden_chunks[0].id": "a"}, "forbidden_chunks-0"),
    ]:
        before = pages.world.dump()
        shown = sent(pages, ADD, 422, **{"query": "What?", "do": "save", **form})
        assert shown.one("span", id=f"wrong-{field}").text, form
        name, typed = next(iter(form.items()))
        kept = [one for one in shown.elements if one.get("name") == name]
        assert kept[0].get("value") == typed or "".join(kept[0].pieces).strip() == typed, form
        assert pages.world.dump() == before, form


def test_a_key_is_used_once(pages: Site) -> None:
    assert pages.client().post(ADD, data={"query": "What?", "do": "save"}).status_code == 303
    assert "there is a canary 'what' already" in sent(pages, ADD, 409, query="What?", do="save").text
    other = sent(pages, ADD, 409, query="Other?", key="what", do="save").text
    assert "there is a canary 'what' already; choose another name, such as 'what-2'," in other


def test_expected_chunks_are_found_by_asking_and_ticked(pages: Site) -> None:
    found = answered(hits("c1", "c2", texts={"c1": PROSE, "c2": "Something else."}))
    pages.probe = FakeProbe(otherwise=lambda _: found)
    shown = sent(pages, ADD, query="How long?", retriever="search", do="find", keep_text="yes")
    assert "2 hits" in shown.text
    assert [asked for _, asked in pages.probe.asked] == ["How long?"]
    form = {**fields_of(shown), "found": "0", "found[0].grade": "3", "do": "keep"}
    shown = page(pages.client().post(ADD, data=form))
    assert shown.one("input", name="expected_chunks[0].id").get("value") == "c1"
    assert shown.one("textarea", name="expected_chunks[0].text").text == PROSE
    assert pages.client().post(ADD, data={**fields_of(shown), "do": "save"}).status_code == 303
    assert body_of(pages, "how-long")["expected_chunks"] == [
        {"id": "c1", "document": None, "text": PROSE, "grade": 3, "source": "retriever:search"}
    ]


def test_a_first_hit_that_would_degrade_the_canary_at_once_is_told_with_a_least_relevance_to_take(pages: Site) -> None:
    pages.probe = FakeProbe(otherwise=lambda _: answered(hits("c1", "c2", scores=(0.4, 0.3))))
    asks = {"query": "How long?", "retriever": "search", "do": "find", "keep_text": "yes"}
    shown = sent(pages, ADD, **asks)
    told = shown.one("p", class_="warning").text
    assert (
        "The first hit's relevance, 0.4, is below the minimum relevance, 0.5: the canary would be degraded at once"
        in told
    )
    offer = shown.one("button", name="lower")
    assert (offer.get("value"), offer.get("data-fills")) == ("0.32", "min_relevance_score")
    form = {**fields_of(shown), "found": "0", "lower": "0.32"}
    taken = page(pages.client().post(ADD, data=form))
    assert taken.one("input", name="min_relevance_score").get("value") == "0.32"
    assert taken.one("input", name="expected_chunks[0].id").get("value") == "c1"
    for enough in ({"min_relevance_score": "0.4"}, {"category": "negative"}, {"expect_empty": "yes"}):
        assert not sent(pages, ADD, **asks, **enough).all("p", class_="warning")
    assert sent(pages, ADD, **asks, min_relevance_score="0.45").all("p", class_="warning")


def test_what_is_ticked_is_saved_at_once_too_and_never_twice(pages: Site) -> None:
    form = {
        "query": "How long?",
        "expected_chunks[0].id": "c1",
        "expected_chunks[1].text": "Audit trails stay for a year.",
        "found[0].id": "c1",
        "found[0].text": "another cut",
        "found[1].id": "c2",
        "found[2].id": "text:0123456789abcdef",
        "found[2].text": PROSE,
        "do": "save",
    }
    answer = pages.client().post(ADD, data={**form, "found": ["0", "1", "2", "77", "x"]})
    assert answer.status_code == 303
    chunks = body_of(pages, "how-long")["expected_chunks"]
    assert [(chunk["id"], chunk["text"]) for chunk in chunks] == [
        ("c1", None),
        (None, "Audit trails stay for a year."),
        ("c2", None),
        (None, PROSE),
    ]


def test_asking_needs_a_question_and_a_retriever(pages: Site) -> None:
    shown = sent(pages, ADD, 422, do="find")
    assert "Request not sent:" in shown.text
    assert "Not saved:" not in shown.text
    assert shown.one("span", id="wrong-query").text
    assert shown.one("span", id="wrong-retriever").text
    assert "there is no retriever 'gone'" in sent(pages, ADD, 422, do="find", query="?", retriever="gone").text
    pages.probe = FakeProbe(otherwise=lambda _: failed(Outcome.REFUSED, detail="HTTP 500"))
    assert "Request failed: error response, HTTP 500" in sent(pages, ADD, do="find", query="?", retriever="search").text


def test_more_rows_come_on_request_and_keep_what_was_typed(pages: Site) -> None:
    shown = sent(pages, ADD, do="expected_chunks", query="Q?", **{"expected_chunks[0].id": "a"})
    assert len([one for one in shown.all("input") if one.get("name").startswith("expected_chunks[")]) == 8
    assert shown.one("input", name="expected_chunks[0].id").get("value") == "a"
    assert shown.one("input", name="query").get("value") == "Q?"


def test_a_canary_of_a_file_is_shown_and_written_for_the_file(pages: Site) -> None:
    path = "/suites/suite/canaries/ant"
    whole = "".join(pages.page(path).one("pre", id="yaml").pieces)
    assert [one.key for one in read_canary_files([("a", whole)], {}, None).suites[0].canaries or ()] == ["ant"]
    shown = pages.page(f"{path}?draft=yes")
    assert "canaries.yaml:1" in shown.text
    assert not shown.all("button", value="save")
    form = {**fields_of(shown), "min_relevance_score": "0.9"}
    written = "".join(page(pages.client().post(path, data={**form, "do": "yaml"})).one("pre", id="yaml").pieces)
    (read,) = read_canary_files([("a", written)], {}, None).suites[0].canaries or ()
    assert (read.key, read.min_relevance_score) == ("ant", 0.9)
    before = pages.world.dump()
    assert "is managed by canaries.yaml:1" in sent(pages, path, 409, **form, do="save").text
    assert "is managed by canaries.yaml:1" in sent(pages, f"{path}/archive", 409).text
    assert "is managed by canaries.yaml:1" in sent(pages, "/suites/suite/archive", 409).text
    assert pages.world.dump() == before


def test_a_canary_of_more_chunks_than_its_form_holds_is_not_saved_without_them(pages: Site) -> None:
    document = parse_document(CanaryDocument, canary("long", expected_chunks=[{"id": f"c{at}"} for at in range(201)]))
    suites.put_canary(pages.world.store, "mine", document, now=pages.world.clock(), over=None)
    path, before = "/suites/mine/canaries/long", pages.world.dump()
    shown = pages.page(path)
    assert "201 chunks, and this form has at most 200" in shown.text
    refused = sent(pages, path, 422, **fields_of(shown), do="save")
    assert "change it in an exported canary file, or over the API" in refused.text
    assert pages.world.dump() == before


def test_canaries_and_suites_are_archived(pages: Site) -> None:
    assert pages.client().post(ADD, data={"query": "What?", "do": "save"}).status_code == 303
    assert pages.client().post("/suites/mine/canaries/what/archive").headers["location"] == "/suites/mine"
    pages.page("/suites/mine/canaries/what", 404)
    assert pages.client().post("/suites/mine/archive").headers["location"] == "/suites"
    pages.page("/suites/mine", 404)


# --- editing checks ------------------------------------------------------------------------------------------

CHECK = {"suite": "mine", "retriever": "search", "schedule": "every", "schedule.every": "10m", "k": "5"}


def test_a_new_check_begins_with_what_suits_most(pages: Site) -> None:
    shown = pages.page("/new-check?suite=mine&retriever=search")
    form = fields_of(shown)
    ticked = {one.get("name") for one in shown.all("input", type="checkbox") if "checked" in one.attributes}
    assert {"rule.regression", "enabled", "now", "hooks"} == ticked  # the only hook there is
    answer = pages.client().post("/new-check", data=form)
    assert answer.headers["location"] == "/checks/mine-search?saved=yes"
    body = references.load_definition(pages.world.store, "check", "mine-search").body
    assert body["rules"] == []  # the same check as one that names no rules in a file or by REST
    assert body["schedule"]["every"] == "5m"
    assert pages.world.count("runs") == {"runs": 1}  # it was asked to run at once


@pytest.mark.parametrize(
    ("rules", "is_ticked"),
    [
        ([], True),
        ([{"kind": "regression"}], True),
        ([{"kind": "no_data", "enabled": False}], True),
        ([{"kind": "regression", "enabled": False}], False),
        ([{"kind": "regression", "enabled": False}, {"kind": "no_data", "enabled": False}], False),
        ([{"kind": "regression", "enabled": False}, {"kind": "latency", "critical": {"above": 2}}], False),
    ],
)
def test_the_form_shows_the_detector_that_a_check_has_without_rules(
    pages: Site, rules: list[dict[str, Any]], *, is_ticked: bool
) -> None:
    body = {"slug": "edited", "suite": "suite", "retriever": "search", "schedule": {"every": "5m"}, "rules": rules}
    with pages.client() as client:
        assert client.put("/v1/checks/edited", json=body).status_code == 201
        before = references.load_definition(pages.world.store, "check", "edited").body
        form = fields_of(pages.page("/checks/edited/edit"))
        assert ("rule.regression" in form) is is_ticked
        assert client.post("/checks/edited/edit", data=form).status_code == 303
        after = references.load_definition(pages.world.store, "check", "edited").body
        assert {str(rule) for rule in after["rules"]} == {str(rule) for rule in before["rules"]}


def test_a_form_without_any_rule_on_what_is_found_switches_the_detector_off(pages: Site) -> None:
    form = fields_of(pages.page("/new-check?suite=mine&retriever=search"))
    del form["rule.regression"]
    pages.client().post("/new-check", data=form)
    body = references.load_definition(pages.world.store, "check", "mine-search").body
    assert [(rule["kind"], rule["enabled"]) for rule in body["rules"]] == [("regression", False)]


def test_saving_a_check_as_it_stands_changes_nothing(pages: Site) -> None:
    rules = [
        {**COVERAGE, "open": {"bad": 1, "of": 1}},
        {"kind": "latency", "critical": {"above": "800ms"}},
        {"kind": "regression"},
        {"kind": "drop", "measure": "NDCG@10", "critical": {"by": 0.05}},
        {"kind": "threshold", "measure": "coverage", "category": "procedural", "warning": {"below": 0.5}},
        {"kind": "threshold", "measure": "degraded_share", "warning": {"above": 0.5}, "key": "many"},
    ]
    body = {
        "suite": "suite",
        "retriever": "search",
        "schedule": {"cron": "*/5 8-18 * * 1-5", "timezone": "Europe/Berlin"},
        "rules": rules,
        "hooks": ["ops"],
        "cutoffs": [1, 5, 10],
        "fetch_k": 30,
        "remind": None,
        "enabled": False,
    }
    assert pages.client().put("/v1/checks/odd", json=body).status_code == 201
    before = references.load_definition(pages.world.store, "check", "odd")
    shown = pages.page("/checks/odd/edit")
    assert pages.client().post("/checks/odd/edit", data=fields_of(shown)).headers["location"] == "/checks/odd?saved=yes"
    after = references.load_definition(pages.world.store, "check", "odd")
    assert sorted(after.body["rules"], key=str) == sorted(before.body["rules"], key=str)
    assert {**after.body, "rules": ()} == {**before.body, "rules": ()}


def test_what_is_wrong_with_a_check_is_said_at_its_field_and_nothing_is_stored(pages: Site) -> None:
    for form, field in [
        ({"suite": ""}, "suite"),
        ({"suite": "gone"}, "suite"),
        ({"retriever": ""}, "retriever"),
        ({"slug": "Not A Slug"}, "slug"),
        ({"schedule.every": "often"}, "schedule-every"),
        ({"schedule": "cron", "schedule.cron": "sometimes"}, "schedule-cron"),
        ({"k": "0"}, "k"),
        ({"fetch_k": "2"}, "fetch_k"),
        ({"cutoffs": "5, many"}, "cutoffs"),
        ({"hooks": "nobody"}, "hooks"),
        ({"remind": "never"}, "remind"),
        ({"rule.coverage": "yes", "rule.coverage.warning": "95"}, "rule-coverage-warning"),
        ({"rule.coverage": "yes"}, "rule-coverage"),
        ({"rule.latency": "yes", "rule.latency.critical": "soon"}, "rule-latency-critical"),
        ({"rules": "- {kind: nonsense}"}, "rules"),
        ({"rules": "kind: regression"}, "rules"),
        ({"rules": "- {kind: ["}, "rules"),
    ]:
        before = pages.world.dump()
        shown = sent(pages, "/new-check", 422, **{**CHECK, **form})
        assert shown.one("span", id=f"wrong-{field}").text, form
        assert pages.world.dump() == before, form


def test_what_a_file_owns_shows_its_yaml_and_where_it_is_edited(pages: Site) -> None:
    pages.world.run()
    places = {
        "/checks/watch": "/checks/watch/edit",
        "/checks/watch/canaries/ant": "/suites/suite/canaries/ant",
        "/retrievers/search": "/retrievers/search/map",
        "/suites/suite": "/suites/suite/edit",
    }
    for shown, editor in places.items():
        for scope in (Scope.READ, Scope.ADMIN):
            client = pages.signed_in(pages.key(scope))
            button = page(client.get(shown)).one("a", class_="plain", href=editor)
            assert button.text == "Edit in canaries.yaml:1"
            edited = page(client.get(editor))
            assert "Defined in canaries.yaml:1: change it there and apply." in edited.text
            assert bool(edited.all("form", class_="editor")) == (shown == "/checks/watch" and scope is Scope.ADMIN)
            assert not edited.all("button", value="save")
            written = yaml.safe_load("".join(edited.one("pre", id="yaml").pieces))
            assert written.get("suite", "suite") == "suite"
            assert [one.get("slug") or one["key"] for listed in written.values() if listed != "suite" for one in listed]


def test_a_check_of_a_file_is_written_for_the_file(pages: Site) -> None:
    shown = sent(pages, "/checks/watch/edit", **{**CHECK, "suite": "suite", "do": "yaml"})
    assert "every: 10m" in shown.one("pre", id="yaml").text
    assert "every: 10m" in [one.text for one in shown.all("mark")]
    assert not shown.all("button", value="save")
    before = pages.world.dump()
    assert "is managed by canaries.yaml:1" in sent(pages, "/checks/watch/edit", 409, **{**CHECK, "suite": "suite"}).text
    assert "is managed by canaries.yaml:1" in sent(pages, "/checks/watch/archive", 409).text
    assert pages.world.dump() == before


def test_the_yaml_of_a_check_stands_above_its_form_and_what_was_changed_is_marked(pages: Site) -> None:
    begun = pages.page("/checks/watch/edit")
    places = [one.get("id") for one in begun.elements]
    assert places.index("yaml") < places.index("f-k")
    assert not begun.all("mark")
    form = {**fields_of(begun), "schedule": "every", "schedule.every": "7m", "do": "yaml"}
    changed = page(pages.client().post("/checks/watch/edit", data=form))
    assert [one.text.strip() for one in changed.all("mark")] == ["every: 7m"]
    assert "in the place of the check in canaries.yaml:1 and apply: 1 line is new." in changed.text
    asked = yaml.safe_load("".join(pages.page("/checks/watch/edit?report=weekly").one("pre", id="yaml").pieces))
    assert asked["checks"][0]["schedule"] != {"every": "7m"}, "nothing was saved"


def test_hooks_of_a_check_keep_the_order_that_a_file_gave_them(pages: Site) -> None:
    described = canary_page([canary("ant")], hooks=["ops", "chat"])
    pages.world.apply({**described, "hooks": [{**HOOK, "slug": slug} for slug in ("ops", "chat", "alarm")]})
    begun = pages.page("/checks/watch/edit")
    form = {**fields_of(begun), "do": "yaml"}
    unchanged = page(pages.client().post("/checks/watch/edit", data={**form, "hooks": ["chat", "ops"]}))
    assert not unchanged.all("mark")
    more = page(pages.client().post("/checks/watch/edit", data={**form, "hooks": ["alarm", "chat", "ops"]}))
    assert [one.text.strip() for one in more.all("mark")] == ["- alarm"]


def test_reports_are_listed_and_begun_on_a_page_of_their_own(pages: Site) -> None:
    client = pages.client()
    assert client.post("/new-check", data={**CHECK, "slug": "api", "hooks": "ops", "do": "save"}).status_code == 303
    shown = pages.page("/reports")
    begin = "/checks/api/edit?report=weekly"
    (link,) = [one for one in shown.all("a") if one.get("href").startswith(begin)]
    assert link.text == "Add a weekly report of api"
    assert client.post("/checks/api/edit", data={**fields_of(pages.page(begin)), "do": "save"}).status_code == 303
    assert pages.page("/reports").one("table").text.splitlines() != shown.one("table").text.splitlines()
    report = client.get("/v1/checks/api").json()["report"]
    assert (report["cron"], report["hooks"]) == ("0 8 * * mon", ["ops"])
    (row,) = [one.text for one in pages.page("/reports").all("tr") if one.text.startswith("api")]
    assert "onday" in row
    assert "ops" in row
    assert "Change the report of api" in row
    reader = page(pages.signed_in(pages.key(Scope.READ)).get("/reports"))
    assert all(one.get("disabled") is not None for one in reader.all("button") if "report" in one.text)


def test_a_check_keeps_its_suite_until_it_is_archived(pages: Site) -> None:
    assert pages.client().post("/new-check", data={**CHECK, "slug": "short"}).status_code == 303
    refused = sent(pages, "/suites/mine/archive", 409)
    assert "is used by check short" in refused.text
    assert pages.client().post("/checks/short/archive").headers["location"] == "/"
    assert pages.client().post("/suites/mine/archive").status_code == 303


# --- importing -----------------------------------------------------------------------------------------------

CSV = "query,chunk_id,grade\nHow long are logs kept?,run_logs,3\nWho may see them?,access,1\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_an_import_shows_its_plan_before_it_changes_anything(pages: Site, encoding: str) -> None:
    before = pages.world.dump()
    upload = {"files": ("my.csv", CSV.encode(encoding), "text/csv")}
    shown = page(pages.client().post("/import", data={"format": "csv", "suite": "mine", "do": "plan"}, files=upload))
    assert "2 changes" in shown.one("h2", id="plan").text
    assert "is thin" in shown.text
    assert pages.world.dump() == before
    since = {"pasted": "query,chunk_id\nOther?,x\n", "suite": "other", "format": "trec", "do": "apply"}
    answer = pages.client().post("/import", data={**fields_of(shown), **since})  # what was planned, nothing typed since
    assert answer.headers["location"] == "/suites/mine?saved=imported"
    assert len(references.load_canaries(pages.world.store, "mine")) == 2
    again = sent(pages, "/import", format="csv", suite="mine", pasted=CSV, do="plan")
    assert "No changes" in again.text
    unseen = sent(pages, "/import", 422, format="csv", suite="mine", pasted=CSV, do="apply")
    assert "show the changes first" in unseen.text


def test_an_import_shows_the_query_of_each_canary_beside_its_key(pages: Site) -> None:
    shown = sent(pages, "/import", format="csv", suite="mine", pasted=CSV, do="plan")
    rows = [one.text for one in shown.all("tr") if "canary mine/" in one.text]
    assert len(rows) == 2
    assert "How long are logs kept?" in rows[0]
    assert "Who may see them?" in rows[1]
    assert ["run_logs" in row for row in rows] == [True, False]
    assert ["access" in row for row in rows] == [False, True]


ARTICLES = "question,article,note\nHow long are logs kept?,run_logs,old\nWho may see them?,access,\n"


def test_an_import_asks_what_unknown_columns_are_and_keeps_the_file(pages: Site) -> None:
    upload = {"files": ("my.csv", ARTICLES.encode(), "text/csv")}
    form = {"format": "csv", "suite": "mine", "do": "plan"}
    refused = page(pages.client().post("/import", data=form, files=upload), 422)
    assert refused.one("div", role="alert").text == "One more question: What are `article`, `note`? Choose below."
    assert "Known by their names: query (or question); id (or chunk_id)," in refused.one("fieldset", id="columns").text
    assert refused.one("h2", id="files-title").text == "Uploaded files"
    labels = [one.text for one in refused.all("label") if one.get("for").startswith("f-column-")]
    assert labels == ["question", "article", "note"]
    assert [chosen(refused, f"column[{place}]") for place in range(3)] == ["question=query", "", ""]
    said = {**fields_of(refused), "column[1]": "article=document", "column[2]": "note=ignore"}
    shown = page(pages.client().post("/import", data=said))
    assert "document run_logs" in shown.one("tbody").text
    again = page(pages.client().post("/import", data={**fields_of(shown), "column[1]": "article=id"}))
    assert "id run_logs" in again.one("tbody").text
    since = {"column[1]": "article=text", "do": "apply"}
    answer = pages.client().post("/import", data={**fields_of(again), **since})  # what was planned
    assert answer.headers["location"] == "/suites/mine?saved=imported"
    stored = references.load_canaries(pages.world.store, "mine")
    assert [[chunk["id"] for chunk in one.body["expected_chunks"]] for one in stored] == [["run_logs"], ["access"]]


def test_an_import_asks_what_one_unknown_column_of_a_pasted_text_is(pages: Site) -> None:
    refused = sent(pages, "/import", 422, format="csv", suite="mine", pasted="question,article\nx,a\n", do="plan")
    assert refused.one("div", role="alert").text == "One more question: What is `article`? Choose below."
    assert refused.one("h2", id="files-title").text == "Files"


def test_an_import_keeps_its_files_on_an_error_and_takes_them_without_an_upload(pages: Site) -> None:
    upload = {"files": ("my.csv", CSV.encode(), "text/csv")}
    form = {"format": "csv", "suite": "", "as_documents": "yes", "do": "plan"}
    refused = page(pages.client().post("/import", data=form, files=upload), 422)
    assert "the name of the suite is missing" in refused.one("div", role="alert").text
    assert "my.csv (83 bytes)" in refused.one("div", id="kept").text
    assert fields_of(refused)["as_documents"] == "yes"
    browser = {name: value.replace("\n", "\r\n") for name, value in fields_of(refused).items()}  # as forms are sent
    again = page(pages.client().post("/import", data={**browser, "suite": "mine", "do": "plan"}))
    assert "my.csv (83 bytes)" in again.one("div", id="kept").text
    assert "2 changes" in again.one("h2", id="plan").text
    other = page(pages.client().post("/import", data={**fields_of(again), "suite": "second", "do": "plan"}))
    assert "canary second/" in other.text  # another name, the same files
    answer = pages.client().post("/import", data={**fields_of(other), "do": "apply"})
    assert answer.headers["location"] == "/suites/second?saved=imported"
    dropped = {**fields_of(refused), "suite": "mine", "drop": "yes", "do": "plan"}
    assert "choose a file" in page(pages.client().post("/import", data=dropped), 422).text


def test_a_file_that_cannot_be_read_does_not_cost_the_others_of_an_import(pages: Site) -> None:
    uploads = [("files", ("my.csv", CSV.encode(), "text/csv")), ("files", ("bad.csv", b"\xff\xfe\x00", "text/csv"))]
    form = {"format": "csv", "suite": "mine", "do": "plan"}
    refused = page(pages.client().post("/import", data=form, files=uploads), 422)
    assert "'bad.csv' is not UTF-8 text" in refused.one("div", role="alert").text
    assert fields_of(refused)["file[0].name"] == "my.csv"
    assert fields_of(refused)["file[0].text"] == CSV


def test_a_refused_import_carries_no_more_than_5_mb(pages: Site) -> None:
    row = "query,chunk_id\n" + "x" * 3_000_000 + ",a\n"
    uploads = [("files", (f"{name}.csv", row.encode(), "text/csv")) for name in "abc"]
    refused = page(pages.client().post("/import", data={"format": "csv", "do": "plan"}, files=uploads), 422)
    assert [one.get("value") for one in refused.all("input", type="hidden") if "file[" in one.get("name")] == ["a.csv"]


def test_a_canary_file_is_imported_with_what_it_holds(pages: Site) -> None:
    text = "suite: pasted\ncanaries:\n  - {key: a, query: What?, expected_chunks: [c]}\n"
    shown = sent(pages, "/import", format="coalmine", pasted=text, do="plan")
    assert "suite pasted" in shown.one("tbody").text
    assert sent(pages, "/import", 422, format="coalmine", pasted="suite: [", do="plan").one("div", role="alert").text
    owned = text.replace("pasted", "suite").replace("key: a", "key: ant")
    planned = sent(pages, "/import", format="coalmine", pasted=owned, do="plan")
    assert "canaries.yaml:1" in planned.one("tbody").text  # part of the plan, which names the file
    refused = page(pages.client().post("/import", data={**fields_of(planned), "do": "apply"}), 409)
    assert "is managed by canaries.yaml:1" in refused.text


def test_what_cannot_be_imported_is_said(pages: Site) -> None:
    for form, files, said in [
        ({"format": "csv", "suite": "mine"}, None, "choose a file"),
        ({"format": "word", "suite": "mine", "pasted": CSV}, None, "is one of coalmine"),
        ({"format": "csv", "pasted": CSV}, None, "the name of the suite is missing"),
        ({"format": "csv", "suite": "mine"}, {"files": ("a.csv", b"\xff\xfe\x00", "text/csv")}, "is not UTF-8"),
        ({"format": "csv", "suite": "mine", "pasted": "nothing\nuseful\n"}, None, "What is `nothing`?"),
        ({"format": "trec", "suite": "mine", "pasted": HOSTILE}, None, ":"),
    ]:
        before = pages.world.dump()
        shown = page(pages.client().post("/import", data={**form, "do": "plan"}, files=files), 422)
        assert said in shown.one("div", role="alert").text, form
        assert not shown.all("img", src="x"), form
        assert pages.world.dump() == before, form


# --- who may, and what is hostile ----------------------------------------------------------------------------


def test_readers_look_and_press_nothing(pages: Site) -> None:
    assert pages.client().post(ADD, data={"query": "What?", "do": "save"}).status_code == 303
    client = pages.signed_in(pages.key(Scope.READ))
    token = csrf(client)
    before = pages.world.dump()
    for path in ("/suites", ADD, "/suites/mine", "/suites/mine/canaries/what", "/new-check", "/checks/watch/edit"):
        shown = page(client.get(path))
        buttons = [one for one in shown.all("button") if one.get("class") != "plain" and "hidden" not in one.attributes]
        assert all("disabled" in one.attributes for one in buttons), path
    for path in ("/suites", ADD, "/suites/mine/canaries/what", "/new-check", "/import", "/suites/mine/archive"):
        form = {"slug": "x", "query": "y", "do": "save", **CHECK}
        assert client.post(path, data={**form, "csrf": token}).status_code == 403
    assert pages.world.dump() == before
    writer = pages.signed_in(pages.key(Scope.WRITE))
    assert writer.post("/import", data={"format": "csv", "pasted": CSV, "csrf": csrf(writer)}).status_code == 403
    assert writer.post(ADD, data={"query": "Forged?", "do": "save"}).status_code == 403


def test_hostile_texts_are_shown_and_do_nothing(pages: Site) -> None:
    pages.probe = FakeProbe(otherwise=lambda _: answered(hits(HOSTILE, texts={HOSTILE: HOSTILE})))
    form = {"query": HOSTILE, "tags": HOSTILE[:60].replace(",", ""), "retriever": "search"}
    form |= {"expected_chunks[0].id": HOSTILE, "forbidden_chunks[0].text": HOSTILE * 2}
    shown = [sent(pages, ADD, do="find", **form)]
    assert pages.client().post(ADD, data={**form, "do": "save", "key": "bad"}).status_code == 303
    shown += [pages.page(path) for path in ("/suites/mine", "/suites/mine/canaries/bad", "/suites")]
    shown.append(sent(pages, "/new-check", 422, **CHECK | {"slug": HOSTILE, "rules": HOSTILE}))
    shown.append(sent(pages, "/import", 422, format="csv", suite=HOSTILE, pasted=HOSTILE))
    for one in shown:
        assert not one.all("img", src="x")
        assert all(script.get("src").startswith("/static/") for script in one.all("script"))
    assert HOSTILE in shown[1].text


def test_a_form_made_to_be_a_burden_is_bounded(pages: Site) -> None:
    rows = {f"expected_chunks[{place}].id": f"c{place}" for place in range(999)}
    shown = sent(pages, ADD, query="Many?", do="keep", **rows)
    assert len([one for one in shown.all("input") if one.get("name").endswith(".id")]) < 1_100
    too_many = {f"x{place}": "y" for place in range(2_000)}
    assert pages.client().post(ADD, data=too_many).status_code == 400
    large = json.dumps(["x" * 100] * 60_000)
    assert pages.client().post(ADD, data={"query": large, "do": "save"}).status_code in {400, 413, 422}


def test_a_query_added_over_rest_and_on_the_page_is_one_canary(pages: Site) -> None:
    form = {"query": "What year?", "expected_chunks[0].id": "c1", "category": "simple_factual", "do": "save"}
    assert pages.client().post("/suites/mine/add", data=form, follow_redirects=False).status_code == 303
    posted = (
        pages.client().post("/v1/suites/mine/canaries", json={"query": "What year?", "expected_chunks": ["c1"]}).json()
    )
    assert (posted["key"], posted["changed"]) == ("what-year", 0)
    again = pages.client().post("/suites/mine/add", data=form)
    assert again.status_code == 409
    assert "what-year" in page(again, 409).one("div", role="alert").text
    other = pages.client().post("/suites/mine/add", data={**form, "query": "What year!"}, follow_redirects=False)
    assert other.status_code == 303
    keys = [row.key for row in references.load_canaries(pages.world.store, "mine")]
    assert len([key for key in keys if key.startswith("what-year-")]) == 1
