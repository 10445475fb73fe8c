"""The page of a shadow: figures, picture, what people prefer, and its forms; hostile queries and texts stay text."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.annotation.service import tasks
from app.base.db.keys import Scope
from app.experiments.pages import HEIGHT, WIDTH, draw_overlap
from app.experiments.service.shadows import draw_pairs
from app.experiments.views import ShadowHour
from tests.support.api_service import Api, api, bearer
from tests.support.html_pages import Page

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with a shadow that has hostile pairs."""
    with api(tmp_path) as opened:
        opened.docs()
        opened.put("/v1/shadows/hybrid", {"candidate": "search"})
        pairs = [
            {
                "query": f"{HOSTILE} {number}",
                "a": [{"id": "a", "text": f"users got {HOSTILE}"}],
                "b": [{"id": "b", "text": f"the candidate gave {HOSTILE}"}],
                "a_seconds": 0.01,
                "b_seconds": 0.25,
            }
            for number in range(3)
        ]
        pairs.append({"query": "fees", "a": ["a"], "b_failed": True})
        assert opened.client.post("/v1/shadows/hybrid/pairs", json=pairs).is_success
        yield opened


def text_of(service: Api, path: str) -> str:
    answer = service.client.get(path)
    assert answer.status_code == 200
    assert HOSTILE not in answer.text
    return Page(answer.text).text


def compare(service: Api, **fields: str) -> Any:
    sent = {"task": "sides", "suite": "docs", "count": "2", "overlap": "0", **fields}
    return service.client.post("/shadows/hybrid/tasks", data=sent, follow_redirects=False)


def drawn(service: Api) -> None:
    assert compare(service).headers["location"] == "/tasks/sides"
    store = service.service.store
    with store.read() as connection:
        task = tasks.find_task(connection, "sides")
    draw_pairs(store, task.id, now=datetime.now(UTC))


def test_a_shadow_shows_its_figures_and_the_queries_that_differ(service: Api) -> None:
    text = text_of(service, "/shadows/hybrid")
    assert "Candidate failed 1 25.0 %" in " ".join(text.split())
    assert "Chunks in both, of those in either 0.000" in " ".join(text.split()), "Jaccard's index, not a share of ten"
    assert "Candidate empty, where it answered 0" in " ".join(text.split())
    assert "250 ms" in text
    assert "queries wait and are asked later, so its failures and latency are not those of live traffic" in text
    assert f"{HOSTILE} 0" in text
    assert "New comparison of 3 pairs" in text
    assert service.client.get("/shadows/nobody").status_code == 404


def test_a_shadow_without_pairs_says_how_to_send_them(service: Api) -> None:
    service.put("/v1/shadows/new", {"candidate": "search"})
    text = text_of(service, "/shadows/new")
    assert "/v1/shadows/new/pairs" in Page(service.client.get("/shadows/new").text).one("pre", id="with-curl").text
    assert "No pairs are kept yet" in text


def test_pairs_become_a_task_that_people_compare_and_the_shadow_tells_the_share(service: Api) -> None:
    drawn(service)
    assert "Pairs 2" in " ".join(text_of(service, "/tasks/sides").split())
    service.client.post("/tasks/sides/annotate", data={"annotator": "Ann"})
    shown = service.client.get("/tasks/sides/annotate").text
    assert HOSTILE not in shown
    page = " ".join(Page(shown).text.split())
    assert "Which hits answer the query better?" in page
    assert "Left is better" in page
    found = service.get("/v1/tasks/sides/next", annotator="Ann")
    better = 2 if found["item"]["pair"]["right"][0].startswith("the candidate") else 0
    for grade in (better, 1):
        path = f"/v1/tasks/sides/items/{found['item']['id']}/annotation"
        found = service.put(path, {"grade": grade, "annotator": "Ann", "seconds": 3})
    assert found["item"] is None
    row = " ".join(text_of(service, "/shadows/hybrid").split())
    assert "sides 2 1 0 1 0 1.000 0.025 to 1.000" in row


def test_the_forms_say_what_is_wrong(service: Api) -> None:
    answer = compare(service, suite="nothing")
    assert answer.status_code == 422
    assert "there is no suite" in Page(answer.text).text
    drawn(service)
    assert compare(service).status_code == 409
    wrong = service.client.post("/shadows/hybrid", data={"candidate": "search", "share": "much"})
    assert (wrong.status_code, 'value="much"' in wrong.text) == (422, True)
    changed = service.client.post(
        "/shadows/hybrid", data={"candidate": "search", "share": "0.5", "k": "3", "keep": "1"}
    )
    assert changed.status_code == 200
    found = service.get("/v1/shadows/hybrid")
    assert (found["share"], found["k"], found["keep"], found["kept"]) == (0.5, 3, 1, 1)
    assert (
        service.client.post("/shadows/hybrid", data={"candidate": "search", "share": "", "k": "3"}).status_code == 422
    )
    nothing = {"candidate": "search", "share": "0", "k": "3", "keep": "0"}
    assert service.client.post("/shadows/hybrid", data=nothing).status_code == 200
    shown = service.client.get("/shadows/hybrid").text
    assert 'name="keep" value="0"' in shown, "saving the page anew keeps no queries still"
    assert 'name="share" value="0.0"' in shown
    assert service.client.post("/shadows/hybrid/delete", follow_redirects=False).headers["location"] == "/experiments"
    assert service.client.get("/shadows/hybrid").status_code == 404


def test_a_key_that_may_only_read_cannot_send_the_forms(service: Api) -> None:
    headers = bearer(service.key(Scope.READ))
    shown = service.client.get("/shadows/hybrid", headers=headers).text
    assert "This key may only read" in shown
    assert "alert(1)" not in shown, "queries of users are for those who may write"
    assert service.client.get("/v1/shadows/hybrid/pairs", headers=headers).status_code == 403
    writes = bearer(service.key(Scope.WRITE))
    found = service.client.get("/v1/shadows/hybrid/pairs", params={"limit": 2}, headers=writes).json()
    assert len(found["items"]) == 2
    assert service.client.post("/shadows/hybrid", data={"share": "1"}, headers=headers).status_code == 403


def test_a_key_that_may_only_read_sees_no_query_of_disputed_pairs(service: Api) -> None:
    assert compare(service, overlap="1").status_code == 303
    store = service.service.store
    with store.read() as connection:
        task = tasks.find_task(connection, "sides")
    draw_pairs(store, task.id, now=datetime.now(UTC))
    item = service.get("/v1/tasks/sides/next", annotator="Ann")["item"]
    for annotator, grade in (("Ann", 0), ("Bob", 2)):
        service.put(f"/v1/tasks/sides/items/{item['id']}/annotation", {"grade": grade, "annotator": annotator})
    headers = {scope: bearer(service.key(scope)) for scope in (Scope.READ, Scope.WRITE)}
    shown = {}
    for scope, sent in headers.items():
        listed = service.client.get("/v1/tasks/sides/disagreements", headers=sent)
        page = service.client.get("/tasks/sides", headers=sent)
        assert (listed.status_code, page.status_code, len(listed.json()["items"])) == (200, 200, 1)
        shown[scope] = "alert(1)" in listed.text + page.text
    assert shown == {Scope.READ: False, Scope.WRITE: True}


def hours(*overlaps: float | None) -> Sequence[ShadowHour]:
    return [
        {
            "at": f"2026-11-26T{hour:02}:00:00Z",
            "rbo": one,
            "pairs": 1,
            "failed": 0,
            "dropped": 0,
            "jaccard": None,
            "a_empty": 0,
            "b_empty": 0,
            "a_seconds": None,
            "b_seconds": None,
        }
        for hour, one in enumerate(overlaps)
    ]


def test_hours_without_an_answer_are_left_out_of_the_picture() -> None:
    chart = draw_overlap(hours(1.0, None, 0.25, 0.5))
    assert chart is not None
    assert chart.line == f"0.0,0.0 {WIDTH * 2 / 3:.1f},{HEIGHT * 0.75:.1f} {WIDTH:.1f},{HEIGHT / 2:.1f}"
    assert chart.label == "Rank-biased overlap over 3 hours: 0.250 to 1.000, in the last one 0.500"
    assert draw_overlap(hours(1.0, None)) is None
