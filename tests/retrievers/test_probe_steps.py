"""What goes on around asking: a value looked up first, a query embedded, the exchange shown to people."""

import json
from typing import Any

import pytest

from app.base.addresses import ApiKey, Bearer
from app.base.net.transfer import RequestAuth
from app.base.values import Answer, Outcome, Step, replace
from app.retrievers.client.credentials import Redaction
from app.retrievers.domain.retrievers import (
    Lookup,
    ResponseMapping,
    Retriever,
    Scale,
    Scorer,
    ScorerKind,
)
from tests.support.embedders import FakeModel, embedder_at, embedding_server, vector
from tests.support.http_servers import Reply, Seen, closed_port, peer, reply
from tests.support.probed import answers_of, retriever_at

HITS = json.dumps({"hits": [{"id": "a", "score": 0.5, "text": "about a"}]}).encode()
MAPPING = ResponseMapping(hits="hits", id="id", score="score", text="text")
JUDGED = Scorer(kind=ScorerKind.JUDGED)


def retriever(url: str, **changes: Any) -> Retriever:
    return retriever_at(url, **{"response": MAPPING, **changes})


def asked(one: Retriever, *queries: str, shows: bool = False) -> list[Answer]:
    return answers_of(one, *queries, shows=shows)


# --- looking up ----------------------------------------------------------------------------------------------


def collections(seen: Seen) -> Reply:
    if seen.method == "GET":
        return reply(json.dumps({"id": "c-7"}).encode()) if seen.target.endswith("/docs") else reply(b"{}", 404)
    return reply(HITS)


def by_name(url: str, name: str = "docs", path: str = "id") -> Retriever:
    lookup = Lookup(name="collection_id", url=f"{url}/collections/{{{{ collection }}}}", path=path)
    return retriever(f"{url}/{{{{ collection_id }}}}/query", options={"collection": name}, lookup=lookup)


def test_a_value_is_looked_up_once_a_run_and_fills_the_templates() -> None:
    with peer(collections) as server:
        answers = asked(by_name(server.url), "one", "two")
    assert [answer.outcome for answer in answers] == [Outcome.OK, Outcome.OK]
    assert [(seen.method, seen.target) for seen in server.seen].count(("GET", "/collections/docs")) == 1
    assert {seen.target for seen in server.seen if seen.method == "POST"} == {"/c-7/query"}


@pytest.mark.parametrize(
    ("name", "path", "outcome", "detail"),
    [
        ("gone", "id", Outcome.REFUSED, "{host} has no collection 'gone' (HTTP 404). Check the collection name"),
        ("docs", "uuid", Outcome.MALFORMED, "the lookup of collection_id: there is no uuid in the answer"),
    ],
)
def test_what_cannot_be_looked_up_is_the_outcome_of_every_probe(
    name: str, path: str, outcome: Outcome, detail: str
) -> None:
    with peer(collections) as server:
        answers = asked(by_name(server.url, name, path), "one", "two")
    told = detail.format(host=server.url.removeprefix("http://"))
    assert [(answer.outcome, answer.detail) for answer in answers] == [(outcome, told)] * 2
    assert [seen.method for seen in server.seen] == ["GET"]


# --- patience ------------------------------------------------------------------------------------------------


# --- by vector -----------------------------------------------------------------------------------------------


def test_the_vector_of_the_query_is_sent_as_numbers() -> None:
    with embedding_server(FakeModel()) as (_, embedder), peer(lambda _: reply(HITS)) as server:
        by_vector = retriever(server.url, json={"v": "{{ vector }}", "n": "{{ k }}"}, embedder=embedder)
        (answer,) = asked(by_vector, "why?")
    assert answer.outcome is Outcome.OK
    sent = json.loads(server.seen[0].body)
    assert sent["n"] == 5
    assert sent["v"] == pytest.approx(vector("why?"), rel=1e-6)


def test_an_embedder_that_is_not_there_is_said_to_have_failed_and_the_retriever_is_not_asked() -> None:
    with peer(lambda _: reply(HITS)) as server:
        embedder = embedder_at(f"http://127.0.0.1:{closed_port()}/v1/embeddings")
        (answer,) = asked(retriever(server.url, json={"v": "{{ vector }}"}, embedder=embedder), "why?")
    assert (answer.outcome, answer.step) == (Outcome.UNREACHABLE, Step.EMBEDDER)
    assert str(answer.detail).startswith("the embedder")
    assert server.seen == []


def test_an_embedder_that_is_there_for_the_scorer_alone_does_not_keep_anything_from_being_asked() -> None:
    with peer(lambda _: reply(HITS)) as server:
        embedder = embedder_at(f"http://127.0.0.1:{closed_port()}/v1/embeddings")
        scorer = Scorer(kind=ScorerKind.EMBEDDING, embedder=embedder)
        (answer,) = asked(retriever(server.url, embedder=embedder, scorer=scorer), "why?")
    assert answer.outcome is Outcome.OK
    assert answer.ranking is not None
    assert answer.ranking.relevance is None
    assert answer.unscored


def test_the_scale_of_a_reranker_is_not_that_of_the_retrievers_own_scores() -> None:
    hits = json.dumps({"hits": [{"id": "a", "score": 17.5, "text": "about a"}]}).encode()
    with (
        peer(lambda _: reply(json.dumps({"results": [{"index": 0, "relevance_score": 0.75}]}).encode())) as reranker,
        peer(lambda _: reply(hits)) as server,
    ):
        from_outside = embedder_at(reranker.url).endpoint
        scorer = Scorer(kind=ScorerKind.RERANK, scale=Scale.SIMILARITY, reranker=from_outside, model="r")
        (answer,) = asked(retriever(server.url, scorer=scorer), "why?")
    assert answer.ranking is not None
    assert (answer.ranking.relevance, answer.ranking.scores) == (0.75, (17.5,))


# --- a scorer that hangs -------------------------------------------------------------------------------------


# --- shown ---------------------------------------------------------------------------------------------------


ECHO = ResponseMapping(hits="[told]", id="authorization", text="reverse(authorization)", index_version="header:x-index")


def echo_all(seen: Seen) -> Reply:
    body = json.dumps({"told": dict(seen.headers)}).encode()
    return reply(body, headers={"x-index": seen.headers.get("authorization", "")})


@pytest.mark.parametrize("shows", [True, False])
@pytest.mark.parametrize(
    "by",
    [
        {"auth": Bearer(token="s3cret-token-1234")},
        {"headers": {"Authorization": "Bearer s3cret-token-1234"}},
        {"headers": {"X-Region": "s3cret-token-1234"}, "response": replace(ECHO, id='"x-region"', text='"x-region"')},
    ],
)
def test_an_answer_that_echoes_a_secret_is_read_without_it_whatever_the_mapping_does(
    by: dict[str, Any], *, shows: bool
) -> None:
    with peer(echo_all) as server:
        (answer,) = asked(retriever(server.url, **{"response": ECHO, **by}), "why?", shows=shows)
    assert answer.ranking is not None
    told = f"{answer.ranking.ids} {answer.ranking.texts} {answer.index_version}"
    assert "s3cret" not in told
    assert "terc3s" not in told


def test_of_a_secret_that_holds_another_nothing_is_left() -> None:
    ours = RequestAuth(secrets=("inner-secret-1", "outer-inner-secret-1-end"))
    assert Redaction.of(ours, thorough=False).body(b"it is outer-inner-secret-1-end.") == "it is •••.".encode()


def test_what_merely_looks_like_a_short_password_or_a_plain_header_stays_in_the_texts() -> None:
    hits = json.dumps({"hits": [{"id": "a", "score": 0.5, "text": "docs of acme-corporation"}]}).encode()
    with peer(lambda _: reply(hits)) as server:
        plain = retriever(server.url, auth=ApiKey(key="docs", header="x-key"), headers={"x-tenant": "acme-corporation"})
        (answer,) = asked(plain, "why?")
    assert answer.ranking is not None
    assert answer.ranking.texts == ("docs of acme-corporation",)


def test_nothing_is_shown_unless_it_is_asked_for() -> None:
    with peer(lambda _: reply(HITS)) as server:
        (answer,) = asked(retriever(server.url), "why?")
    assert answer.exchange is None
