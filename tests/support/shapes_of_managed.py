"""Answers of retrieval that a cloud runs, in the shapes their references show."""

from typing import Any

from tests.support.preset_shapes import EMBEDDING, QUERY, VECTOR, Hit, K, Refusal, Shape


def azure(first: float, second: float) -> dict[str, Any]:
    """Write what an Azure AI Search index answers."""
    return {
        "@odata.context": "https://docs.search.windows.net/indexes('docs')/$metadata#docs(*)",
        "value": [
            {
                "@search.score": first,
                "chunk_id": "a1_pages_0",
                "parent_id": "a1",
                "chunk": "Kept for 30 days.",
                "title": "logs.md",
            },
            {"@search.score": second, "chunk_id": "b2_pages_3", "parent_id": "b2", "chunk": None, "title": None},
        ],
    }


def azure_hits(first: float, second: float) -> tuple[Hit, ...]:
    """Say what that means."""
    return (
        Hit(id="a1_pages_0", text="Kept for 30 days.", document="logs.md", score=first),
        Hit(id="b2_pages_3", text=None, score=second),
    )


MANAGED = {
    "azure-ai-search": Shape(
        written={"url": "https://docs.search.windows.net", "options": {"index": "docs"}},
        url="https://docs.search.windows.net/indexes/docs/docs/search?api-version=2025-09-01",
        sent={"search": QUERY, "top": K, "select": "chunk_id,chunk,title"},
        answer=azure(7.5, 1.25),
        hits=azure_hits(7.5, 1.25),
        nothing={"@odata.context": "https://docs.search.windows.net/", "value": []},
        refusal=Refusal(status=403, body={"error": {"code": "", "message": "Access denied"}}),
        secret={"key": "sesame"},
        headers=("api-key: sesame",),
    ),
    "azure-ai-search-vector": Shape(
        written={"url": "https://docs.search.windows.net", "options": {"index": "docs"}, "embedding": EMBEDDING},
        url="https://docs.search.windows.net/indexes/docs/docs/search?api-version=2025-09-01",
        sent={
            "vectorQueries": [{"kind": "vector", "vector": VECTOR, "fields": "text_vector", "k": K}],
            "top": K,
            "select": "chunk_id,chunk,title",
        },
        answer=azure(0.875, 0.34375),
        hits=azure_hits(0.875, 0.34375),
        nothing={"@odata.context": "https://docs.search.windows.net/", "value": []},
        refusal=Refusal(status=400, body={"error": {"code": "", "message": "The vector field is not searchable"}}),
        secret={"key": "sesame"},
        headers=("api-key: sesame",),
    ),
    "bedrock-kb": Shape(
        written={
            "url": "https://bedrock-agent-runtime.eu-central-1.amazonaws.com",
            "options": {"knowledge_base": "KB12345678"},
        },
        url="https://bedrock-agent-runtime.eu-central-1.amazonaws.com/knowledgebases/KB12345678/retrieve",
        sent={
            "retrievalQuery": {"text": QUERY},
            "retrievalConfiguration": {"vectorSearchConfiguration": {"numberOfResults": K}},
        },
        answer={
            "retrievalResults": [
                {
                    "content": {"text": "Kept for 30 days.", "type": "TEXT"},
                    "location": {"s3Location": {"uri": "s3://kb/logs.md"}, "type": "S3"},
                    "metadata": {"x-amz-bedrock-kb-source-uri": "s3://kb/logs.md"},
                    "score": 0.5,
                },
                {
                    "content": {"text": "Audit trails stay a year.", "type": "TEXT"},
                    "location": {"webLocation": {"url": "https://example.org/audit"}, "type": "WEB"},
                    "score": 0.25,
                },
            ]
        },
        hits=(
            Hit(id=None, text="Kept for 30 days.", document="s3://kb/logs.md", score=0.5),
            Hit(id=None, text="Audit trails stay a year.", document="https://example.org/audit", score=0.25),
        ),
        nothing={"retrievalResults": []},
        refusal=Refusal(status=403, body={"message": "User is not authorized to perform: bedrock:Retrieve"}),
    ),
    "openai-vector-store": Shape(
        written={"url": "https://api.openai.com", "options": {"vector_store": "vs_abc123"}},
        url="https://api.openai.com/v1/vector_stores/vs_abc123/search",
        sent={"query": QUERY, "max_num_results": K},
        answer={
            "object": "vector_store.search_results.page",
            "search_query": [QUERY],
            "data": [
                {
                    "file_id": "file-1",
                    "filename": "logs.md",
                    "score": 0.875,
                    "attributes": {"year": 2025},
                    "content": [{"type": "text", "text": "Kept for 30 days."}],
                },
                {
                    "file_id": "file-1",
                    "filename": "logs.md",
                    "score": 0.5,
                    "attributes": None,
                    "content": [{"type": "text", "text": "Audit trails"}, {"type": "text", "text": "stay a year."}],
                },
            ],
            "has_more": False,
            "next_page": None,
        },
        hits=(
            Hit(id=None, text="Kept for 30 days.", document="logs.md", score=0.875),
            Hit(id=None, text="Audit trails\nstay a year.", document="logs.md", score=0.5),
        ),
        nothing={"object": "vector_store.search_results.page", "search_query": [QUERY], "data": [], "has_more": False},
        refusal=Refusal(
            status=404, body={"error": {"message": "Vector store not found", "type": "invalid_request_error"}}
        ),
        secret={"key": "sk-sesame"},
        headers=("authorization: Bearer sk-sesame",),
    ),
}
