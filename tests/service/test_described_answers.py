"""The API's description is true: every JSON answer of success has a schema, and answers are what their schema says."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.api_service import Api
from tests.support.described_answers import Description, closed, description
from tests.support.filled_service import app_of, filled_api, names_of
from tests.support.processes import ROOT


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service of which everything that can be shown is there."""
    with filled_api(tmp_path_factory.mktemp("described")) as opened:
        yield opened


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
    names = names_of(service)
    for path in sorted({path for method, path, _ in described.schemas() if method == "GET"}):
        parameters = {"format": "csv", "suite": "docs"} if path == "/v1/export" else {}
        shown = service.get(names.address(path), **parameters)
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
