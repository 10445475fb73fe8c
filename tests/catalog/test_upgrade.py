"""What an upgrade leaves as it was: definitions read with this release's defaults, pages, plans and revisions."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from fastapi import FastAPI

from app.base.db.engine import Store
from app.base.db.files import migrate
from app.base.db.keys import Vault
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, JudgmentDocument
from app.catalog.documents.canary_files import read_canary_files
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service import references
from app.catalog.store import FILE, read_body
from app.config import Settings
from app.definitions.service import applying
from app.main import Service, create_app, open_service
from app.scoring.run_inputs import suite_hash
from tests.conftest import DIALECTS, Databases
from tests.support.asgi_client import TestClient
from tests.support.fakes import FakeProbe
from tests.support.first_release_databases import FIRST_KEY, first_release
from tests.support.html_pages import Page
from tests.support.pages_service import HTML

pytestmark = pytest.mark.databases

# What the first release was given, see `first_release/`; what differs between its two databases is filled in.
FILES = """
suite: handbook
canaries:
  - {key: trial-length, query: "How long is the free trial and do I need a credit card?",
     expected_chunks: [free_trial_doc], tags: [billing]}
  - {key: rate-limit, query: "How many requests per minute does the API rate limit allow?",
     expected_chunks: [{document: api/overview}, {text: 600 requests per minute, grade: 2}]}
  - {key: soc2-report, query: "Where can I download the current SOC 2 report?",
     expected_chunks: [soc2_report_doc], min_relevance_score: 0.2}
  - {key: compute-unit, query: "What exactly is a compute unit and how is it metered?",
     expected_chunks: [compute_units_doc], floors: {"R@5": 1.0}}
  - {key: weather, query: "How is the weather in Paris?", category: negative}
retrievers:
  - slug: docs
    url: "${URL}"
    request: {method: POST, headers: {authorization: "${TOKEN}"}, json: {query: "{{ query }}", top_k: "{{ k }}"}}
    response: {hits: results, id: id, score: score, text: text, document: metadata.source, index_version: index}
    scorer: {kind: score, scale: similarity}
checks:
  - slug: handbook
    suite: handbook
    retriever: docs
    schedule: {every: 1d}
    rules: [{kind: threshold, measure: coverage, critical: {below: 0.9}}]
    hooks: [ops]
hooks:
  - {slug: ops, kind: webhook, url: "http://127.0.0.1:9/", secret: "${SECRET}"}
"""

NAMES = (("suite", "handbook"), ("retriever", "docs"), ("check", "handbook"), ("hook", "ops"))


@pytest.fixture(params=DIALECTS)
def upgraded(request: pytest.FixtureRequest, databases: Databases, stores: Callable[..., Store]) -> str:
    """Give the URL of a database of the first release that was migrated to this one's schema."""
    url = first_release(request.param, databases)
    migrate(stores(url))
    return url


def _settings(url: str, folder: Path, **more: Any) -> Settings:
    return Settings(
        data_dir=folder, database_url=url, secret_key=FIRST_KEY, auto_migrate=False, retention_days=36_500, **more
    )


@pytest.fixture
def opened(upgraded: str, tmp_path: Path, stores: Callable[..., Store]) -> Iterator[Service]:
    """Give the service over an upgraded database whose definitions are the API's, so that their forms open."""
    with stores(upgraded).write() as connection:
        for table in ("definitions", "canaries"):
            connection.exec_driver_sql(f"UPDATE {table} SET managed_by = 'api'")  # noqa: S608 - the two names above
    service = open_service(_settings(upgraded, tmp_path), environment={}, with_worker=False, probe=FakeProbe())
    yield service
    service.store.close()


def _variables(store: Store) -> dict[str, str]:
    """Give what the files leave open, as the database has it."""
    retriever, hook = (
        references.load_definition(store, "retriever", "docs"),
        references.load_definition(store, "hook", "ops"),
    )
    vault = Vault(FIRST_KEY)
    header, secret = vault.decrypt(retriever.secrets), vault.decrypt(hook.secrets)
    return {"URL": retriever.body["url"], "TOKEN": header["request.headers.authorization"], "SECRET": secret["secret"]}


def _revisions(store: Store) -> dict[tuple[str, str], int]:
    return {name: references.load_definition(store, *name).revision for name in NAMES}


def test_unchanged_files_change_nothing_after_an_upgrade(
    upgraded: str, tmp_path: Path, stores: Callable[..., Store], caplog: pytest.LogCaptureFixture
) -> None:
    store, file = stores(upgraded), tmp_path / "old.yaml"
    file.write_text(FILES, encoding="utf-8")
    settings, environment = _settings(upgraded, tmp_path, canaries=file), _variables(store)
    caplog.set_level("INFO", logger="coalmine")
    revisions = []
    for _start in range(3):
        open_service(settings, environment=environment, probe=FakeProbe()).store.close()
        revisions.append(_revisions(store))
    applied = [record.__dict__["changes"] for record in caplog.records if record.message == "canaries_applied"]
    assert applied == [0, 0, 0]
    assert revisions[0] == revisions[1] == revisions[2]


def test_a_suite_whose_file_moved_is_the_same_to_its_runs(
    upgraded: str, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    store, file = stores(upgraded), tmp_path / "moved.yaml"
    file.write_text(FILES, encoding="utf-8")
    before = _suite_hash(store)
    environment = _variables(store)
    open_service(_settings(upgraded, tmp_path, canaries=file), environment=environment, probe=FakeProbe()).store.close()
    assert _suite_hash(store) == before


def _suite_hash(store: Store) -> str:
    with store.read() as connection:
        suite = catalog.find_definition(connection, "suite", "handbook")
        assert suite is not None
        return suite_hash([(row.key, row.hash) for row in catalog.list_canaries(connection, suite.id)])


def test_one_changed_canary_is_the_only_change_after_an_upgrade(
    upgraded: str, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    store, file = stores(upgraded), tmp_path / "old.yaml"
    file.write_text(FILES.replace("min_relevance_score: 0.2", "min_relevance_score: 0.3"), encoding="utf-8")
    documents = read_canary_files([("old.yaml", file.read_text("utf-8"))], _variables(store), None)
    (change,) = applying.diff(store, Vault(FIRST_KEY), documents, managed_by=FILE, now=datetime.now(UTC))
    assert (change.name, change.action, change.fields) == ("handbook/soc2-report", "update", ("min_relevance_score",))


@pytest.mark.systems
def test_every_page_and_every_json_opens_after_an_upgrade(opened: Service) -> None:
    client = TestClient(create_app(opened), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
    found = _crawl(client)
    assert {"/", "/checks/handbook/edit", "/suites/handbook/canaries/weather", "/alerts/1"} <= found.keys()
    assert {path: code for path, code in found.items() if code not in {200, 303}} == {}
    answers = {path: client.get(path).status_code for path in _json_paths(client)}
    assert len(answers) > 30
    assert {path: code for path, code in answers.items() if code not in {200, 404, 422}} == {}
    assert sum(code == 200 for code in answers.values()) > 20, answers


def _crawl(client: TestClient) -> dict[str, int]:
    """Follow every link and form of the pages from the home page on; give the status by path."""
    found: dict[str, int] = {}
    ahead = ["/"]
    while ahead:
        path = ahead.pop()
        if path in found or path.startswith(("/static/", "/docs", "/v1/")):
            continue
        answer = client.get(path, headers=HTML, follow_redirects=True)
        found[path] = answer.status_code
        if "text/html" in answer.headers.get("content-type", ""):
            pages = [one.get("href") for one in Page(answer.text).elements if one.tag == "a"]
            links = [urlsplit(urljoin(path, link)) for link in pages]
            # A page of one canary in two runs is named by its query alone.
            ahead += [
                f"{link.path}?{link.query}" if link.path == "/compare/canary" else link.path
                for link in links
                if not link.netloc and link.path.startswith("/")
            ]
    return found


def _json_paths(client: TestClient) -> list[str]:
    """Give every GET of the API with the names that the database has."""
    app = client.app
    assert isinstance(app, FastAPI)
    paths = [path for path, methods in app.openapi()["paths"].items() if "get" in methods]
    values = {"check": "handbook", "suite": "handbook", "slug": "handbook", "key": "weather", "a": "2", "b": "4"}
    own = {"/v1/retrievers/": "docs", "/v1/hooks/": "ops", "/v1/runs/{id}": "4", "/v1/alerts/": "1"}

    def named(path: str) -> str:
        slug = next((of for start, of in own.items() if path.startswith(start)), "1")
        return re.sub(r"\{(\w+)\}", lambda name: values.get(name[1], slug) if slug == "1" else slug, path)

    return [named(path) for path in paths if not path.endswith("/events")]  # these streams have no end


def _without(whole: Any, field: str) -> str:
    return json.dumps({name: value for name, value in whole.items() if name != field})


CANARY = CanaryDocument(
    key="any", query="what?", expected_chunks=(JudgmentDocument(id="a", grade=2),), tags=("x",)
).data()
OPTIONAL = [name for name, field in CanaryDocument.model_fields.items() if not field.is_required()]


def test_a_canary_that_lacks_a_field_is_read_with_its_default() -> None:
    for field in OPTIONAL:
        text = _without(CANARY, field)
        assert read_body("canary", text) == CanaryDocument.model_validate_json(text).data(), field


@pytest.mark.parametrize("field", ["id", "document", "text", "grade"])
def test_an_expected_chunk_that_lacks_a_field_is_read_with_its_default(field: str) -> None:
    chunk = JudgmentDocument(id="a", text="a text").data()
    text = json.dumps({**CANARY, "expected_chunks": [json.loads(_without(chunk, field))]})
    assert read_body("canary", text) == CanaryDocument.model_validate_json(text).data()


def test_a_rule_that_lacks_a_field_is_read_with_its_default() -> None:
    rule = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}}
    text = json.dumps({"slug": "c", "suite": "s", "retriever": "r", "schedule": {"every": "1d"}, "rules": [rule]})
    assert read_body("check", text) == CheckDocument.model_validate_json(text).data()


def test_a_stored_body_that_this_release_refuses_is_read_as_it_is() -> None:
    assert read_body("check", '{"slug": "c", "of_another_release": 1}') == {"slug": "c", "of_another_release": 1}
