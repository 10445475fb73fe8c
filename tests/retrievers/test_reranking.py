"""Relevance from outside: a reranker's scores and an embedder's cosines, each in [0, 1] or said to be missing."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from app.base.addresses import Bearer, Endpoint, retriever_policy
from app.base.values import replace
from app.retrievers.client.credentials import Keyring
from app.retrievers.client.embeddings import Embeddings
from app.retrievers.client.endpoint_client import EndpointClient
from app.retrievers.client.relevance import MAX_FAILURES, RelevanceScorer, ScorerBreaker
from app.retrievers.domain.retrievers import Embedder, Scale, Scorer, ScorerKind
from tests.support.embedders import FakeModel, embedding_server
from tests.support.fakes import FakeClock
from tests.support.http_servers import HANG, SILENCE, Reply, Seen, peer, reply

AGENT = "coalmine/1.0"


def relevance(*, clock: Callable[[], float] = lambda: 0.0) -> RelevanceScorer:
    """Make an adapter that remembers nothing yet."""
    policy = retriever_policy()
    keyring = Keyring(policy, AGENT)
    asker = EndpointClient(policy=policy, keyring=keyring, user_agent=AGENT)
    return RelevanceScorer(asker, Embeddings(asker), clock=clock)


def scored(
    adapter: RelevanceScorer,
    scorer: Scorer,
    embedder: Embedder | None,
    pairs: Sequence[tuple[str, str]],
    patience: ScorerBreaker | None = None,
) -> tuple[list[float | None], str | None]:
    """Wait for the scores of these pairs."""
    scoring = adapter.of_first_hits(scorer, embedder, pairs, patience or ScorerBreaker())
    while True:
        try:
            next(scoring)
        except StopIteration as stop:
            found: tuple[list[float | None], str | None] = stop.value
            return found


def rerank(url: str, **changes: Any) -> Scorer:
    """Describe a reranker."""
    return replace(Scorer(kind=ScorerKind.RERANK, reranker=Endpoint(url=f"{url}/rerank"), model="judge"), **changes)


def cohere(score: float) -> Reply:
    """Answer as Cohere and Jina do."""
    return reply(json.dumps({"id": "x", "results": [{"index": 0, "relevance_score": score}]}).encode())


def by_text(scores: dict[str, float]) -> Callable[[Seen], Reply]:
    """Answer with the score of the text that is asked about."""
    return lambda seen: cohere(scores[json.loads(seen.body)["documents"][0]])


def test_a_reranker_scores_every_first_hit() -> None:
    pairs = [("why?", "because"), ("who?", "nobody"), ("why?", "nobody")]
    with peer(by_text({"because": 0.9, "nobody": 0.25})) as server:
        assert scored(relevance(), rerank(server.url), None, pairs) == ([0.9, 0.25, 0.25], None)
        asked = sorted((json.loads(seen.body) for seen in server.seen), key=str)
    assert asked[0] == {"model": "judge", "query": "who?", "documents": ["nobody"], "top_n": 1}
    assert len(asked) == 3


def test_a_reranker_that_serves_one_model_is_asked_as_tei_is() -> None:
    with peer(reply(b'[{"index": 0, "score": 0.5}]')) as server:
        asked = rerank(server.url, model=None)
        assert scored(relevance(), asked, None, [("why?", "because")]) == ([0.5], None)
        (as_logit,), why = scored(relevance(), replace(asked, scale=Scale.LOGIT), None, [("why?", "because")])
        assert as_logit == pytest.approx(1 / (1 + math.exp(-0.5)))
        assert why is None
        plain, raw = [json.loads(seen.body) for seen in server.seen]
    assert plain == {"query": "why?", "texts": ["because"], "truncate": True, "raw_scores": False}
    assert raw["raw_scores"] is True


def test_a_reranker_gets_its_credentials_and_is_told_who_asks() -> None:
    with peer(cohere(0.5)) as server:
        endpoint = Endpoint(url=server.url, auth=Bearer(token="hunter2"), headers={"X-Tenant": "a"})
        scored(relevance(), rerank("", reranker=endpoint), None, [("why?", "because")])
        (seen,) = server.seen
    assert (seen.headers["authorization"], seen.headers["x-tenant"]) == ("Bearer hunter2", "a")
    assert (seen.headers["user-agent"], seen.headers["content-type"]) == (AGENT, "application/json")


def test_what_one_key_was_answered_is_no_answer_to_another() -> None:
    """Else a wrong key would look fine for as long as scores are remembered."""

    def answer(seen: Seen) -> Reply:
        return cohere(0.5) if seen.headers.get("authorization") == "Bearer right" else reply(b"", 401)

    with peer(answer) as server:
        adapter, pairs = relevance(), [("why?", "because")]
        for token, score, why in (("right", 0.5, None), ("wrong", None, "the reranker: answered 401 Unauthorized")):
            endpoint = Endpoint(url=server.url, auth=Bearer(token=token))
            assert scored(adapter, rerank("", reranker=endpoint), None, pairs) == ([score], why)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(b"words", 500), "answered 500 Internal Server Error: “words”"),
        (reply(b"", 402), "answered 402 Payment Required"),
        (SILENCE, "the connection was closed without an answer"),
        (reply(b"<html>secret"), "not a list of results"),
        (reply(b'{"secret": 1}'), "not a list of results"),
        (reply(b'{"results": [{"index": 0, "relevance_score": NaN}]}'), "not a list of results"),
        (reply(b'{"results": []}'), "exactly one result"),
        (reply(b'[{"index": 0, "score": 0.5}, {"index": 1, "score": 0.5}]'), "exactly one result"),
        (reply(b'[{"index": 3, "score": 0.5}]'), "exactly one result"),
        (reply(b'[{"index": 0, "secret": 0.5}]'), "neither relevance_score nor score"),
    ],
)
def test_a_reranker_that_fails_leaves_hits_unscored_with_the_reason_and_quotes_nothing(
    answer: Reply, reason: str
) -> None:
    with peer(answer) as server:
        found, why = scored(relevance(), rerank(server.url), None, [("why?", "because")])
    assert found == [None]
    assert str(why).startswith("the reranker: ")
    assert reason in str(why)
    assert "secret" not in str(why)


def test_a_blank_text_has_no_relevance_and_is_not_sent() -> None:
    with peer(cohere(0.5)) as server:
        found, why = scored(relevance(), rerank(server.url), None, [("why?", " \n"), ("why?", "because")])
        assert len(server.seen) == 1
    assert found == [None, 0.5]
    assert why == "the first hit has no text"


def test_a_pair_that_was_scored_is_asked_again_only_after_an_hour() -> None:
    clock = FakeClock()
    with peer(cohere(0.5)) as server:
        scores = relevance(clock=lambda: clock().timestamp())
        for _ in range(2):
            assert scored(scores, rerank(server.url), None, [("why?", "because")]) == ([0.5], None)
        assert len(server.seen) == 1
        scored(scores, rerank(server.url, model="other"), None, [("why?", "because")])
        assert len(server.seen) == 2
        clock.advance(3_601)
        scored(scores, rerank(server.url), None, [("why?", "because")])
        assert len(server.seen) == 3


def test_pairs_are_told_apart_wherever_query_and_text_meet() -> None:
    with peer(by_text({"b": 0.25, "ab": 0.75})) as server:
        scores = relevance()
        assert scored(scores, rerank(server.url), None, [("aa", "b")])[0] == [0.25]
        assert scored(scores, rerank(server.url), None, [("a", "ab")])[0] == [0.75]


EMBEDDING = Scorer(kind=ScorerKind.EMBEDDING)


def test_cosines_of_query_and_text_are_relevance() -> None:
    with embedding_server(FakeModel()) as (_, embedder):
        pairs = [("heavy rain", "heavy rain"), ("heavy rain", "heavy snow"), ("heavy rain", "annual budget")]
        found, why = scored(relevance(), replace(EMBEDDING, embedder=embedder), None, pairs)
    assert why is None
    same, close, far = [-1.0 if one is None else one for one in found]
    assert same == pytest.approx(1.0, abs=1e-6)
    assert 0.3 < close < 0.8
    assert 0.0 <= far < 0.3


def test_opposite_texts_have_no_relevance_rather_than_a_negative_one() -> None:
    model = FakeModel(spoil=lambda vectors: [vectors[0], [-number for number in vectors[0]]])
    with embedding_server(model) as (_, embedder):
        assert scored(relevance(), EMBEDDING, embedder, [("yes", "no")]) == ([0.0], None)


def test_a_scorer_without_an_embedder_of_its_own_takes_that_of_the_retriever() -> None:
    mine, theirs = FakeModel(), FakeModel()
    with embedding_server(mine) as (_, own), embedding_server(theirs) as (_, retrievers):
        scored(relevance(), replace(EMBEDDING, embedder=own), retrievers, [("a", "b")])
        assert (len(mine.asked), len(theirs.asked)) == (1, 0)
        scored(relevance(), EMBEDDING, retrievers, [("a", "b")])
        assert (len(mine.asked), len(theirs.asked)) == (1, 1)


def test_an_embedder_that_fails_leaves_hits_unscored_with_the_reason() -> None:
    with embedding_server(FakeModel(answer=lambda _: reply(b"words", 503))) as (_, embedder):
        found, why = scored(relevance(), EMBEDDING, embedder, [("a", "b")])
    assert found == [None]
    assert why == "the embedder: answered 503 Service Unavailable: “words”"


def test_nothing_to_score_asks_nobody() -> None:
    with peer(cohere(0.5)) as server:
        assert scored(relevance(), rerank(server.url), None, []) == ([], None)
        assert server.seen == []


@pytest.mark.parametrize(
    "scorer", [Scorer(kind=ScorerKind.SCORE, scale=Scale.COSINE), Scorer(kind=ScorerKind.RERANK), EMBEDDING]
)
def test_a_scorer_that_lacks_whom_it_asks_is_a_bug(scorer: Scorer) -> None:
    with pytest.raises(ValueError, match="without its endpoint"):
        scored(relevance(), scorer, None, [("a", "b")])


# --- patience ------------------------------------------------------------------------------------------------


PAIRS = [("why?", f"because {number}") for number in range(40)]


@pytest.mark.parametrize(
    ("answer", "seconds", "most"),
    # As many as patience can bear are asked first, each tried twice at most where the connection failed.
    [
        (HANG, 0.2, 2 * MAX_FAILURES),
        (SILENCE, 0.2, 2 * MAX_FAILURES),
        (reply(b"", 500), 30, MAX_FAILURES),
        (reply(b"{}"), 30, MAX_FAILURES),
    ],
)
def test_a_reranker_that_never_answers_is_left_alone_for_the_rest_of_the_run(
    answer: Reply, seconds: float, most: int
) -> None:
    adapter, patience = relevance(), ScorerBreaker()
    with peer(answer) as server:
        endpoint = Endpoint(url=f"{server.url}/rerank", timeout_seconds=seconds)
        scorer = rerank("", reranker=endpoint)
        found, why = scored(adapter, scorer, None, PAIRS, patience)
        asked = len(server.seen)
        again = scored(adapter, scorer, None, PAIRS, patience)
        assert len(server.seen) == asked
    assert asked <= most
    assert found == [None] * 40
    assert str(why).startswith("the reranker: ")
    assert again == ([None] * 40, patience.open_reason)
    assert str(patience.open_reason).endswith("; it was left alone for the rest of the run")


def test_what_hangs_is_tried_again_only_until_it_is_known_to_hang() -> None:
    with peer(HANG) as server:
        endpoint = Endpoint(url=f"{server.url}/rerank", timeout_seconds=0.2)
        keyring = Keyring(retriever_policy(), AGENT)
        client = EndpointClient(policy=retriever_policy(), keyring=keyring, user_agent=AGENT)
        asked = [call for call in client.ask(endpoint, [b"{}"] * 24) if call is not None]
        assert len(asked) == 24
        assert len(server.seen) <= 24 + 2 * 4


def test_failures_now_and_then_do_not_exhaust_patience() -> None:
    turns = iter(range(100))
    with peer(lambda _: cohere(0.5) if next(turns) % 4 else reply(b"", 503)) as server:
        patience = ScorerBreaker()
        found, _ = scored(relevance(), rerank(server.url), None, PAIRS, patience)
        assert len(server.seen) == 40
    assert (found.count(0.5), patience.open_reason) == (30, None)


def test_what_is_remembered_is_said_also_of_a_reranker_that_was_left_alone() -> None:
    adapter = relevance()
    with peer(cohere(0.5)) as server:
        scored(adapter, rerank(server.url), None, PAIRS[:1])
        open_reason = ScorerBreaker(open_reason="it hangs")
        assert scored(adapter, rerank(server.url), None, PAIRS[:2], open_reason) == ([0.5, None], "it hangs")
        assert len(server.seen) == 1


def test_the_caller_can_stop_while_a_reranker_hangs() -> None:
    with peer(HANG) as server:
        scoring = relevance().of_first_hits(rerank(server.url), None, PAIRS, ScorerBreaker())
        next(scoring)
        scoring.close()
        assert len(server.seen) <= 4


def test_an_embedder_that_hangs_is_left_alone_for_the_rest_of_the_run() -> None:
    model = FakeModel(answer=lambda _: HANG)
    with embedding_server(model) as (_, embedder):
        hanging = replace(embedder, endpoint=replace(embedder.endpoint, timeout_seconds=0.2))
        patience = ScorerBreaker()
        adapter = relevance()
        assert scored(adapter, EMBEDDING, hanging, PAIRS, patience)[0] == [None] * 40
        asked = len(model.asked)
        found, why = scored(adapter, EMBEDDING, hanging, PAIRS, patience)
        assert (found, why, len(model.asked)) == ([None] * 40, patience.open_reason, asked)
    assert str(why).startswith("the embedder: no complete answer within 0.2 s; it was left alone")


def test_an_embedder_that_refuses_some_texts_is_asked_for_others() -> None:
    model = FakeModel(answer=lambda seen: reply(b"", 400) if b"because 1" in seen.body else None)
    with embedding_server(model) as (_, embedder):
        adapter, patience = relevance(), ScorerBreaker()
        assert scored(adapter, EMBEDDING, embedder, PAIRS[:20], patience)[0] == [None] * 20
        assert None not in scored(adapter, EMBEDDING, embedder, PAIRS[20:30], patience)[0]
