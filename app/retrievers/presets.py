"""Presets: what is the same for all users of a vendor's retrieval API, as a table. Each entry fills in a document.

A preset is data and asks nobody; what users write in a document wins over it, field by field.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from app.base.values import EMPTY, Value, field, replace
from app.retrievers.domain.retrievers import Dialect

LIVE, SHAPE = "live", "shape"
"""How a preset is tested: against the real server, or against answers of the shape its vendor documents."""


def _empty() -> Mapping[str, Any]:
    return EMPTY


class Option(Value):
    """One variable of a preset's templates; the form's field, the error and the line of the docs are made of it.

    Options are part of addresses, bodies and statements, which are shown: none is a secret. Secrets belong in `auth`.
    """

    name: str
    label: str
    """Label in forms and errors: a noun of one to three words."""
    example: str
    """A value as a user would write it."""
    default: str | None = None
    """None = the user must set it."""

    @property
    def required(self) -> bool:
        """Whether the user must set it."""
        return self.default is None


class Preset(Value):
    """One retrieval API: its request and its response mapping.

    `path` is appended to a `url` that names only a host. `options` are the variables of the templates. `request`,
    `response`, `scorer`, `lookup` and `auth` are the parts of a retriever document to start from; the `url` of a
    `lookup` is a path on the same host.

    A `scorer` declares a scale only where the vendor's own default puts scores on it. Scores outside their scale are
    refused, which reveals most other settings; one that puts others on the same scale is noted beside the entry.
    """

    name: str
    what: str
    """The API, in a line for people."""
    source: str
    tested: str
    example_url: str
    """An address as a user would write it: where `path` is appended, the host alone."""
    dialect: Dialect = Dialect.HTTP
    path: str = ""
    options: tuple[Option, ...] = ()
    lookup: Mapping[str, Any] | None = None
    request: Mapping[str, Any] = field(default_factory=_empty)
    """Options in its `sql` are names of tables and columns."""
    response: Mapping[str, Any] = field(default_factory=_empty)
    response_as_one: bool = False
    """Whether a response the user writes replaces all of this one."""
    scorer: Mapping[str, Any] = field(default_factory=_empty)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=_empty)
    """Cheap requests for numbers of the index, by name; sent only where the `path` is that of the preset."""
    exact: Mapping[str, Any] = field(default_factory=_empty)
    """How an exact search is asked for: `settings` of a transaction; `added`, what is added to a body; or `json`, which
    takes the place of the preset's own. It reads the whole index, so it is asked only where a document wants it."""
    auth: Mapping[str, Any] = field(default_factory=_empty)
    """The style of authentication without its secret, for example `{kind: api_key, header: api-key}`; it is used where
    a document says `auth: {key: ...}` and no kind."""
    needs_auth: bool = False
    """Whether the service requires authentication, so that forms begin with that of `auth`."""
    needs_vector: bool = False

    def option(self, name: str) -> Option | None:
        """Return the option of that name, None where there is none."""
        return next((option for option in self.options if option.name == name), None)


FRAMEWORKS: Final = (
    Preset(
        name="generic",
        what="any HTTP endpoint that answers with JSON",
        source="",
        tested=LIVE,
        example_url="http://127.0.0.1:8001/search",
        request={"method": "POST", "json": {"query": "{{ query }}", "top_k": "{{ k }}"}},
        response={
            "hits": "results",
            "id": "id",
            "score": "score",
            "text": "text",
            "document": "metadata.source",
            "index_version": "index",
        },
        response_as_one=True,
    ),
    # Whatever the pipeline returns comes under `result`; its inputs are named by whoever deployed it.
    Preset(
        name="haystack",
        what="a Haystack pipeline behind Hayhooks that returns documents",
        source="https://deepset-ai.github.io/hayhooks/reference/api-reference/",
        tested=LIVE,
        example_url="http://127.0.0.1:1416",
        path="/{{ pipeline }}/run",
        options=(Option(name="pipeline", label="Pipeline", example="retrieve"),),
        request={"json": {"query": "{{ query }}", "top_k": "{{ k }}"}},
        response={
            "hits": "result.documents",
            "id": "id",
            "score": "score",
            "text": "content",
            "document": "meta.file_path",
        },
    ),
    # No score, no k: a retriever returns as many as it was built for. Ids may be null, so texts tell hits apart.
    Preset(
        name="langserve",
        what="a LangChain retriever behind LangServe",
        source="https://github.com/langchain-ai/langserve",
        tested=LIVE,
        example_url="http://127.0.0.1:8000/retriever",
        path="/invoke",
        request={"json": {"input": "{{ query }}"}},
        response={"hits": "output", "text": "page_content", "document": "metadata.source"},
    ),
    # A tool that returns a list has it wrapped as `result` in its structured content.
    Preset(
        name="mcp",
        what="a tool of an MCP server, over streamable HTTP",
        source="https://modelcontextprotocol.io/specification/2025-06-18/server/tools",
        tested=LIVE,
        example_url="http://127.0.0.1:8000",
        dialect=Dialect.MCP,
        path="/mcp",
        request={"json": {"query": "{{ query }}", "top_k": "{{ k }}"}},
        response={"hits": "result", "id": "id", "text": "text", "document": "source"},
        auth={"kind": "bearer"},
    ),
)


VECTOR_STORES: Final = (
    # Answers in columns, each a list per query; a collection is asked by its id, which only its name finds. Spaces l2
    # (the default) and cosine give distances; those of ip fall below 0.
    Preset(
        name="chroma",
        what="a Chroma collection, REST v2",
        source="https://docs.trychroma.com/reference/chroma-api/record/query-collection",
        tested=LIVE,
        example_url="http://127.0.0.1:8000",
        path="/api/v2/tenants/{{ tenant }}/databases/{{ database }}/collections/{{ collection_id }}/query",
        options=(
            Option(name="collection", label="Collection", example="docs"),
            Option(name="tenant", label="Tenant", example="default_tenant", default="default_tenant"),
            Option(name="database", label="Database", example="default_database", default="default_database"),
        ),
        lookup={
            "name": "collection_id",
            "url": "/api/v2/tenants/{{ tenant }}/databases/{{ database }}/collections/{{ collection }}",
            "path": "id",
        },
        request={
            "json": {
                "query_embeddings": ["{{ vector }}"],
                "n_results": "{{ k }}",
                "include": ["documents", "metadatas", "distances"],
            }
        },
        response={
            "id": "ids[0]",
            "score": "distances[0]",
            "text": "documents[0]",
            "document": "metadatas[0][*].source",
        },
        scorer={"scale": "distance"},
        facts={
            "vectors": {
                "url": "/api/v2/tenants/{{ tenant }}/databases/{{ database }}/collections/{{ collection_id }}/count",
                "path": "@",
            },
            "dimension": {
                "url": "/api/v2/tenants/{{ tenant }}/databases/{{ database }}/collections/{{ collection }}",
                "path": "dimension",
            },
        },
        auth={"kind": "api_key", "header": "x-chroma-token"},
        needs_vector=True,
    ),
    # `<=>` is the cosine distance, 1 - cosine. An exact count reads the table: of one with millions of rows, by the
    # planner's estimate, it is left out. With index scans off the nearest are found by reading all (pgvector's README).
    Preset(
        name="pgvector",
        what="a table with a pgvector column",
        source="https://github.com/pgvector/pgvector#querying",
        tested=LIVE,
        example_url="postgresql://127.0.0.1:5432/docs",
        dialect=Dialect.SQL,
        options=(
            Option(name="table", label="Table", example="public.chunks"),
            Option(name="id", label="Id column", example="id", default="id"),
            Option(name="text", label="Text column", example="text", default="text"),
            Option(name="document", label="Document column", example="source", default="source"),
            Option(name="embedding", label="Vector column", example="embedding", default="embedding"),
        ),
        request={
            "sql": (
                "SELECT {{ id }} AS id, {{ text }} AS text, {{ document }} AS document,"
                " 1 - ({{ embedding }} <=> CAST(:vector AS vector)) AS score"
                " FROM {{ table }} ORDER BY {{ embedding }} <=> CAST(:vector AS vector) LIMIT :k"
            )
        },
        response={"hits": "@", "id": "id", "score": "score", "text": "text", "document": "document"},
        scorer={"scale": "cosine"},
        facts={
            "vectors": {
                "sql": (
                    "SELECT CASE WHEN (SELECT reltuples FROM pg_class WHERE oid = to_regclass('{{ table }}')) < 5000000"
                    " THEN (SELECT count({{ embedding }}) FROM {{ table }}) END"
                )
            },
            "dimension": {
                "sql": (
                    "SELECT nullif(atttypmod, -1) FROM pg_attribute"
                    " WHERE attrelid = to_regclass('{{ table }}') AND attname = lower('{{ embedding }}')"
                )
            },
        },
        exact={"settings": {"enable_indexscan": "off", "enable_bitmapscan": "off", "enable_seqscan": "on"}},
        auth={"kind": "basic"},
        needs_vector=True,
    ),
    # Every collection says its own distance, there is no default: scores of Cosine are cosines, of Euclid distances.
    # The points of the collection's info are an estimate that grows while it is optimised, hence the exact count.
    Preset(
        name="qdrant",
        what="a Qdrant collection",
        source="https://api.qdrant.tech/api-reference/search/query-points",
        tested=SHAPE,
        example_url="http://127.0.0.1:6333",
        path="/collections/{{ collection }}/points/query",
        options=(Option(name="collection", label="Collection", example="docs"),),
        request={"json": {"query": "{{ vector }}", "limit": "{{ k }}", "with_payload": True}},
        response={
            "hits": "result.points",
            "id": "id",
            "score": "score",
            "text": "payload.text",
            "document": "payload.source",
            "error": "status || error",
        },
        facts={
            "vectors": {
                "url": "/collections/{{ collection }}/points/count",
                "json": {"exact": True},
                "path": "result.count",
            },
            "indexed": {"url": "/collections/{{ collection }}", "path": "result.indexed_vectors_count"},
            "segments": {"url": "/collections/{{ collection }}", "path": "result.segments_count"},
            "dimension": {"url": "/collections/{{ collection }}", "path": "result.config.params.vectors.size"},
        },
        exact={"added": {"params": {"exact": True}}},
        auth={"kind": "api_key", "header": "api-key"},
        needs_vector=True,
    ),
    # The hits stand under the name of the collection, and scores are texts. Errors come with 200 and null in place of
    # the hits. A fused score is relative to the other hits: the first is near 1 however bad it is.
    Preset(
        name="weaviate",
        what="hybrid search of a Weaviate collection, GraphQL",
        source="https://docs.weaviate.io/weaviate/api/graphql/search-operators",
        tested=SHAPE,
        example_url="http://127.0.0.1:8080",
        path="/v1/graphql",
        options=(
            Option(name="collection", label="Collection", example="docs"),
            Option(name="properties", label="Properties", example="text source", default="text source"),
        ),
        request={
            "json": {
                "query": (
                    "query ($query: String!, $k: Int!) { Get { {{ collection }}(hybrid: {query: $query}, limit: $k)"
                    " { {{ properties }} _additional { id score } } } }"
                ),
                "variables": {"query": "{{ query }}", "k": "{{ k }}"},
            }
        },
        response={
            "hits": "data.Get.* | [0]",
            "id": "_additional.id",
            "score": "to_number(_additional.score)",
            "text": "text",
            "document": "source",
            "error": "errors || error",
        },
        facts={
            "documents": {
                "url": "/v1/graphql",
                "json": {"query": "{ Aggregate { {{ collection }} { meta { count } } } }"},
                "path": "data.Aggregate.* | [0][0].meta.count",
            }
        },
        auth={"kind": "bearer"},
    ),
    # In place of GraphQL, which Weaviate gives up in 2027 and its new clusters lack; from 1.39.7 on, still a preview.
    # Metrics cosine (the default), l2-squared and manhattan give distances; those of dot fall below 0.
    Preset(
        name="weaviate-rest",
        what="near-text search of a Weaviate collection, REST",
        source="https://docs.weaviate.io/weaviate/api/graphql/migration",
        tested=SHAPE,
        example_url="http://127.0.0.1:8080",
        path="/v1/search/{{ collection }}/near-text",
        options=(Option(name="collection", label="Collection", example="docs"),),
        request={"json": {"query": ["{{ query }}"], "limit": "{{ k }}", "returnMetadata": ["distance"]}},
        response={
            "hits": "results",
            "id": "id",
            "score": "metadata.distance",
            "text": "properties.text",
            "document": "properties.source",
        },
        scorer={"scale": "distance"},
        auth={"kind": "bearer"},
    ),
    # The host is the index's own. Its metric is cosine unless said otherwise; scores of euclidean are distances, which
    # need `scorer: {scale: distance}`: those of normalised vectors pass for cosines, turned around. Of indexes of pods
    # no namespace can be described.
    Preset(
        name="pinecone",
        what="a Pinecone index of dense vectors",
        source="https://docs.pinecone.io/reference/api/2025-10/data-plane/query",
        tested=SHAPE,
        example_url="https://docs-a1b2c3d.svc.aped-1.pinecone.io",
        path="/query",
        options=(Option(name="namespace", label="Namespace", example="__default__", default="__default__"),),
        request={
            "headers": {"X-Pinecone-Api-Version": "2025-10"},
            "json": {
                "namespace": "{{ namespace }}",
                "vector": "{{ vector }}",
                "topK": "{{ k }}",
                "includeMetadata": True,
            },
        },
        response={
            "hits": "matches",
            "id": "id",
            "score": "score",
            "text": "metadata.text",
            "document": "metadata.source",
        },
        scorer={"scale": "cosine"},
        facts={"vectors": {"url": "/namespaces/{{ namespace }}", "path": "to_number(record_count)"}},
        auth={"kind": "api_key", "header": "Api-Key"},
        needs_auth=True,
        needs_vector=True,
    ),
    # `distance` is the cosine itself where the metric is COSINE, the default: more is closer. That of L2 is a distance,
    # which needs `scorer: {scale: distance}`: those of normalised vectors pass for cosines, turned around. Errors come
    # with 200 and without `data`. Fields that are not asked for are not answered, and those asked for must exist: hence
    # all.
    Preset(
        name="milvus",
        what="a Milvus or Zilliz collection, REST v2",
        source="https://milvus.io/api-reference/restful/v2.4.x/v2/Vector%20(v2)/Search.md",
        tested=SHAPE,
        example_url="http://127.0.0.1:19530",
        path="/v2/vectordb/entities/search",
        options=(
            Option(name="collection", label="Collection", example="docs"),
            Option(name="database", label="Database", example="default", default="default"),
            Option(name="vector_field", label="Vector field", example="vector", default="vector"),
        ),
        request={
            "json": {
                "dbName": "{{ database }}",
                "collectionName": "{{ collection }}",
                "data": ["{{ vector }}"],
                "annsField": "{{ vector_field }}",
                "limit": "{{ k }}",
                "outputFields": ["*"],
            }
        },
        response={
            "hits": "data",
            "id": "id",
            "score": "distance",
            "text": "text",
            "document": "source",
            "error": "code",
        },
        scorer={"scale": "cosine"},
        facts={
            "documents": {
                "url": "/v2/vectordb/entities/query",
                "json": {
                    "dbName": "{{ database }}",
                    "collectionName": "{{ collection }}",
                    "filter": "",
                    "outputFields": ["count(*)"],
                },
                "path": 'data[0]."count(*)"',
            }
        },
        auth={"kind": "bearer"},
        needs_vector=True,
    ),
)


_BY_WORDS: Final[Mapping[str, Any]] = {
    "json": {"query": {"multi_match": {"query": "{{ query }}", "fields": ["{{ field }}"]}}, "size": "{{ k }}"}
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

_COUNT: Final[Mapping[str, Mapping[str, Any]]] = {"documents": {"url": "/{{ index }}/_count", "path": "count"}}
_INDEX = Option(name="index", label="Index", example="docs")
_TEXT_FIELD = Option(name="field", label="Text field", example="text", default="text")
_VECTOR_FIELD = Option(name="vector_field", label="Vector field", example="embedding", default="embedding")
_ELASTICSEARCH = Preset(
    name="elasticsearch",
    what="an Elasticsearch index by words",
    source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-search",
    tested=SHAPE,
    example_url="http://127.0.0.1:9200",
    path="/{{ index }}/_search",
    options=(_INDEX, _TEXT_FIELD),
    request=_BY_WORDS,
    response=_RESPONSE,
    facts=_COUNT,
    auth={"kind": "api_key", "header": "Authorization", "prefix": "ApiKey "},
)
_OPENSEARCH = replace(
    _ELASTICSEARCH,
    name="opensearch",
    what="an OpenSearch index by words",
    source="https://docs.opensearch.org/latest/api-reference/search-apis/search/",
    example_url="https://127.0.0.1:9200",
    auth={"kind": "basic"},
)

SEARCH_ENGINES: Final = (
    _ELASTICSEARCH,
    # Scores are (1 + cosine) / 2 for the similarity cosine, the default, so what is unrelated has 0.5; 1 / (1 + d^2)
    # for l2_norm. Those of max_inner_product have no upper end. The exact search is that of the cosine.
    replace(
        _ELASTICSEARCH,
        name="elasticsearch-knn",
        what="an Elasticsearch index by vectors",
        source="https://www.elastic.co/guide/en/elasticsearch/reference/current/knn-search.html",
        options=(_INDEX, _VECTOR_FIELD),
        request={
            "json": {
                "knn": {"field": "{{ vector_field }}", "query_vector": "{{ vector }}", "k": "{{ k }}"},
                "size": "{{ k }}",
                "_source": {"excludes": ["{{ vector_field }}"]},
            }
        },
        exact={
            "json": {
                "query": {
                    "script_score": {
                        "query": {"exists": {"field": "{{ vector_field }}"}},
                        "script": {
                            "source": "(cosineSimilarity(params.vector, '{{ vector_field }}') + 1.0) / 2.0",
                            "params": {"vector": "{{ vector }}"},
                        },
                    }
                },
                "size": "{{ k }}",
                "_source": {"excludes": ["{{ vector_field }}"]},
            }
        },
        scorer={"scale": "similarity"},
        needs_vector=True,
    ),
    _OPENSEARCH,
    # Scores are 1 / (1 + d^2) for l2, the default, and (1 + cosine) / 2 for cosinesimil, so what is unrelated has 0.5.
    # Those of innerproduct have no upper end.
    replace(
        _OPENSEARCH,
        name="opensearch-knn",
        what="an OpenSearch index by vectors",
        source="https://docs.opensearch.org/latest/query-dsl/specialized/k-nn/index",
        options=(_INDEX, _VECTOR_FIELD),
        request={
            "json": {
                "query": {"knn": {"{{ vector_field }}": {"vector": "{{ vector }}", "k": "{{ k }}"}}},
                "size": "{{ k }}",
                "_source": {"excludes": ["{{ vector_field }}"]},
            }
        },
        scorer={"scale": "similarity"},
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
        options=(Option(name="collection", label="Collection", example="docs"), _TEXT_FIELD),
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
        facts={"documents": {"url": "/collections/{{ collection }}", "path": "num_documents"}},
        auth={"kind": "api_key", "header": "X-TYPESENSE-API-KEY"},
    ),
)


# The fields are those of an index made by the wizard that imports and vectorises. What is not selected does not come
# back, as vectors should not: an index with other fields takes the option `select` beside its own `response`.
_AZURE_RESPONSE: Final[Mapping[str, Any]] = {
    "hits": "value",
    "id": "chunk_id",
    "score": '"@search.score"',
    "text": "chunk",
    "document": "title",
    # The coverage is in the answer where the request sets `minimumCoverage`, in percent of the index.
    "partial": '"@search.semanticPartialResponseReason" || "@search.coverage" < `100`',
}
_AZURE_OPTIONS: Final = (
    _INDEX,
    Option(name="select", label="Selected fields", example="chunk_id,chunk,title", default="chunk_id,chunk,title"),
    Option(name="api_version", label="API version", example="2025-09-01", default="2025-09-01"),
)

# BM25, and the sum of reciprocal ranks where a request of one's own adds vectors: neither measures relevance.
_AZURE = Preset(
    name="azure-ai-search",
    what="an Azure AI Search index by words",
    source="https://learn.microsoft.com/rest/api/searchservice/documents/search-post",
    tested=SHAPE,
    example_url="https://docs.search.windows.net",
    path="/indexes/{{ index }}/docs/search",
    options=_AZURE_OPTIONS,
    request={
        "query": {"api-version": "{{ api_version }}"},
        "json": {"search": "{{ query }}", "top": "{{ k }}", "select": "{{ select }}"},
    },
    response=_AZURE_RESPONSE,
    auth={"kind": "api_key", "header": "api-key"},
    needs_auth=True,
)

MANAGED: Final = (
    _AZURE,
    # Scores are 1 / (1 + distance): 0.333 to 1 for the metric cosine, so what is unrelated has 0.5.
    replace(
        _AZURE,
        name="azure-ai-search-vector",
        what="an Azure AI Search index by vectors",
        source="https://learn.microsoft.com/azure/search/vector-search-how-to-query",
        options=(
            *_AZURE_OPTIONS,
            Option(name="vector_field", label="Vector field", example="text_vector", default="text_vector"),
        ),
        request={
            "query": {"api-version": "{{ api_version }}"},
            "json": {
                "vectorQueries": [
                    {"kind": "vector", "vector": "{{ vector }}", "fields": "{{ vector_field }}", "k": "{{ k }}"}
                ],
                "top": "{{ k }}",
                "select": "{{ select }}",
            },
        },
        scorer={"scale": "similarity"},
        needs_vector=True,
    ),
    # Chunks have no id of their own, so texts tell hits apart; of what scale a score is depends on the store behind.
    Preset(
        name="bedrock-kb",
        what="an Amazon Bedrock knowledge base",
        source="https://docs.aws.amazon.com/bedrock/latest/APIReference/API_agent-runtime_Retrieve.html",
        tested=SHAPE,
        example_url="https://bedrock-agent-runtime.eu-central-1.amazonaws.com",
        path="/knowledgebases/{{ knowledge_base }}/retrieve",
        options=(Option(name="knowledge_base", label="Knowledge base id", example="KB12345678"),),
        request={
            "json": {
                "retrievalQuery": {"text": "{{ query }}"},
                "retrievalConfiguration": {"vectorSearchConfiguration": {"numberOfResults": "{{ k }}"}},
            }
        },
        response={
            "hits": "retrievalResults",
            "score": "score",
            "text": "content.text",
            "document": "location.s3Location.uri || location.webLocation.url",
        },
        auth={"kind": "sigv4", "service": "bedrock"},
        needs_auth=True,
    ),
    # `file_id` is that of the document, not of the chunk: several hits share it. A chunk's text comes in parts.
    Preset(
        name="openai-vector-store",
        what="an OpenAI vector store",
        source="https://developers.openai.com/api/reference/resources/vector_stores/methods/search",
        tested=SHAPE,
        example_url="https://api.openai.com",
        path="/v1/vector_stores/{{ vector_store }}/search",
        options=(Option(name="vector_store", label="Vector store id", example="vs_abc123"),),
        request={"json": {"query": "{{ query }}", "max_num_results": "{{ k }}"}},
        response={"hits": "data", "score": "score", "text": "content", "document": "filename"},
        scorer={"scale": "similarity"},
        auth={"kind": "bearer"},
        needs_auth=True,
    ),
)


__all__ = ["LIVE", "PRESETS", "SHAPE", "Option", "Preset"]

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {preset.name: preset for preset in (*FRAMEWORKS, *VECTOR_STORES, *SEARCH_ENGINES, *MANAGED)}
)
