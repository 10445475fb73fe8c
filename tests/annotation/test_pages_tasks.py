"""Pages of annotation without JavaScript: blind, resumable, and everything that follows from what people said."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from app.base.db.keys import Scope
from tests.support.api_service import Api, api, bearer

ANNOTATE = "/tasks/truth/annotate"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with a suite and a retriever."""
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


def text_of(page: str) -> str:
    """Give the words of a page without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def shown_item(page: str) -> str:
    """Give the item of an annotator's page."""
    found = re.search(r'name="item" value="(\w*)"', page)
    assert found is not None
    return found[1]


def post(service: Api, path: str, **fields: Any) -> Any:
    return service.client.post(path, data=fields, follow_redirects=True)


def begin(service: Api, name: str = "Zoe") -> str:
    """Say who annotates, and give the page that follows."""
    service.client.cookies.clear()
    return str(post(service, ANNOTATE, annotator=name).text)


def test_a_task_is_made_on_a_page(service: Api) -> None:
    fields = {"slug": "truth", "suite": "docs", "retrievers": "search", "pool": "3", "strata": "10: 2", "scale": "0-2"}
    answer = post(service, "/tasks", **fields, overlap="0.5")
    assert answer.url.path == "/tasks/truth"
    task = service.get("/v1/tasks/truth")
    assert (task["state"], task["pool"], task["overlap"]) == ("pooling", 3, 0.5)
    assert task["strata"] == [{"to": 10, "sample": 2, "rest": None}]
    assert "0 of 3 canaries pooled" in text_of(answer.text)
    again = post(service, "/tasks", **fields, overlap="0.5")
    assert again.status_code == 409
    assert "there is a task 'truth' already" in text_of(again.text).replace("&#39;", "'")


def test_what_is_wrong_is_told_and_what_was_typed_stays(service: Api) -> None:
    fields = {"slug": "truth", "suite": "docs", "retrievers": "search", "pool": "3", "strata": "2: 2", "scale": "0-2"}
    answer = post(service, "/tasks", **fields, overlap="7")
    assert answer.status_code == 422
    assert "must be above 3" in text_of(answer.text) or "must be at most 1" in text_of(answer.text)
    assert 'value="2: 2"' in answer.text


def test_an_annotator_says_its_name_and_goes_on_where_it_was(service: Api) -> None:
    service.pooled_task()
    assert "Your name" in service.client.get(ANNOTATE).text
    page = begin(service)
    assert "0 of 9 done" in text_of(page)
    first = shown_item(page)
    page = post(service, ANNOTATE, item=first, answer="1", shown="0").text
    second = shown_item(page)
    assert second != first
    assert "1 of 9 done" in text_of(page)
    assert shown_item(service.client.get(ANNOTATE).text) == second, "a reload goes on"
    back = post(service, ANNOTATE, answer="undo")
    assert shown_item(back.text) == first
    assert "0 of 9 done" in text_of(back.text)
    skipped = post(service, ANNOTATE, item=first, answer="skip").text
    assert shown_item(skipped) == second


def test_the_list_tells_how_much_of_a_task_is_graded_and_whose_it_is(service: Api) -> None:
    service.put("/v1/tasks/truth", {"suite": "docs", "retrievers": ["search"], "overlap": 1})
    assert service.client.post("/v1/tasks/truth/pool").status_code == 202
    service.make_pool("truth")
    first = shown_item(begin(service, "Ann"))
    second = shown_item(post(service, ANNOTATE, item=first, answer="1").text)
    post(service, ANNOTATE, item=second, answer="skip")
    begin(service, "Bob")
    post(service, ANNOTATE, item=first, answer="0")
    items = service.get("/v1/tasks/truth")["items"]
    page = service.client.get("/tasks").text
    assert f"1 of {items} " in text_of(page), "twice graded is graded, skipped is not"
    assert f'<progress aria-label="Graded of truth" value="1" max="{items}">' in page
    assert "truth by anyone on this machine" in text_of(page)


def test_who_grades_is_told_what_is_relevant(service: Api) -> None:
    service.pooled_task()
    told = text_of(begin(service))
    assert "What is relevant? 0 Not relevant : it does not help" in told
    assert told.count("2 Highly relevant : it answers the question") == 1
    assert "3 Perfect" not in told


def test_the_link_of_an_annotator_whose_key_is_rotated_leads_to_its_task(service: Api) -> None:
    service.pooled_task()
    service.put("/v1/tasks/other", {"suite": "docs", "retrievers": ["search"]})
    assert service.client.post("/v1/tasks/other/pool").status_code == 202
    begun = begin(service, "Ann")
    post(service, ANNOTATE, item=shown_item(begun), answer="1", shown="0")
    assert f"/keys?scope=annotate&amp;next={ANNOTATE}" in service.client.get("/tasks/truth").text
    admin = bearer(service.key(Scope.ADMIN))
    for name in ("Ann", "Bob"):
        made = service.client.post("/keys", data={"name": name, "scope": "annotate"}, headers=admin).text
        assert "next=%2Fannotate#key=" in unescape(made)
    prefixes = dict(re.findall(r'<th scope="row">(\w+).*?/keys/(\w+)/successor', made, re.DOTALL))
    led = {name: "/tasks/truth/annotate" if name == "Ann" else "/annotate" for name in ("Ann", "Bob")}
    for name, path in led.items():
        rotated = service.client.post(f"/keys/{prefixes[name]}/successor", headers=admin).text
        assert f"{urlencode({'next': path})}#key=" in unescape(rotated)


def test_everything_can_be_done_without_scripts(service: Api) -> None:
    service.pooled_task()
    page, seen = begin(service), set()
    while item := shown_item(page):
        seen.add(item)
        page = post(service, ANNOTATE, item=item, answer="2").text
    assert len(seen) == 9
    assert "Nothing left to annotate" in page
    assert post(service, ANNOTATE, answer="undo").text.count('name="item" value=""') == 0


def test_a_page_is_for_each_another_chunk_and_says_when_others_have_the_rest(service: Api) -> None:
    service.put("/v1/tasks/truth", {"suite": "docs", "retrievers": ["search"], "overlap": 0})
    assert service.client.post("/v1/tasks/truth/pool").status_code == 202
    service.make_pool("truth")
    mine = shown_item(begin(service, "Ann"))
    page, seen = begin(service, "Bob"), set()
    while item := shown_item(page):
        seen.add(item)
        page = post(service, ANNOTATE, item=item, answer="1").text
    assert len(seen) == 7
    assert mine not in seen
    assert '<div id="with-others">' in page
    assert '<div id="all-done" hidden>' in page
    progress = service.get("/v1/tasks/truth/next", annotator="Bob")["progress"]
    assert (progress["left"], progress["with_others"]) == (2, 2)
    assert shown_item(begin(service, "Ann")) == mine


def test_neither_page_nor_address_tells_where_a_chunk_comes_from(service: Api) -> None:
    service.pooled_task()
    answer = post(service, ANNOTATE, annotator="Zoe")
    main = answer.text.partition('id="main"')[2].partition("</main>")[0]
    text = main.replace("text of c", "")  # which the retriever of these tests says
    for word in ("rank", "score", "stratum", "search", "strata", "retriever", ">c1", "c2<"):
        assert word not in text.lower(), word
    assert re.fullmatch(r"/tasks/truth/annotate", str(answer.url.path))
    item = shown_item(answer.text)
    assert re.fullmatch(r"[0-9a-f]{20}", item)


def test_tokens_of_items_are_in_no_order_of_ranks(service: Api) -> None:
    service.docs(canaries=[{"key": f"q{number}", "query": f"Question {number}?"} for number in range(30)])
    service.pooled_task_of_any("truth")
    order = [item.token for item in service.items("truth")]
    ranks = {item.token: item.ranks["search"] for item in service.items("truth")}
    tokens = sorted(order)
    upper = sum(ranks[token] == 1 for token in tokens[: len(tokens) // 2])
    assert 5 <= upper <= 25


def test_a_grade_beyond_the_scale_is_refused(service: Api) -> None:
    service.pooled_task()
    item = shown_item(begin(service))
    assert post(service, ANNOTATE, item=item, answer="3").status_code == 422
    assert post(service, ANNOTATE, item=item, answer="x").status_code == 422
    assert post(service, ANNOTATE, item="0" * 20, answer="1").status_code == 404


def test_a_key_of_scope_annotate_sees_its_pages_alone(service: Api) -> None:
    service.pooled_task()
    service.key(Scope.ADMIN)
    key = service.key(Scope.ANNOTATE)
    service.client.cookies.clear()
    asked = service.client.get(ANNOTATE, headers={"accept": "text/html"}, follow_redirects=True).text
    assert "A key with scope annotate is enough" in text_of(asked)
    signed = service.client.post("/login", data={"key": key}, follow_redirects=True)
    assert signed.url.path == "/annotate"
    assert '<a href="/tasks/truth/annotate">truth</a>' in signed.text
    page = service.client.get(ANNOTATE).text
    assert "a annotate key" in text_of(page)
    assert '<a href="/alerts"' not in page
    for path in ("/", "/tasks", "/tasks/truth", "/suites", "/docs", "/tasks/truth/annotations.csv"):
        assert service.client.get(path).status_code == 403, path
    refused = service.client.get("/tasks/truth", headers={"accept": "text/html"}).text
    assert '<a href="/annotate">Go to what you can annotate</a>' in refused
    assert re.findall(r'href="/[a-z]*"', refused) == ['href="/annotate"'] * 3, "nothing that refuses is offered"
    assert 'action="/logout"' in refused
    out = re.search(r'name="csrf" value="([^"]+)"', page)
    assert out is not None
    left = service.client.post("/logout", data={"csrf": out[1]}, follow_redirects=True)
    assert left.url.path == "/login"


def test_what_one_person_graded_is_not_called_agreed(service: Api) -> None:
    service.pooled_task_of_any("truth")
    item = service.get("/v1/tasks/truth/next", annotator="Ann")["item"]
    while item is not None:
        body = {"grade": 1, "annotator": "Ann", "seconds": 3}
        item = service.put(f"/v1/tasks/truth/items/{item['id']}/annotation", body)["item"]
    both = service.get("/v1/tasks/truth/next", annotator="Bob")["item"]["id"]
    service.put(f"/v1/tasks/truth/items/{both}/annotation", {"grade": 1, "annotator": "Bob", "seconds": 3})
    assert "Graded once 8 Agreed 1 Disputed 0" in text_of(service.client.get("/tasks/truth").text)


def test_a_task_shows_agreement_disagreements_and_what_adopting_does(service: Api) -> None:
    service.pooled_task()
    grades = {"Ann": "0", "Bob": "2"}
    for name, grade in grades.items():
        page = begin(service, name)
        while item := shown_item(page):
            page = post(service, ANNOTATE, item=item, answer=grade).text
    shown = text_of(service.client.get("/tasks/truth").text)
    assert "Krippendorff" in shown
    assert "Disputed 7" in shown or "Disputed 6" in shown
    disputed = service.get("/v1/tasks/truth/disagreements")["items"]
    for one in disputed:
        answer = post(service, "/tasks/truth/adjudicate", item=one["id"], grade="1")
        assert answer.status_code == 200
    done = post(service, "/tasks/truth/adopt")
    assert "2 canaries changed" in text_of(done.text)
    assert "Re-score docs" in text_of(done.text)
    assert "Nothing to adopt yet" in text_of(service.client.get("/tasks/truth").text)
    table = service.client.get("/tasks/truth/annotations.csv")
    assert table.headers["content-disposition"] == 'attachment; filename="truth.csv"'
    assert post(service, "/tasks/truth/archive").url.path == "/tasks"
    assert service.client.get("/tasks/truth").status_code == 404


def test_who_may_only_read_changes_nothing(service: Api) -> None:
    service.pooled_task()
    headers = bearer(service.key(Scope.READ))
    service.client.cookies.clear()
    page = service.client.get("/tasks/truth", headers=headers).text
    assert re.search(r'<button class="danger" disabled', page)
    for path in ("/tasks/truth/adopt", "/tasks/truth/pool", ANNOTATE):
        assert service.client.post(path, headers=headers).status_code == 403


def test_hostile_queries_are_harmless(service: Api) -> None:
    hostile = ["<script>alert(1)</script>", "=cmd()|' /C calc'!A0", "{{ 7 * 7 }}"]
    canaries = [{"key": f"q{place}", "query": query} for place, query in enumerate(hostile)]
    service.put("/v1/suites/docs", {"canaries": canaries})
    service.pooled_task_of_any("truth")
    page, seen = begin(service), set()
    while item := shown_item(page):
        seen |= {query for query in hostile if query in unescape(page)}
        assert "<script>alert" not in page
        assert "49" not in text_of(page).partition("Not relevant")[0]
        page = post(service, ANNOTATE, item=item, answer="1").text
    assert seen == set(hostile)
    begin(service, "=cmd()")
    post(service, ANNOTATE, item=shown_item(service.client.get(ANNOTATE).text), answer="0")
    assert not re.search(r"(^|,)=", service.client.get("/tasks/truth/annotations.csv").text, re.MULTILINE)
