"""A rate limit costs time, not measurements: what is refused by 429 or 503 is sent again when its time has come."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest

from app.base import limits
from app.base.addresses import Endpoint, OAuth2, retriever_policy
from app.base.limits import merge_slowings, slowing_text
from app.base.net.transport import POSTPONED_REFUSALS
from app.base.values import Answer, Outcome, replace
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.retrievers import (
    Dialect,
    Embedder,
    Lane,
    Lookup,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
    Scorer,
    ScorerKind,
)
from tests.support.embedders import embeddings_reply, vector
from tests.support.http_servers import Reply, Seen, peer, reply
from tests.support.mcp_peers import Tool, result
from tests.support.probed import answers_of, retriever_at
from tests.support.rate_limited import Limited
from tests.support.world import race

HITS = b'{"hits": [{"id": "a"}]}'


def _retriever(url: str, **changes: Any) -> Retriever:
    return retriever_at(f"{url}/", **({"response": ResponseMapping(hits="hits", id="id"), "retries": 1} | changes))


def _probe() -> RetrieverProbe:
    return RetrieverProbe(retriever_policy(), "coalmine/1.0")


def _ask(
    retriever: Retriever, count: int, *, probe: RetrieverProbe | None = None, run: str = "q", **context: Any
) -> list[Answer]:
    return answers_of(retriever, *(f"{run}{number}" for number in range(count)), probe=probe, run_id=run, **context)


def _outcomes(answers: list[Answer]) -> set[tuple[Outcome, int | None]]:
    return {(answer.outcome, answer.http_status) for answer in answers}


MEASURED = {(Outcome.OK, 200)}


# --- measured all the same -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "header"), [(429, "seconds"), (429, "date"), (429, None), (503, "seconds")])
def test_what_is_refused_is_sent_again_and_measured(status: int, header: str | None) -> None:
    limited = Limited(per_second=10, burst=5, status=status, header=header)
    with peer(limited) as server:
        answers = _ask(_retriever(server.url), 12)
    assert _outcomes(answers) == MEASURED
    assert limited.refused > 0
    slowing = merge_slowings(answer.slowing for answer in answers)
    assert slowing is not None
    assert (slowing.status, slowing.refusals) == (status, limited.refused)
    assert slowing_text(slowing).startswith("slowed to ")


def test_three_runs_of_one_retriever_are_slowed_together() -> None:
    limited = Limited(per_second=20, burst=5)
    with peer(limited) as server:
        probe, retriever = _probe(), _retriever(server.url)
        answers = race(3, lambda number: _ask(retriever, 20, probe=probe, run=f"{number}-"))
    assert [_outcomes(one) for one in answers] == [MEASURED] * 3
    assert limited.refused < 30  # each for itself would be refused more often than it is accepted


def test_lanes_of_a_retriever_are_slowed_together() -> None:
    def reserve(_count: int, interval: float) -> float:
        return interval

    limited = Limited(per_second=20, burst=4)
    with peer(limited) as server:
        probe, retriever = _probe(), _retriever(server.url)
        first = _ask(retriever, 10, probe=probe, lane=Lane(number=0, concurrency=4, reserve=reserve))
        assert limited.refused > 0
        before, limited.starts[:] = len(limited.starts), []
        second = _ask(retriever, 5, probe=probe, run="s", lane=Lane(number=1, concurrency=4, reserve=reserve))
    assert _outcomes(first) == _outcomes(second) == MEASURED
    assert before > 0
    assert all(late - early > 0.02 for early, late in pairwise(limited.starts))  # spaced from the first one on


def test_the_latency_is_that_of_the_accepted_request_alone() -> None:
    limited = Limited(per_second=10, burst=2)
    with peer(limited) as server:
        answers = _ask(_retriever(server.url, timeout_seconds=1.0), 6)
    assert _outcomes(answers) == MEASURED
    assert max(answer.latency_seconds for answer in answers) < 0.9


def test_a_query_that_is_refused_for_what_it_is_does_not_keep_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FIRST_PAUSE_SECONDS", 0.1)

    def answer(seen: Seen) -> Reply:
        return reply(b"", 429) if b"q0" in seen.body else reply(HITS)

    with peer(answer) as server:
        answers = _ask(_retriever(server.url, concurrency=1), 12, patience_seconds=1.0)
    assert [one.outcome for one in answers] == [Outcome.REFUSED, *[Outcome.OK] * 11]
    refused = [b"q0" in one.body for one in server.seen]
    assert refused[: POSTPONED_REFUSALS + 11] == [*[True] * POSTPONED_REFUSALS, *[False] * 11]


def test_transport_failures_are_still_retried_as_often_as_the_retriever_says() -> None:
    seen_bodies: list[bytes] = []

    def answer(seen: Seen) -> Reply:
        seen_bodies.append(seen.body)
        if len(seen_bodies) == 1:
            return replace(reply(b"", 429, {"retry-after": "1"}), close=True)  # libcurl repeats on old connections
        return Reply(close=True)

    with peer(answer) as server:
        (one,) = _ask(_retriever(server.url, retries=2), 1)
    assert one.outcome is Outcome.UNREACHABLE
    assert len(seen_bodies) == 1 + 3


@pytest.mark.parametrize("status", [500, 502, 503, 404])
def test_other_bad_answers_are_not_asked_again(status: int) -> None:
    with peer(reply(b"", status)) as server:
        (one,) = _ask(_retriever(server.url), 1)
        assert len(server.seen) == 1
    assert (one.outcome, one.http_status, one.slowing) == (Outcome.REFUSED, status, None)


def test_what_is_sent_again_has_the_newest_token() -> None:
    tokens = iter(f"token-{number}" for number in range(100))
    used: list[str] = []

    def answer(seen: Seen) -> Reply:
        if seen.target == "/token":
            return reply(json.dumps({"access_token": next(tokens), "token_type": "bearer", "expires_in": 2}).encode())
        used.append(dict(seen.headers)["authorization"])
        return reply(b"", 429, {"retry-after": "3"}) if len(used) == 1 else reply(HITS)

    with peer(answer) as server:
        auth = OAuth2(token_url=f"{server.url}/token", client_id="me", client_secret="secret")
        (one,) = _ask(_retriever(server.url, auth=auth), 1)
    assert one.outcome is Outcome.OK
    assert len(set(used)) == 2


# --- beyond the deadline -------------------------------------------------------------------------------------


def test_a_wait_that_is_longer_than_the_deadline_ends_the_run_at_once_and_is_told_as_it_is() -> None:
    began = time.monotonic()
    with peer(reply(b'{"error": "quota used up"}', 429, {"retry-after": "86400"})) as server:
        answers = _ask(_retriever(server.url, concurrency=4), 4)
    assert time.monotonic() - began < 5
    assert {answer.retry_after_seconds for answer in answers} == {86_400.0}
    assert "asked to be left alone for 86,400 s: \u201cquota used up\u201d" in str(answers[0].detail)


@pytest.mark.parametrize("headers", [{}, {"retry-after": "1"}])
def test_a_retriever_that_refuses_for_longer_than_the_deadline_is_given_up(headers: Mapping[str, str]) -> None:
    with peer(reply(b"", 429, headers)) as server:
        answers = _ask(_retriever(server.url, concurrency=4), 4, patience_seconds=2.5)
        assert 4 < len(server.seen) < 20
    assert _outcomes(answers) == {(Outcome.REFUSED, 429)}
    assert all(1.0 <= (answer.refused_seconds or 0.0) <= 2.5 for answer in answers)
    assert "refused every request for" in str(answers[0].detail)


def test_a_test_request_gets_the_refusal_itself_at_once() -> None:
    with peer(reply(b"busy", 429, {"retry-after": "30"})) as server:
        (one,) = _ask(_retriever(server.url), 1, shows=True)
        assert len(server.seen) == 1
    assert (one.http_status, one.retry_after_seconds, one.refused_seconds) == (429, None, None)


def test_a_test_request_does_not_wait_for_the_pause_of_a_run() -> None:
    refused = threading.Event()

    def answer(_: Seen) -> Reply:
        if refused.is_set():
            return reply(HITS)
        refused.set()
        return reply(b"", 429, {"retry-after": "30"})

    with peer(answer) as server:
        probe, retriever = _probe(), _retriever(server.url)
        asking = ProbeContext(retriever=retriever, k=5, run_id="1")
        with closing(probe(asking, [ProbeQuery(position=0, query="x")])) as batches:  # type: ignore[type-var] # a generator
            while not refused.is_set():
                next(batches)
            assert list(next(batches)) == []
            began = time.monotonic()
            (one,) = _ask(retriever, 1, probe=probe, shows=True)
            assert one.outcome is Outcome.OK
            assert time.monotonic() - began < 5


def test_whoever_waits_can_be_stopped() -> None:
    with peer(reply(b"", 429, {"retry-after": "60"})) as server:
        asks = [ProbeQuery(position=position, query="x") for position in range(20)]
        asking = ProbeContext(retriever=_retriever(server.url), k=5, run_id="1", patience_seconds=300.0)
        with closing(_probe()(asking, asks)) as batches:  # type: ignore[type-var] # a generator
            assert [list(next(batches)) for _ in range(3)] == [[], [], []]
        assert "transport" not in {thread.name for thread in threading.enumerate()}
        assert len(server.seen) <= 8


def test_a_peer_that_was_given_up_is_asked_again_by_the_next_run() -> None:
    closed = threading.Event()
    closed.set()

    def answer(_: Seen) -> Reply:
        return reply(b"", 429, {"retry-after": "3600"}) if closed.is_set() else reply(HITS)

    with peer(answer) as server:
        probe, retriever = _probe(), _retriever(server.url)
        assert _outcomes(_ask(retriever, 2, probe=probe)) == {(Outcome.REFUSED, 429)}
        closed.clear()
        began = time.monotonic()
        assert _outcomes(_ask(retriever, 2, probe=probe)) == MEASURED
        assert time.monotonic() - began < 5


# --- other peers ---------------------------------------------------------------------------------------------


def _mcp(server_url: str, **changes: Any) -> Retriever:
    return _retriever(
        server_url, dialect=Dialect.MCP, tool="search", response=ResponseMapping(hits="result", id="id"), **changes
    )


def _refusing(times: int, answer: Callable[[Seen], Reply], *, only: bytes) -> Callable[[Seen], Reply]:
    """Refuse so many requests that hold some bytes, then answer."""
    left = iter(range(times))
    return lambda seen: (
        reply(b"", 429, {"retry-after": "1"}) if only in seen.body and next(left, None) is not None else answer(seen)
    )


def test_calls_of_a_tool_that_are_refused_are_sent_again() -> None:
    tool = Tool(call=lambda _: result({"result": [{"id": "a"}]}))
    with peer(_refusing(3, tool, only=b"tools/call")) as server:
        answers = _ask(_mcp(server.url, concurrency=2), 6)
    assert [answer.outcome for answer in answers] == [Outcome.OK] * 6
    slowing = merge_slowings(answer.slowing for answer in answers)
    assert slowing is not None
    assert (slowing.status, slowing.refusals) == (429, 3)


def test_a_session_that_is_refused_is_opened_again() -> None:
    tool = Tool(call=lambda _: result({"result": [{"id": "a"}]}))
    with peer(_refusing(2, tool, only=b'"initialize"')) as server:
        answers = _ask(_mcp(server.url), 2)
    assert [answer.outcome for answer in answers] == [Outcome.OK] * 2


def test_a_tool_that_refuses_for_longer_than_the_deadline_is_given_up() -> None:
    tool = Tool(call=lambda _: reply(b"", 429, {"retry-after": "3600"}))
    with peer(tool) as server:
        answers = _ask(_mcp(server.url, concurrency=2), 4)
    assert _outcomes(answers) == {(Outcome.REFUSED, 429)}
    assert answers[0].retry_after_seconds == 3600


def test_an_embedder_that_refuses_is_asked_again() -> None:
    def embedded(seen: Seen) -> Reply:
        return embeddings_reply([vector(text) for text in json.loads(seen.body)["input"]])

    with peer(reply(HITS)) as server, peer(_refusing(2, embedded, only=b"q")) as model:
        embedder = Embedder(endpoint=Endpoint(url=f"{model.url}/v1/embeddings"), model="m", batch=1)
        answers = _ask(_retriever(server.url, json={"vector": "{{ vector }}"}, embedder=embedder), 4)
        assert len(model.seen) == 6
    assert _outcomes(answers) == MEASURED


def test_a_reranker_that_refuses_is_asked_again() -> None:
    def scored(_: Seen) -> Reply:
        return reply(b'{"results": [{"index": 0, "relevance_score": 0.5}]}')

    hit = b'{"hits": [{"id": "a", "text": "words"}]}'
    with peer(reply(hit)) as server, peer(_refusing(2, scored, only=b"words")) as judge:
        scorer = Scorer(kind=ScorerKind.RERANK, reranker=Endpoint(url=f"{judge.url}/rerank"), model="judge")
        mapping = ResponseMapping(hits="hits", id="id", text="text")
        answers = _ask(_retriever(server.url, scorer=scorer, response=mapping), 4)
    assert [answer.unscored for answer in answers] == [None] * 4


def test_the_lookup_of_a_run_is_sent_again() -> None:
    def answer(seen: Seen) -> Reply:
        return reply(b'{"id": "c-7"}') if seen.method == "GET" else reply(HITS)

    refused = threading.Event()

    def limited(seen: Seen) -> Reply:
        if seen.method == "GET" and not refused.is_set():
            refused.set()
            return reply(b"", 503, {"retry-after": "1"})
        return answer(seen)

    with peer(limited) as server:
        lookup = Lookup(url=f"{server.url}/collections/docs", path="id", name="collection_id")
        answers = _ask(_retriever(f"{server.url}/{{{{ collection_id }}}}", lookup=lookup), 2)
    assert _outcomes(answers) == MEASURED
