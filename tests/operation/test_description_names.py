"""The description names its parts for people who read what a generator makes of it."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from app.base.api.bodies import DOCUMENTS, EXAMPLES, plain_names, plain_parameter, renamed, settings_name, titled
from app.base.documents.fields import parse_document
from tests.support.api_service import api
from tests.support.filled_service import app_of

COMPONENTS = "#/components/schemas/"


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Give the description of the API."""
    with api(tmp_path_factory.mktemp("names")) as service:
        return app_of(service).openapi()


def _page(of: str) -> dict[str, Any]:
    listed = {"type": "array", "items": {"$ref": f"{COMPONENTS}{of}"}}
    return {"type": "object", "properties": {"items": listed, "next": {"type": "string"}}}


def test_a_view_a_page_and_a_part_of_a_document_are_named_by_what_they_are() -> None:
    schemas = {"RunView": {"type": "object"}, "Page_RunView_": _page("RunView"), "Page_1": _page("CheckView")}
    assert plain_names(schemas) == {"RunView": "Run", "Page_RunView_": "RunPage", "Page_1": "CheckPage"}
    assert (settings_name("RuleDocument"), settings_name("Severity")) == ("RuleSettings", "Severity")
    with pytest.raises(ValueError, match="both published as 'Run'"):
        plain_names({"RunView": {}, "Run": {}})


def test_references_follow_a_name_and_titles_of_fields_go() -> None:
    schema = {
        "title": "CheckView",
        "properties": {
            "title": {"title": "Title", "type": "string", "default": {"title": "kept"}},
            "fetch_k": {"title": "Hits requested", "anyOf": [{"title": "One", "type": "integer"}]},
            "run": {"$ref": f"{COMPONENTS}RunView"},
        },
    }
    assert titled("Check", renamed(schema, {"RunView": "Run"})) == {
        "title": "Check",
        "properties": {
            "title": {"type": "string", "default": {"title": "kept"}},
            "fetch_k": {"description": "Hits requested", "anyOf": [{"type": "integer"}]},
            "run": {"$ref": f"{COMPONENTS}Run"},
        },
    }


def test_a_long_form_is_named_after_what_has_a_short_one() -> None:
    schema = {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"id": {"type": "string"}}}]}
    assert titled("Chunk", schema)["anyOf"][1]["title"] == "ChunkFields"


def test_a_parameter_is_left_out_and_never_null() -> None:
    either = {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}
    optional = {"title": "State", "anyOf": [{"type": "string", "enum": ["firing"]}, {"type": "null"}], "maxLength": 9}
    plain = plain_parameter({"name": "state", "in": "query", "schema": optional})
    assert plain == {"name": "state", "in": "query", "schema": {"type": "string", "enum": ["firing"], "maxLength": 9}}
    assert plain_parameter({"name": "either", "schema": either})["schema"] == either


def test_generated_types_have_plain_names(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    assert {"Run", "RunPage", "Check", "CheckPage", "Alert", "Retriever", "RuleSettings", "Problem"} <= schemas.keys()
    assert [name for name in schemas if not name.isalnum() or name.endswith("View")] == []
    assert {name for name, schema in schemas.items() if schema["title"] != name} == set()


def test_generated_functions_are_named_as_the_routes_are(described: dict[str, Any]) -> None:
    operations = [operation for methods in described["paths"].values() for operation in methods.values()]
    parameters = [one["schema"] for operation in operations for one in operation.get("parameters", ())]
    assert [one for one in parameters if "title" in one or {"type": "null"} in one.get("anyOf", ())] == []
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert {"list_checks", "get_run", "put_check", "acknowledge_alert"} <= set(names)


def test_what_answers_show_of_a_document_has_plain_types(described: dict[str, Any]) -> None:
    """A file may say `8h`, or a chunk by its id alone; an answer always says it one way, and leaves nothing out."""
    schemas = described["components"]["schemas"]
    canary, check = schemas["Canary"]["properties"], schemas["Check"]["properties"]
    assert canary["key"]["type"] == "string"
    assert canary["expected_chunks"]["items"] == {"$ref": f"{COMPONENTS}JudgmentSettings"}
    assert canary["max_age"]["anyOf"] == [{"type": "number"}, {"type": "null"}]
    assert check["fetch_k"]["type"] == "integer"
    assert set(schemas["RuleSettings"]["required"]) == schemas["RuleSettings"]["properties"].keys()
    assert "token" not in schemas["BearerSettings"]["required"]
    assert {"type": "null"} in schemas["BearerSettings"]["properties"]["token"]["anyOf"]


def test_an_operation_names_what_it_can_be_refused_with(described: dict[str, Any]) -> None:
    for method, path, statuses in [
        ("get", "/livez", {400, 500}),
        ("get", "/metrics", {400, 401, 403, 429, 500, 503}),
        ("get", "/v1/checks", {400, 401, 403, 404, 422, 429, 500, 503}),
        ("get", "/v1/runs/{run_id}/results", {400, 401, 403, 404, 409, 422, 429, 500, 503}),
        ("delete", "/v1/checks/{slug}", {400, 401, 403, 404, 409, 422, 429, 500, 503}),
        ("put", "/v1/checks/{slug}", {400, 401, 403, 404, 409, 413, 415, 422, 429, 500, 503}),
    ]:
        responses = described["paths"][path][method]["responses"]
        refused = {int(status): response for status, response in responses.items() if int(status) >= 400}
        assert refused.keys() == statuses, method
        for response in refused.values():
            named = described["components"]["responses"][response["$ref"].rpartition("/")[2]]
            assert named["content"] == {"application/problem+json": {"schema": {"$ref": f"{COMPONENTS}Problem"}}}, (
                method
            )


def test_an_example_of_a_body_is_one() -> None:
    for document in EXAMPLES:
        model = next(model for model in DOCUMENTS if model.__name__ == document)
        assert isinstance(parse_document(model, dict(EXAMPLES[document])), model), document


def test_every_body_shows_an_example_of_itself(described: dict[str, Any]) -> None:
    for path, document in (("/v1/checks/{slug}", "CheckDocument"), ("/v1/hooks/{slug}", "HookDocument")):
        body = described["paths"][path]["put"]["requestBody"]["content"]["application/json"]
        assert body["example"] == EXAMPLES[document]
    many = described["paths"]["/v1/experiments/{slug}/exposures"]["post"]["requestBody"]["content"]["application/json"]
    assert many["example"] == [EXAMPLES["Exposure"]]
    plain = [
        (path, method)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        for body in operation.get("requestBody", {}).get("content", {}).values()
        if "example" not in body
    ]
    assert plain == []


def test_every_parameter_says_what_it_is(described: dict[str, Any]) -> None:
    silent = [
        (path, one["name"])
        for path, methods in described["paths"].items()
        for operation in methods.values()
        for one in operation.get("parameters", ())
        if not (one.get("description") or one["schema"].get("description"))
    ]
    assert silent == []
    found = described["paths"]["/v1/tasks/{slug}"]["get"]["parameters"]
    assert [one["description"] for one in found] == ["Name of the annotation task."]


def test_an_import_is_described_in_each_of_its_forms(described: dict[str, Any]) -> None:
    body = described["paths"]["/v1/import"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    judge = Draft202012Validator({"components": described["components"], **body})
    file = {"suite": "docs", "canaries": [{"key": "k", "query": "q", "expected_chunks": "c"}]}
    for form in (file, [file, file], {"files": {"docs.csv": "key,query,id\nk,q,c\n"}}):
        judge.validate(form)
    assert not judge.is_valid({"files": ["docs.csv"]})
