"""Four retrievers that answer over an endpoint of the benchmark, each in a shape of its own.

SQLite FTS5 and latent semantic indexing in this process, Haystack's BM25 in a process of its own environment, and a
hybrid of the first two that is a tool of a real MCP server.
"""

import json
import sqlite3
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

import numpy as np

from app.base.values import replace
from benchmarks.foreign.collections import Chunk
from benchmarks.foreign.systems import SERVERS, Build, Hit, Index, ServedSystem, free_port, running_program, wait_for
from benchmarks.foreign.vectors import Floats, Models, coarse, words

_RRF: Final = 60
_FRESH_SINCE: Final = "2025-01-01"


class Fts5Index(Index):
    """A table of SQLite's FTS5: BM25 over any of the words. `hidden` rows are filtered out, and count in statistics."""

    def __init__(
        self, chunks: Sequence[Chunk], *, tokenizer: str, fresh_first: bool, hidden: Sequence[str] = ()
    ) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._chunks = {chunk.id: chunk for chunk in chunks}
        columns = "id UNINDEXED, updated UNINDEXED, hidden UNINDEXED, body"
        self._database.execute(f"CREATE VIRTUAL TABLE page USING fts5({columns}, tokenize='{tokenizer}')")
        rows = [(chunk.id, chunk.updated, chunk.id in set(hidden), chunk.text) for chunk in chunks]
        self._database.executemany("INSERT INTO page VALUES (?, ?, ?, ?)", rows)
        boost = f"bm25(page) * CASE WHEN updated >= '{_FRESH_SINCE}' THEN 1.3 ELSE 1 END"
        self._rank = boost if fresh_first else "bm25(page)"

    def search(self, query: str, k: int) -> list[Hit]:
        """Rank by BM25; SQLite gives it negated."""
        asked = " OR ".join(f'"{word}"' for word in words(query))
        statement = f"SELECT id, {self._rank} AS s FROM page WHERE page MATCH ? AND NOT hidden ORDER BY s, id LIMIT ?"  # noqa: S608 - of ours
        with self._lock:
            rows = self._database.execute(statement, (asked, k)).fetchall() if asked else []
        return [Hit(chunk=self._chunks[name], score=-score) for name, score in rows]

    def close(self) -> None:
        """Close the database."""
        self._database.close()


class Fts5(ServedSystem):
    """SQLite FTS5 behind a small endpoint that is asked by GET."""

    name = "fts5"
    lacks: ClassVar = {"vectors": "words", "ef_search": "exact", "adding": "refits", "endpoint": "none"}

    def build(self, build: Build) -> Index:
        """Make a table; without a refit, rows that are gone are filtered out at each query."""
        return fts5_index(build, self.healthy)

    def asked(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[str, int]:
        """Read the query string."""
        del body
        parameters = parse_qs(urlsplit(request.path).query)
        return parameters["q"][0], int(parameters["n"][0])

    def shape(self, query: str, hits: Sequence[Hit]) -> Any:
        """Nest what was found, as search APIs do."""
        items = [
            {
                "key": hit.chunk.id,
                "rank": round(hit.score, 6),
                "page": {"path": hit.chunk.document, "body": hit.chunk.text, "modified": hit.chunk.updated},
            }
            for hit in hits
        ]
        return {"query": query, "found": {"total": len(items), "items": items}}

    def document(self) -> dict[str, Any]:
        """Map the fields; ranks have no scale."""
        return {
            "url": f"http://127.0.0.1:{self.port}/find",
            "request": {"method": "GET", "query": {"q": "{{ query }}", "n": "{{ k }}"}},
            "response": {
                "hits": "found.items",
                "id": "key",
                "score": "rank",
                "text": "page.body",
                "document": "page.path",
                "updated": "page.modified",
            },
        }


def fts5_index(build: Build, healthy: Build) -> Fts5Index:
    """Make a table of FTS5; without a refit, rows that are gone are filtered out at each query."""
    kept = {chunk.id for chunk in build.chunks}
    hidden = [] if build.refit else [chunk.id for chunk in healthy.chunks if chunk.id not in kept]
    return Fts5Index(
        build.chunks if build.refit else healthy.chunks,
        tokenizer="unicode61" if build.other_analyzer else "porter unicode61",
        fresh_first=build.other_scoring,
        hidden=hidden,
    )


class VectorIndex(Index):
    """Vectors of chunks, all of which are compared by cosine."""

    def __init__(self, chunks: Sequence[Chunk], vectors: Floats, query_vector: Callable[[str], Floats]) -> None:
        self._chunks, self._vectors, self._query_vector = chunks, vectors, query_vector

    def search(self, query: str, k: int) -> list[Hit]:
        """Rank by cosine."""
        scores = self._vectors @ self._query_vector(query)
        best = np.argsort(-scores, kind="stable")[:k]
        return [Hit(chunk=self._chunks[place], score=float(scores[place])) for place in best]


def vector_index(build: Build, models: Models) -> VectorIndex:
    """Embed chunks as a build says."""
    documents, queries = models.of(build, fixed=False)

    def changed(vectors: Floats) -> Floats:
        return coarse(vectors, build.dimensions, one_bit=build.one_bit)

    return VectorIndex(
        build.chunks,
        changed(documents.vectors([chunk.text for chunk in build.chunks])),
        lambda query: changed(queries.vectors([query]))[0],
    )


class Lsi(ServedSystem):
    """LSI vectors behind an endpoint."""

    name = "lsi"
    lacks: ClassVar = {"scoring": "cosine", "ef_search": "exact", "endpoint": "none"}

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(chunks)
        self._models = Models(chunks)

    def build(self, build: Build) -> Index:
        """Embed the chunks."""
        return vector_index(build, self._models)

    def asked(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[str, int]:
        """Read the body."""
        del request
        asked = json.loads(body)
        return asked["question"], int(asked["limit"])

    def shape(self, query: str, hits: Sequence[Hit]) -> Any:
        """Write matches."""
        del query
        return {
            "matches": [
                {
                    "chunk": {
                        "id": hit.chunk.id,
                        "text": hit.chunk.text,
                        "doc": hit.chunk.document,
                        "date": hit.chunk.updated,
                    },
                    "similarity": round(hit.score, 6),
                }
                for hit in hits
            ]
        }

    def relevance(self, hit: Hit) -> float:
        """Return the cosine."""
        return hit.score

    def document(self) -> dict[str, Any]:
        """Map the fields, and say that similarities are cosines."""
        return {
            "url": f"http://127.0.0.1:{self.port}/match",
            "request": {"json": {"question": "{{ query }}", "limit": "{{ k }}"}},
            "response": {
                "hits": "matches",
                "id": "chunk.id",
                "score": "similarity",
                "text": "chunk.text",
                "document": "chunk.doc",
                "updated": "chunk.date",
            },
            "scorer": {"scale": "cosine"},
        }


class HaystackIndex(Index):
    """A document store in the process of Haystack."""

    def __init__(
        self, ask: Callable[[dict[str, Any]], Any], name: str, chunks: Sequence[Chunk], **options: Any
    ) -> None:
        """`options` are those of the store."""
        self._ask, self._name, self._chunks = ask, name, {chunk.id: chunk for chunk in chunks}
        documents = [{"id": chunk.id, "content": chunk.text, "meta": {"file_path": chunk.document}} for chunk in chunks]
        ask({"do": "build", "name": name, "documents": documents, "options": options})

    def search(self, query: str, k: int) -> list[Hit]:
        """Ask the store."""
        found = self._ask({"do": "search", "name": self._name, "query": query, "top_k": k})
        return [Hit(chunk=self._chunks[name], score=score) for name, score in found]

    def close(self) -> None:
        """Drop the store."""
        self._ask({"do": "drop", "name": self._name})


class Haystack(ServedSystem):
    """BM25 of Haystack's InMemoryDocumentStore, served as Hayhooks serves a pipeline."""

    name = "haystack"
    lacks: ClassVar = {
        "vectors": "words",
        "ef_search": "exact",
        "kept": "refits",
        "analyzer": "one",
        "endpoint": "none",
    }

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(chunks)
        self._lock = threading.Lock()
        self._names = count()
        self._process: subprocess.Popen[str] | None = None

    @contextmanager
    def serving(self, folder: Path) -> Iterator[None]:
        """Run Haystack in a process of its own environment."""
        command = [SERVERS / "python", "-P", Path(__file__).parent / "haystack_process.py"]
        with (
            running_program(command, folder, piped=True, HAYSTACK_TELEMETRY_ENABLED="False") as self._process,
            super().serving(folder),
        ):
            yield

    def build(self, build: Build) -> Index:
        """Write the documents; another scoring is another BM25 with other k1 and b."""
        other = {"bm25_algorithm": "BM25Okapi", "bm25_parameters": {"k1": 2.5, "b": 0.1}} if build.other_scoring else {}
        return HaystackIndex(self._ask, f"store-{next(self._names)}", build.chunks, **other)

    def _ask(self, message: dict[str, Any]) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        with self._lock:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

    def asked(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[str, int]:
        """Read the inputs of the pipeline."""
        del request
        asked = json.loads(body)
        return asked["query"], int(asked["top_k"])

    def shape(self, query: str, hits: Sequence[Hit]) -> Any:
        """Write the pipeline's result."""
        del query
        documents = [
            {
                "id": hit.chunk.id,
                "content": hit.chunk.text,
                "meta": {"file_path": hit.chunk.document},
                "score": hit.score,
            }
            for hit in hits
        ]
        return {"result": {"documents": documents}}

    def document(self) -> dict[str, Any]:
        """Use the preset."""
        return {"preset": "haystack", "url": f"http://127.0.0.1:{self.port}", "options": {"pipeline": "retrieve"}}


class HybridIndex(Index):
    """Words and vectors, fused by reciprocal ranks (Cormack et al. 2009)."""

    def __init__(self, lexical: Index, dense: Index, *, dense_weight: float) -> None:
        self._parts = ((lexical, 1.0), (dense, dense_weight))

    def search(self, query: str, k: int) -> list[Hit]:
        """Fuse the first fifty of both."""
        scores: dict[str, float] = defaultdict(float)
        chunks: dict[str, Chunk] = {}
        for index, weight in self._parts:
            for rank, hit in enumerate(index.search(query, max(50, k)), 1):
                scores[hit.chunk.id] += weight / (_RRF + rank)
                chunks[hit.chunk.id] = hit.chunk
        best = sorted(scores, key=lambda name: (-scores[name], name))[:k]
        return [Hit(chunk=chunks[name], score=scores[name]) for name in best]

    def close(self) -> None:
        """Close both."""
        for index, _ in self._parts:
            index.close()


class McpTool(ServedSystem):
    """A tool of a real MCP server over a hybrid search, FTS5 beside LSI."""

    name = "mcp"
    lacks: ClassVar = {"ef_search": "exact", "endpoint": "none"}

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(chunks)
        self._models = Models(chunks)
        self._mcp_port = 0

    @contextmanager
    def serving(self, folder: Path) -> Iterator[None]:
        """Run the MCP server, whose tool asks the endpoint."""
        self._mcp_port = free_port()
        program = Path(__file__).parent / "mcp_process.py"
        with super().serving(folder):
            command = [SERVERS / "python", "-P", program, self._mcp_port, f"http://127.0.0.1:{self.port}/search"]
            with running_program(command, folder):
                wait_for(f"http://127.0.0.1:{self._mcp_port}/mcp", folder)
                yield

    def build(self, build: Build) -> Index:
        """Make both indexes; another scoring is another weight of the vectors."""
        adds = not set(build.chunks) <= set(self.healthy.chunks)
        words_build = replace(build, refit=True) if adds else build  # FTS5 learns of what is added, whatever vectors do
        return HybridIndex(
            fts5_index(words_build, self.healthy),
            vector_index(build, self._models),
            dense_weight=0.2 if build.other_scoring else 1.0,
        )

    def asked(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[str, int]:
        """Read what the tool sends."""
        del request
        asked = json.loads(body)
        return asked["query"], int(asked["top_k"])

    def shape(self, query: str, hits: Sequence[Hit]) -> Any:
        """Write what the tool returns."""
        del query
        return [
            {"id": hit.chunk.id, "text": hit.chunk.text, "source": hit.chunk.document, "score": round(hit.score, 6)}
            for hit in hits
        ]

    def document(self) -> dict[str, Any]:
        """Use the preset."""
        return {
            "preset": "mcp",
            "url": f"http://127.0.0.1:{self._mcp_port}/mcp",
            "request": {"tool": "search", "json": {"query": "{{ query }}", "top_k": "{{ k }}"}},
        }
