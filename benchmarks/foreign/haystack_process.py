"""Haystack's BM25 in its own environment, asked by lines of JSON: `build`, `search` and `drop` of named stores."""

import json
import sys
from typing import Any

from haystack import Document
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

retrievers: dict[str, InMemoryBM25Retriever] = {}


def respond(message: dict[str, Any]) -> Any:
    """Do what a line says."""
    if message["do"] == "drop":
        retrievers.pop(message["name"])
        return None
    if message["do"] == "build":
        store = InMemoryDocumentStore(**message["options"])
        store.write_documents([Document(**one) for one in message["documents"]])
        retrievers[message["name"]] = InMemoryBM25Retriever(store)
        return None
    found = retrievers[message["name"]].run(query=message["query"], top_k=message["top_k"])["documents"]
    return [(one.id, one.score) for one in found]


for line in sys.stdin:
    sys.stdout.write(json.dumps(respond(json.loads(line))) + "\n")
    sys.stdout.flush()
