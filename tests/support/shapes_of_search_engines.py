"""Answers of search engines, in the shapes their references show."""

from typing import Any

from app.base.values import Outcome
from tests.support.preset_shapes import EMBEDDING, QUERY, VECTOR, Hit, K, Refusal, Shape


def answer(*hits: dict[str, Any]) -> dict[str, Any]:
    """Write what both engines answer a search."""
    return {
        "took": 4,
        "timed_out": False,
        "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
        "hits": {
            "total": {"value": len(hits), "relation": "eq"},
            "max_score": hits[0]["_score"] if hits else None,
            "hits": list(hits),
        },
    }


def hit(name: str, score: float, **source: str) -> dict[str, Any]:
    """Write one of its hits."""
    return {"_index": "docs", "_id": name, "_score": score, "_source": source}


NO_INDEX = {
    "error": {
        "root_cause": [{"type": "index_not_found_exception", "reason": "no such index [docs]", "index": "docs"}],
        "type": "index_not_found_exception",
        "reason": "no such index [docs]",
        "index": "docs",
    },
    "status": 404,
}
BAD_VECTOR = {
    "error": {
        "root_cause": [{"type": "illegal_argument_exception", "reason": "the vector has 2 dimensions, not 384"}],
        "type": "search_phase_execution_exception",
        "reason": "all shards failed",
        "phase": "dfs",
        "grouped": True,
        "failed_shards": [],
    },
    "status": 400,
}
BY_WORDS = answer(
    hit("c1", 7.5, text="Kept for 30 days.", source="logs.md"), hit("c2", 0.5, text="Audit trails stay a year.")
)
WORD_HITS = (
    Hit(id="c1", text="Kept for 30 days.", document="logs.md", score=7.5),
    Hit(id="c2", text="Audit trails stay a year.", score=0.5),
)
BY_VECTORS = answer(hit("c1", 0.875, text="Kept for 30 days.", source="logs.md"), hit("c2", 0.5))
VECTOR_HITS = (
    Hit(id="c1", text="Kept for 30 days.", document="logs.md", score=0.875),
    Hit(id="c2", text=None, score=0.5),
)


def vespa(*hits: dict[str, Any]) -> dict[str, Any]:
    """Write what Vespa answers a query; without hits there is no list of them."""
    root: dict[str, Any] = {
        "id": "toplevel",
        "relevance": 1.0,
        "fields": {"totalCount": len(hits)},
        "coverage": {"coverage": 100, "documents": 2, "full": True, "nodes": 1, "results": 1, "resultsFull": 1},
    }
    return {"root": {**root, "children": list(hits)} if hits else root}


def typesense(*hits: dict[str, Any]) -> dict[str, Any]:
    """Write what Typesense answers one search of several."""
    found = {"facet_counts": [], "found": len(hits), "hits": list(hits), "out_of": 2, "page": 1}
    return {"results": [{**found, "search_cutoff": False, "search_time_ms": 1}]}


SEARCH_ENGINES = {
    "elasticsearch": Shape(
        written={"url": "https://es.example.org:9200", "options": {"index": "docs"}},
        url="https://es.example.org:9200/docs/_search",
        sent={"query": {"multi_match": {"query": QUERY, "fields": ["text"]}}, "size": K},
        answer=BY_WORDS,
        hits=WORD_HITS,
        nothing=answer(),
        refusal=Refusal(status=404, body=NO_INDEX),
        secret={"key": "VnVhQ2ZHY0JDZGJr"},
        headers=("Authorization: ApiKey VnVhQ2ZHY0JDZGJr",),
    ),
    "elasticsearch-knn": Shape(
        written={"url": "https://es.example.org:9200", "options": {"index": "docs"}, "embedding": EMBEDDING},
        url="https://es.example.org:9200/docs/_search",
        sent={
            "knn": {"field": "embedding", "query_vector": VECTOR, "k": K},
            "size": K,
            "_source": {"excludes": ["embedding"]},
        },
        answer=BY_VECTORS,
        hits=VECTOR_HITS,
        nothing=answer(),
        refusal=Refusal(status=400, body=BAD_VECTOR),
        secret={"key": "VnVhQ2ZHY0JDZGJr"},
        headers=("Authorization: ApiKey VnVhQ2ZHY0JDZGJr",),
    ),
    "opensearch": Shape(
        written={"url": "https://os.example.org:9200", "options": {"index": "docs", "field": "body"}},
        url="https://os.example.org:9200/docs/_search",
        sent={"query": {"multi_match": {"query": QUERY, "fields": ["body"]}}, "size": K},
        answer=BY_WORDS,
        hits=WORD_HITS,
        nothing=answer(),
        refusal=Refusal(status=404, body=NO_INDEX),
        secret={"user": "reader", "password": "sesame"},
        headers=("authorization: Basic cmVhZGVyOnNlc2FtZQ==",),
    ),
    "opensearch-knn": Shape(
        written={
            "url": "https://os.example.org:9200",
            "options": {"index": "docs", "vector_field": 'passage "v2"'},
            "embedding": EMBEDDING,
        },
        url="https://os.example.org:9200/docs/_search",
        sent={
            "query": {"knn": {'passage "v2"': {"vector": VECTOR, "k": K}}},
            "size": K,
            "_source": {"excludes": ['passage "v2"']},
        },
        answer=BY_VECTORS,
        hits=VECTOR_HITS,
        nothing=answer(),
        refusal=Refusal(status=400, body=BAD_VECTOR),
        secret={"user": "reader", "password": "sesame"},
        headers=("authorization: Basic cmVhZGVyOnNlc2FtZQ==",),
    ),
    "vespa": Shape(
        written={"url": "https://vespa.example.org", "options": {"source": "docs"}},
        url="https://vespa.example.org/search/",
        sent={
            "yql": "select * from sources docs where userQuery()",
            "query": QUERY,
            "type": "any",
            "ranking": "default",
            "hits": K,
        },
        answer=vespa(
            {"id": "id:ns:docs::c1", "relevance": 7.5, "fields": {"text": "Kept for 30 days.", "source": "logs.md"}},
            {"id": "id:ns:docs::c2", "relevance": 0.5, "fields": {}},
        ),
        hits=(
            Hit(id="id:ns:docs::c1", text="Kept for 30 days.", document="logs.md", score=7.5),
            Hit(id="id:ns:docs::c2", text=None, score=0.5),
        ),
        nothing=vespa(),
        refusal=Refusal(
            status=400,
            body={
                "root": {
                    "id": "toplevel",
                    "relevance": 1.0,
                    "fields": {"totalCount": 0},
                    "errors": [{"code": 4, "summary": "Invalid query parameter", "message": "no document type 'docs'"}],
                }
            },
        ),
        secret={"token": "sesame"},
        headers=("Authorization: Bearer sesame",),
    ),
    "typesense": Shape(
        written={"url": "https://ts.example.org", "options": {"collection": "docs"}},
        url="https://ts.example.org/multi_search",
        sent={
            "searches": [
                {"collection": "docs", "q": QUERY, "query_by": "text", "per_page": K, "drop_tokens_threshold": K}
            ]
        },
        answer=typesense(
            {
                "document": {"id": "c1", "text": "Kept for 30 days.", "source": "logs.md"},
                "text_match": 550000000000000000,
            },
            {"document": {"id": "c2"}, "text_match": 525000000000000000},
        ),
        hits=(
            Hit(id="c1", text="Kept for 30 days.", document="logs.md", score=5.5e17),
            Hit(id="c2", text=None, score=5.25e17),
        ),
        nothing=typesense(),
        refusal=Refusal(status=200, body={"results": [{"code": 404, "error": "Not found."}]}, outcome=Outcome.PARTIAL),
        secret={"key": "sesame"},
        headers=("X-TYPESENSE-API-KEY: sesame",),
    ),
}
