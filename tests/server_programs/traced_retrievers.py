"""Retrievers of LangChain, LlamaIndex and Haystack, traced by OpenInference, and one by hand as OpenTelemetry has it.

Where the spans go is in the variables of OpenTelemetry. Its arguments are the questions that each is asked.
"""

import hashlib
import re
import sys
from typing import Any

from haystack import Document as Passage
from haystack import Pipeline
from haystack.components.retrievers import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import TextNode
from openinference.instrumentation.haystack import HaystackInstrumentor
from openinference.instrumentation.langchain import LangChainInstrumentor
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

TEXT = "Keys are rotated in the console, says Ada Lovelace."


def embed(text: str) -> list[float]:
    """Give a vector of the words of a text."""
    vector = [0.1] * 64
    for word in re.findall("[a-z]+", text.lower()):
        vector[hashlib.md5(word.encode(), usedforsecurity=False).digest()[0] % 64] += 1
    return vector


class Words(Embeddings):  # type: ignore[misc] # of an environment that mypy does not see
    """Words as LangChain embeds them."""

    def embed_query(self, text: str) -> list[float]:
        """Embed a question."""
        return embed(text)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents."""
        return [embed(text) for text in texts]


class Nodes(BaseEmbedding):  # type: ignore[misc] # the same
    """Words as LlamaIndex embeds them."""

    def _get_query_embedding(self, query: str) -> list[float]:
        return embed(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return embed(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return embed(text)


def ask_langchain(question: str) -> None:
    """Ask a chain that hands its question to a retriever."""
    store = InMemoryVectorStore(Words())
    store.add_documents([Document(TEXT, id="keys")])
    chain: Any = RunnableLambda(lambda given: given["question"]) | store.as_retriever(search_kwargs={"k": 1})
    chain.invoke({"question": question})


def ask_llama_index(question: str) -> None:
    """Ask a retriever over an index."""
    index = VectorStoreIndex([TextNode(id_="keys", text=TEXT)], embed_model=Nodes())
    index.as_retriever(similarity_top_k=1).retrieve(question)


def ask_haystack(question: str) -> None:
    """Ask a pipeline with a retriever."""
    store = InMemoryDocumentStore()
    store.write_documents([Passage(id="keys", content=TEXT)])
    pipeline = Pipeline()
    pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=1))
    pipeline.run({"retriever": {"query": question}})


def main() -> None:
    """Ask all of them."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    for one in (LangChainInstrumentor, LlamaIndexInstrumentor, HaystackInstrumentor):
        one().instrument(tracer_provider=provider)
    tracer = provider.get_tracer("by hand")
    for question in sys.argv[1:]:
        for ask in (ask_langchain, ask_llama_index, ask_haystack):
            ask(question)
        attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": question}
        with tracer.start_as_current_span("retrieval", attributes=attributes):
            pass
    provider.shutdown()


if __name__ == "__main__":
    main()
