"""Presets of search engines, by words and by vectors. Chunks are taken to keep their passage as `text`.

Scores by words (BM25) have no upper end, so they say nothing of relevance on a scale from 0 to 1.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.retrievers.presets.preset import SHAPE, Option, Preset

_BY_WORDS: Final[Mapping[str, Any]] = {
    "json": {
        "query": {"multi_match": {"query": "{{ query }}", "fields": ["{{ field }}"]}},
        "size": "{{ k }}",
    }
}
_RESPONSE: Final[Mapping[str, Any]] = {
    "hits": "hits.hits",
    "id": "_id",
    "score": "_score",
    "text": "_source.text",
    "document": "_source.source",
    "error": "error",
    "partial": "timed_out || _shards || _clusters",
}

SEARCH_ENGINES: Final = (
    Preset(
        name="elasticsearch",
        what="an Elasticsearch index by words",
        source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-search",
        tested=SHAPE,
        example_url="http://127.0.0.1:9200",
        path="/{{ index }}/_search",
        options=(
            Option(name="index", label="Index", example="docs"),
            Option(name="field", label="Text field", example="text", default="text"),
        ),
        request=_BY_WORDS,
        response=_RESPONSE,
        auth={"kind": "api_key", "header": "Authorization", "prefix": "ApiKey "},
    ),
    # Scores are (1 + cosine) / 2 for the similarity cosine, the default, so what is unrelated has 0.5; 1 / (1 + d^2)
    # for l2_norm. Those of max_inner_product have no upper end.
    Preset(
        name="elasticsearch-knn",
        what="an Elasticsearch index by vectors",
        source="https://www.elastic.co/guide/en/elasticsearch/reference/current/knn-search.html",
        tested=SHAPE,
        example_url="http://127.0.0.1:9200",
        path="/{{ index }}/_search",
        options=(
            Option(name="index", label="Index", example="docs"),
            Option(name="vector_field", label="Vector field", example="embedding", default="embedding"),
        ),
        request={
            "json": {
                "knn": {"field": "{{ vector_field }}", "query_vector": "{{ vector }}", "k": "{{ k }}"},
                "size": "{{ k }}",
                "_source": {"excludes": ["{{ vector_field }}"]},
            }
        },
        response=_RESPONSE,
        scorer={"scale": "similarity"},
        auth={"kind": "api_key", "header": "Authorization", "prefix": "ApiKey "},
        needs_vector=True,
    ),
    Preset(
        name="opensearch",
        what="an OpenSearch index by words",
        source="https://docs.opensearch.org/latest/api-reference/search-apis/search/",
        tested=SHAPE,
        example_url="https://127.0.0.1:9200",
        path="/{{ index }}/_search",
        options=(
            Option(name="index", label="Index", example="docs"),
            Option(name="field", label="Text field", example="text", default="text"),
        ),
        request=_BY_WORDS,
        response=_RESPONSE,
        auth={"kind": "basic"},
    ),
    # Scores are 1 / (1 + d^2) for l2, the default, and (1 + cosine) / 2 for cosinesimil, so what is unrelated has 0.5.
    # Those of innerproduct have no upper end.
    Preset(
        name="opensearch-knn",
        what="an OpenSearch index by vectors",
        source="https://docs.opensearch.org/latest/query-dsl/specialized/k-nn/index",
        tested=SHAPE,
        example_url="https://127.0.0.1:9200",
        path="/{{ index }}/_search",
        options=(
            Option(name="index", label="Index", example="docs"),
            Option(name="vector_field", label="Vector field", example="embedding", default="embedding"),
        ),
        request={
            "json": {
                "query": {"knn": {"{{ vector_field }}": {"vector": "{{ vector }}", "k": "{{ k }}"}}},
                "size": "{{ k }}",
                "_source": {"excludes": ["{{ vector_field }}"]},
            }
        },
        response=_RESPONSE,
        scorer={"scale": "similarity"},
        auth={"kind": "basic"},
        needs_vector=True,
    ),
    # The score is that of the rank profile; `bm25` and `nativeRank`, the defaults, measure no relevance.
    Preset(
        name="vespa",
        what="a Vespa application by words",
        source="https://docs.vespa.ai/en/reference/api/query.html",
        tested=SHAPE,
        example_url="http://127.0.0.1:8080",
        path="/search/",
        options=(
            Option(name="source", label="Document type", example="docs"),
            Option(name="ranking", label="Rank profile", example="default", default="default"),
        ),
        request={
            "json": {
                "yql": "select * from sources {{ source }} where userQuery()",
                "query": "{{ query }}",
                "type": "any",
                "ranking": "{{ ranking }}",
                "hits": "{{ k }}",
            }
        },
        response={
            "hits": "root.children",
            "absent": "empty",
            "id": "id",
            "score": "relevance",
            "text": "fields.text",
            "document": "fields.source",
            "error": "root.errors || error || errors",
            "partial": "root.coverage.degraded",
        },
        auth={"kind": "bearer"},
    ),
    Preset(
        name="typesense",
        what="a Typesense collection by words",
        source="https://typesense.org/docs/29.0/api/search.html",
        tested=SHAPE,
        example_url="http://127.0.0.1:8108",
        path="/multi_search",
        options=(
            Option(name="collection", label="Collection", example="docs"),
            Option(name="field", label="Text field", example="text", default="text"),
        ),
        request={
            "json": {
                "searches": [
                    {
                        "collection": "{{ collection }}",
                        "q": "{{ query }}",
                        "query_by": "{{ field }}",
                        "per_page": "{{ k }}",
                        "drop_tokens_threshold": "{{ k }}",
                    }
                ]
            }
        },
        response={
            "hits": "results[0].hits",
            "id": "document.id",
            "score": "text_match",
            "text": "document.text",
            "document": "document.source",
            "error": "results[0].error || error || message",
            "partial": "results[0].search_cutoff",
        },
        auth={"kind": "api_key", "header": "X-TYPESENSE-API-KEY"},
    ),
)
