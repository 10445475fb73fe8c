"""Definitions over REST: what PUT makes GET shows, DELETE archives, files own theirs, and secrets never come back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.definitions.service import definitions
from app.hooks.documents import HookDocument
from app.retrievers.documents.retrievers import RetrieverDocument
from tests.support.api_service import CANARIES, CHECK, HOOK_SECRET, RETRIEVER, Api, api
from tests.support.fakes import START

TOKEN = "Bearer retriever-header-value-0123456789"
HOOK = {"kind": "webhook", "url": "https://example.org/hook", "secret": HOOK_SECRET}
WITH_HEADER = {**RETRIEVER, "request": {"headers": {"Authorization": TOKEN, "X-Team": "search-team-value"}}}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        yield opened


KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "suites": ("/v1/suites/docs", {}, {"canaries": CANARIES}),
    "retrievers": ("/v1/retrievers/search", RETRIEVER, {**RETRIEVER, "timeout": 3}),
    "hooks": ("/v1/hooks/ops", HOOK, {**HOOK, "url": "https://example.org/other"}),
    "checks": ("/v1/checks/docs", CHECK, {**CHECK, "k": 10}),
}


def _ready(service: Api, kind: str) -> None:
    if kind == "checks":
        service.put("/v1/suites/docs", {"canaries": CANARIES})
        service.put("/v1/retrievers/search", RETRIEVER)


@pytest.mark.parametrize("kind", KINDS)
def test_put_creates_then_changes_then_says_the_same_again(service: Api, kind: str) -> None:
    path, body, changed = KINDS[kind]
    _ready(service, kind)
    assert service.client.get(path).status_code == 404
    created = service.client.put(path, json=body)
    assert created.status_code == 201
    assert created.json()["managed_by"] == "api"
    assert created.json()["source"] is None
    assert created.json() == service.get(path)
    updated = service.client.put(path, json=changed)
    assert updated.status_code == 200
    assert updated.json() == service.get(path)
    assert updated.json() != created.json()
    again = service.client.put(path, json=changed)
    assert (again.status_code, again.json()) == (200, updated.json())


@pytest.mark.parametrize("kind", KINDS)
def test_what_get_shows_can_be_put_back_and_changes_nothing(service: Api, kind: str) -> None:
    path, _, changed = KINDS[kind]
    _ready(service, kind)
    service.put(path, changed)
    shown = service.get(path)
    again = service.client.put(path, json=shown)
    assert (again.status_code, again.json()) == (200, shown)


@pytest.mark.parametrize("kind", KINDS)
def test_delete_archives_and_put_brings_back(service: Api, kind: str) -> None:
    path, body, _ = KINDS[kind]
    _ready(service, kind)
    service.put(path, body)
    gone = service.client.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    assert service.client.get(path).status_code == 404
    assert service.client.delete(path).status_code == 404
    assert path.rsplit("/", 1)[1] not in [item["slug"] for item in service.get(f"/v1/{kind}")["items"]]
    assert service.client.put(path, json=body).status_code == 201


@pytest.mark.parametrize("kind", KINDS)
def test_lists_come_in_pages_that_join_to_the_whole(service: Api, kind: str) -> None:
    path, body, _ = KINDS[kind]
    _ready(service, kind)
    folder = path.rsplit("/", 1)[0]
    before = [item["slug"] for item in service.get(folder)["items"]]
    slugs = [f"thing-{number}" for number in range(5)]
    for slug in reversed(slugs):
        service.put(f"{folder}/{slug}", body)
    seen: list[str] = []
    following: str | None = ""
    pages = 0
    while following is not None:
        page = service.get(folder, limit=2, after=following)
        assert page.keys() == {"items", "next"}
        assert len(page["items"]) <= 2
        seen += [item["slug"] for item in page["items"]]
        following = page["next"]
        pages += 1
    assert seen == sorted([*before, *slugs])
    assert pages == -(-len(seen) // 2)
    assert service.get(folder)["next"] is None


def test_canaries_are_put_shown_listed_and_archived(service: Api) -> None:
    service.put("/v1/suites/docs", {})
    path = "/v1/suites/docs/canaries/retention"
    assert service.client.get(path).status_code == 404
    body = {"query": "How long?", "expected_chunks": ["c1", {"document": "policy", "grade": 2}], "tags": ["a"]}
    created = service.client.put(path, json=body)
    assert created.status_code == 201
    shape = created.json()
    assert shape == service.get(path)
    assert shape["key"] == "retention"
    assert shape["category"] == "simple_factual"
    assert shape["min_relevance_score"] == 0.5
    assert [chunk["grade"] for chunk in shape["expected_chunks"]] == [1, 2]
    assert shape["managed_by"] == "api"
    assert service.client.put(path, json={**body, "query": "How long, really?"}).status_code == 200
    shown = service.get(path)
    assert service.put(path, shown) == shown
    assert service.get("/v1/suites/docs")["canary_count"] == 1
    assert service.client.delete(path).status_code == 204
    assert service.client.get(path).status_code == 404
    assert service.get("/v1/suites/docs/canaries") == {"items": [], "next": None}


def test_canaries_keep_their_order_over_pages(service: Api) -> None:
    keys = [f"key-{number}" for number in (3, 1, 4, 0, 5)]
    service.put("/v1/suites/docs", {"canaries": [{"key": key, "query": key} for key in keys]})
    first = service.get("/v1/suites/docs/canaries", limit=3)
    rest = service.get("/v1/suites/docs/canaries", limit=3, after=first["next"])
    assert [item["key"] for item in first["items"] + rest["items"]] == keys
    assert rest["next"] is None


def test_put_suite_with_canaries_archives_those_it_leaves_out(service: Api) -> None:
    service.put("/v1/suites/docs", {"canaries": CANARIES})
    service.put("/v1/suites/docs", {})
    assert service.get("/v1/suites/docs")["canary_count"] == 3, "canaries not given stay"
    service.put("/v1/suites/docs", {"canaries": CANARIES[1:]})
    assert [item["key"] for item in service.get("/v1/suites/docs/canaries")["items"]] == ["oauth", "moon"]


@pytest.mark.parametrize("path", ["/v1/suites/docs", "/v1/retrievers/search", "/v1/hooks/ops"])
def test_what_a_check_uses_cannot_be_deleted(service: Api, path: str) -> None:
    service.docs()
    answer = service.client.delete(path)
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/conflict"
    assert "check docs" in answer.json()["detail"]
    service.client.delete("/v1/checks/docs")
    assert service.client.delete(path).status_code == 204


def test_a_check_names_only_what_exists(service: Api) -> None:
    answer = service.client.put("/v1/checks/docs", json={**CHECK, "hooks": ["nobody"]})
    assert answer.status_code == 422
    assert {(error["path"], error["message"]) for error in answer.json()["errors"]} == {
        ("suite", "there is no suite 'docs'"),
        ("retriever", "there is no retriever 'search'"),
        ("hooks", "there is no hook 'nobody'"),
    }
    assert service.client.get("/v1/checks/docs").status_code == 404


def test_the_name_of_the_address_holds(service: Api) -> None:
    answer = service.client.put("/v1/suites/docs", json={"slug": "other"})
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"path": "slug", "message": "is not the 'docs' of the address"}]
    assert service.client.put("/v1/suites/docs", json={"slug": "docs"}).status_code == 201


def test_a_secret_is_replaced_by_another_and_removed_by_leaving_it_out(service: Api) -> None:
    service.put("/v1/hooks/ops", HOOK)
    other = "whsec_" + "b3RoZXItc2VjcmV0LW9mLXRoZS1ob29rLTAxMjM0NTY="
    service.put("/v1/hooks/ops", {**HOOK, "secret": other})
    vault, store = service.service.vault, service.service.store
    assert definitions.stored_secrets(store, vault, "hook", "ops") == {"secret": other}
    shown = service.put("/v1/hooks/ops", {"kind": "webhook", "url": HOOK["url"]})
    assert shown["secrets_set"] == []
    assert definitions.stored_secrets(store, vault, "hook", "ops") == {}


def test_secrets_stored_under_another_key_are_replaced_by_fresh_ones(service: Api) -> None:
    old, store = Vault("the key of last year"), service.service.store
    definitions.put(store, old, parse_document(HookDocument, {"slug": "ops", **HOOK}), now=START)
    retriever = parse_document(RetrieverDocument, {"slug": "search", **WITH_HEADER})
    definitions.put(store, old, retriever, now=START)
    kept = service.client.put("/v1/hooks/ops", json={**HOOK, "secret": None})
    assert (kept.status_code, kept.json()["type"]) == (500, "/problems/configuration")
    service.put("/v1/hooks/ops", HOOK)
    service.put("/v1/retrievers/search", WITH_HEADER)
    vault = service.service.vault
    assert definitions.stored_secrets(store, vault, "hook", "ops") == {"secret": HOOK_SECRET}
    assert definitions.stored_secrets(store, vault, "retriever", "search")["request.headers.Authorization"] == TOKEN


def test_a_header_is_removed_by_leaving_it_out(service: Api) -> None:
    service.put("/v1/retrievers/search", WITH_HEADER)
    shown = service.put("/v1/retrievers/search", {**RETRIEVER, "request": {"headers": {"X-Team": None}}})
    assert shown["secrets_set"] == ["request.headers.X-Team"]
    stored = definitions.stored_secrets(service.service.store, service.service.vault, "retriever", "search")
    assert stored == {"request.headers.X-Team": "search-team-value"}


def test_a_header_never_set_cannot_be_kept(service: Api) -> None:
    answer = service.client.put(
        "/v1/retrievers/search", json={**RETRIEVER, "request": {"headers": {"Authorization": None}}}
    )
    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == ["request.headers.Authorization"]


FILE = """
suite: docs
canaries:
  - {key: retention, query: How long?, expected_chunks: [c1]}
retrievers:
  - slug: search
    url: http://127.0.0.1:1/search
    response: {hits: hits, id: id}
checks:
  - {slug: docs, suite: docs, retriever: search, schedule: {every: 1h}, hooks: [ops]}
hooks:
  - {slug: ops, kind: webhook, url: "https://example.org/hook"}
"""


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[Api]:
    (tmp_path / "docs.yaml").write_text(FILE, encoding="utf-8")
    with api(tmp_path, canaries=tmp_path / "docs.yaml") as opened:
        yield opened


def test_what_a_file_manages_is_read_only_and_the_problem_names_the_file(filed: Api) -> None:
    for method, path, body, line in [
        ("PUT", "/v1/suites/docs", {}, 2),
        ("DELETE", "/v1/suites/docs", None, 2),
        ("PUT", "/v1/suites/docs/canaries/retention", {"query": "?"}, 4),
        ("DELETE", "/v1/suites/docs/canaries/retention", None, 4),
        ("POST", "/v1/suites/docs/canaries", {"key": "retention", "query": "?"}, 4),
        ("PUT", "/v1/retrievers/search", RETRIEVER, 6),
        ("DELETE", "/v1/retrievers/search", None, 6),
        ("PUT", "/v1/checks/docs", CHECK, 10),
        ("DELETE", "/v1/checks/docs", None, 10),
        ("PUT", "/v1/hooks/ops", HOOK, 12),
        ("DELETE", "/v1/hooks/ops", None, 12),
        ("POST", "/v1/import", {"hooks": [{**HOOK, "slug": "ops"}]}, 12),
    ]:
        answer = filed.client.request(method, path, json=body)
        assert answer.status_code == 409, method
        assert answer.json()["type"] == "/problems/file-managed", method
        assert f"docs.yaml:{line}" in answer.json()["detail"], method


def test_a_file_managed_object_says_where_it_is_defined(filed: Api) -> None:
    for path in ("/v1/suites/docs", "/v1/retrievers/search", "/v1/checks/docs", "/v1/hooks/ops"):
        shape = filed.get(path)
        assert shape["managed_by"] == "file"
        assert "docs.yaml:" in shape["source"]


def test_canaries_of_the_api_may_join_a_file_managed_suite(filed: Api) -> None:
    assert filed.client.put("/v1/suites/docs/canaries/extra", json={"query": "More?"}).status_code == 201
    owners = {item["key"]: item["managed_by"] for item in filed.get("/v1/suites/docs/canaries")["items"]}
    assert owners == {"retention": "file", "extra": "api"}
    assert filed.client.delete("/v1/suites/docs/canaries/extra").status_code == 204


IMPORTED = [
    {"suite": "docs", "canaries": CANARIES},
    {
        "retrievers": [{**WITH_HEADER, "slug": "search"}],
        "checks": [{**CHECK, "slug": "docs", "hooks": ["ops"]}],
        "hooks": [{**HOOK, "slug": "ops"}],
    },
]


def test_import_applies_everything_once_and_says_what_changed(service: Api) -> None:
    planned = service.client.post("/v1/import?dry_run=true", json=IMPORTED)
    assert planned.status_code == 200
    assert planned.json()["applied"] is False
    assert service.client.get("/v1/suites/docs").status_code == 404
    applied = service.client.post("/v1/import", json=IMPORTED).json()
    assert applied == {**planned.json(), "applied": True}
    assert {change["action"] for change in applied["changes"]} == {"create"}
    assert ("check", "docs") in {(change["kind"], change["name"]) for change in applied["changes"]}
    assert service.get("/v1/checks/docs")["managed_by"] == "api"
    assert [note.split(":")[0] for note in applied["notes"]] == ["suite 'docs' is thin"]
    again = service.client.post("/v1/import", json=IMPORTED).json()
    assert again == {"applied": True, "changes": [], "notes": applied["notes"], "warnings": []}
