"""Requests that ask too much: each route of the service is walked with bodies that are too large, deep or numerous.

A route that is added is walked too. Then the limits of unknown keys and of expensive work under way.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts

from app.base.api.bodies import MAX_BODY_BYTES
from app.base.api.requests import Access, Attempts, Turns
from app.base.db.keys import Scope
from app.base.documents.fields import MOST_PROBLEMS
from app.base.errors import BusyError, TooManyRequestsError
from app.base.values import replace
from tests.support.api_service import Api, api, bearer
from tests.support.fakes import FakeClock
from tests.support.filled_service import app_of, filled_api, names_of

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
PROBLEM = "application/problem+json"
TOO_MUCH = {
    "levels": b'{"a":' * 41 + b"1" + b"}" * 41,
    "levels without end": b"[" * 1_000_000,
    "values": b'{"canaries": [' + b",".join([b"{}"] * 1_000_001) + b"]}",
    "entries of a list": b'{"queries": [' + b",".join([b"1"] * 100_001) + b"]}",
    "entries of an object": b"{" + b",".join(b'"k%d":1' % at for at in range(2_001)) + b"}",
    "digits": b'{"k": ' + b"9" * 5_000 + b"}",
}
"""JSON bodies of which nothing is to be built."""
LARGE = {
    "/import", "/new-retriever", "/retrievers/{slug}/map", "/retrievers/{slug}/try", "/suites/{suite}/add",
    "/suites/{suite}/canaries/{key}",
}  # fmt: skip
"""Pages whose forms carry files, answers or texts."""
NO_FORM = {
    "/experiments/{slug}/archive", "/experiments/{slug}/restart", "/experiments/{slug}/stop",
    "/interleavings/{slug}/delete", "/promotions/{slug}/delete",
    "/keys/{prefix}/revoke",
    "/keys/{prefix}/successor",
    "/checks/{slug}/public-link", "/checks/{slug}/public-link/revoke",
    "/checks/{slug}/archive", "/checks/{slug}/canaries/{key}/diagnosis", "/checks/{slug}/canaries/{key}/try",
    "/checks/{slug}/runs", "/hooks/{slug}/archive", "/hooks/{slug}/replay", "/hooks/{slug}/test", "/logout",
    "/rescorings/{rescoring_id}/retry", "/retrievers/{slug}/archive", "/shadows/{slug}/delete", "/silences/{slug}/end",
    "/suites/{suite}/archive", "/suites/{suite}/canaries/{key}/archive", "/tasks/{slug}/adopt",
    "/tasks/{slug}/archive", "/tasks/{slug}/pool", "/tasks/{slug}/regrade",
}  # fmt: skip
"""Pages that read nothing of what is posted to them, but the token of a session."""
OTLP = "/v1/otlp/"
"""Its specification says 400 where a body cannot be read."""
SIGNING_IN = "/login"
"""Has a limit of its own, see `test_a_form_too_large_or_of_unknown_size_is_not_read`."""
EXPENSIVE = {
    "POST /v1/import", "GET /v1/export", "GET /v1/compare", "GET /v1/runs/{before}/diff/{now}",
    "GET /v1/runs/{run_id}/report", "GET /v1/checks/{slug}/quality", "POST /v1/checks/{slug}/canaries/{key}/diagnosis",
    "POST /v1/retrievers/{slug}/try", "POST /v1/corpora/{corpus}", "POST /v1/suites/{suite}/traffic",
    "POST /v1/otlp/{suite}/v1/traces",
    "POST /v1/shadows/{slug}/pairs",
    "GET /v1/tasks/{slug}/agreement", "GET /v1/tasks/{slug}/budget", "GET /v1/tasks/{slug}/recall",
    "GET /v1/tasks/{slug}/disagreements", "POST /v1/tasks/{slug}/regrade", "POST /v1/tasks/{slug}/adopt",
    "GET /v1/tasks/{slug}/annotations",
    "POST /v1/tasks/{slug}/annotations", "GET /compare", "GET /compare/canary", "GET /checks/{slug}/quality",
    "GET /traffic", "GET /suites/{suite}/export", "POST /import", "POST /checks/{slug}/canaries/{key}/try",
    "POST /checks/{slug}/canaries/{key}/diagnosis", "POST /alerts/{alert_id}/diagnosis",
    "POST /retrievers/{slug}/try", "POST /new-retriever",
    "POST /retrievers/{slug}/map", "POST /tasks/{slug}/adopt", "GET /tasks/{slug}/annotations.csv",
}  # fmt: skip
"""Routes whose work grows with a suite, or waits for a retriever."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service of which everything that can be shown is there."""
    with filled_api(tmp_path_factory.mktemp("limits")) as opened:
        yield opened


def routes_of(service: Api) -> list[tuple[str, str]]:
    """List (method, path) of every route."""
    routes = [one for one in iter_route_contexts(app_of(service).routes) if one.methods is not None]
    return sorted((method, str(one.path)) for one in routes for method in (one.methods or set()) - {"HEAD"})


def taking_json(service: Api) -> list[tuple[str, str]]:
    """List (method, address) of the routes that take JSON, by the description of the API."""
    names, found = names_of(service), []
    for path, methods in app_of(service).openapi()["paths"].items():
        for method, operation in methods.items():
            known = {one["name"] for one in operation.get("parameters", ())}
            query = "&".join(f"{name}={value}" for name, value in names.queries_of(path).items() if name in known)
            if "requestBody" in operation:
                found.append((method.upper(), f"{names.address(path)}?{query}"))
    assert len(found) >= 25
    return found


# --- bodies --------------------------------------------------------------------------------------------------


def test_no_route_takes_a_body_beyond_the_limit(service: Api) -> None:
    names, walked, content = names_of(service), 0, b"x" * (MAX_BODY_BYTES + 1)
    for method, path in routes_of(service):
        for headers in (JSON, FORM):
            answer = service.client.request(method, names.address(path), content=content, headers=headers)
            assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM), (method, path)
            walked += 1
    assert walked > 300


def test_no_route_reads_on_where_a_body_without_a_length_exceeds_the_limit(service: Api) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 1_000_000

    for method, address in taking_json(service):
        answer = service.client.request(method, address, content=endless(), headers=JSON)
        assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM), (method, address)


@pytest.mark.parametrize("much", TOO_MUCH)
def test_no_route_builds_json_that_holds_too_much(service: Api, monkeypatch: pytest.MonkeyPatch, much: str) -> None:
    content = TOO_MUCH[much]
    built: list[Any] = []
    whole = json.loads

    def loads(text: str, **more: Any) -> Any:
        value = whole(text, **more)
        built.extend([value] if text == content.decode() else [])
        return value

    monkeypatch.setattr("app.base.api.bodies.json.loads", loads)
    # All read bodies by one function, as the cheapest of these shows; the others are shown by three routes.
    for method, address in taking_json(service)[:: 1 if much == "levels" else 20]:
        answer = service.client.request(method, address, content=content, headers=JSON)
        status = 400 if address.startswith(OTLP) else 422
        assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), (method, address)
        assert [one["path"] for one in whole(answer.text)["errors"]] == ["body"], (method, address)
    assert built == []


def test_no_form_takes_more_fields_files_or_text_than_its_limits(service: Api) -> None:
    names, walked = names_of(service), 0
    for method, path in routes_of(service):
        if method == "GET" or path.startswith("/v1/"):
            continue
        address = names.address(path)
        separators = service.client.request(method, address, content=b"&" * 1_000_001, headers=FORM)
        assert separators.status_code == 413 or path in LARGE | NO_FORM | {SIGNING_IN}, (method, path)
        walked += 1
        if path not in LARGE | {SIGNING_IN, "/new-hook"}:
            continue
        many = service.client.request(method, address, content="a=1&" * 20_000, headers=FORM)
        assert many.status_code < 500, (method, path)
        files = {f"f{at}": ("a.csv", b"query\n") for at in range(60)}
        assert service.client.request(method, address, files=files).status_code < 500, (method, path)
        long = service.client.request(method, address, files={"a": (None, b"x" * 6_000_000)})
        assert long.status_code < 500, (method, path)
    assert walked > 40


def test_a_form_says_how_long_it_is(service: Api) -> None:
    def parts() -> Iterator[bytes]:
        yield b"note=seen"

    answer = service.client.post("/alerts/1/acknowledge", content=parts(), headers=FORM)
    assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)


@pytest.mark.parametrize(
    ("form", "name", "text"),
    [
        ("csv", "a.csv", "query,id,floors\nwhat?,a," + "[" * 90_000 + "\n"),
        ("jsonl", "a.jsonl", '{"question": "x", "a": ' + "[" * 90_000 + "\n"),
        ("jsonl", "a.jsonl", '{"question": "x", "a": [' + "{}," * 1_000_001 + "{}]}\n"),
        ("rre", "a.json", "[" + "{}," * 1_000_001 + "{}]"),
        ("quepid", "a.json", '{"queries": [' + "{}," * 1_000_001 + "{}]}"),
        ("beir", "queries.jsonl", '{"_id": "1", "text": "x", "a": [' + "{}," * 1_000_001 + "{}]}\n"),
        ("coalmine", "a.yaml", "canaries: [" + "{}," * 300_000 + "{}]"),
    ],
)
def test_no_file_within_a_body_holds_more_than_a_body_may(service: Api, form: str, name: str, text: str) -> None:
    answer = service.client.post(
        "/v1/import", params={"format": form, "suite": "s", "dry_run": "true"}, json={"files": {name: text}}
    )
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM), answer.text[:300]


@pytest.mark.parametrize("path", ["/v1/corpora/big", "/v1/suites/docs/traffic?retriever=search"])
def test_no_line_within_an_upload_does_either(service: Api, path: str) -> None:
    line = '{"_id": "1", "query": "x", "text": "x", "a": [' + "{}," * 1_000_001 + "{}]}\n"
    answer = service.client.post(path, json={"files": {"a.jsonl": line}})
    assert answer.status_code == 422
    assert "is not JSON" in answer.text


def test_of_thousands_of_unknown_parameters_the_first_are_told(service: Api) -> None:
    answer = service.client.get("/v1/checks", params={f"k{at}": "1" for at in range(5_000)})
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == MOST_PROBLEMS


# --- unknown keys --------------------------------------------------------------------------------------------


def test_unknown_keys_are_answered_for_a_while_only_and_known_ones_always(tmp_path: Path) -> None:
    with api(tmp_path) as opened:
        clock = FakeClock()
        state = app_of(opened).state
        state.access = replace(state.access, unknown_keys=Attempts(most=3, clock=lambda: clock().timestamp()))
        key = opened.key(Scope.READ)

        def status(presented: str | None) -> int:
            headers = {} if presented is None else bearer(presented)
            return opened.client.get("/v1/checks", headers=headers).status_code

        assert [status("cmk_read_guessed") for _ in range(5)] == [401] * 3 + [429] * 2
        refused = opened.client.get("/metrics", headers=bearer("cmk_read_guessed"))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert refused.json()["type"] == "/problems/too-many-requests"
        assert opened.client.post("/login", data={"key": "guessed"}).status_code == 429, "one limit for both"
        assert status(key) == 200
        assert status(None) == 401, "whoever sends no key guesses none"
        clock.advance(2)
        assert status("cmk_read_guessed") == 401


# --- expensive work ------------------------------------------------------------------------------------------


def test_a_key_and_a_process_have_so_many_turns_and_get_them_back() -> None:
    turns = Turns(most=3, most_of_a_key=2)
    with turns.take("a"), turns.take("a"):
        with pytest.raises(TooManyRequestsError, match="2 expensive requests"), turns.take("a"):
            pytest.fail("there was none")
        with turns.take("b"), pytest.raises(BusyError, match="3 expensive requests"), turns.take("c"):
            pytest.fail("there was none")
        with turns.take(None):
            pass
    with pytest.raises(ZeroDivisionError), turns.take("a"):
        raise ZeroDivisionError
    with turns.take("a"), turns.take("a"), turns.take("b"):
        pass


def test_an_expensive_route_waits_for_no_turn_and_others_need_none(service: Api) -> None:
    names, state = names_of(service), app_of(service).state
    before: Access = state.access
    refused = set()
    try:
        for method, path in routes_of(service):
            state.access = replace(before, turns=Turns(most=0))
            seconds = {"seconds": "0.1"} if path.endswith("/events") else {}
            parameters = {**names.queries_of(path), **seconds}
            body: Any = None if method == "GET" or "{" in path else {}
            if f"{method} {path}" not in EXPENSIVE and method in {"DELETE", "PUT"}:
                continue  # would change what the next ones are about
            answer = service.client.request(
                method, names.address(path), params=parameters, json=body, follow_redirects=False
            )
            if answer.status_code == 503:
                assert answer.headers["retry-after"]
                assert "expensive requests are under way" in answer.text
                refused.add(f"{method} {path}")
    finally:
        state.access = before
    assert refused == EXPENSIVE
