"""From nothing by REST: one call registers a canary, one document makes a watched retriever."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.base.db.keys import Scope
from app.base.values import Outcome
from app.records.tables import runs
from tests.support.api_service import CANARIES, CHECK, HOOK_SECRET, RETRIEVER, Api, api, bearer

ONE = {"query": "What is our data retention policy?", "expected_chunks": "retention_policy_doc"}
PATH = "/v1/suites/docs/canaries"
CHECKED = "/v1/checks/docs-search"
HOOK = {"slug": "ops", "kind": "webhook", "url": "https://hooks.test/secret-path", "secret": HOOK_SECRET}
WHOLE: Mapping[str, Any] = {
    "suite": {"slug": "docs", "canaries": [ONE, CANARIES[2]]},
    "retriever": RETRIEVER,
    "schedule": {"every": "1h"},
    "hooks": [HOOK],
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        yield opened


def keys_of(service: Api, suite: str = "docs") -> list[str]:
    """List the keys of a suite in force."""
    return [item["key"] for item in service.get(f"/v1/suites/{suite}/canaries")["items"]]


def nothing_is_there(service: Api) -> bool:
    """Whether nothing at all is defined."""
    return all(service.get(f"/v1/{kind}")["items"] == [] for kind in ("suites", "retrievers", "checks", "hooks"))


# --- a canary ------------------------------------------------------------------------------------------------


def test_one_post_registers_a_canary_and_its_suite_and_answers_with_what_is_stored(service: Api) -> None:
    answer = service.client.post(PATH, json=ONE)
    assert answer.status_code == 201
    stored = answer.json()
    assert stored.items() >= {"query": ONE["query"], "managed_by": "api", "given": 1, "changed": 1}.items()
    assert stored["key"] == "what-is-our-data-retention-policy"
    assert stored["expected_chunks"] == [
        {"id": "retention_policy_doc", "document": None, "text": None, "grade": 1, "source": None}
    ]
    assert service.get(f"{PATH}/{stored['key']}")["hash"] == stored["hash"]
    assert service.get("/v1/suites/docs")["canary_count"] == 1


def test_a_canary_posted_again_is_the_same_and_another_expectation_changes_it(service: Api) -> None:
    first = service.client.post(PATH, json=ONE).json()
    again = service.client.post(PATH, json=ONE)
    assert again.status_code == 200
    assert again.json() == {**first, "changed": 0}
    other = service.client.post(PATH, json={**ONE, "expected_chunks": ["new_doc", {"text": "30 days"}]})
    assert other.status_code == 200
    assert other.json()["key"] == first["key"]
    assert [chunk["id"] for chunk in other.json()["expected_chunks"]] == ["new_doc", None]
    assert keys_of(service) == [first["key"]]
    assert service.client.post(PATH, json=other.json()).json()["changed"] == 0, "what was answered can be sent back"


def test_a_list_of_canaries_is_posted_all_or_none_and_answers_with_their_keys(service: Api) -> None:
    bad = service.client.post(PATH, json=[ONE, {"query": "?", "expected_chunks": 5}])
    assert bad.status_code == 422
    assert [error["path"] for error in bad.json()["errors"]] == ["canaries[1].expected_chunks"]
    assert nothing_is_there(service)
    answer = service.client.post(PATH, json=[ONE, CANARIES[0]])
    assert answer.status_code == 201
    assert answer.json() == {"given": 2, "changed": 2, "keys": keys_of(service)}
    assert service.client.post(PATH, json=[ONE, CANARIES[0]]).status_code == 200


def test_another_query_with_the_same_words_has_a_key_of_its_own_whichever_comes_first(service: Api) -> None:
    first = {"query": "What year?", "expected_chunks": ["a"]}
    other = {"query": "What, year", "expected_chunks": ["b"]}
    keys = [service.client.post(PATH, json=one).json()["key"] for one in (first, other)]
    assert keys[0] == "what-year"
    assert keys[1].startswith("what-year-")
    backwards = service.client.put("/v1/suites/docs", json={"canaries": [other, first]})
    assert backwards.status_code == 200
    assert keys_of(service) == keys
    service.client.delete(f"{PATH}/what-year")
    assert service.client.post(PATH, json=[other]).json()["keys"] == [keys[1]], "its history stays under its key"


def test_a_key_that_is_named_is_not_given_to_another_query(service: Api) -> None:
    named = {"key": "what-year", "query": "Which year?", "expected_chunks": ["a"]}
    keys = service.client.post(PATH, json=[{"query": "What year?", "expected_chunks": ["b"]}, named]).json()["keys"]
    assert keys[1] == "what-year"
    assert keys[0].startswith("what-year-")


def test_two_canaries_of_one_query_in_a_list_need_keys(service: Api) -> None:
    twice = service.client.post(PATH, json=[ONE, ONE])
    assert twice.status_code == 422
    (error,) = twice.json()["errors"]
    assert error["path"] == "canaries[1].key"
    assert "is used twice" in error["message"]


def test_a_canary_posted_brings_an_archived_suite_back(service: Api) -> None:
    service.client.post(PATH, json=ONE)
    service.client.delete("/v1/suites/docs")
    assert service.client.post(PATH, json=ONE).status_code in {200, 201}
    assert service.get("/v1/suites/docs")["canary_count"] == 1


# --- a watched retriever -------------------------------------------------------------------------------------


def test_one_document_makes_a_watched_retriever(service: Api) -> None:
    answer = service.client.put(CHECKED, json=WHOLE)
    assert answer.status_code == 201, answer.text
    shown = answer.json()
    assert (shown["suite"], shown["retriever"], shown["hooks"]) == ("docs", "docs-search", ["ops"])
    assert shown == {**service.get(CHECKED), "warnings": []}
    assert keys_of(service)[1] == "moon"
    assert service.get("/v1/retrievers/docs-search")["url"] == RETRIEVER["url"]
    assert HOOK_SECRET not in answer.text
    service.client.post(f"{CHECKED}/runs", json={})
    service.work()
    assert service.get(f"{CHECKED}/health")["canaries"]["total"] == 2


def test_a_hook_written_out_that_may_not_be_reached_is_said_with_the_setting(service: Api) -> None:
    hooks = [{**HOOK, "url": "http://10.0.0.1/x"}]
    (warning,) = service.client.put(CHECKED, json={**WHOLE, "hooks": hooks}).json()["warnings"]
    assert warning.startswith("hook ops: 10.0.0.1 ")
    assert "COALMINE_HOOK_ALLOW" in warning


def test_the_same_document_again_changes_nothing(service: Api) -> None:
    first = service.client.put(CHECKED, json=WHOLE).json()
    again = service.client.put(CHECKED, json=WHOLE)
    assert again.status_code == 200
    assert again.json() == first


def test_parts_that_are_named_and_parts_that_are_written_out_go_together(service: Api) -> None:
    service.put("/v1/retrievers/search", RETRIEVER)
    mixed = {**CHECK, "suite": {"canaries": [ONE]}, "hooks": [HOOK, {**HOOK, "slug": "second"}]}
    assert service.client.put(CHECKED, json=mixed).status_code == 201
    assert service.get(CHECKED)["retriever"] == "search"
    assert service.get(CHECKED)["suite"] == "docs-search"
    assert service.get(CHECKED)["hooks"] == ["ops", "second"]


def test_nothing_is_made_where_a_part_is_wrong_and_the_error_names_its_path(service: Api) -> None:
    cases: list[tuple[Mapping[str, Any], list[str]]] = [
        ({"retriever": {**RETRIEVER, "response": {"hits": "a", "id": 5}}}, ["retriever.response.id"]),
        ({"suite": {"canaries": [{**ONE, "expected": "x"}]}}, ["suite.canaries[0].expected"]),
        ({"suite": {"slug": "docs"}}, ["suite.canaries"]),
        ({"suite": {"canaries": "all"}}, ["suite.canaries"]),
        ({"hooks": ["ops", {"kind": "webhook", "url": "ftp://x"}]}, ["hooks[1].url"]),
        ({"hooks": ["nowhere"]}, ["hooks"]),
        ({"schedule": {"every": "soon"}, "suite": {"canaries": [{}]}}, ["schedule.every", "suite.canaries[0].key"]),
        ({"colour": "red", "retriever": {}}, ["colour", "retriever.url"]),
        ({"suite": {"canaries": [{**ONE, "floors": {"R@7": 0.5}}]}}, ["floors"]),
    ]
    for changed, paths in cases:
        answer = service.client.put(CHECKED, json={**WHOLE, **changed})
        assert answer.status_code == 422, changed
        told = [error["path"] for error in answer.json()["errors"]]
        assert set(paths) <= set(told), told
        assert nothing_is_there(service), changed


def test_a_key_that_may_write_defines_suites_within_a_check_but_no_retriever_and_no_hook(service: Api) -> None:
    admin, write = service.key(Scope.ADMIN), service.key(Scope.WRITE)
    service.client.put("/v1/retrievers/search", json=RETRIEVER, headers=bearer(admin))
    for refused in ({"retriever": RETRIEVER}, {"retriever": "search", "hooks": [HOOK]}):
        answer = service.client.put(CHECKED, json={**WHOLE, "hooks": [], **refused}, headers=bearer(write))
        assert answer.status_code == 403
    assert service.client.get("/v1/checks", headers=bearer(write)).json()["items"] == []
    own = {**WHOLE, "retriever": "search", "hooks": []}
    assert service.client.put(CHECKED, json=own, headers=bearer(write)).status_code == 201


def test_a_stored_secret_of_an_inline_retriever_stays_but_does_not_move(service: Api) -> None:
    request = {"json": {"q": "{{ query }}"}, "headers": {"Authorization": "Bearer hunter2-of-old"}}
    kept = {**request, "headers": {"Authorization": None}}
    assert (
        service.client.put(CHECKED, json={**WHOLE, "retriever": {**RETRIEVER, "request": request}}).status_code == 201
    )
    before = service.get("/v1/retrievers/docs-search")
    again = {**WHOLE, "retriever": {**RETRIEVER, "request": kept}}
    assert service.client.put(CHECKED, json=again).status_code == 200
    assert service.get("/v1/retrievers/docs-search") == before
    moved = {**WHOLE, "retriever": {**RETRIEVER, "request": kept, "url": "http://127.0.0.2:1/search"}}
    answer = service.client.put(CHECKED, json=moved)
    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == ["retriever.request.headers.Authorization"]


# --- what the API says of what it has ------------------------------------------------------------------------


def test_the_hash_of_a_suite_is_that_of_its_canaries_as_its_runs_say_it(service: Api) -> None:
    service.client.put(CHECKED, json=WHOLE)
    first = service.get("/v1/suites/docs")["hash"]
    service.client.post(f"{CHECKED}/runs", json={})
    service.work()
    assert service.get(f"{CHECKED}/health")["suite_hash"] == first
    assert service.get("/v1/suites")["items"][0]["hash"] == first
    changed = service.client.post(PATH, json={**ONE, "expected_chunks": "another"}).json()["changed"]
    assert changed == 1
    assert service.get("/v1/suites/docs")["hash"] != first
    assert service.client.post(PATH, json=ONE).json()["changed"] == 1
    assert service.get("/v1/suites/docs")["hash"] == first
    assert service.client.put("/v1/suites/docs", json={}).json()["hash"] == first


def test_the_list_of_runs_says_how_probes_ended_and_how_long_they_took_as_each_run_does(service: Api) -> None:
    service.client.put(CHECKED, json=WHOLE)
    service.retriever.outcomes = {ONE["query"]: Outcome.TIMEOUT}
    for _ in range(2):
        service.client.post(f"{CHECKED}/runs", json={})
        service.work()
        service.retriever.outcomes = {}
    newer, older = service.get(f"{CHECKED}/runs")["items"]
    assert (newer["probes"], older["probes"]) == ({"ok": 2}, {"ok": 1, "timeout": 1})
    assert newer["latency_seconds"] == {"p50": 0.25, "p95": 0.25, "max": 0.25}
    for listed in (newer, older):
        alone = service.get(f"/v1/runs/{listed['id']}")
        for name in ("probes", "probes_by_step", "latency_seconds"):
            assert listed[name] == alone[name], name
    with service.service.store.write() as connection:
        connection.execute(sa.update(runs).values(probes=None))  # as a release before left them
    for again, listed in zip(service.get(f"{CHECKED}/runs")["items"], (newer, older), strict=True):
        assert again.pop("latency_seconds") == pytest.approx(listed.pop("latency_seconds"), rel=0.01)
        assert again == listed


def test_an_import_reads_documents_as_documents_and_the_split_it_is_told(service: Api) -> None:
    files = {
        "queries.jsonl": '{"_id": "q1", "text": "How long?"}\n{"_id": "q2", "text": "Who?"}\n',
        "data/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
        "data/qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq2\td2\t1\n",
    }
    path = "/v1/import?format=beir&suite=read&as_documents=true&split=test"
    assert service.client.post(path, json={"files": files}).status_code == 200
    (read,) = service.get("/v1/suites/read/canaries")["items"]
    assert read["key"] == "q1"
    assert [(chunk["id"], chunk["document"]) for chunk in read["expected_chunks"]] == [(None, "d1")]
    missing = service.client.post(path.replace("split=test", "split=train"), json={"files": files})
    assert missing.json()["errors"] == [
        {"path": "split", "message": "there is no qrels/train.tsv; there are: data/qrels/test.tsv, data/qrels/dev.tsv"}
    ]
