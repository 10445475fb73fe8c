"""Tasks over REST: from the pool to adopted judgments, and what an annotator's key may not do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.base.db.keys import Scope
from tests.support.api_service import Api, api, bearer


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with a suite and a retriever."""
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, str]]:
    """Give one with a task, and an item of it, to tests that only look at it."""
    with api(tmp_path_factory.mktemp("pooled")) as opened:
        opened.docs()
        yield opened, opened.pooled_task()


def problem(answer: Any) -> tuple[int, str]:
    """Give status and detail of a problem."""
    shape = answer.json()
    return answer.status_code, shape["errors"][0]["message"] if shape.get("errors") else shape["detail"]


def grade_all(service: Api, annotator: str, grade: int) -> int:
    """Grade everything that is left for an annotator; how much that was."""
    count = 0
    found = service.get("/v1/tasks/truth/next", annotator=annotator)
    while found["item"] is not None:
        body = {"grade": grade, "annotator": annotator, "seconds": 2.5}
        found = service.put(f"/v1/tasks/truth/items/{found['item']['id']}/annotation", body)
        count += 1
    return count


def test_from_pool_to_adopted_judgments(service: Api) -> None:
    service.pooled_task()
    task = service.get("/v1/tasks/truth")
    assert (task["state"], task["canaries"], task["items"]) == ("pooled", 3, 9)
    grade_all(service, "Ann", 1)
    assert grade_all(service, "Bob", 1) == 9
    assert service.get("/v1/tasks/truth/agreement")["raw"]["value"] == 1
    budget = service.get("/v1/tasks/truth/budget")
    assert (budget["states"]["agreed"], budget["hours_left"]) == (9, 0)
    done = service.client.post("/v1/tasks/truth/adopt").json()
    assert [one["canary"] for one in done["adopted"]] == ["retention", "oauth"]
    assert done["left_out"] == [{"canary": "moon", "reason": "it expects that nothing is found"}]
    assert done["checks"] == ["docs"]
    stored = service.get("/v1/suites/docs/canaries/retention")["expected_chunks"]
    assert sorted(chunk["id"] for chunk in stored) == ["c1", "c2", "c3"]


def test_a_task_that_was_read_can_be_sent_back(service: Api) -> None:
    created = service.client.put("/v1/tasks/truth", json={"suite": "docs", "retrievers": ["search"]})
    assert created.status_code == 201
    again = service.client.put("/v1/tasks/truth", json=created.json())
    assert (again.status_code, again.json()) == (200, created.json())


def test_disputed_items_are_listed_page_by_page_and_decided(service: Api) -> None:
    service.pooled_task()
    grade_all(service, "Ann", 0)
    grade_all(service, "Bob", 2)
    found = service.get("/v1/tasks/truth/disagreements", limit=5)
    rest = service.get("/v1/tasks/truth/disagreements", limit=50, after=found["next"])
    ids = [one["id"] for one in [*found["items"], *rest["items"]]]
    assert len(set(ids)) == len(ids) > 5
    decided = service.client.put(f"/v1/tasks/truth/items/{ids[0]}/adjudication", json={"grade": 1})
    assert decided.status_code == 204
    open_ones = service.get("/v1/tasks/truth/disagreements")["items"]
    assert [one["id"] for one in open_ones] == ids[1:]
    every = service.get("/v1/tasks/truth/disagreements", decided=True)["items"]
    assert (every[-1]["id"], every[-1]["adjudicated"]) == (ids[0], 1)


def test_annotations_leave_and_come_as_csv(service: Api) -> None:
    service.pooled_task()
    grade_all(service, "Ann", 1)
    answer = service.client.get("/v1/tasks/truth/annotations")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text.splitlines()[0] == "canary,chunk_id,document,text,annotator,grade,query,vars,history"
    files = {"files": {"a.csv": answer.text.replace(",Ann,", ",Bob,")}}
    stored = service.client.post("/v1/tasks/truth/annotations", json=files)
    assert stored.json() == {"annotations": 9}
    assert service.get("/v1/tasks/truth/agreement")["annotators"] == ["Ann", "Bob"]


def test_two_grades_of_a_chunk_by_one_person_in_a_file_are_refused_with_both_lines(service: Api) -> None:
    service.pooled_task()
    grade_all(service, "Ann", 1)
    lines = service.client.get("/v1/tasks/truth/annotations").text.replace(",Ann,", ",Bob,").splitlines()
    again = lines[1].replace(",Bob,1,", ",Bob,0,")
    files = {"files": {"a.csv": "\n".join([*lines, lines[2], again]) + "\n"}}
    answer = service.client.post("/v1/tasks/truth/annotations", json=files)
    (error,) = answer.json()["errors"]
    assert error["line"] == len(lines) + 2
    assert error["message"] == "'Bob' graded this chunk already: 1 in line 2, now 0; leave one of them"
    assert service.get("/v1/tasks/truth/agreement")["annotators"] == ["Ann"]


def test_an_unknown_column_of_annotations_is_told_of_the_columns_of_annotations(pooled: tuple[Api, str]) -> None:
    service, _ = pooled
    files = {"files": {"a.csv": "canary,chunk_id,annotator,grade,remarks\nx,c,Bob,1,well\n"}}
    (error,) = service.client.post("/v1/tasks/truth/annotations", json=files).json()["errors"]
    assert error["message"] == (
        "unknown column 'remarks'; remove it. There are: canary, chunk_id, document, text, annotator, grade, "
        "query, vars, history"
    )


def test_what_an_annotator_gets_tells_nothing_of_where_it_comes_from(pooled: tuple[Api, str]) -> None:
    service, _ = pooled
    answer = service.client.get("/v1/tasks/truth/next", params={"annotator": "Bob"})
    shown = {"id", "query", "vars", "history", "text", "grade", "answer", "pair"}
    assert answer.json()["item"].keys() == shown, "as of random negatives"
    text = answer.text
    for word in ("rank", "score", "stratum", "search", "retriever", '"c1"'):
        assert word not in text


def test_an_annotators_key_gives_its_name_and_opens_nothing_else(service: Api) -> None:
    item = service.pooled_task()
    write = bearer(service.key(Scope.WRITE))
    headers = bearer(service.key(Scope.ANNOTATE))
    found = service.client.get("/v1/tasks/truth/next", headers=headers).json()
    assert found["progress"]["annotator"] == "a annotate key"
    path = f"/v1/tasks/truth/items/{item}/annotation"
    assert service.client.put(path, json={"grade": 2}, headers=headers).is_success
    other = service.client.put(path, json={"grade": 2, "annotator": "Eve"}, headers=headers)
    assert problem(other) == (422, "is the name of the key, 'a annotate key'")
    for route in ("/v1/tasks", "/v1/tasks/truth", "/v1/tasks/truth/agreement", "/v1/suites", "/metrics"):
        assert service.client.get(route, headers=headers).status_code == 403
        assert service.client.get(route, headers=write).is_success
    assert service.client.post("/v1/tasks/truth/adopt", headers=headers).status_code == 403


def test_without_keys_somebody_has_to_say_who_annotates(pooled: tuple[Api, str]) -> None:
    service, _ = pooled
    assert problem(service.client.get("/v1/tasks/truth/next")) == (422, "say who annotates: there are no keys here")


def test_annotations_without_sense_are_refused(pooled: tuple[Api, str]) -> None:
    service, item = pooled
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "must have either a grade or `skip: true`"),
        ({"grade": 1, "skip": True}, "must have either a grade or `skip: true`"),
        ({"grade": 3}, "must be at most 2, the scale of the task"),
        ({"grade": -1}, "must be at least 0"),
        ({"grade": 1, "seconds": -1}, "must be at least 0"),
    ]
    for body, message in cases:
        answer = service.client.put(f"/v1/tasks/truth/items/{item}/annotation", json={"annotator": "Ann", **body})
        assert problem(answer) == (422, message)


def test_undo_answers_with_the_item_again(service: Api) -> None:
    item = service.pooled_task()
    service.put(f"/v1/tasks/truth/items/{item}/annotation", {"grade": 2, "annotator": "Ann"})
    back = service.client.post("/v1/tasks/truth/undo", json={"annotator": "Ann"}).json()
    assert back["item"]["id"] == item
    nothing = service.client.post("/v1/tasks/truth/undo", json={"annotator": "Zoe"})
    assert problem(nothing)[0] == 409


def test_corpora_are_added_to_in_parts(service: Api) -> None:
    lines = [f'{{"_id": "d{number}", "text": "Text {number}"}}' for number in range(5)]
    for part in (lines[:3], lines[2:]):
        body = {"files": {"corpus.jsonl": "\n".join(part)}}
        assert service.client.post("/v1/corpora/handbook", json=body).is_success
    assert service.get("/v1/corpora/handbook")["texts"] == 5
    strata = [{"rest": 2}]
    task = {"suite": "docs", "retrievers": ["search"], "corpus": "handbook", "strata": strata}
    assert service.put("/v1/tasks/truth", task)["corpus"] == "handbook"
    assert service.client.delete("/v1/corpora/handbook").status_code == 204
    assert service.client.get("/v1/corpora/handbook").status_code == 404
    assert service.client.post("/v1/corpora/Not-A-Slug", json={"files": {"a": ""}}).status_code == 422
