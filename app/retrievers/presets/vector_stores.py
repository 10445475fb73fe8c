"""Presets of vector stores. Chunks are taken to keep their passage as `text` and their document as `source`."""

from typing import Final

from app.retrievers.domain.retrievers import Dialect
from app.retrievers.presets.preset import LIVE, SHAPE, Option, Preset

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
        auth={"kind": "api_key", "header": "x-chroma-token"},
        needs_vector=True,
    ),
    # `<=>` is the cosine distance, 1 - cosine.
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
        auth={"kind": "basic"},
        needs_vector=True,
    ),
    # Every collection says its own distance, there is no default: scores of Cosine are cosines, of Euclid distances.
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
    # need `scorer: {scale: distance}`: those of normalised vectors pass for cosines, turned around.
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
        auth={"kind": "bearer"},
        needs_vector=True,
    ),
)
