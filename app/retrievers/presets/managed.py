"""Presets of retrieval that a cloud runs."""

from collections.abc import Mapping
from typing import Any, Final

from app.retrievers.presets.preset import SHAPE, Option, Preset

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
_AZURE_PATH: Final = "/indexes/{{ index }}/docs/search"
_AZURE_OPTIONS: Final = (
    Option(name="index", label="Index", example="docs"),
    Option(name="select", label="Selected fields", example="chunk_id,chunk,title", default="chunk_id,chunk,title"),
    Option(name="api_version", label="API version", example="2025-09-01", default="2025-09-01"),
)

MANAGED: Final = (
    # BM25, and the sum of reciprocal ranks where a request of one's own adds vectors: neither measures relevance.
    Preset(
        name="azure-ai-search",
        what="an Azure AI Search index by words",
        source="https://learn.microsoft.com/rest/api/searchservice/documents/search-post",
        tested=SHAPE,
        example_url="https://docs.search.windows.net",
        path=_AZURE_PATH,
        options=_AZURE_OPTIONS,
        request={
            "query": {"api-version": "{{ api_version }}"},
            "json": {"search": "{{ query }}", "top": "{{ k }}", "select": "{{ select }}"},
        },
        response=_AZURE_RESPONSE,
        auth={"kind": "api_key", "header": "api-key"},
        needs_auth=True,
    ),
    # Scores are 1 / (1 + distance): 0.333 to 1 for the metric cosine, so what is unrelated has 0.5.
    Preset(
        name="azure-ai-search-vector",
        what="an Azure AI Search index by vectors",
        source="https://learn.microsoft.com/azure/search/vector-search-how-to-query",
        tested=SHAPE,
        example_url="https://docs.search.windows.net",
        path=_AZURE_PATH,
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
        response=_AZURE_RESPONSE,
        scorer={"scale": "similarity"},
        auth={"kind": "api_key", "header": "api-key"},
        needs_auth=True,
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
