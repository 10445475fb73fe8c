"""Facts that presets bring, over HTTP: the requests that are sent, and the numbers in answers of the vendors' shape."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from app import USER_AGENT
from app.base.addresses import AddressPolicy, parse_allow
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.index_facts import service
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery, Retriever
from app.retrievers.presets import PRESETS
from tests.index_facts.test_reading import read
from tests.support.embedder import embedder, embedding
from tests.support.http_servers import Peer, Reply, Seen, peer, reply
from tests.support.world import World, canary, page

EMBEDDING = {"url": "http://e.test", "model": "m"}
COLLECTION = {"collection": "docs"}
QDRANT = {
    "result": {"indexed_vectors_count": 990, "segments_count": 8, "config": {"params": {"vectors": {"size": 384}}}}
}
ANSWERS: Mapping[str, tuple[dict[str, Any], Mapping[str, Any], dict[str, float]]] = {
    "qdrant": (
        {"options": COLLECTION},
        {"POST /collections/docs/points/count": {"result": {"count": 1_000}}, "GET /collections/docs": QDRANT},
        {"vectors": 1_000, "indexed": 990, "segments": 8, "dimension": 384},
    ),
    "chroma": (
        {"options": COLLECTION},
        {
            "GET /api/v2/tenants/default_tenant/databases/default_database/collections/docs": {
                "id": "c-1",
                "dimension": 384,
            },
            "GET /api/v2/tenants/default_tenant/databases/default_database/collections/c-1/count": 1_000,
        },
        {"vectors": 1_000, "dimension": 384},
    ),
    "weaviate": (
        {"options": {"collection": "Docs"}},
        {"POST /v1/graphql": {"data": {"Aggregate": {"Docs": [{"meta": {"count": 1_000}}]}}}},
        {"documents": 1_000},
    ),
    "pinecone": (
        {"auth": {"key": "k"}},
        {"GET /namespaces/__default__": {"name": "__default__", "record_count": "1000"}},
        {"vectors": 1_000},
    ),
    "milvus": (
        {"options": COLLECTION},
        {"POST /v2/vectordb/entities/query": {"code": 0, "data": [{"count(*)": 1_000}]}},
        {"documents": 1_000},
    ),
    "elasticsearch": ({"options": {"index": "docs"}}, {"GET /docs/_count": {"count": 1_000}}, {"documents": 1_000}),
    "opensearch-knn": ({"options": {"index": "docs"}}, {"GET /docs/_count": {"count": 1_000}}, {"documents": 1_000}),
    "typesense": (
        {"options": COLLECTION},
        {"GET /collections/docs": {"name": "docs", "num_documents": 1_000}},
        {"documents": 1_000},
    ),
}


@contextmanager
def answering(answers: Mapping[str, Any]) -> Iterator[Peer]:
    """Serve these answers by method and path; whatever else is asked is not there."""

    def answer(seen: Seen) -> Reply:
        found = answers.get(f"{seen.method} {seen.target}")
        return reply(b"{}", 404) if found is None else reply(json.dumps(found).encode())

    with peer(answer) as server:
        yield server


def probe() -> RetrieverProbe:
    return RetrieverProbe(AddressPolicy(name="retriever", allow=parse_allow("127.0.0.0/8")), USER_AGENT)


def told(retriever: Retriever) -> dict[str, float | None]:
    """Ask for the facts of a retriever as a run does."""
    context = ProbeContext(retriever=retriever, k=5, run_id="1", patience_seconds=0.0)
    return {one.name: one.value for one in service.ask_facts(probe(), context, lambda: False)}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_facts_of_a_preset_are_read(name: str) -> None:
    more, answers, facts = ANSWERS[name]
    with answering(answers) as server:
        fields = {"slug": "docs", "preset": name, "url": server.url, "embedding": EMBEDDING, **more}
        assert told(parse_document(RetrieverDocument, fields).to_domain()) == facts


def test_every_preset_with_facts_is_tried() -> None:
    alike = {"elasticsearch-knn": "elasticsearch", "opensearch": "elasticsearch", "pgvector": "see test_live_index"}
    assert {name for name, preset in PRESETS.items() if preset.facts} == {*ANSWERS, *alike}


def test_what_is_no_number_is_unknown_with_a_reason(sqlite_store: Store) -> None:
    answers = {
        "GET /a": {"n": "many"},
        "GET /b": {"n": 1e999},
        "GET /c": [],
        "GET /d": {"error": "not now"},
        "POST /search": {"hits": [{"id": "doc-one", "score": 0.9}]},
    }
    with answering(answers) as server:
        facts = {name: {"url": f"/{name}", "path": "n"} for name in "abcde"}
        described = {
            "slug": "search",
            "url": f"{server.url}/search",
            "request": {"json": {"q": "{{ query }}"}},
            "response": {"hits": "hits", "id": "id", "score": "score"},
            "facts": facts,
        }
        world = World(store=sqlite_store)
        world.apply({**page([canary("one")], rules=[], hooks=[]), "retrievers": [described]})
        world.probe = probe()  # type: ignore[assignment] # the real one
        found = read(world, world.run().id)
    assert {name: one["value"] for name, one in found.items()} == dict.fromkeys("abcde")
    assert found["a"]["reason"] == "there is no number at n in the answer"
    assert found["c"]["reason"] == "there is nothing at n in the answer"
    assert "not now" in (found["d"]["reason"] or "")
    assert "HTTP 404" in (found["e"]["reason"] or "")


def test_an_exact_search_of_qdrant_keeps_the_filters_of_its_owner() -> None:
    fields = {
        "slug": "docs",
        "preset": "qdrant",
        "url": "http://q.test",
        "options": COLLECTION,
        "embedding": EMBEDDING,
        "request": {
            "json": {"query": "{{ vector }}", "limit": "{{ k }}", "filter": {"must": []}, "params": {"hnsw_ef": 8}}
        },
        "exact": {"canaries": 5},
    }
    retriever = parse_document(RetrieverDocument, fields).to_domain()
    exact = service.exact_retriever(retriever, 15.0)
    assert exact is not None
    assert exact.json["params"] == {"hnsw_ef": 8, "exact": True}
    assert exact.json["filter"] == {"must": []}


def test_an_exact_search_asks_the_vector_of_the_query() -> None:
    asked: list[Seen] = []

    def answer(seen: Seen) -> Reply:
        asked.append(seen)
        return reply(json.dumps({"hits": {"hits": [{"_id": "a", "_score": 1.5, "_source": {"text": "x"}}]}}).encode())

    with embedder() as vectors, peer(answer) as server:
        fields = {
            "slug": "docs",
            "preset": "elasticsearch-knn",
            "url": server.url,
            "options": {"index": "docs"},
            "embedding": embedding(vectors),
            "exact": True,
        }
        exact = service.exact_retriever(parse_document(RetrieverDocument, fields).to_domain(), 15.0)
        assert exact is not None
        context = ProbeContext(retriever=exact, k=5, run_id="1", patience_seconds=0.0)
        ((_, found),) = [one for batch in probe()(context, [ProbeQuery(query="logs")]) for one in batch]
    assert found.ranking is not None
    assert found.ranking.ids == ("a",)
    script = json.loads(asked[0].body)["query"]["script_score"]["script"]
    assert script["source"] == "(cosineSimilarity(params.vector, 'embedding') + 1.0) / 2.0"
    assert len(script["params"]["vector"]) == 256
