"""The MCP probe: each way a tool can fail has its outcome, results of every shape are read, the transport is ours."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from app.base.addresses import AddressPolicy, Bearer, OAuth2, hook_policy, parse_allow, retriever_policy
from app.base.errors import InvalidInputError
from app.base.values import Answer, Outcome, replace
from app.retrievers.client.compiled_retriever import traceparent
from app.retrievers.client.credentials import MASK, Keyring
from app.retrievers.client.endpoint_client import EndpointClient
from app.retrievers.client.mcp_probe import McpProbe
from app.retrievers.domain.retrievers import (
    Dialect,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
    Scorer,
    ScorerKind,
)
from tests.support.certificates import Authority, serving
from tests.support.http_servers import HANG, SILENCE, Reply, Seen, peer, reply
from tests.support.mcp_peers import Refusal, Tool, events, refused, result
from tests.support.probed import answers_of

ABSENT = "; if that means nothing found, set response.absent to empty"
HITS = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]


def probe_by(policy: AddressPolicy) -> McpProbe:
    return McpProbe(EndpointClient(policy=policy, keyring=Keyring(policy, "coalmine/1.0"), user_agent="coalmine/1.0"))


PROBE = probe_by(retriever_policy())


def retriever(url: str, **changes: Any) -> Retriever:
    plain = Retriever(
        slug="docs",
        url=f"{url}/mcp",
        dialect=Dialect.MCP,
        tool="search",
        json={"query": "{{ query }}", "top_k": "{{ k }}"},
        response=ResponseMapping(hits="result", id="id", text="text"),
        scorer=Scorer(kind=ScorerKind.JUDGED),
        retries=0,
        max_body_bytes=100_000,
    )
    return replace(plain, **changes)


def answers(described: Retriever, queries: Sequence[str], probe: McpProbe = PROBE, **more: Any) -> list[Answer]:
    """Ask everything; each position must come once."""
    return answers_of(described, *queries, probe=partial(probe, **more), k=3)


def answer_to(told: Any, **changes: Any) -> Answer:
    """Ask a tool that answers like this one question."""
    with peer(Tool(call=lambda _: told)) as server:
        return answers(retriever(server.url, **changes), ["why?"])[0]


@pytest.mark.parametrize(
    "told",
    [
        result({"result": HITS}),
        result({"result": HITS}, "for people"),
        result(None, json.dumps({"result": HITS})),
        result(None, json.dumps(HITS)),
        result(None, *map(json.dumps, HITS)),
        events(json.dumps({"jsonrpc": "2.0", "id": 3, "result": result({"result": HITS})})),
    ],
)
def test_results_of_every_shape_are_read(told: Any) -> None:
    found = answer_to(told)
    assert (found.outcome, found.detail) == (Outcome.OK, None)
    assert found.ranking is not None
    assert (found.ranking.ids, found.ranking.texts) == (("a", "b"), ("one", "two"))
    assert found.latency_seconds > 0


def test_token_that_was_forgotten_is_replaced_within_the_session() -> None:
    valid, granted = {"t-1"}, iter(range(1, 10))
    following: list[str] = []  # the token that is known instead once a tool was called

    def grant(_: Seen) -> Reply:
        return reply(json.dumps({"access_token": f"t-{next(granted)}", "expires_in": 3600}).encode())

    def forgetful(seen: Seen) -> Reply:
        known = seen.headers["authorization"].removeprefix("Bearer ") in valid
        return tool(seen) if known else reply(b"", 401)

    def call(_: Mapping[str, Any]) -> Any:
        if following:
            valid.clear()
            valid.add(following.pop())
        return result({"result": HITS})

    tool = Tool(call=call)
    with peer(grant) as tokens, peer(forgetful) as server:
        auth = OAuth2(token_url=tokens.url, client_id="c", client_secret="s-0123456789")
        described, probe = retriever(server.url, auth=auth, concurrency=1), probe_by(retriever_policy())
        assert answers(described, ["why?"], probe)[0].outcome is Outcome.OK
        valid.clear()
        valid.add("t-2")
        assert answers(described, ["why?"], probe)[0].outcome is Outcome.OK  # refused as the session opened
        following.append("t-3")  # between two calls of a session, too
        found = answers(described, ["why?", "when?"], probe)
        assert [found[number].outcome for number in range(2)] == [Outcome.OK, Outcome.OK]
        valid.clear()
        assert answers(described, ["why?", "when?"], probe)[0].http_status == 401
        assert len(tokens.seen) == 4


def test_plain_text_is_read_as_blocks_of_content() -> None:
    found = answer_to(result(None, "one", '"two"'), response=ResponseMapping(hits="content", text="text"))
    assert found.ranking is not None
    assert found.ranking.texts == ("one", '"two"')


def test_empty_result_is_an_answer() -> None:
    found = answer_to(result({"result": []}))
    assert found.outcome is Outcome.OK
    assert found.ranking is not None
    assert len(found.ranking) == 0


@pytest.mark.parametrize(
    ("told", "outcome", "status", "detail"),
    [
        (result(None, "secret", failed=True), Outcome.REFUSED, None, "the tool answered that it failed"),
        (
            result({"error": {"message": "index is loading"}}, failed=True),
            Outcome.REFUSED,
            None,
            "the tool answered that it failed: “index is loading”",
        ),
        (Refusal(code=-32602), Outcome.REFUSED, None, "the server answered with the error -32602 (invalid params)"),
        (Refusal(code=-1, status=400), Outcome.REFUSED, None, "the server answered with the error -1"),
        (refused(None, -32600), Outcome.REFUSED, None, "the server answered with the error -32600 (invalid request)"),
        (refused([], -1), Outcome.MALFORMED, 200, "the answer is not MCP's"),
        (refused(99, -1), Outcome.MALFORMED, 200, "the answer is not MCP's"),
        (reply(b'{"jsonrpc": "2.0", "method": "ping", "id": 4}'), Outcome.MALFORMED, 200, "the answer is not MCP's"),
        (
            result({"hits": ["secret"]}),
            Outcome.MALFORMED,
            None,
            f"result: missing, though response.hits is mapped to it{ABSENT}",
        ),
        ({"content": "secret"}, Outcome.MALFORMED, None, "the answer is not MCP's (ValidationError)"),
        (reply(b"secret"), Outcome.MALFORMED, 200, "the answer is not MCP's"),
        (
            reply(b"<html>secret", headers={"content-type": "text/html"}),
            Outcome.MALFORMED,
            None,
            "the answer is not MCP's",
        ),
        (events("secret"), Outcome.MALFORMED, None, "the answer is not MCP's"),
        (events(), Outcome.MALFORMED, None, "the answer is not MCP's"),
        (reply(b"words", 500), Outcome.REFUSED, 500, "answered 500 Internal Server Error: “words”"),
        (reply(b'{"error": "words"}', 401), Outcome.REFUSED, 401, "answered 401 Unauthorized: “words”"),
        (
            reply(b"", 307, {"location": "/elsewhere?secret"}),
            Outcome.REFUSED,
            307,
            "answered 307 Temporary Redirect; redirects to http://127.0.0.1/elsewhere, which is not followed",
        ),
        (reply(bytes(200_000)), Outcome.OVERSIZE, 200, "the answer is larger than 100,000 bytes"),
        (SILENCE, Outcome.UNREACHABLE, None, "the connection was closed without an answer"),
        (HANG, Outcome.TIMEOUT, None, "no complete answer within 0.3 s"),
    ],
)
def test_every_failure_has_its_outcome_and_quotes_nothing(
    told: Any, outcome: Outcome, status: int | None, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = answer_to(told, timeout_seconds=0.3 if told is HANG else 10.0)
    said = re.sub(r":\d+/elsewhere", "/elsewhere", found.detail or "")
    assert (found.outcome, found.http_status, said) == (outcome, status, detail)
    assert found.ranking is None
    assert "secret" not in str(found)
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"result": {"type": "string"}}},
        {"type": "object", "properties": {"result": {"items": {"properties": {"id": {"pattern": "^(b+)+$"}}}}}},
        {"type": "object", "properties": {"result": {"items": {"properties": {"id": {"pattern": "(unclosed"}}}}}},
        {"type": "object", "$ref": "https://elsewhere.example/schema"},
        {"type": "no type at all"},
    ],
)
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_result_is_never_held_against_a_schema_of_the_servers(schema: dict[str, Any], version: str) -> None:
    """Its patterns and references may take for ever to follow, in the process that watches everything else."""
    told = {**result({"result": HITS}), "resultType": "complete"}
    with peer(Tool(call=lambda _: told, schema=schema, version=version)) as server:
        found = answers(retriever(server.url), ["why?"])[0]
    assert (found.outcome, found.detail) == (Outcome.OK, None)
    assert found.ranking is not None
    assert found.ranking.ids == ("a", "b")


def test_tool_that_asks_something_back_is_no_answer() -> None:
    asks_back = {"resultType": "input_required", "requestState": "secret"}
    with peer(Tool(call=lambda _: asks_back, version="2026-07-28")) as server:
        found = answers(retriever(server.url), ["why?"])[0]
    assert (found.outcome, found.detail) == (Outcome.MALFORMED, "the answer is not MCP's (ValidationError)")


PING = json.dumps({"jsonrpc": "2.0", "method": "ping", "id": 7})


@pytest.mark.parametrize("ended", ["\n\n", "\r\n\r\n", "\r\r", "\n\r"])
def test_stream_of_more_events_than_anybody_needs_is_not_answered(ended: str) -> None:
    told = reply(f"data: {PING}{ended}".encode() * 1_500, headers={"content-type": "Text/Event-Stream;charset=utf-8"})
    tool = Tool(call=lambda _: told)
    with peer(tool) as server:
        found = answers(retriever(server.url, max_body_bytes=1_000_000), ["why?"])[0]
    assert (found.outcome, found.detail) == (Outcome.OVERSIZE, "the answer has more than 1,000 events")
    assert tool.answers == 0


def test_charset_hides_no_events() -> None:
    told = f"data: {PING}\n\n".encode("utf-16") * 1_500
    tool = Tool(call=lambda _: reply(told, headers={"content-type": "text/event-stream; charset=utf-16"}))
    with peer(tool) as server:
        assert answers(retriever(server.url, max_body_bytes=1_000_000), ["why?"])[0].outcome is not Outcome.OK
    assert tool.answers == 0


def test_some_events_before_the_answer_are_borne() -> None:
    final = json.dumps({"jsonrpc": "2.0", "id": 3, "result": result({"result": HITS})})
    with peer(Tool(call=lambda _: events(*[PING] * 20, final))) as server:
        assert answers(retriever(server.url), ["why?"])[0].outcome is Outcome.OK


def test_stream_that_breaks_off_again_and_again_is_given_up() -> None:
    broken = reply(b"retry: 0\nid: 1\ndata:\n\n", headers={"content-type": "text/event-stream"})
    tool = Tool(call=lambda _: broken, resumed=broken)
    with peer(tool) as server:
        found = answers(retriever(server.url), ["why?"])[0]
    assert (found.outcome, found.detail) == (Outcome.MALFORMED, "the answer is not MCP's")
    assert 0 < tool.methods.count("GET") <= 3 * 8


@pytest.mark.parametrize(
    ("told", "outcome", "status"),
    [
        (reply(b"", 401), Outcome.REFUSED, 401),
        (reply(b"<html>", 404), Outcome.REFUSED, 404),
        (reply(b"", 302, {"location": "http://127.0.0.1:1/"}), Outcome.REFUSED, 302),
        (reply(b"no", 200, {"content-type": "text/plain"}), Outcome.MALFORMED, None),
        (SILENCE, Outcome.UNREACHABLE, None),
    ],
)
def test_server_without_a_session_fails_every_canary(told: Reply, outcome: Outcome, status: int | None) -> None:
    with peer(told) as server:
        found = answers(retriever(server.url), ["one", "two", "three"])
    assert {(answer.outcome, answer.http_status) for answer in found} == {(outcome, status)}


@pytest.mark.parametrize("policy", [hook_policy(), retriever_policy(parse_allow("10.0.0.0/8, search.example"))])
def test_address_outside_the_policy_is_blocked(policy: AddressPolicy) -> None:
    with peer(Tool()) as server:
        found = answers(retriever(server.url), ["why?"], probe_by(policy))[0]
        assert server.connections == 0
    assert found.outcome is Outcome.BLOCKED
    assert str(found.detail).startswith("not allowed to connect: ")


def test_session_is_opened_once_a_run_and_closed() -> None:
    tool = Tool()
    with peer(tool) as server:
        found = answers(retriever(server.url, concurrency=4), [f"query {number}" for number in range(20)])
    assert {answer.outcome for answer in found} == {Outcome.OK}
    assert tool.methods[:3] == ["server/discover", "initialize", "notifications/initialized"]
    assert tool.methods.count("initialize") == 1
    assert tool.methods.count("tools/call") == 20
    assert tool.methods[-1] == "DELETE"


def test_all_answers_of_a_busy_run_find_their_canary() -> None:
    def call(arguments: Mapping[str, Any]) -> Any:
        assert arguments["top_k"] == 3
        return result({"result": [{"id": arguments["query"], "text": ""}]})

    queries = [f'"query" {number}\n{{{{ k }}}} \\ ü' for number in range(50)]
    with peer(Tool(call=call)) as server:
        found = answers(retriever(server.url, concurrency=8), queries)
    for position, query in enumerate(queries):
        ranking = found[position].ranking
        assert ranking is not None
        assert ranking.ids == (query,)


def test_request_says_who_asks_and_for_which_run() -> None:
    with peer(Tool()) as server:
        described = retriever(server.url, auth=Bearer(token="hunter2"), headers={"X-Team": "search"})
        assert answers(described, ["why?"])[0].outcome is Outcome.OK
        seen: list[Seen] = list(server.seen)
    assert {one.headers["user-agent"] for one in seen} == {"coalmine/1.0 (+run run-7)"}
    assert {one.headers["traceparent"] for one in seen} == {traceparent("run-7")}
    assert {one.headers["authorization"] for one in seen} == {"Bearer hunter2"}
    assert {one.headers["x-team"] for one in seen} == {"search"}
    assert {one.headers["mcp-session-id"] for one in seen[2:]} == {"session-7"}
    assert seen[1].headers["accept"] == "application/json, text/event-stream"
    client = json.loads(seen[1].body)["params"]["clientInfo"]
    assert (client["name"], client["version"]) == ("coalmine", "1.0")


def test_server_may_ask_for_a_certificate(tmp_path: Path) -> None:
    authority = Authority()
    context = serving(tmp_path, authority.issue("localhost"), clients=authority)
    with peer(Tool(), tls=context) as server:
        url = f"https://localhost:{server.port}"
        assert answers(retriever(url, tls=authority.issue("watcher")), ["why?"])[0].outcome is Outcome.OK
        assert answers(retriever(url), ["why?"])[0].outcome is Outcome.UNREACHABLE


def test_transport_failure_is_asked_again_and_a_bad_answer_is_not() -> None:
    first = threading.Lock()

    def call(arguments: Mapping[str, Any]) -> Any:
        if arguments["query"] == "bad":
            return result({})
        return SILENCE if first.acquire(blocking=False) else result({"result": HITS})

    tool = Tool(call=call)
    with peer(tool) as server:
        assert answers(retriever(server.url, retries=1), ["why?"])[0].outcome is Outcome.OK
        assert tool.methods.count("tools/call") == 2
        assert answers(retriever(server.url, retries=1), ["bad"])[0].outcome is Outcome.MALFORMED
        assert tool.methods.count("tools/call") == 3


def test_vector_is_an_argument() -> None:
    heard: list[Any] = []

    def call(arguments: Mapping[str, Any]) -> Any:
        heard.append(arguments["vector"])
        return result({"result": []})

    with peer(Tool(call=call)) as server:
        described = retriever(server.url, json={"vector": "{{ vector }}"}, embedder=cast("Any", object()))
        answers(described, ["why?"], vectors={"why?": [0.5, 1.0]})
    assert heard == [[0.5, 1.0]]


def test_half_a_character_is_replaced() -> None:
    with peer(Tool()) as server:
        assert answers(retriever(server.url), ["half \ud800 a character"])[0].outcome is Outcome.OK


def test_closing_stops_asking() -> None:
    tool = Tool(call=lambda asked: result({"result": []}) if asked["query"] == "first" else HANG)
    with peer(tool) as server:
        described = retriever(server.url, concurrency=2, timeout_seconds=60.0)
        asks = [ProbeQuery(position=n, query="first" if n == 0 else "later") for n in range(50)]
        batches = PROBE(ProbeContext(retriever=described, k=3, run_id="run-7"), asks)
        with closing(cast("Generator[Any, None, None]", batches)):
            assert [position for position, _ in next(batch for batch in batches if batch)] == [0]
        left = {thread.name for thread in threading.enumerate()}
        assert not [name for name in left if name.startswith(("mcp", "transport"))]
        assert tool.methods.count("tools/call") <= 4


def test_exchange_is_shown_without_secrets() -> None:
    tool = Tool(call=lambda _: result(None, "hunter2 is not a tool", failed=True))
    with peer(tool) as server:
        described = retriever(server.url, auth=Bearer(token="hunter2"))
        asking = ProbeContext(retriever=described, k=3, run_id="run-7", shows=True)
        ((_, answer),) = [pair for batch in PROBE(asking, [ProbeQuery(position=0, query="hunter2?")]) for pair in batch]
    assert answer.exchange is not None
    assert answer.exchange.method == "tools/call search"
    assert answer.exchange.request_body == f'{{"query":"{MASK}?","top_k":3}}'
    assert answer.exchange.response_body == f'{{"content": [{{"type": "text", "text": "{MASK} is not a tool"}}]}}'


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"tool": None}, "tool", "is missing"),
        ({"json": None}, "json", "must be an object"),
        ({"json": ["{{ query }}"]}, "json", "must be an object"),
        ({"url": "http://127.0.0.1:1/{{ query }}"}, "url", "cannot hang on what is asked"),
        ({"url": "file:///etc/passwd"}, "url", "must begin with http"),
        ({"json": {"q": "{{ quary }}"}}, "json", "not a known placeholder"),
    ],
)
def test_tool_that_cannot_be_called_is_refused_before_asking(changes: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        PROBE(ProbeContext(retriever=replace(retriever("http://127.0.0.1:1"), **changes), k=3, run_id="run-7"), [])
    (problem,) = caught.value.problems
    assert problem.path == path
    assert message in problem.message


WITHOUT = """
import sys
sys.modules["mcp"] = None
from tests.retrievers.test_mcp_probe import PROBE, ProbeContext, InvalidInputError, retriever
try:
    PROBE(ProbeContext(retriever=retriever("http://127.0.0.1:1"), k=3, run_id="run-7"), [])
except InvalidInputError as error:
    print(error)
"""


def test_missing_extra_is_named() -> None:
    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", WITHOUT], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert ended.stdout == (
        "preset: speaks MCP, whose SDK is an extra that is not installed: pip install 'coalmine[mcp]'\n"
    )
