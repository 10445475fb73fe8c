"""The HTTP probe: each way a retriever can fail has its outcome, and good answers find their canary."""

import gzip
import json
import threading
from collections.abc import Generator
from contextlib import closing
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from app.base.addresses import retriever_policy
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.base.values import Answer, Outcome, replace
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import (
    Probe,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
    Scale,
    Scorer,
    ScorerKind,
)
from tests.support.http_servers import HANG, SILENCE, Reply, Seen, closed_port, peer, reply
from tests.support.probed import answers_of

PROBE: Probe = RetrieverProbe(retriever_policy(), "coalmine/1.0")
ABSENT = "; if that means nothing found, set response.absent to empty"
MAPPING = ResponseMapping(hits="results", id="id", score="score", text="text", index_version="header:X-Index")
HITS = [{"id": "a", "score": 0.9, "text": "one"}, {"id": "b", "score": 0.4, "text": "two"}]
GOOD = reply(json.dumps({"results": HITS}).encode(), headers={"X-Index": "v3"})


def retriever(url: str, **changes: Any) -> Retriever:
    """Describe a small JSON retriever."""
    plain = Retriever(
        slug="docs",
        url=url,
        headers={"Authorization": "Bearer hunter2"},
        json={"query": "{{ query }}", "top_k": "{{ k }}"},
        response=MAPPING,
        scorer=Scorer(kind=ScorerKind.SCORE, scale=Scale.SIMILARITY),
        retries=0,
        max_body_bytes=1_000_000,
    )
    return replace(plain, **changes)


def answers(described: Retriever, queries: list[str], *, probe: Probe = PROBE, k: int = 10) -> list[Answer]:
    """Ask everything; each position must come once."""
    return answers_of(described, *queries, probe=probe, k=k)


def answer_to(answer: Reply, **changes: Any) -> Answer:
    """Ask a peer that answers like this one question."""
    with peer(answer) as server:
        return answers(retriever(server.url, **changes), ["why?"])[0]


def test_good_answer_is_a_measurement() -> None:
    found = answer_to(GOOD)
    assert found.outcome is Outcome.OK
    assert found.ranking is not None
    assert (found.ranking.ids, found.ranking.scores, found.ranking.texts) == (("a", "b"), (0.9, 0.4), ("one", "two"))
    assert (found.http_status, found.detail, found.index_version) == (200, None, "v3")
    assert found.latency_seconds > 0


@pytest.mark.parametrize(
    ("answer", "outcome", "status", "detail"),
    [
        (HANG, Outcome.TIMEOUT, None, "no complete answer within 0.3 s"),
        (SILENCE, Outcome.UNREACHABLE, None, "the connection was closed without an answer"),
        (reply(b'{"secret": "body"}', 500), Outcome.REFUSED, 500, "answered 500 Internal Server Error"),
        (reply(b"", 402), Outcome.REFUSED, 402, "answered 402 Payment Required"),
        (reply(b"", 799), Outcome.REFUSED, 799, "answered 799"),
        (reply(b"", 304), Outcome.REFUSED, 304, "answered 304 Not Modified; redirects are not followed"),
        (
            reply(b"", 302, {"location": "http://127.0.0.1:1/hunter2"}),
            Outcome.REFUSED,
            302,
            "answered 302 Found; redirects to http://127.0.0.1:1/•••, which is not followed",
        ),
        (reply(bytes(2_000_000), 500), Outcome.REFUSED, 500, "answered 500 Internal Server Error"),
        (reply(b"<html>secret"), Outcome.MALFORMED, 200, "the answer is HTML or XML, not JSON"),
        (reply(b"", 204), Outcome.MALFORMED, 204, "the answer is empty"),
        (
            reply(b'{"matches": ["secret"]}'),
            Outcome.MALFORMED,
            200,
            f"results: missing, though response.hits is mapped to it{ABSENT}",
        ),
        (Reply(raw=b"SSH-2.0-secret\r\n", close=True), Outcome.MALFORMED, None, "the answer is not HTTP"),
        (
            reply(b"secret", headers={"content-encoding": "gzip"}),
            Outcome.MALFORMED,
            200,
            "the answer's content encoding is broken",
        ),
        (
            Reply(raw=b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"results": []}', close=True),
            Outcome.MALFORMED,
            200,
            "the answer is not JSON",
        ),
        (
            Reply(raw=b'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"results": []}', close=True),
            Outcome.UNREACHABLE,
            200,
            "the connection was closed in the middle of the answer",
        ),
        (reply(bytes(10_000_000)), Outcome.OVERSIZE, 200, "the answer is larger than 1,000,000 bytes"),
        (
            reply(gzip.compress(bytes(10_000_000)), headers={"content-encoding": "gzip"}),
            Outcome.OVERSIZE,
            200,
            "the answer is larger than 1,000,000 bytes",
        ),
    ],
)
def test_every_failure_has_its_outcome_and_quotes_nothing(
    answer: Reply, outcome: Outcome, status: int | None, detail: str
) -> None:
    found = answer_to(answer, timeout_seconds=0.3 if answer.hang else 10.0)
    assert (found.outcome, found.http_status, found.detail) == (outcome, status, detail)
    assert found.ranking is None
    assert "secret" not in str(found)
    assert "hunter2" not in str(found)


def test_transport_failure_is_asked_again_and_a_bad_answer_is_not() -> None:
    first = threading.Lock()

    def answer(seen: Seen) -> Reply:
        if "bad" in json.loads(seen.body)["query"]:
            return reply(b"[]")
        return SILENCE if first.acquire(blocking=False) else GOOD

    with peer(answer) as server:
        assert answers(retriever(server.url, retries=1), ["why?"])[0].outcome is Outcome.OK
        assert len(server.seen) == 2
        assert answers(retriever(server.url, retries=1), ["bad"])[0].outcome is Outcome.MALFORMED
        assert len(server.seen) == 3


def test_all_answers_of_a_busy_run_find_their_canary() -> None:
    def answer(seen: Seen) -> Reply:
        asked = json.loads(seen.body)
        hits = [{"id": f"{asked['query']}-{rank}", "score": 1 - rank / 10} for rank in range(asked["top_k"])]
        return reply(json.dumps({"results": hits}).encode())

    queries = [f'"query" {number}\n{{{{ k }}}} \\ ü' for number in range(200)]
    with peer(answer) as server:
        found = answers(retriever(server.url, concurrency=32), queries, k=3)
        assert server.connections <= 32
    for position, query in enumerate(queries):
        ranking = found[position].ranking
        assert ranking is not None
        assert ranking.ids == (f"{query}-0", f"{query}-1", f"{query}-2")


def test_request_says_who_asks_and_for_which_run() -> None:
    with peer(GOOD) as server:
        answers(retriever(server.url), ["one", "two"])
        answers(retriever(server.url, headers={"User-Agent": "mine", "ACCEPT": "x/y", "Traceparent": "00-1"}), ["one"])
        ours, mine = server.seen[:2], server.seen[2]
    for seen in ours:
        assert seen.headers["user-agent"] == "coalmine/1.0 (+run run-7)"
        assert seen.headers["accept"] == seen.headers["content-type"] == "application/json"
        assert seen.headers["authorization"] == "Bearer hunter2"
        assert "expect" not in seen.headers
    versions, traces, spans, flags = zip(*(seen.headers["traceparent"].split("-") for seen in ours), strict=True)
    assert (set(versions), set(flags), set(map(len, traces))) == ({"00"}, {"01"}, {32})
    assert len(set(traces)) == len(set(spans)) == 1
    assert set(map(len, spans)) == {16}
    assert (mine.headers["user-agent"], mine.headers["accept"], mine.headers["traceparent"]) == ("mine", "x/y", "00-1")


def test_every_header_a_document_takes_arrives_as_it_is_written() -> None:
    name = "X-Foo!#$%&'*+.^_`|~9"
    value = "".join(map(chr, [*range(0x21, 0x7F), *range(0x80, 0x100)])) + " \t."
    with peer(GOOD) as server:
        written = {"slug": "docs", "url": server.url, "request": {"headers": {name: value}}, "response": {"id": "id"}}
        answers(parse_document(RetrieverDocument, written).to_domain(), ["one"])
        assert server.seen[0].headers[name.lower()] == value


def test_question_may_travel_in_the_url() -> None:
    with peer(GOOD) as server:
        described = retriever(
            f"{server.url}/v1?a=1", method="GET", json=None, query_parameters={"q": "{{ query }}", "k": "{{ k }}"}
        )
        found = answers(described, ["a&b=c #d", "é"])
        targets = [urlsplit(seen.target) for seen in server.seen]
        assert {seen.method for seen in server.seen} == {"GET"}
        assert {seen.body for seen in server.seen} == {b""}
    assert {answer.outcome for answer in found} == {Outcome.OK}
    assert {target.path for target in targets} == {"/v1"}
    asked = sorted((parse_qs(target.query) for target in targets), key=str)
    assert asked == [{"a": ["1"], "q": [query], "k": ["10"]} for query in ("a&b=c #d", "é")]


def test_environment_proxy_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_port() as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{port}")
        assert answer_to(GOOD).outcome is Outcome.OK


def test_closing_stops_asking() -> None:
    with peer(lambda seen: GOOD if b"first" in seen.body else HANG) as server:
        described = retriever(server.url, concurrency=4, timeout_seconds=60.0)
        asks = [ProbeQuery(position=n, query="first" if n == 0 else "later") for n in range(500)]
        batches = PROBE(ProbeContext(retriever=described, k=10, run_id="run-7"), asks)
        with closing(cast("Generator[Any, None, None]", batches)):
            assert [position for position, _ in next(batches)] == [0]
        assert "transport" not in {thread.name for thread in threading.enumerate()}
        assert len(server.seen) <= 5


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"url": "file:///etc/passwd"}, "url", "must begin with http"),
        ({"query_parameters": {"q": "{{ quary }}"}}, "url", "not a known placeholder"),
        ({"json": {"q": "{{ vector }}"}}, "json", "not a known placeholder"),
        ({"method": "HEAD"}, "method", "must be one of GET, POST"),
        ({"headers": {"X-Key": "hunter2\r\nEvil: 1"}}, "headers.X-Key", "is not one line"),
        ({"headers": {"Content-Length": "5"}}, "headers.content-length", "set by the transport"),
        ({"response": ResponseMapping(hits="a[", id="id")}, "response", "hits: not a JMESPath expression"),
    ],
)
def test_retriever_that_cannot_be_asked_is_refused_before_asking(
    changes: dict[str, Any], path: str, message: str
) -> None:
    described = replace(retriever("http://127.0.0.1:1/"), **changes)
    with pytest.raises(InvalidInputError) as caught:
        PROBE(ProbeContext(retriever=described, k=10, run_id="run-7"), [])
    (problem,) = caught.value.problems
    assert problem.path == path
    assert message in problem.message
    assert "hunter2" not in str(caught.value)


def test_everything_wrong_is_said_at_once() -> None:
    described = retriever("ftp://h/", json="{{ x }}", method="post", response=ResponseMapping(hits="a"))
    with pytest.raises(InvalidInputError) as caught:
        PROBE(ProbeContext(retriever=described, k=10, run_id="run-7"), [])
    assert {problem.path for problem in caught.value.problems} == {"url", "json", "method", "response"}
