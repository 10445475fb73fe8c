"""Retrievers of LangChain, LlamaIndex and Haystack, the real packages, checked as they are."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.client_package import client_environment
from tests.support.servers import ENVIRONMENT

pytestmark = pytest.mark.systems

TEXTS = {
    "retention": "Backups are kept for ten days, then erased.",
    "refunds": "Refunds take five working days.",
    "wine": "Corked bottles are replaced within a year.",
}
CANARIES = """
suite: docs
canaries:
  - {key: retention, query: how long are backups kept, expected_chunks: [{id: retention}]}
  - {key: refunds, query: how many days do refunds take, expected_chunks: [{document: refunds.md}]}
  - key: wine
    query: who replaces corked bottles
    expected_chunks: {text: Corked bottles are replaced within a year.}
"""
EMBED = """
import hashlib, json, math, re, sys
def embed(text):
    vector = [0.0] * 256
    for word in re.findall("[a-z]+", text.lower()):
        vector[hashlib.md5(word.encode()).digest()[0]] += 1.0
    length = math.sqrt(sum(one * one for one in vector)) or 1.0
    return [one / length for one in vector]
"""
FRAMEWORKS = {
    "langchain": """
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
class Words(Embeddings):
    def embed_query(self, text): return embed(text)
    def embed_documents(self, texts): return [embed(text) for text in texts]
store = InMemoryVectorStore(Words())
store.add_documents([Document(text, id=name, metadata={"source": f"{name}.md"}) for name, text in texts.items()])
retriever = store.as_retriever(search_kwargs={"k": 1})
""",
    "llama_index": """
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import TextNode
class Words(BaseEmbedding):
    def _get_query_embedding(self, query): return embed(query)
    async def _aget_query_embedding(self, query): return embed(query)
    def _get_text_embedding(self, text): return embed(text)
nodes = [TextNode(id_=name, text=text, metadata={"file_name": f"{name}.md"}) for name, text in texts.items()]
retriever = VectorStoreIndex(nodes, embed_model=Words()).as_retriever(similarity_top_k=1)
""",
    "haystack": """
from haystack import Document
from haystack.components.retrievers import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
store = InMemoryDocumentStore()
store.write_documents([Document(id=name, content=text, meta={"source": f"{name}.md"}) for name, text in texts.items()])
retriever = InMemoryBM25Retriever(store, top_k=1)
""",
}
CHECK = """
from coalmine_client import check
found = check(retriever, "canaries.yaml")
print(json.dumps([[row["key"], row["verdict"], [hit["id"] for hit in row["ranking"]][:1]] for row in found.rows]))
"""


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_retriever_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / "canaries.yaml").write_text(CANARIES, "utf-8")

    environment = client_environment(tmp_path / "client")
    script = f"{EMBED}\ntexts = json.loads(sys.argv[1])\n{FRAMEWORKS[name]}{CHECK}"

    def rows(texts: dict[str, str]) -> dict[str, tuple[str, list[str]]]:
        done = subprocess.run(  # noqa: S603 - the script above
            [ENVIRONMENT / "bin/python", "-c", script, json.dumps(texts)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, done.stderr
        return {key: (verdict, ids) for key, verdict, ids in json.loads(done.stdout.splitlines()[-1])}

    whole = rows(TEXTS)
    assert whole == {key: ("healthy", [key]) for key in TEXTS}
    lost = rows({key: text for key, text in TEXTS.items() if key != "refunds"})
    assert [key for key, (verdict, _) in lost.items() if verdict != "healthy"] == ["refunds"]
