"""Retrievers that are databases: PostgreSQL by words and by vectors, and Chroma.

PostgreSQL is asked by our own SQL, so that faults of answers are made in it: in the function that a newcomer calls, or
in the view that stands for the table. Chroma has a proxy before it, which stands for its alias. Vectors of queries come
from an OpenAI-compatible endpoint of the benchmark.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import httpx2

from benchmarks.foreign.collections import Chunk
from benchmarks.foreign.systems import (
    MODEL,
    SERVERS,
    Build,
    Front,
    Hit,
    Index,
    System,
    Turns,
    free_port,
    running_program,
    served,
    wait_for,
)
from benchmarks.foreign.vectors import DIMENSIONS, Floats, Models, coarse
from tests.support.databases import PASSWORD, READER, Database, database

_TENANT: Final = "/api/v2/tenants/default_tenant/databases/default_database"
_COLLECTION: Final = "handbook"
_BATCH: Final = 500
_TURN: Final = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
"""A number that differs from statement to statement."""
_BROKEN: Final = 'could not read block 17 in file "base/16385/16502": read only 0 of 8192 bytes'
_HELPERS: Final = f"""
CREATE FUNCTION broken_now(every int) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF {_TURN} % every = 0 THEN RAISE EXCEPTION '{_BROKEN.replace("'", "''")}'; END IF;
  RETURN true;
END $$;
CREATE FUNCTION slow(seconds float) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN PERFORM pg_sleep(seconds); RETURN true; END $$;
"""


class PostgresqlSystem(System):
    """A PostgreSQL server whose reader may only SELECT."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(chunks)
        self._names = count()
        self._server: Database | None = None

    @contextmanager
    def serving(self, folder: Path) -> Iterator[None]:
        """Run the server."""
        del folder
        with database() as self._server:
            self.run(_HELPERS)
            yield

    @property
    def server(self) -> Database:
        """The server, which runs."""
        assert self._server is not None
        return self._server

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement as the owner."""
        cursor = self.server.owner.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def fill(self, chunks: Sequence[Chunk], columns: str, values: Callable[[int], Sequence[Any]] = lambda _: ()) -> str:
        """Make a table of chunks with further columns, and return its name."""
        name = f"chunks_{next(self._names)}"
        self.run(f"CREATE TABLE {name} (id text PRIMARY KEY, text text, source text, updated date{columns})")
        with self.server.owner.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN") as copy:
            for place, chunk in enumerate(chunks):
                copy.write_row((chunk.id, chunk.text, chunk.document, chunk.updated, *values(place)))
        return name

    def retriever(self, **changes: Any) -> dict[str, Any]:
        """Describe it by the preset."""
        auth = {"kind": "basic", "user": READER, "password": PASSWORD}
        return {"preset": "pgvector", "url": self.server.url, "auth": auth, **changes}


class FullTextIndex(Index):
    """A table with a tsvector; a question is any of its words."""

    def __init__(self, system: "FullText", build: Build) -> None:
        self.system = system
        self.dictionary = "simple" if build.other_analyzer else "english"
        self.rank = "ts_rank" if build.other_scoring else "ts_rank_cd"
        self._chunks = {chunk.id: chunk for chunk in build.chunks}
        self.table = system.fill(build.chunks, "")
        system.run(
            f"ALTER TABLE {self.table} ADD words tsvector"
            f" GENERATED ALWAYS AS (to_tsvector('{self.dictionary}', text)) STORED"
        )
        system.run(f"CREATE INDEX ON {self.table} USING gin (words)")
        system.run(f"ANALYZE {self.table}")

    def statement(self, query: str, k: str) -> str:
        """Write the SELECT of the best rows."""
        return (
            f"SELECT c.id, c.text, c.source, {self.rank}(c.words, q)::float AS score FROM {self.table} c,"  # noqa: S608 - of ours
            f" to_tsquery('{self.dictionary}',"
            f" replace(plainto_tsquery('{self.dictionary}', {query})::text, '&', '|')) q"
            f" WHERE c.words @@ q ORDER BY score DESC, c.id LIMIT {k}"
        )

    def search(self, query: str, k: int) -> list[Hit]:
        """Ask as the owner."""
        rows = self.system.run(self.statement("%s", "%s"), query, k)
        return [Hit(chunk=self._chunks[row[0]], score=row[3]) for row in rows]

    def close(self) -> None:
        """Drop the table."""
        self.system.run(f"DROP TABLE {self.table}")


class FullText(PostgresqlSystem):
    """PostgreSQL's full text search in a function of the database."""

    name = "postgresql"
    lacks: ClassVar = {"vectors": "words", "ef_search": "exact", "kept": "none", "endpoint": "none"}

    def build(self, build: Build) -> Index:
        """Make a table."""
        return FullTextIndex(self, build)

    def publish(self) -> None:
        """Write the function anew."""
        front = self.front
        parts = [f"PERFORM pg_sleep({front.seconds});"] if front.seconds else []
        if front.fail_every is not None:
            parts.append(f"PERFORM broken_now({front.fail_every});")
        if front.empty_every is not None:
            parts.append(f"IF {_TURN} % {front.empty_every} = 0 THEN RETURN; END IF;")
        for number, index in enumerate(self.indexes):
            assert isinstance(index, FullTextIndex)
            text = f"left(f.text, {front.characters})" if front.characters is not None else "f.text"
            where = f" WHERE f.score >= {front.threshold}" if front.threshold is not None else ""
            limit = f"least(k, {front.limit})" if front.limit is not None else "k"
            parts.append(
                f"IF turn % {len(self.indexes)} = {number} THEN RETURN QUERY SELECT f.id, {text}, f.source,"  # noqa: S608 - of ours
                f" f.score * {front.scale} FROM ({index.statement('query', limit)}) f{where}; END IF;"
            )
        self.run(
            "CREATE OR REPLACE FUNCTION search_chunks(query text, k int)"
            " RETURNS TABLE (id text, text text, source text, score float) LANGUAGE plpgsql STABLE AS $$"
            f" #variable_conflict use_column\n DECLARE turn bigint := {_TURN}; BEGIN {' '.join(parts)} END $$"
        )

    def relevance(self, hit: Hit) -> float:
        """Return rank / (rank + 1)."""
        return hit.score / (hit.score + 1)

    def document(self) -> dict[str, Any]:
        """Write a statement of our own under the preset; ranks are no cosines, and have no bound."""
        return self.retriever(
            options={"table": "search_chunks"},
            request={"sql": "SELECT id, text, source AS document, score FROM search_chunks(:query, :k)"},
            scorer={"kind": "score", "scale": "unbounded", "anchor": 1},
        )


class EmbeddedIndex(Index):
    """An index whose queries are embedded by an endpoint."""

    query_vector: Callable[[str], Floats]


class VectorDatabase(System):
    """A database that is asked by vectors of an OpenAI-compatible endpoint. Its models are fixed."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(chunks)
        self._models = Models(chunks)
        self._turns = Turns()
        self.embedder_url = ""

    @contextmanager
    def embedding(self) -> Iterator[None]:
        """Serve the endpoint."""
        with served(self._embed) as port:
            self.embedder_url = f"http://127.0.0.1:{port}/v1"
            yield

    @property
    def embedding_document(self) -> dict[str, Any]:
        """The endpoint in a retriever's document."""
        return {"url": self.embedder_url, "model": MODEL}

    def embedded(self, build: Build) -> tuple[Floats, Callable[[str], Floats]]:
        """Return the vectors of the chunks, and what embeds queries."""
        documents, queries = self._models.of(build, fixed=True)

        def changed(vectors: Floats) -> Floats:
            return coarse(vectors, build.dimensions, one_bit=build.one_bit)

        vectors = changed(documents.vectors([chunk.text for chunk in build.chunks]))
        return vectors, lambda query: changed(queries.vectors([query]))[0]

    def _embed(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        del request
        if self.front.embedder_fails:
            return 500, b'{"error": {"message": "CUDA out of memory"}}'
        texts = json.loads(body)["input"]
        data = [
            {"object": "embedding", "index": place, "embedding": self._vector(text).tolist()}
            for place, text in enumerate([texts] if isinstance(texts, str) else texts)
        ]
        return 200, json.dumps({"object": "list", "data": data, "model": MODEL}).encode()

    def _vector(self, text: str) -> Floats:
        index = self.indexes[self._turns.next() % len(self.indexes)]
        assert isinstance(index, EmbeddedIndex)
        return index.query_vector(text)


class PgvectorIndex(EmbeddedIndex):
    """A table with a column of vectors and an HNSW index over it."""

    def __init__(self, system: "Pgvector", build: Build) -> None:
        self._system, self.ef_search = system, build.ef_search
        vectors, self.query_vector = system.embedded(build)
        self._chunks = {chunk.id: chunk for chunk in build.chunks}
        self.table = system.fill(
            build.chunks, f", embedding vector({DIMENSIONS})", lambda place: (str(vectors[place].tolist()),)
        )
        system.run(f"CREATE INDEX ON {self.table} USING hnsw (embedding vector_cosine_ops)")
        system.run(f"ANALYZE {self.table}")

    def search(self, query: str, k: int) -> list[Hit]:
        """Ask as the owner."""
        self._system.run(f"SET hnsw.ef_search = {self.ef_search or 40}")
        vector = str(self.query_vector(query).tolist())
        rows = self._system.run(
            f"SELECT id, 1 - (embedding <=> %s::vector) FROM {self.table} ORDER BY embedding <=> %s::vector LIMIT %s",  # noqa: S608 - of ours
            vector,
            vector,
            k,
        )
        return [Hit(chunk=self._chunks[row[0]], score=row[1]) for row in rows]

    def close(self) -> None:
        """Drop the table."""
        self._system.run(f"DROP TABLE {self.table} CASCADE")


class Pgvector(VectorDatabase, PostgresqlSystem):
    """PostgreSQL with pgvector by the preset's own statement."""

    name = "pgvector"
    lacks: ClassVar = {"refit": "fixed", "analyzer": "vectors", "scoring": "cosine", "limit": "client"}

    @contextmanager
    def serving(self, folder: Path) -> Iterator[None]:
        """Run the server and the embedder."""
        with PostgresqlSystem.serving(self, folder), self.embedding():
            self.run("ALTER SYSTEM SET random_page_cost = 1.1")
            self.run("SELECT pg_reload_conf()")
            yield

    def build(self, build: Build) -> Index:
        """Make a table."""
        return PgvectorIndex(self, build)

    def publish(self) -> None:
        """Let the view stand for the tables; the statement of the retriever stays as it is."""
        front, parts = self.front, []
        text = f"left(text, {front.characters}) AS text" if front.characters is not None else "text"
        tables = list(dict.fromkeys(cast("PgvectorIndex", index).table for index in self.indexes))
        for number, table in enumerate(tables):
            conditions = [f"{_TURN} % {len(tables)} = {number}"] if len(tables) > 1 else []
            if front.empty_every is not None:
                conditions.append(f"{_TURN} % {front.empty_every} <> 0")
            if front.fail_every is not None:
                conditions.append(f"broken_now({front.fail_every})")
            where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            parts.append(f"(SELECT id, {text}, source, updated, embedding FROM {table}{where})")  # noqa: S608 - of ours
        whole = " UNION ALL ".join(parts)
        if front.seconds:
            whole = f"SELECT c.* FROM (SELECT slow({front.seconds}) OFFSET 0) s, LATERAL ({whole}) c"  # noqa: S608 - of ours
        self.run(f"DROP VIEW IF EXISTS chunks; CREATE VIEW chunks AS {whole}; GRANT SELECT ON chunks TO {READER}")
        efs = {cast("PgvectorIndex", index).ef_search for index in self.indexes} - {None}
        self.run(f"ALTER ROLE {READER} SET hnsw.ef_search = {efs.pop() if efs else 40}")

    def relevance(self, hit: Hit) -> float:
        """Return the cosine."""
        return hit.score

    def document(self) -> dict[str, Any]:
        """Use the preset."""
        return self.retriever(options={"table": "chunks"}, embedding=self.embedding_document)


class ChromaIndex(EmbeddedIndex):
    """A collection of Chroma."""

    def __init__(self, system: "Chroma", name: str, build: Build) -> None:
        self._system, self.name = system, name
        vectors, self.query_vector = system.embedded(build)
        self._chunks = {chunk.id: chunk for chunk in build.chunks}
        hnsw = {"space": "cosine", **({"ef_search": build.ef_search} if build.ef_search else {})}
        made = system.ask("POST", "/collections", {"name": name, "configuration": {"hnsw": hnsw}})
        self.id: str = made["id"]
        for start in range(0, len(build.chunks), _BATCH):
            some = build.chunks[start : start + _BATCH]
            body = {
                "ids": [chunk.id for chunk in some],
                "documents": [chunk.text for chunk in some],
                "metadatas": [{"source": chunk.document, "updated": chunk.updated} for chunk in some],
                "embeddings": vectors[start : start + _BATCH].tolist(),
            }
            system.ask("POST", f"/collections/{self.id}/add", body)

    def search(self, query: str, k: int) -> list[Hit]:
        """Ask past the proxy."""
        body = {"query_embeddings": [self.query_vector(query).tolist()], "n_results": k, "include": ["distances"]}
        found = self._system.ask("POST", f"/collections/{self.id}/query", body)
        return [
            Hit(chunk=self._chunks[name], score=-distance)
            for name, distance in zip(found["ids"][0], found["distances"][0], strict=True)
        ]

    def close(self) -> None:
        """Delete the collection."""
        self._system.ask("DELETE", f"/collections/{self.name}")


class Chroma(VectorDatabase):
    """A Chroma server by its preset. Its scores are distances, here negated."""

    name = "chroma"
    lacks: ClassVar = {"refit": "fixed", "analyzer": "vectors", "scoring": "cosine"}

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(chunks)
        self._names = count()
        self._server = ""
        self._proxy_port = 0
        self._local = threading.local()

    @contextmanager
    def serving(self, folder: Path) -> Iterator[None]:
        """Run Chroma, the proxy and the embedder."""
        port = free_port()
        self._server = f"http://127.0.0.1:{port}"
        command = [SERVERS / "chroma", "run", "--path", folder / "chroma", "--host", "127.0.0.1", "--port", port]
        with running_program(command, folder, ANONYMIZED_TELEMETRY="False"), self.embedding():
            wait_for(f"{self._server}/api/v2/heartbeat", folder)
            with served(self._forward) as self._proxy_port:
                yield

    def build(self, build: Build) -> Index:
        """Make a collection."""
        return ChromaIndex(self, f"{_COLLECTION}-{next(self._names)}", build)

    def publish(self) -> None:
        """Do nothing: the proxy reads what holds."""

    def document(self) -> dict[str, Any]:
        """Use the preset."""
        return {
            "preset": "chroma",
            "url": f"http://127.0.0.1:{self._proxy_port}",
            "options": {"collection": _COLLECTION},
            "embedding": self.embedding_document,
        }

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask Chroma itself; raises httpx2.HTTPStatusError."""
        return (
            self._send(method, _TENANT + path, None if body is None else json.dumps(body).encode())
            .raise_for_status()
            .json()
        )

    def _send(self, method: str, path: str, body: bytes | None) -> httpx2.Response:
        if not hasattr(self._local, "client"):
            self._local.client = httpx2.Client(timeout=120, trust_env=False)
        headers = {"content-type": "application/json"}
        answer: httpx2.Response = self._local.client.request(method, self._server + path, content=body, headers=headers)
        return answer

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        names = [cast("ChromaIndex", index) for index in self.indexes]
        path = request.path.replace(f"/collections/{_COLLECTION}", f"/collections/{names[0].name}")
        if not path.endswith("/query"):
            answer = self._send(request.command, path, body or None)
            return answer.status_code, answer.content
        turn, front = self._turns.next(), self.front
        time.sleep(front.seconds)
        if front.fail_every is not None and turn % front.fail_every == 0:
            return 500, b'{"error": "InternalError", "message": "Error executing plan: segment reader failed"}'
        path = path.replace(names[0].id, names[turn % len(names)].id)
        answer = self._send(request.command, path, body)
        if not answer.is_success or front == Front():
            return answer.status_code, answer.content
        return 200, json.dumps(_changed(answer.json(), front, turn)).encode()


def _changed(answer: Mapping[str, Any], front: Front, turn: int) -> dict[str, Any]:
    """Change the columns of an answer as a front does."""
    texts, distances = answer["documents"][0], answer["distances"][0]
    kept = [place for place, one in enumerate(distances) if front.threshold is None or -one >= front.threshold]
    if front.empty_every is not None and turn % front.empty_every == 0:
        kept = []
    kept = kept[: front.limit]
    return {
        **answer,
        "ids": [[answer["ids"][0][place] for place in kept]],
        "metadatas": [[answer["metadatas"][0][place] for place in kept]],
        "documents": [[texts[place][: front.characters] for place in kept]],
        "distances": [[distances[place] * front.scale for place in kept]],
    }
