"""What cannot be used is refused with a problem that names the field, in our words; nothing makes the service fall."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.json_schema import models_json_schema

from app.base.api.bodies import DOCUMENTS, MAX_BODY_BYTES
from app.runs.service.change_feed import Streams
from tests.conftest import Databases
from tests.support.api_service import BASE, CHECK, RETRIEVER, Api, api
from tests.support.asgi_client import TestClient

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with api(tmp_path_factory.mktemp("problems")) as opened:
        opened.docs()
        opened.run()
        yield opened


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def fallible(
    request: pytest.FixtureRequest, databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """Give a service of its own to requests that may change or delete anything."""
    url = getattr(databases, request.param)()
    with api(tmp_path_factory.mktemp("fallible"), database_url=url) as opened:
        short = Streams(opened.service.store, longest_seconds=0.01)  # the client reads a stream to its end
        opened.client.app.state.streams = short  # type: ignore[attr-defined] # it is a FastAPI
        opened.docs()
        opened.run()
        yield opened


def _problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem.keys() >= {"type", "title", "status", "detail"}
    assert problem["status"] == status
    assert problem["type"].startswith("/problems/")
    return problem


def test_a_wrong_body_is_refused_naming_the_field(service: Api) -> None:
    for path, body, expected in [
        ("checks/c", {**CHECK, "shedule": {}}, ("shedule", "unknown key 'shedule'; did you mean 'schedule'?")),
        ("checks/c", {**CHECK, "k": "5"}, ("k", "must be a whole number, not text")),
        ("checks/c", {**CHECK, "schedule": {"every": "soon"}}, ("schedule.every", None)),
        ("checks/c", {**CHECK, "rules": [{"kind": "threshold", "measure": "coverage"}]}, ("rules[0]", None)),
        ("checks/c", {key: CHECK[key] for key in CHECK if key != "suite"}, ("suite", "the key 'suite' is missing")),
        ("checks/BAD", CHECK, ("slug", "must be 1 to 64 lower-case letters, digits and hyphens, not 'BAD'; try 'bad'")),
        ("checks/" + "a" * 65, CHECK, ("slug", None)),
        ("suites/under_score", {}, ("slug", None)),
        ("suites/..%2F..%2Fsecret.key", {}, None),
        ("suites/%2e%2e", {}, ("slug", None)),
        ("suites/a%00b", {}, None),
        ("suites/caf%C3%A9", {}, ("slug", None)),
        ("suites/s", {"canaries": [{"key": "a", "query": ""}]}, ("canaries[0].query", "must not be blank")),
        ("suites/s", [], ("body", "must be a JSON object")),
        ("suites/s", "text", ("body", "must be a JSON object")),
        ("suites/s", None, ("body", "must be a JSON object")),
        ("suites/docs/canaries/c", {"query": "?", "floors": {"R@5": 1.5}}, ("floors.R@5", "must be at most 1")),
        ("retrievers/r", {**RETRIEVER, "response": {"hits": "]["}}, ("response.hits", None)),
        ("hooks/h", {"kind": "slick", "url": "https://example.org"}, ("kind", None)),
        ("hooks/h", {"kind": "slack", "secret": "whsec_x", "url": "https://example.org"}, ("secret", None)),
    ]:  # fmt: skip
        answer = service.client.put(f"/v1/{path}", content=json.dumps(body), headers=JSON)
        if expected is None:
            assert answer.status_code in {400, 404, 405}, path
            assert answer.headers["content-type"] == "application/problem+json", path
            continue
        problem = _problem(answer, 422)
        assert problem["type"] == "/problems/invalid-input", path
        found = {error["path"]: error["message"] for error in problem["errors"]}
        path_, message = expected
        assert path_ in found, found
        assert message in {None, found[path_]}, path
        assert service.client.get(f"/v1/{path}").status_code == 404, "nothing of it was kept"


def test_a_misspelled_key_is_told_before_the_keys_that_are_missing(service: Api) -> None:
    body = {"question": "q", "expected_chunk": "c"}
    problem = _problem(service.client.post("/v1/suites/s/canaries", json=body), 422)
    told = "unknown key 'expected_chunk'; did you mean 'expected_chunks'?"
    assert problem["detail"].endswith(told)
    assert problem["errors"][0]["message"] == told
    assert "is missing" in problem["errors"][-1]["message"]


def test_every_error_of_a_body_is_told_at_once(service: Api) -> None:
    body = {**CHECK, "k": "x", "enabled": 3, "colour": "red"}
    problem = _problem(service.client.put("/v1/checks/c", json=body), 422)
    assert {error["path"] for error in problem["errors"]} == {"k", "enabled", "colour"}


def test_broken_json_says_where(service: Api) -> None:
    for content, message in [
        (b"", "a JSON body is needed"),
        (b"{", "is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        (b"{'a': 1}", "is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        (b"\xff\xfe{}", "is not UTF-8 text"),
        (b'\xef\xbb\xbf{"canaries": []}', None),
        (b'{"a": NaN}', "holds NaN, which JSON does not have; leave the key out or write null"),
        (b'{"a": -Infinity}', "holds -Infinity, which JSON does not have; leave the key out or write null"),
        (b'{"a": 1, "b": 2, "a": 3}', "has the key 'a' twice"),
        (b'{"a": ' + b"9" * 5000 + b"}", "holds a number with too many digits"),
        (b"[" * 100_000, None),
        (b"[" * 200 + b"]" * 200, "is nested more than 40 levels deep"),
        (b'{"a":' * 45 + b"1" + b"}" * 45, "is nested more than 40 levels deep"),
    ]:
        problem = _problem(service.client.put("/v1/suites/s", content=content, headers=JSON), 422)
        (error,) = problem["errors"]
        assert error["path"] == "body", content
        assert message in {None, error["message"]}, content


def test_a_number_beyond_every_float_is_refused_as_not_finite(service: Api) -> None:
    body = b'{"query": "?", "min_relevance_score": 1e999}'
    problem = _problem(service.client.put("/v1/suites/docs/canaries/c", content=body, headers=JSON), 422)
    assert problem["errors"] == [{"path": "min_relevance_score", "message": "must be a finite number"}]


def test_another_content_type_is_refused(service: Api) -> None:
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/yaml", "multipart/form-data", ""]:
        for method, path in (("PUT", "/v1/suites/s"), ("POST", "/v1/checks/docs/runs"), ("POST", "/v1/import")):
            answer = service.client.request(method, path, content=b"{}", headers={"content-type": kind})
            assert _problem(answer, 415)["detail"] == "send JSON with the header Content-Type: application/json", kind


def test_json_by_any_of_its_names_is_taken(service: Api) -> None:
    for kind in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.coalmine+json"):
        answer = service.client.post("/v1/import?dry_run=true", content=b"[]", headers={"content-type": kind})
        assert answer.status_code == 200


def test_a_run_needs_no_body(service: Api) -> None:
    assert service.client.post("/v1/checks/docs/runs").status_code == 202
    assert service.client.post("/v1/checks/docs/runs", content=b"null", headers=JSON).status_code == 202
    service.work()


def test_a_body_too_large_is_refused_whether_it_says_so_or_not(service: Api) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 1_000_000 + 1):
            yield b" " * 1_000_000

    said = service.client.put("/v1/suites/s", content=b" " * (MAX_BODY_BYTES + 1), headers=JSON)
    assert _problem(said, 413)["type"] == "/problems/too-large"
    assert _problem(service.client.put("/v1/suites/s", content=chunks(), headers=JSON), 413)["title"]
    lied = service.client.put("/v1/suites/s", content=b"{}", headers={**JSON, "content-length": "9" * 30})
    assert _problem(lied, 413)
    large = b'{"canaries": []' + b" " * (MAX_BODY_BYTES - 16) + b"}"
    assert service.client.put("/v1/suites/s", content=large, headers=JSON).status_code == 201
    service.client.delete("/v1/suites/s")


def test_a_wrong_wish_queues_nothing(service: Api) -> None:
    for body, path in [
        ({"trigger": "schedule"}, "trigger"),
        ({"wait_seconds": -1}, "wait_seconds"),
        ({"wait_seconds": 301}, "wait_seconds"),
        ({"wait_seconds": "5"}, "wait_seconds"),
        ({"index_version": ""}, "index_version"),
        ({"index_version": "x" * 201}, "index_version"),
        ({"index_version": "\u0000"}, "index_version"),
        ({"index_version": "\udfff"}, "index_version"),
        ({"wait": 1}, "wait"),
    ]:
        before = service.get("/v1/checks/docs/runs")
        answer = service.client.post("/v1/checks/docs/runs", content=json.dumps(body), headers=JSON)
        assert [error["path"] for error in _problem(answer, 422)["errors"]] == [path], body
        assert service.get("/v1/checks/docs/runs") == before, body


def test_a_wrong_parameter_is_named(service: Api) -> None:
    for address, path, message in [
        ("/v1/checks?limit=0", "limit", "must be at least 1"),
        ("/v1/checks?limit=501", "limit", "must be at most 500"),
        ("/v1/checks?limit=many", "limit", "must be a whole number"),
        (f"/v1/checks?limit={'9' * 5000}", "limit", None),
        ("/v1/checks?limt=5", "limt", "unknown parameter; did you mean 'limit'?"),
        ("/v1/checks?page=2", "page", "unknown parameter"),
        ("/v1/suites/docs?verbose=1", "verbose", "unknown parameter"),
        ("/v1/checks/docs/runs?after=x", "after", "must be a whole number"),
        (f"/v1/checks/docs/runs?after={2**63}", "after", None),
        (f"/v1/alerts?after={2**63}", "after", None),
        (f"/v1/deliveries?after={2**70}", "after", None),
        ("/v1/runs/1/results?after=-2", "after", "must be at least -1"),
        ("/v1/runs/1/results?verdict=fine", "verdict", "must be one of healthy, degraded, unknown, not 'fine'"),
        ("/v1/alerts?check=NO%20SLUG", "check", None),
        ("/v1/deliveries?hook=", "hook", None),
        ("/v1/checks/docs/series?from=now", "from", "must be a time such as 2026-01-31T12:00:00Z"),
    ]:
        (error,) = _problem(service.client.get(address), 422)["errors"]
        assert error["path"] == path, address
        assert message in {None, error["message"]}, address


def test_an_idempotency_key_has_bounds(service: Api) -> None:
    for key in ("", "x" * 201):
        answer = service.client.post("/v1/checks/docs/runs", headers={"idempotency-key": key})
        assert [error["path"] for error in _problem(answer, 422)["errors"]] == ["idempotency-key"]


def test_control_characters_in_an_address_are_refused(service: Api) -> None:
    for address in ("/v1/suites/%00", "/v1/suites?after=%00", "/v1/runs/1/results?tag=%0d%0aset-cookie:x"):
        assert _problem(service.client.get(address), 400)["detail"] == "it holds control characters"


def test_what_cannot_be_done_says_what_can(service: Api) -> None:
    answer = service.client.request("PATCH", "/v1/suites/docs")
    assert _problem(answer, 405)["type"] == "/problems/method-not-allowed"
    assert service.client.delete("/v1/checks").status_code == 405


def test_head_answers_like_get_without_the_body(service: Api) -> None:
    for path in ("/livez", "/v1/checks/docs", "/metrics", "/openapi.json"):
        head, whole = service.client.head(path), service.client.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]
    assert service.client.head("/v1/checks/nope").status_code == 404


def test_what_was_sent_is_not_repeated_where_it_could_be_a_secret(service: Api) -> None:
    """What is JSON has its tests with the secrets of each kind, in catalog and hooks."""
    secret = "hunter2-correct-horse"
    broken = service.client.put("/v1/hooks/h", content=f'{{"secret": "{secret}" oops', headers=JSON)
    _problem(broken, 422)
    assert secret not in broken.text


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 2**63, 10**40, 1e308, 0.1, "", "docs", "search", "1h", "\u0000", "\ud800", "coverage"])
    | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False)
)
SCHEMAS = models_json_schema([(model, "validation") for model in DOCUMENTS])[1]["$defs"].values()
NAMES = st.sampled_from(sorted({name for schema in SCHEMAS for name in schema.get("properties", {})}))
BODIES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=5),
    max_leaves=12,
)
PARTS = st.sampled_from(["docs", "search", "ops", "oauth", "1", "0", "..", "%2F", "%00", "a" * 70, "-", "٣", "9" * 25])
FINE: dict[str, Any] = {
    "checks": CHECK,
    "retrievers": RETRIEVER,
    "suites": {"canaries": [{"key": "k", "query": "q", "expected_chunks": ["c"]}]},
    "hooks": {"kind": "webhook", "url": "https://example.org"},
}


@st.composite
def nearly_right(draw: st.DrawFn) -> Any:
    """Draw a body of one of the documents with one field replaced by anything."""
    body = dict(draw(st.sampled_from(list(FINE.values()))))
    body[draw(st.sampled_from([*body]) | NAMES)] = draw(BODIES)
    return body


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_request_makes_the_service_fall(fallible: Api, data: st.DataObject) -> None:
    paths = fallible.client.app.openapi()["paths"]  # type: ignore[attr-defined] # it is a FastAPI
    path, method = data.draw(
        st.sampled_from([(path, method) for path in sorted(paths) for method in sorted(paths[path])])
    )
    operation = paths[path][method]
    address = path
    parameters: dict[str, str] = {}
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            address = address.replace(f"{{{parameter['name']}}}", data.draw(PARTS), 1)
        elif parameter["in"] == "query" and parameter["name"] != "wait_seconds" and data.draw(st.booleans()):
            value = data.draw(SCALARS)
            text = str(value).encode("utf-8", "replace").decode()
            parameters[parameter["name"]] = text
    body = data.draw(BODIES | nearly_right()) if "requestBody" in operation else None
    if isinstance(body, dict) and isinstance(body.get("wait_seconds"), int | float):
        body["wait_seconds"] = min(body["wait_seconds"], 0)
    content = json.dumps(body) if body is not None else None
    answer = fallible.client.request(method, address, params=parameters, content=content, headers=JSON)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        problem = _problem(answer, answer.status_code)
        for error in problem.get("errors", []):
            assert error["message"]
            assert not error["message"].startswith(("Input ", "String ", "Value error", "Assertion")), "not our words"


def test_a_bug_is_told_as_one_without_its_insides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def wake(self) -> None:
            raise RuntimeError("an inside of the service")

    with api(tmp_path) as service:
        app = service.client.app
        app.state.worker = Broken()  # type: ignore[attr-defined] # it is a FastAPI
        client = TestClient(app, base_url=BASE, raise_server_exceptions=False)
        problem = _problem(client.post("/v1/import", json=[]), 500)
    assert problem["type"] == "/problems/bug"
    assert "inside" not in json.dumps(problem)
    assert "an inside of the service" in caplog.text, "the log has it"
