"""The API's description is true: every JSON answer of success has a schema, and answers are what their schema says."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi import FastAPI

from app.domain.model import Outcome
from app.services.runs import rescoring
from tests.support.api_service import CHECK, Api, api
from tests.support.described_answers import Description, closed, description
from tests.support.processes import ROOT


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service of which everything that can be shown is there."""
    with api(tmp_path_factory.mktemp("described")) as opened:
        opened.docs()
        opened.put("/v1/checks/bare", {**CHECK, "hooks": []})
        opened.put("/v1/silences/night", {"checks": ["bare"], "ends": "2099-01-01T00:00:00Z"})
        opened.run(index_version="v1")
        opened.retriever.found = {"How do I set up OAuth2?": ["c9"], "How long is data kept?": []}
        opened.run(index_version="v2")
        opened.retriever.outcomes = {"Who lives on the moon?": Outcome.REFUSED}
        opened.run()
        opened.deliver()
        for path in ("checks/docs/canaries/oauth/diagnosis", "checks/docs/rescorings", "hooks/ops/test"):
            assert opened.client.post(f"/v1/{path}").is_success
        rescoring_id = rescoring.claim(opened.service.store, owner="test", now=datetime.now(UTC))
        assert rescoring_id is not None
        assert rescoring.carry_on(opened.service.store, rescoring_id, owner="test", clock=lambda: datetime.now(UTC))
        opened.put("/v1/checks/docs/baseline", {"accept": True, "note": "new index"})
        yield opened


def app_of(service: Api) -> FastAPI:
    found: FastAPI = service.client.app  # type: ignore[assignment] # it is a FastAPI
    return found


def is_described(schema: Any) -> bool:
    """Whether a schema says what the answer holds."""
    return bool(schema) and ("$ref" in schema or "properties" in schema or "anyOf" in schema)


def test_every_answer_has_a_schema(service: Api) -> None:
    schemas = description(app_of(service)).schemas()
    bare = {f"{method} {path}" for (method, path, _), schema in schemas.items() if not is_described(schema)}
    assert not bare


def test_every_thing_that_can_be_read_is_as_described(service: Api) -> None:
    """The client of the service fails with an answer that is not; see described_answers."""
    described = description(app_of(service))
    alert, delivery = (service.get(f"/v1/{kind}")["items"][0] for kind in ("alerts", "deliveries"))
    runs = [run["id"] for run in service.get("/v1/checks/docs/runs")["items"]]
    named = {
        "slug": "docs",
        "suite": "docs",
        "key": "oauth",
        "run_id": runs[0],
        "before": runs[1],
        "now": runs[0],
        "alert_id": alert["id"],
        "delivery_id": delivery["id"],
        "rescoring_id": service.get("/v1/checks/docs/rescorings")["items"][0]["id"],
    }
    of_kind = {"/v1/retrievers/": "search", "/v1/hooks/": "ops", "/v1/silences/": "night"}
    for path in sorted({path for method, path, _ in described.schemas() if method == "GET"}):
        address = path
        for name, value in named.items():
            own = next((slug for kind, slug in of_kind.items() if path.startswith(kind)), value)
            address = address.replace(f"{{{name}}}", own if name == "slug" else value)
        parameters = {"format": "csv", "suite": "docs"} if path == "/v1/export" else {}
        shown = service.get(address, **parameters)
        if shown.keys() == {"items", "next"} and not path.endswith("/reanchors"):
            assert shown["items"], f"{path} has nothing to show"


def test_a_schema_refuses_what_it_does_not_name() -> None:
    whole = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    document = {
        "components": {},
        "paths": {"/v1/x/{id}": {"get": {"responses": {"200": {"content": {"application/json": {"schema": whole}}}}}}},
    }
    judged = Description(document)
    assert judged.problems("GET", "/v1/x/7", 200, {"a": 1}) == []
    for odd in ({"a": 1, "b": 2}, {}, {"a": "1"}):
        assert len(judged.problems("GET", "/v1/x/7", 200, odd)) == 1
    assert judged.problems("GET", "/v1/x/7", 201, {"a": 1}) == ["GET /v1/x/{id}: status 201 has no description"]
    assert closed({"items": [whole]})["items"][0]["additionalProperties"] is False


def test_views_hold_lists_and_dicts_which_are_written_without_calls_into_python() -> None:
    """Abstract sequences and mappings take pydantic four times as long; see app.domain.views."""
    modules = sorted((ROOT / "app" / "domain").rglob("*views.py"))
    assert len(modules) > 8
    assert [module.parent.name for module in modules if "collections.abc" in module.read_text(encoding="utf-8")] == []
