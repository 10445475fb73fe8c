"""A retriever somebody else wrote, for the trial: a Chroma server, an LSI embedder, and a switch for each fault.

Chroma is the program of requirements-servers.lock. No model can be downloaded, so the embedder is latent semantic
indexing (Deerwester et al. 1990), learned from the documents themselves and served as an OpenAI-compatible
`/v1/embeddings`. A forwarding server stands before Chroma, so that it can be slower than it is.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import svds

ROOT: Final = Path(__file__).parent.parent
NAME: Final = "handbook"
MODEL: Final = "lsi-128"
_DIMENSIONS = 128
_DATABASE = "/api/v2/tenants/default_tenant/databases/default_database"
_BATCH = 500
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a document, as it is indexed."""

    id: str
    document: str
    text: str


def cut(documents: Mapping[str, str], characters: int, prefix: str = "") -> list[Chunk]:
    """Cut documents at words into chunks of about `characters`; ids are `{prefix}{document}-{number}`."""
    chunks: list[Chunk] = []
    for document, text in documents.items():
        pieces: list[str] = [""]
        for word in text.split():
            if pieces[-1] and len(pieces[-1]) + len(word) >= characters:
                pieces.append("")
            pieces[-1] = f"{pieces[-1]} {word}".strip()
        chunks += [
            Chunk(id=f"{prefix}{document}-{number}", document=document, text=piece)
            for number, piece in enumerate(pieces)
            if piece
        ]
    return chunks


class Embedder:
    """Latent semantic indexing: tf-idf weights of words or of character 4-grams, reduced to 128 dimensions."""

    def __init__(self, texts: Sequence[str], *, by_words: bool) -> None:
        self._by_words = by_words
        counts = [Counter(self._terms(text)) for text in texts]
        found = Counter(term for one in counts for term in one)
        self._places = {term: place for place, term in enumerate(sorted(t for t, n in found.items() if n > 1))}
        self._weights = np.array([np.log(len(texts) / found[term]) for term in self._places])
        rows = [self._row(one) for one in counts]
        data = np.concatenate([values for _, values in rows])
        columns = np.concatenate([places for places, _ in rows])
        ends = np.cumsum([0, *(len(places) for places, _ in rows)])
        matrix = csr_matrix((data, columns, ends), shape=(len(texts), len(self._places)))
        start = np.random.default_rng(7).normal(size=min(matrix.shape))
        _, _, self._axes = svds(matrix, k=_DIMENSIONS, v0=start)

    def vector(self, text: str) -> list[float]:
        """Embed a text, at length 1."""
        places, values = self._row(Counter(self._terms(text)))
        found = self._axes[:, places] @ values if len(places) else np.ones(_DIMENSIONS)
        length = float(np.linalg.norm(found)) or 1.0
        return [float(value) for value in found / length]

    def _terms(self, text: str) -> list[str]:
        words = _WORD.findall(text.lower())
        if self._by_words:
            return words
        line = " ".join(words)
        return [line[place : place + 4] for place in range(len(line) - 3)]

    def _row(self, counts: Counter[str]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        known = [(self._places[term], 1 + np.log(count)) for term, count in counts.items() if term in self._places]
        places = np.array([place for place, _ in known], dtype=np.int64)
        values = np.array([value for _, value in known]) * self._weights[places] if known else np.zeros(0)
        return places, values / (np.linalg.norm(values) or 1.0)


@dataclass(kw_only=True)
class Faults:
    """What is wrong with the servers right now."""

    embedder_status: int = 200
    embedder: int = 0
    """Which of the embedders answers: 0 = the one the index was made with."""
    delay_seconds: float = 0.0
    """By how much each search takes longer."""


@dataclass(kw_only=True)
class Collection:
    """A Chroma server with one collection, its embedder, and what can go wrong with them."""

    folder: Path
    embedders: Sequence[Embedder]
    chunks: Sequence[Chunk]
    faults: Faults = field(default_factory=Faults)
    embedder_url: str = ""
    port: int = 0
    """Where the retriever is asked; a stopped one refuses connections there."""
    _chroma_port: int = 0
    _client: httpx2.Client = field(default_factory=lambda: httpx2.Client(timeout=120, trust_env=False))
    _process: subprocess.Popen[bytes] | None = None
    _proxy: ThreadingHTTPServer | None = None

    @contextmanager
    def running(self) -> Iterator["Collection"]:
        """Serve all three on free ports of 127.0.0.1, the chunks indexed."""
        embedder = _serve(self._embed)
        self.embedder_url = f"http://127.0.0.1:{embedder.server_port}/v1/embeddings"
        self._chroma_port, self.port = _free_port(), _free_port()
        try:
            self.start()
            self.index(self.chunks)
            self.stop()
            shutil.copytree(self._data, self._backup)
            self.start()
            yield self
        finally:
            self.stop()
            embedder.shutdown()
            embedder.server_close()

    def start(self) -> None:
        """Start Chroma over what it has on disk."""
        program = ROOT / ".venv-servers/bin/chroma"
        command = [program, "run", "--path", self._data, "--host", "127.0.0.1", "--port", self._chroma_port]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "ANONYMIZED_TELEMETRY": "False"}
        with (self.folder / "chroma.log").open("ab") as log:
            self._process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, env=environment)  # noqa: S603 - of our lock
        for _ in range(600):
            with suppress(httpx2.TransportError):
                if self._ask("GET", "/api/v2/heartbeat").is_success:
                    self._proxy = _serve(self._forward, self.port)
                    return
            time.sleep(0.1)
        raise SystemExit("Chroma did not start; see its log")

    def stop(self) -> None:
        """Stop Chroma: connections are refused from now on."""
        if self._proxy is not None:
            self._proxy.shutdown()
            self._proxy.server_close()
            self._proxy = None
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def restore(self) -> None:
        """Put back what Chroma had on disk at first: made anew, its index of neighbours would be another."""
        self.stop()
        shutil.rmtree(self._data)
        shutil.copytree(self._backup, self._data)
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "chroma"

    @property
    def _backup(self) -> Path:
        return self.folder / "chroma-backup"

    def index(self, chunks: Sequence[Chunk]) -> None:
        """Make the collection anew of these chunks."""
        self._ask("DELETE", f"{_DATABASE}/collections/{NAME}")
        body = {"name": NAME, "configuration": {"hnsw": {"space": "cosine"}}}
        self._ask("POST", f"{_DATABASE}/collections", json.dumps(body).encode()).raise_for_status()
        self.add(chunks)

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Index more chunks."""
        for start in range(0, len(chunks), _BATCH):
            some = chunks[start : start + _BATCH]
            body = {
                "ids": [chunk.id for chunk in some],
                "documents": [chunk.text for chunk in some],
                "metadatas": [{"source": chunk.document} for chunk in some],
                "embeddings": [self.embedders[0].vector(chunk.text) for chunk in some],
            }
            self._post("add", body)

    def delete(self, chunks: Sequence[Chunk]) -> None:
        """Delete chunks from the index."""
        self._post("delete", {"ids": [chunk.id for chunk in chunks]})

    def _post(self, verb: str, body: Mapping[str, Any]) -> None:
        found = self._ask("GET", f"{_DATABASE}/collections/{NAME}").raise_for_status().json()["id"]
        self._ask("POST", f"{_DATABASE}/collections/{found}/{verb}", json.dumps(body).encode()).raise_for_status()

    def _ask(self, method: str, path: str, body: bytes | None = None) -> httpx2.Response:
        url = f"http://127.0.0.1:{self._chroma_port}{path}"
        return self._client.request(method, url, content=body, headers={"content-type": "application/json"})

    def _embed(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        del request
        if self.faults.embedder_status != httpx2.codes.OK:
            return self.faults.embedder_status, b'{"error": {"message": "out of memory"}}'
        texts = json.loads(body)["input"]
        vector = self.embedders[self.faults.embedder].vector
        data = [
            {"object": "embedding", "index": place, "embedding": vector(text)}
            for place, text in enumerate([texts] if isinstance(texts, str) else texts)
        ]
        return 200, json.dumps({"object": "list", "data": data, "model": MODEL}).encode()

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        if request.path.endswith("/query"):
            time.sleep(self.faults.delay_seconds)
        answer = self._ask(request.command, request.path, body)
        return answer.status_code, answer.content


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over connections that a killed service leaves."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _serve(answer: Callable[[BaseHTTPRequestHandler, bytes], tuple[int, bytes]], port: int = 0) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            status, content = answer(self, self.rfile.read(int(self.headers.get("content-length") or 0)))
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = _Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _free_port() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.server_close()
    return int(server.server_address[1])
