"""Examples of request bodies in the OpenAPI description, by the name of their schema."""

from collections.abc import Mapping
from typing import Any, Final

EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "RetrieverDocument": {
        "slug": "docs-search",
        "url": "http://127.0.0.1:8001/search",
        "request": {"method": "POST", "json": {"query": "{{ query }}", "top_k": "{{ k }}"}},
        "response": {"hits": "results", "id": "id", "score": "score", "text": "text"},
    },
    "CheckDocument": {
        "slug": "docs",
        "suite": "docs",
        "retriever": "docs-search",
        "schedule": {"every": "1h"},
        "rules": [{"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}}],
    },
    "TaskDocument": {
        "slug": "truth",
        "suite": "docs",
        "retrievers": ["docs-search"],
        "pool": 10,
        "strata": [{"to": 30, "sample": 10}, {"to": 100, "sample": 10}],
    },
    "HookDocument": {"slug": "ops", "kind": "webhook", "url": "https://ops.example.org/coalmine"},
    "JudgeDocument": {
        "slug": "reader",
        "url": "http://127.0.0.1:11434/v1",
        "model": "llama3.1",
        "auth": {"token": "sk-..."},
        "price_per_million": 0.5,
        "budget_per_day": 2,
    },
    "SilenceDocument": {
        "slug": "reindex",
        "reason": "new index every Saturday",
        "severities": ["warning"],
        "window": {"cron": "0 2 * * 6", "duration": "4h"},
    },
}


def with_example(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the media type objects of a body, with the example of its schema if there is one."""
    schema = content["schema"]
    first = schema.get("anyOf", [schema])[0]
    example = EXAMPLES.get(first.get("$ref", "").rpartition("/")[2])
    return dict(content) if example is None else {**content, "example": example}
