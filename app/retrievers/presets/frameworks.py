"""Presets of what serves any index: a plain endpoint, and the frameworks' own ways to serve a retriever."""

from typing import Final

from app.retrievers.domain.retrievers import Dialect
from app.retrievers.presets.preset import LIVE, Option, Preset

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
