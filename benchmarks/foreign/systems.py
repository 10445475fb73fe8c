"""Retrievers of others: what they share, and those that answer over an HTTP endpoint of the benchmark.

A system builds indexes by a `Build`, and answers from one of them, or from two in turn, as a load balancer does over
replicas that differ. A healthy index is kept and put back as it was, so that a heal is one. `Front` is what stands
between an index and the caller. What a system cannot have is in `lacks`, with a word that says why.
"""

import json
import os
import sqlite3
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
import numpy as np

from app.demo.corpus import terms as stems
from benchmarks.foreign.collections import Chunk
from benchmarks.foreign.vectors import Embedder, Floats, coarse, grams, words

ROOT: Final = Path(__file__).parent.parent.parent
SERVERS: Final = ROOT / ".venv-servers/bin"
MODEL: Final = "lsi-150"
_RRF: Final = 60
_FRESH_SINCE: Final = "2025-01-01"
_SLOWEST_START_SECONDS: Final = 60
_LOG: Final = "program.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A chunk in an answer."""

    chunk: Chunk
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """How an index is made of chunks."""

    chunks: tuple[Chunk, ...]
    refit: bool = True
    """Whether statistics (idf, mean length, the basis of vectors) are of these chunks, else of the healthy ones."""
    other_analyzer: bool = False
    other_scoring: bool = False
    other_query_model: bool = False
    other_index_model: bool = False
    dimensions: int | None = None
    one_bit: bool = False
    ef_search: int | None = None


class Index(ABC):
    """Chunks made ready to be searched."""

    @abstractmethod
    def search(self, query: str, k: int) -> list[Hit]:
        """Return the best hits, the best first, higher scores being better."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Free what it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """What happens to answers on their way."""

    limit: int | None = None
    threshold: float | None = None
    empty_every: int | None = None
    """Every answer of so many has no hits: 1 = each."""
    fail_every: int | None = None
    """Every answer of so many is HTTP 500."""
    characters: int | None = None
    scale: float = 1.0
    seconds: float = 0.0
    embedder_fails: bool = False

    def change(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits as they arrive, but for those answers that fail or are empty now and then."""
        kept = [hit for hit in hits if self.threshold is None or hit.score >= self.threshold][: self.limit]
        if self.empty_every == 1:
            return []
        return [
            replace(hit, score=hit.score * self.scale, chunk=replace(hit.chunk, text=hit.chunk.text[: self.characters]))
            for hit in kept
        ]


class System(ABC):
    """A retriever, its healthy index, and what it answers from at the moment."""

    name: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]] = {}
    """Why it cannot have what a fault needs, by the name of that."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.healthy = Build(chunks=tuple(chunks))
        self.indexes: tuple[Index, ...] = ()
        self.front = Front()
        self._kept: dict[str, Index] = {}

    @contextmanager
    def running(self, folder: Path) -> Iterator[None]:
        """Serve the healthy index."""
        with self.serving(folder):
            self._kept["healthy"] = self.build(self.healthy)
            self.heal()
            yield

    def break_by(self, *builds: Build, front: Front | None = None) -> None:
        """Answer from indexes made so, in turn where there are several; without any, from the healthy one."""
        made = tuple(self._kept["healthy"] if build == self.healthy else self.build(build) for build in builds)
        self.indexes, self.front = made or (self._kept["healthy"],), front or Front()
        self.publish()

    def heal(self) -> None:
        """Answer from the healthy index again, in full."""
        broken = [index for index in self.indexes if index is not self._kept["healthy"]]
        self.indexes, self.front = (self._kept["healthy"],), Front()
        self.publish()
        for index in broken:
            index.close()

    def rankings(self, query: str, k: int) -> list[list[Hit]]:
        """Return the answers that may come to a query right now."""
        found = [self.front.change(self.found(index, query, k)) for index in self.indexes]
        sometimes_empty = self.front.empty_every is not None and self.front.empty_every > 1
        return [*found, []] if sometimes_empty else found

    def found(self, index: Index, query: str, k: int) -> list[Hit]:
        """Return what an index answers."""
        return index.search(query, k)

    @abstractmethod
    def serving(self, folder: Path) -> AbstractContextManager[None]:
        """Run what the system needs, without an index yet."""

    @abstractmethod
    def build(self, build: Build) -> Index:
        """Make an index."""

    @abstractmethod
    def publish(self) -> None:
        """Let `indexes` and `front` be what is asked from now on."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Describe the retriever as somebody would who has read our docs."""


# --- served by the benchmark ---------------------------------------------------------------------------------


class Turns:
    """Counts requests, for what happens to every nth of them."""

    def __init__(self) -> None:
        self._counter = count()
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return the number of a request."""
        with self._lock:
            return next(self._counter)


class ServedSystem(System):
    """A system that answers over HTTP in a shape of its own. What an index answered is remembered while it stands."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(chunks)
        self.port = 0
        self._turns = Turns()
        self._answers: dict[tuple[int, str, int], list[Hit]] = {}

    @contextmanager
    def serving(self, folder: Path) -> Iterator[None]:
        """Serve the endpoint."""
        del folder
        with served(self._respond) as self.port:
            yield

    def publish(self) -> None:
        """Forget the answers of indexes that are gone, whose ids may be given again; the healthy one stays."""
        healthy = id(self._kept["healthy"])
        self._answers = {known: hits for known, hits in self._answers.items() if known[0] == healthy}

    def answer(self, query: str, k: int) -> list[Hit] | None:
        """Answer one request; None = it fails."""
        turn, front = self._turns.next(), self.front
        time.sleep(front.seconds)
        if front.fail_every is not None and turn % front.fail_every == 0:
            return None
        if front.empty_every is not None and turn % front.empty_every == 0:
            return []
        index = self.indexes[turn % len(self.indexes)]
        return front.change(self.found(index, query, k))

    def found(self, index: Index, query: str, k: int) -> list[Hit]:
        """Return what an index answers, which does not change while it stands."""
        known = (id(index), query, k)
        if known not in self._answers:
            self._answers[known] = index.search(query, k)
        return self._answers[known]

    def _respond(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        query, k = self.asked(request, body)
        hits = self.answer(query, k)
        if hits is None:
            return 500, b'{"error": "shard 3 did not answer"}'
        return 200, json.dumps(self.shape(query, hits)).encode()

    @abstractmethod
    def asked(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[str, int]:
        """Read the query and how many hits are asked for."""

    @abstractmethod
    def shape(self, query: str, hits: Sequence[Hit]) -> Any:
        """Write an answer."""


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


class Models:
    """The embedders of a system: the usual one and another, learned from the healthy chunks, and refitted ones."""

    def __init__(self, healthy: Sequence[Chunk]) -> None:
        self._texts = [chunk.text for chunk in healthy]

    @cached_property
    def usual(self) -> Embedder:
        """LSI over words."""
        return Embedder(self._texts)

    @cached_property
    def other(self) -> Embedder:
        """LSI over character 4-grams."""
        return Embedder(self._texts, terms=grams)

    def of(self, build: Build, *, fixed: bool) -> tuple[Embedder, Embedder]:
        """Return the embedder of the chunks and that of the queries. `fixed`: a model is not learned from the index."""
        usual = self.usual
        if build.other_analyzer or (
            build.refit and not fixed and [chunk.text for chunk in build.chunks] != self._texts
        ):
            usual = Embedder([chunk.text for chunk in build.chunks], terms=stems if build.other_analyzer else words)
        documents = self.other if build.other_index_model else usual
        return documents, self.other if build.other_query_model else usual


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
        return HybridIndex(
            fts5_index(build, self.healthy)
            if build.refit or not self._adds(build)
            else fts5_index(replace(build, refit=True), self.healthy),
            vector_index(build, self._models),
            dense_weight=0.2 if build.other_scoring else 1.0,
        )

    def _adds(self, build: Build) -> bool:
        return not set(build.chunks) <= set(self.healthy.chunks)

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


# --- HTTP ----------------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over connections that were cut."""


@contextmanager
def served(respond: Callable[[BaseHTTPRequestHandler, bytes], tuple[int, bytes]], port: int = 0) -> Iterator[int]:
    """Serve JSON on a port of 127.0.0.1, a free one where none is given, and yield it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            status, content = respond(self, self.rfile.read(int(self.headers.get("content-length") or 0)))
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = _Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()


def free_port() -> int:
    """Find a port that nobody uses."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return server.server_port


@contextmanager
def running_program(
    command: Sequence[object], folder: Path, *, piped: bool = False, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a program of others, its home and its `program.log` in a folder; it is ended whatever happens."""
    with (folder / _LOG).open("w") as log:
        process = subprocess.Popen(  # noqa: S603 - of our lock
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if piped else log,
            stderr=log,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(_SLOWEST_START_SECONDS)


def wait_for(url: str, folder: Path) -> None:
    """Wait until a program answers, whatever it says."""
    until = time.monotonic() + _SLOWEST_START_SECONDS
    while time.monotonic() < until:
        with suppress(httpx2.TransportError):
            httpx2.get(url, trust_env=False, timeout=5)
            return
        time.sleep(0.1)
    raise SystemExit(f"{url} does not answer: {(folder / _LOG).read_text(encoding='utf-8')[-2000:]}")
