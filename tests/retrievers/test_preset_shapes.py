"""Each preset asks as its vendor's reference says, and understands the answers shown there, the bad ones too."""

import json
from typing import Any

import pytest

from app.base.addresses import AddressPolicy, Basic, SigV4
from app.base.net.transfer import Request, Response
from app.base.values import Outcome
from app.retrievers.client.compiled_retriever import (
    Plan,
    build_requests,
    compile_reader,
    compile_retriever,
    read_answer,
)
from app.retrievers.client.credentials import Keyring
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import Dialect, ProbeContext, ProbeQuery, Retriever, score_relevance
from app.retrievers.presets import PRESETS
from tests.support.preset_shapes import QUERY, VECTOR, K, Shape
from tests.support.shapes_of_frameworks import FRAMEWORKS
from tests.support.shapes_of_managed import MANAGED
from tests.support.shapes_of_search_engines import SEARCH_ENGINES
from tests.support.shapes_of_vector_stores import VECTOR_STORES

SHAPES: dict[str, Shape] = {**FRAMEWORKS, **VECTOR_STORES, **SEARCH_ENGINES, **MANAGED}
OVER_HTTP = [name for name in SHAPES if PRESETS[name].dialect is Dialect.HTTP]
EACH = pytest.mark.parametrize("name", SHAPES)
EACH_OVER_HTTP = pytest.mark.parametrize("name", OVER_HTTP)


def retriever(name: str, **more: Any) -> Retriever:
    """Read the least a user of a preset can write, and something more."""
    return RetrieverDocument.model_validate(
        {"slug": "docs", "preset": name, **SHAPES[name].written, **more}
    ).to_domain()


def plan(name: str) -> Plan:
    """Compile it, with what would have been looked up."""
    return compile_retriever(retriever(name), K).bound(SHAPES[name].looked_up)


def request(name: str) -> Request:
    """Render the one request of a run with one canary."""
    asking = ProbeContext(retriever=retriever(name), k=K, run_id="run-1")
    vectors = {QUERY: VECTOR} if asking.retriever.embedder else {}
    return next(build_requests(plan(name), asking, [ProbeQuery(position=0, query=QUERY)], "coalmine", vectors))


def response(body: Any, status: int = 200) -> Response:
    """Pack up an answer."""
    return Response(status=status, body=json.dumps(body).encode())


def test_every_preset_has_a_shape_here() -> None:
    assert SHAPES.keys() == PRESETS.keys()


@EACH_OVER_HTTP
def test_request_is_the_one_of_the_reference(name: str) -> None:
    sent = request(name)
    assert (sent.method, sent.url) == ("POST", SHAPES[name].url)
    assert json.loads(sent.body or b"") == SHAPES[name].sent


def test_tool_of_mcp_is_called_at_the_usual_path_with_the_query() -> None:
    asked = retriever("mcp")
    assert (asked.url, asked.tool) == (SHAPES["mcp"].url, "search")
    assert asked.json == {"query": "{{ query }}", "top_k": "{{ k }}"}


def test_statement_for_pgvector_names_the_users_table() -> None:
    asked = retriever("pgvector")
    assert (asked.url, asked.sql) == (SHAPES["pgvector"].url, SHAPES["pgvector"].sent)


@EACH
def test_answer_of_the_reference_becomes_a_ranking(name: str) -> None:
    answer = read_answer(response(SHAPES[name].answer), compile_reader(retriever(name), K))
    assert (answer.outcome, answer.detail) == (Outcome.OK, None)
    assert answer.ranking is not None
    hits = SHAPES[name].hits
    made = [hit.id is None for hit in hits]
    assert [found.startswith("text:") for found in answer.ranking.ids] == made
    assert [None if own else found for own, found in zip(made, answer.ranking.ids, strict=True)] == [
        hit.id for hit in hits
    ]
    assert answer.ranking.texts == tuple(hit.text for hit in hits)
    assert answer.ranking.documents == tuple(hit.document for hit in hits)
    assert answer.ranking.scores == tuple(hit.score for hit in hits)


@EACH
def test_answer_without_hits_is_an_empty_ranking(name: str) -> None:
    answer = read_answer(response(SHAPES[name].nothing), compile_reader(retriever(name), K))
    assert answer.outcome is Outcome.OK
    assert answer.ranking is not None
    assert len(answer.ranking) == 0


@EACH_OVER_HTTP
def test_error_of_the_vendor_is_never_an_empty_ranking(name: str) -> None:
    refusal = SHAPES[name].refusal
    assert refusal is not None
    answer = read_answer(response(refusal.body, refusal.status), compile_reader(retriever(name), K))
    assert (answer.outcome, answer.ranking) == (refusal.outcome, None)


@EACH_OVER_HTTP
def test_error_that_comes_with_200_is_no_ranking_either(name: str) -> None:
    """Proxies and gateways do that to vendors who do not."""
    refusal = SHAPES[name].refusal
    assert refusal is not None
    answer = read_answer(response(refusal.body), compile_reader(retriever(name), K))
    assert answer.outcome in {Outcome.MALFORMED, Outcome.PARTIAL}
    assert answer.ranking is None
    assert "\u201c" in str(answer.detail), "the words of the server are quoted"


def test_answer_that_says_it_is_not_whole_is_no_ranking() -> None:
    for name, path, value in [
        ("elasticsearch", ("timed_out",), True),
        ("opensearch", ("_shards", "failed"), 1),
        ("vespa", ("root", "coverage", "degraded"), {"match-phase": False, "timeout": True}),
        ("typesense", ("results", 0, "search_cutoff"), True),
        ("azure-ai-search", ("@search.coverage",), 80.0),
        ("elasticsearch", ("error",), {"reason": "no such index"}),
        ("vespa", ("root", "errors"), [{"message": "no such field"}]),
        ("typesense", ("results", 0, "error"), "Not found."),
        ("milvus", ("code",), 1100),
        ("qdrant", ("status",), {"error": "collection is loading"}),
        ("weaviate", ("errors",), [{"message": "shard is read-only"}]),
    ]:
        body = json.loads(json.dumps(SHAPES[name].answer))
        place = body
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        answer = read_answer(response(body), compile_reader(retriever(name), K))
        assert (answer.outcome, answer.ranking) == (Outcome.PARTIAL, None), name


def test_secret_goes_where_the_vendor_wants_it() -> None:
    for name in [name for name in SHAPES if SHAPES[name].headers]:
        asked = retriever(name, auth=dict(SHAPES[name].secret))
        identity = Keyring(AddressPolicy(name="retriever"), "coalmine").request_auth(asked.lone_auth, None)
        lines = [*identity.headers, *(plan(name).headers if name in OVER_HTTP else ())]
        sent = {line.decode().lower() for line in lines}
        assert {line.lower() for line in SHAPES[name].headers} <= sent, name


def test_user_of_pgvector_is_one_of_the_database() -> None:
    asked = retriever("pgvector", auth={"user": "reader", "password": "sesame"})
    assert asked.auth == Basic(user="reader", password="sesame")


def test_bedrock_is_signed_for_the_service_of_that_name() -> None:
    asked = retriever("bedrock-kb", auth={"region": "eu-central-1", "access_key": "AKIA", "secret_key": "sesame"})
    assert asked.auth == SigV4(region="eu-central-1", service="bedrock", access_key="AKIA", secret_key="sesame")


def test_collection_of_chroma_is_found_by_its_name() -> None:
    asked = retriever("chroma")
    compiled = compile_retriever(asked, K)
    assert compiled.lookup is not None
    assert compiled.lookup.url.render().decode() == (
        "http://chroma:8000/api/v2/tenants/default_tenant/databases/default_database/collections/docs"
    )
    found = {"id": "5f3a", "name": "docs", "metadata": None, "dimension": 2, "tenant": "default_tenant"}
    assert compiled.lookup.value_in(json.dumps(found).encode()) == "5f3a"
    assert compiled.lookup.value_in(b'{"error": "NotFoundError", "message": "no collection docs"}') is None


def test_score_on_a_scale_is_relevance() -> None:
    for name, relevance in [
        ("chroma", 1.0),
        ("pgvector", 0.75),
        ("weaviate-rest", 1 / 1.125),
        ("pinecone", 0.75),
        ("milvus", 1.0),
        ("elasticsearch-knn", 0.875),
        ("opensearch-knn", 0.875),
        ("azure-ai-search-vector", 0.875),
        ("openai-vector-store", 0.875),
    ]:
        assert score_relevance(retriever(name).scorer, SHAPES[name].hits[0].score) == pytest.approx(relevance), name


def test_score_without_a_scale_is_judged_not_guessed() -> None:
    for name in ["haystack", "qdrant", "weaviate", "elasticsearch", "opensearch", "azure-ai-search"]:
        assert score_relevance(retriever(name).scorer, SHAPES[name].hits[0].score) is None, name


@pytest.mark.parametrize(
    ("name", "path", "score"),
    [
        ("chroma", ("distances", 0, 0), -3.5),  # the space ip
        ("pinecone", ("matches", 0, "score"), 31.0),  # the metric dotproduct
        ("milvus", ("data", 0, "distance"), 4.5),  # the metric L2
        ("elasticsearch-knn", ("hits", "hits", 0, "_score"), 12.0),  # the similarity max_inner_product
        ("opensearch-knn", ("hits", "hits", 0, "_score"), 12.0),  # the space innerproduct
        ("weaviate-rest", ("results", 0, "metadata", "distance"), -3.5),  # the metric dot
    ],
)
def test_score_of_another_metric_is_told_not_taken_for_relevance(
    name: str, path: tuple[str | int, ...], score: float
) -> None:
    body = json.loads(json.dumps(SHAPES[name].answer))
    place = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = score
    answer = read_answer(response(body), compile_reader(retriever(name), K))
    assert answer.outcome is Outcome.MALFORMED
    assert "outside the declared scale" in (answer.detail or "")
