"""Retrievers of others: what all share, and what those have in common that the benchmark serves itself.

A system builds indexes by a `Build`, and answers from one of them, or from two in turn, as a load balancer does over
replicas that differ. A healthy index is kept and put back as it was, so that a heal is one. `Front` is what stands
between an index and the caller. What a system cannot have is in `lacks`, with a word that says why.
"""

import json
import os
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final

import httpx2

from app.base.values import replace
from benchmarks.foreign.collections import Chunk

ROOT: Final = Path(__file__).parent.parent.parent
SERVERS: Final = ROOT / ".venv-servers/bin"
MODEL: Final = "lsi-150"
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

    def relevance(self, hit: Hit) -> float | None:
        """Return how relevant the scorer of `document` calls a hit, in [0, 1]; None = it has none."""
        del hit
        return None

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
