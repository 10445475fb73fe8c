"""The API's description is true: every JSON answer of success has a schema, and answers are what their schema says."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from app.alerts import store as alerts
from app.diagnosis.tables import diagnoses
from tests.support.api_service import Api
from tests.support.described_answers import Description, closed, description
from tests.support.filled_service import app_of, filled_api, names_of
from tests.support.processes import ROOT

PARAMETERS = {
    "/v1/export": {"format": "csv", "suite": "docs"},
    "/v1/compare": {"a": "check:docs", "b": "run:1"},
    "/v1/suites/{suite}/reach": {"retriever": "search"},
    "/v1/suites/{suite}/suggestions": {"retriever": "search"},
    "/v1/tasks/{slug}/next": {"annotator": "Ann"},
    "/v1/tasks/{slug}/items/{item}": {"annotator": "Ann"},
}
"""Those that are required, or without which the answer is no JSON."""


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
        shown = service.get(names.address(path), **PARAMETERS.get(path, {}))
        if shown.keys() == {"items", "next"} and not path.endswith("/reanchors"):
            assert shown["items"], f"{path} has nothing to show"


def shape(value: Any) -> Any:
    """Give the fields that a JSON value has, whatever is in them."""
    if isinstance(value, Mapping):
        return {name: shape(part) for name, part in value.items()}
    return [shape(part) for part in value] if isinstance(value, list) else None


def test_answers_leave_nothing_out_of_the_evidence_that_is_stored(service: Api) -> None:
    """What an answer has is what its type names; a field that only the store knows would be lost without a word."""
    answered = {alert["id"]: alert for alert in service.get("/v1/alerts")["items"]}
    with service.service.store.read() as connection:
        stored = alerts.list_alerts(connection)
        changes = alerts.list_transitions(connection, [row.id for row in stored])
        diagnosis = json.loads(connection.execute(sa.select(diagnoses.c.evidence)).scalars().all()[-1])
    fields: set[str] = set()
    for row in stored:
        assert shape(answered[str(row.id)]["evidence"]) == shape(row.evidence)
        for change, shown in zip(changes[row.id], answered[str(row.id)]["transitions"], strict=True):
            assert shape(shown["evidence"]) == shape(change.evidence)
            fields |= change.evidence.keys()
    assert {"window", "percentile", "canaries", "retriever", "failure", "usual", "by"} <= fields
    shown = service.get("/v1/checks/docs/canaries/oauth/diagnosis")
    of_the_view = {name: shown[name] for name in ("persistent", "rank_before", "rank_now")}
    assert shape({**shown["evidence"], **of_the_view}) == shape(diagnosis)


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
    """Abstract sequences and mappings take pydantic four times as long; see app.base.values."""
    views = [
        part
        for path in (ROOT / "app").rglob("*.py")
        for part in re.findall(
            r"^class \w+\(TypedDict\):\n(?:(?: .*)?\n)+", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert len(views) > 100
    assert [part for part in views if re.search(r": (Sequence|Mapping|Collection)\[", part)] == []
