"""The pages of retrievers: the list, and trying one, with and without scripts, by hand of friend and foe."""

import json
from textwrap import indent
from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.values import Answer, Exchange, Outcome, replace
from app.base.web.pages import STATIC
from app.catalog.documents.canary_files import read_canary_files, read_secret
from tests.support.fakes import FakeProbe, answered, failed, hits
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE, Bench, Site, csrf, page, site
from tests.support.world import canary
from tests.support.world import page as canary_page

QUERY = "How long are logs kept?"
PROSE = "Logs are kept for thirty days in the hot tier and for a year in the archive."
TRY = "/retrievers/search/try"
VENDORED = {"/static/vendor/htmx/htmx.min.js"}
OTHER = {"data": [{"key": f"c{at}", "closeness": 0.9 - at / 4, "body": f"{PROSE} Part {at}."} for at in range(3)]}


def exchanged(answer: Answer, body: str, **more: Any) -> Answer:
    """Add what went over the wire."""
    shown: dict[str, Any] = {
        "method": "POST",
        "url": "http://retriever.test/search",
        "request_headers": {"authorization": "***"},
        "request_body": json.dumps({"q": QUERY}),
        "http_status": 200,
        "response_headers": {"x-served-by": "node-1"},
        "response_body": body,
        "response_bytes": len(body),
    }
    return replace(answer, exchange=Exchange(**{**shown, **more}))


GOOD = exchanged(answered(hits("c1", "c2", texts={"c1": PROSE}), index_version="v7"), '{"hits": "..."}')
BAD = exchanged(failed(Outcome.MALFORMED, http_status=200, detail="hits: missing"), json.dumps(OTHER))


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check and its retriever, which answers."""
    made = Bench(world=site(sqlite_store).world, probe=FakeProbe(otherwise=lambda _: GOOD))
    made.world.apply(canary_page([canary("a")]))
    return made


def asked(pages: Site, status: int = 200, **form: str) -> Page:
    """Send the form as somebody on the open service."""
    return page(pages.client().post(TRY, data={"query": QUERY, "k": "5", **form}), status)


def answering(pages: Site, answer: Answer) -> None:
    """Make the retriever answer like this from now on."""
    pages.probe = FakeProbe(otherwise=lambda _: answer)


def sent_by(form_page: Page, place: int) -> dict[str, str]:
    """Give what the n-th form of a page sends when its fields are left as they are; the search is none of its own."""
    source = form_page.elements
    forms = [one for one in form_page.all("form") if one.get("action") != "/search"]
    start = source.index(forms[place])
    end = source.index(forms[place + 1]) if place + 1 < len(forms) else len(source)
    return {one.get("name"): one.get("value") for one in source[start:end] if one.tag == "input" and one.get("name")}


def test_every_retriever_is_listed_with_who_asks_it(pages: Site) -> None:
    shown = pages.page("/retrievers")
    row = shown.one("tbody").text
    assert "search" in row
    assert "watch" in row
    assert TRY in {link.get("href") for link in shown.all("a")}


def test_without_retrievers_the_page_says_how_to_begin(sqlite_store: Store) -> None:
    assert "coalmine try canaries/" in site(sqlite_store).page("/retrievers").text


def test_every_page_leads_to_the_retrievers_and_a_check_to_its_own(pages: Site) -> None:
    for path in ("/", "/checks/watch", "/alerts", TRY):
        assert "/retrievers" in {link.get("href") for link in pages.page(path).all("a")}
    assert TRY in {link.get("href") for link in pages.page("/checks/watch").all("a")}


def test_the_form_shows_the_mapping_in_force_and_a_query_of_the_address(pages: Site) -> None:
    shown = pages.page(f"{TRY}?query=What%20now%3F")
    assert shown.one("input", name="query").get("value") == "What now?"
    assert shown.one("input", name="k").get("value") == "10"
    assert shown.one("input", name="hits").get("value") == "hits"
    assert not shown.all("section")


def test_request_answer_and_hits_are_shown(pages: Site) -> None:
    shown = asked(pages)
    assert shown.one("h2", id="outcome").text == "2 hits"
    for told in ("HTTP 200", "v7", "POST http://retriever.test/search", "x-served-by", "node-1", "0.900", PROSE):
        assert told in shown.text
    rows = shown.one("table", class_="ranking").text
    assert "c1" in rows
    assert "no text" in rows
    assert ["".join(one.pieces) for one in shown.all("pre", class_="raw")] == [
        json.dumps({"q": QUERY}, indent=2),
        '{\n  "hits": "..."\n}',
    ]
    assert isinstance(pages.probe, FakeProbe)
    assert [(asking.k, asking.shows) for asking in pages.probe.askings] == [(5, True)]


def test_a_mapping_that_finds_nothing_gets_others_to_try_and_to_paste(pages: Site) -> None:
    answering(pages, BAD)
    shown = asked(pages)
    assert "hits: missing" in shown.one("section", class_="headline").text
    suggested = shown.one("article", class_="suggestion")
    for told in ("3 hits", "data", "named key, different in each of 3 hits", "long natural text"):
        assert told in suggested.text
    yaml = "".join(shown.one("pre", class_="once").pieces)
    file = "retrievers:\n  - slug: pasted\n    url: http://127.0.0.1:1\n" + indent(yaml, "    ")
    (pasted,) = read_canary_files([("pasted.yaml", file)], {}, read_secret).retrievers
    assert (pasted.response.hits, pasted.response.id, pasted.response.text) == ("data", "key", "body")


def test_a_suggestion_without_a_text_says_so(pages: Site) -> None:
    bare = {"data": [{"key": key, "score": 0.5} for key in "abc"]}
    shown = asked(pages, answer=json.dumps(bare), suggest="yes")
    assert "no text was recognised" in shown.one("article", class_="suggestion").text


def test_a_suggested_mapping_is_tried_by_its_button_and_then_kept_by_hand(pages: Site) -> None:
    """The form of a suggestion carries everything; the pasted answer stands in for a retriever that would answer it."""
    answering(pages, BAD)
    form = sent_by(asked(pages, answer=json.dumps(OTHER)), 1)
    assert (form["hits"], form["id"], form["query"]) == ("data", "key", QUERY)
    shown = page(pages.client().post(TRY, data=form))
    assert shown.one("h2", id="outcome").text == "3 hits"
    assert "hits: data" in shown.one("pre", id="kept").text
    assert shown.one("input", name="hits").get("value") == "data"
    assert isinstance(pages.probe, FakeProbe)
    assert pages.probe.asked == []


def test_the_mapping_in_force_is_nothing_to_keep(pages: Site) -> None:
    answer = json.dumps({"hits": [{"id": "a", "score": 0.5, "text": PROSE}]})
    form = {**sent_by(pages.page(TRY), 0), "query": QUERY, "k": "3", "answer": answer}
    form.pop("suggest", None)
    shown = page(pages.client().post(TRY, data=form))
    assert shown.one("h2", id="outcome").text == "1 hit"
    assert not shown.all("pre", id="kept")
    assert not shown.all("article", class_="suggestion")


def test_suggestions_come_on_request(pages: Site) -> None:
    answer = json.dumps({"hits": [{"id": "a", "score": 0.5, "text": PROSE}]})
    assert "1 hit" in asked(pages, answer=answer, suggest="yes").one("article", class_="suggestion").text


def test_an_answer_that_holds_nothing_is_told_so(pages: Site) -> None:
    shown = asked(pages, answer='{"count": 0}')
    assert "no list of hits was recognised in this answer" in shown.text
    assert "The list of hits is empty" in asked(pages, answer='{"hits": []}').text


def test_a_field_that_no_hit_has_is_told_with_a_mapping_that_finds_it(pages: Site) -> None:
    answer = json.dumps({"hits": [{"id": "a", "score": 0.5, "text": PROSE}]})
    shown = asked(pages, answer=answer, hits="hits", id="id", score="score", text="body")
    assert "mapped `text: body` was found in 0 of 1 hit" in shown.one("section", class_="headline").text
    assert "1 hit" in shown.one("article", class_="suggestion").text


def test_a_failure_is_said_as_probes_say_it(pages: Site) -> None:
    answering(pages, failed(Outcome.TIMEOUT, detail="no answer within 10 s"))
    told = asked(pages).one("section", class_="headline").text
    assert "timeout" in told
    assert "no answer within 10 s" in told


def test_what_is_wrong_is_said_beside_the_form_which_keeps_what_was_typed(pages: Site) -> None:
    for form, said in [
        ({"query": " "}, "Query: "),
        ({"k": "0"}, "Hits: "),
        ({"k": "many"}, "Hits: "),
        ({"k": "\u0664"}, "Hits: "),
        ({"k": "9" * 5000}, "Hits: "),
        ({"text": "a["}, "Text: 'a[' is not a JMESPath expression"),
        ({"id": "", "text": "", "hits": "x"}, "Response mapping: "),
        ({"scale": "celsius"}, "Scores are: "),
    ]:
        shown = asked(pages, 422, **form)
        assert said in shown.one("div", role="alert").text, form
        name, typed = next(iter(form.items()))
        if name != "scale":
            assert shown.one("input", name=name).get("value") == typed, form


def test_an_unknown_retriever_is_not_found(pages: Site) -> None:
    pages.page("/retrievers/nobody/try", 404)
    page(pages.client().post("/retrievers/nobody/try", data={"query": QUERY}), 404)


def test_hostile_texts_are_shown_and_do_nothing(pages: Site) -> None:
    body = {"hits": [{"id": HOSTILE, "score": 0.5, "text": HOSTILE * 40}], HOSTILE: [{HOSTILE: PROSE, "id": HOSTILE}]}
    for given in (json.dumps(body), json.dumps({HOSTILE: body[HOSTILE]}), HOSTILE):
        shown = asked(pages, query=HOSTILE, answer=given, hits="hits", suggest="yes")
        assert not shown.all("img", src="x")
        assert {script.get("src").partition("?")[0] for script in shown.all("script")} - VENDORED == {
            "/static/site.js",
            "/static/try.js",
        }
        assert shown.all("input", name="query")[0].get("value") == HOSTILE
    detail = exchanged(failed(Outcome.REFUSED, detail=HOSTILE), HOSTILE, url=HOSTILE, response_headers={"x": HOSTILE})
    answering(pages, detail)
    shown = asked(pages)
    assert not shown.all("img", src="x")
    assert HOSTILE in shown.text


def test_scripts_of_the_page_are_files_and_only_help(pages: Site) -> None:
    answering(pages, BAD)
    shown = asked(pages)
    button = next(one for one in shown.all("button") if "data-copies" in one.attributes)
    assert "hidden" in button.attributes
    assert shown.one("pre", id=button.get("data-copies")).text.startswith("response:")
    assert (STATIC / "try.js").exists()
    assert not [
        one for one in shown.elements if any(name.startswith("on") or name == "style" for name in one.attributes)
    ]


def test_a_reading_key_sees_the_form_and_asks_nothing(pages: Site) -> None:
    client = pages.signed_in(pages.key(Scope.READ))
    shown = page(client.get(TRY))
    assert [button.text for button in shown.all("button") if "disabled" in button.attributes] == ["Send"]
    assert client.post(TRY, data={"query": QUERY, "k": "5", "csrf": csrf(client)}).status_code == 403
    assert isinstance(pages.probe, FakeProbe)
    assert pages.probe.asked == []


def test_trying_stores_nothing(pages: Site) -> None:
    before = pages.world.dump()
    asked(pages)
    asked(pages, answer=json.dumps(OTHER), hits="data", id="key", text="body")
    assert pages.world.dump() == before
