"""Answers of vector stores, in the shapes their references show."""

from app.base.values import Outcome
from tests.support.preset_shapes import EMBEDDING, QUERY, VECTOR, Hit, K, Refusal, Shape

VECTOR_STORES = {
    "chroma": Shape(
        written={"url": "http://chroma:8000", "options": {"collection": "docs"}, "embedding": EMBEDDING},
        url="http://chroma:8000/api/v2/tenants/default_tenant/databases/default_database/collections/5f3a/query",
        looked_up={"collection_id": "5f3a"},
        sent={"query_embeddings": [VECTOR], "n_results": K, "include": ["documents", "metadatas", "distances"]},
        answer={
            "ids": [["c1", "c2", "c3"]],
            "embeddings": None,
            "documents": [["Kept for 30 days.", None, "Audit trails stay a year."]],
            "uris": None,
            "metadatas": [[{"source": "logs.md"}, None, {"page": 7}]],
            "distances": [[0.0, 0.5, 1.75]],
            "include": ["documents", "metadatas", "distances"],
        },
        hits=(
            Hit(id="c1", text="Kept for 30 days.", document="logs.md", score=0.0),
            Hit(id="c2", text=None, score=0.5),
            Hit(id="c3", text="Audit trails stay a year.", score=1.75),
        ),
        nothing={"ids": [[]], "documents": [[]], "metadatas": [[]], "distances": [[]]},
        refusal=Refusal(status=404, body={"error": "NotFoundError", "message": "Collection [5f3a] does not exist"}),
        secret={"key": "sesame"},
        headers=("x-chroma-token: sesame",),
    ),
    "pgvector": Shape(
        written={
            "url": "postgresql://db/docs",
            "options": {"table": "kb.chunks"},
            "embedding": EMBEDDING,
            "auth": {"user": "reader", "password": "p"},
        },
        url="postgresql://db/docs",
        sent=(
            "SELECT id AS id, text AS text, source AS document, 1 - (embedding <=> CAST(:vector AS vector)) AS score"
            " FROM kb.chunks ORDER BY embedding <=> CAST(:vector AS vector) LIMIT :k"
        ),
        answer=[
            {"id": 7, "text": "Kept for 30 days.", "document": "logs.md", "score": 0.75},
            {"id": 9, "text": "Audit trails stay a year.", "document": None, "score": -0.25},
        ],
        hits=(
            Hit(id="7", text="Kept for 30 days.", document="logs.md", score=0.75),
            Hit(id="9", text="Audit trails stay a year.", score=-0.25),
        ),
        nothing=[],
        refusal=None,
    ),
    "qdrant": Shape(
        written={"url": "http://qdrant:6333", "options": {"collection": "docs"}, "embedding": EMBEDDING},
        url="http://qdrant:6333/collections/docs/points/query",
        sent={"query": VECTOR, "limit": K, "with_payload": True},
        answer={
            "usage": {"hardware": None, "inference": None},
            "time": 0.002,
            "status": "ok",
            "result": {
                "points": [
                    {
                        "id": "4f9c1a52-0000-4000-8000-000000000001",
                        "version": 3,
                        "score": 0.75,
                        "payload": {"text": "Kept for 30 days.", "source": "logs.md"},
                    },
                    {"id": 42, "version": 3, "score": 0.5, "payload": None},
                ]
            },
        },
        hits=(
            Hit(id="4f9c1a52-0000-4000-8000-000000000001", text="Kept for 30 days.", document="logs.md", score=0.75),
            Hit(id="42", text=None, score=0.5),
        ),
        nothing={"time": 0.001, "status": "ok", "result": {"points": []}},
        refusal=Refusal(
            status=404, body={"time": 0.0, "status": {"error": "Not found: Collection `docs` doesn't exist!"}}
        ),
        secret={"key": "sesame"},
        headers=("api-key: sesame",),
    ),
    "weaviate": Shape(
        written={"url": "http://weaviate:8080", "options": {"collection": "Docs"}},
        url="http://weaviate:8080/v1/graphql",
        sent={
            "query": (
                "query ($query: String!, $k: Int!) { Get { Docs(hybrid: {query: $query}, limit: $k)"
                " { text source _additional { id score } } } }"
            ),
            "variables": {"query": QUERY, "k": K},
        },
        answer={
            "data": {
                "Get": {
                    "Docs": [
                        {
                            "_additional": {"id": "36ddd591-2dee-4e7e-a3cc-eb86d30a4303", "score": "0.75"},
                            "source": "logs.md",
                            "text": "Kept for 30 days.",
                        },
                        {
                            "_additional": {"id": "0a1b2c3d-0000-4000-8000-000000000002", "score": "0"},
                            "source": None,
                            "text": "Audit trails stay a year.",
                        },
                    ]
                }
            },
            "errors": None,
        },
        hits=(
            Hit(id="36ddd591-2dee-4e7e-a3cc-eb86d30a4303", text="Kept for 30 days.", document="logs.md", score=0.75),
            Hit(id="0a1b2c3d-0000-4000-8000-000000000002", text="Audit trails stay a year.", score=0.0),
        ),
        nothing={"data": {"Get": {"Docs": []}}},
        refusal=Refusal(
            status=200,
            body={
                "data": {"Get": {"Docs": None}},
                "errors": [{"locations": [{"column": 53, "line": 1}], "message": "vectorizer down", "path": ["Get"]}],
            },
            outcome=Outcome.PARTIAL,
        ),
        secret={"key": "sesame"},
        headers=("authorization: Bearer sesame",),
    ),
    "weaviate-rest": Shape(
        written={"url": "https://docs.weaviate.cloud", "options": {"collection": "Docs"}},
        url="https://docs.weaviate.cloud/v1/search/Docs/near-text",
        sent={"query": [QUERY], "limit": K, "returnMetadata": ["distance"]},
        answer={
            "results": [
                {
                    "id": "36ddd591-2dee-4e7e-a3cc-eb86d30a4303",
                    "properties": {"text": "Kept for 30 days.", "source": "logs.md"},
                    "metadata": {"distance": 0.125},
                }
            ],
            "tookMs": 8,
        },
        hits=(
            Hit(id="36ddd591-2dee-4e7e-a3cc-eb86d30a4303", text="Kept for 30 days.", document="logs.md", score=0.125),
        ),
        nothing={"results": [], "tookMs": 1},
        refusal=Refusal(status=422, body={"error": [{"message": "collection has no vectorizer"}]}),
        secret={"token": "sesame"},
        headers=("authorization: Bearer sesame",),
    ),
    "pinecone": Shape(
        written={"url": "https://docs-a1b2c3d.svc.aped-1.pinecone.io", "embedding": EMBEDDING},
        url="https://docs-a1b2c3d.svc.aped-1.pinecone.io/query",
        sent={"namespace": "__default__", "vector": VECTOR, "topK": K, "includeMetadata": True},
        answer={
            "matches": [
                {
                    "id": "c1",
                    "score": 0.75,
                    "values": [],
                    "metadata": {"text": "Kept for 30 days.", "source": "logs.md"},
                },
                {"id": "c2", "score": -0.125, "values": []},
            ],
            "namespace": "__default__",
            "usage": {"readUnits": 6},
        },
        hits=(
            Hit(id="c1", text="Kept for 30 days.", document="logs.md", score=0.75),
            Hit(id="c2", text=None, score=-0.125),
        ),
        nothing={"matches": [], "namespace": "__default__", "usage": {"readUnits": 1}},
        refusal=Refusal(
            status=400, body={"code": 3, "message": "Vector dimension 2 does not match the index's", "details": []}
        ),
        secret={"key": "sesame"},
        headers=("Api-Key: sesame", "X-Pinecone-Api-Version: 2025-10"),
    ),
    "milvus": Shape(
        written={"url": "http://milvus:19530", "options": {"collection": "docs"}, "embedding": EMBEDDING},
        url="http://milvus:19530/v2/vectordb/entities/search",
        sent={
            "dbName": "default",
            "collectionName": "docs",
            "data": [VECTOR],
            "annsField": "vector",
            "limit": K,
            "outputFields": ["*"],
        },
        answer={
            "code": 0,
            "cost": 0,
            "data": [
                {
                    "distance": 1,
                    "id": "448300048035776800",
                    "text": "Kept for 30 days.",
                    "source": "logs.md",
                    "vector": [0.25, -0.5],
                },
                {"distance": -0.25, "id": 4, "text": "Audit trails stay a year."},
            ],
            "topks": [2],
        },
        hits=(
            Hit(id="448300048035776800", text="Kept for 30 days.", document="logs.md", score=1.0),
            Hit(id="4", text="Audit trails stay a year.", score=-0.25),
        ),
        nothing={"code": 0, "cost": 0, "data": [], "topks": [0]},
        refusal=Refusal(
            status=200,
            body={"code": 100, "message": "can't find collection[database=default][collection=docs]"},
            outcome=Outcome.PARTIAL,
        ),
        secret={"token": "root:Milvus"},
        headers=("authorization: Bearer root:Milvus",),
    ),
}
