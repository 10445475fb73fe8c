"""A pipeline for Hayhooks, deployed as it stands: BM25 over a corpus file, whose path takes the place of CORPUS."""

import json
from pathlib import Path
from typing import Any

from hayhooks import BasePipelineWrapper
from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore


class PipelineWrapper(BasePipelineWrapper):  # type: ignore[misc] # of an environment that mypy does not see
    """Builds the pipeline and runs it."""

    def setup(self) -> None:
        """Index the corpus."""
        store = InMemoryDocumentStore()
        chunks = [json.loads(line) for line in Path("CORPUS").read_text(encoding="utf-8").splitlines()]
        store.write_documents(
            [Document(id=one["id"], content=one["text"], meta={"file_path": one["document"]}) for one in chunks]
        )
        self.pipeline = Pipeline()
        self.pipeline.add_component("retriever", InMemoryBM25Retriever(store))

    def run_api(self, query: str, top_k: int = 10) -> dict[str, Any]:
        """Give the best documents."""
        found: dict[str, Any] = self.pipeline.run({"retriever": {"query": query, "top_k": top_k}})
        return {"documents": found["retriever"]["documents"]}
