"""Vectors of texts from an OpenAI-compatible `/v1/embeddings`, asked for in batches and cached by text.

Shape: https://platform.openai.com/docs/api-reference/embeddings/create
"""

import threading
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

import msgspec
import numpy as np

from app.base.values import Outcome, replace
from app.retrievers.client.credentials import credentials_digest
from app.retrievers.client.endpoint_client import MAX_ANSWER_BYTES, PATIENCE_SECONDS, EndpointClient
from app.retrievers.client.responses import without_surrogates
from app.retrievers.domain.retrievers import Embedder, EmbeddingResult, Vector, same_vector

CACHE_BYTES = 64_000_000
MAX_DIMENSIONS = 65_536
"""Of a vector; models have 256 to 8,192."""
MAX_EMBEDDERS = 256
_ENTRY_BYTES = 300  # what an entry takes besides its numbers
T = TypeVar("T")
EmbedderName = tuple[str, bytes, str, int | None]
"""An embedder: URL, digest of the credentials, model and dimensions."""


class Embeddings:
    """The `Embed` for everything that speaks OpenAI's embeddings; one for all runs, shared by their threads."""

    def __init__(self, services: EndpointClient, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._caller = services
        self._cache = _VectorCache(cache_bytes)

    def __call__(self, embedder: Embedder, texts: Sequence[str], *, refresh: bool = False) -> EmbeddingResult:
        """Return vectors, from the cache or fresh. Raises InvalidInputError for an unusable embedder."""
        waiting = self.interruptibly(embedder, texts, refresh=refresh)
        while True:
            try:
                next(waiting)
            except StopIteration as stop:
                found: EmbeddingResult = stop.value
                return found

    def interruptibly(
        self, embedder: Embedder, texts: Sequence[str], *, refresh: bool = False, patience: float = PATIENCE_SECONDS
    ) -> Generator[None, None, EmbeddingResult]:
        """Do the same, and yield where nothing came for a while, so that the caller may stop; closing cancels it.

        An embedder that refuses requests is asked again, see `EndpointClient.ask`.
        """
        endpoint = embedder.endpoint
        secret = credentials_digest(endpoint.auth, endpoint.tls, endpoint.headers)
        name = (endpoint.url, secret, embedder.model, embedder.dimensions)
        distinct = list(dict.fromkeys(texts))
        cached, generation = self._cache.get(name, distinct)
        if refresh:
            cached = {}
        missing = [text for text in distinct if text not in cached]
        answers = yield from self._request(embedder, missing, declared=not refresh, patience=patience)
        vectors = cached | answers.vectors
        status, problem = answers.http_status, answers.problem
        if problem is None and len({len(vector) for vector in vectors.values()}) > 1:
            # What was remembered and what came have nothing in common: the model changed in between.
            self._cache.forget(name)
            problem = Outcome.MALFORMED, "the vectors have other dimensions than those that came before"
            vectors = dict(answers.vectors)
        elif refresh:
            self._cache.check_model(name, answers.vectors)
        else:
            self._cache.put(name, answers.vectors, generation)
        return EmbeddingResult(
            vectors={text: vectors[text] for text in distinct if text in vectors},
            outcome=Outcome.OK if problem is None else problem[0],
            http_status=status,
            detail=None if problem is None else problem[1],
            latency_seconds=answers.latency_seconds,
        )

    def _request(
        self, embedder: Embedder, texts: Sequence[str], *, declared: bool, patience: float
    ) -> Generator[None, None, "_BatchResults"]:
        batches = [texts[start : start + embedder.batch] for start in range(0, len(texts), embedder.batch)]
        answers = _BatchResults()
        failed = len(batches)
        dimensions = embedder.dimensions if declared else None
        bodies = [_request_body(embedder, batch) for batch in batches]
        max_bytes = _max_response_bytes(max(map(len, batches), default=0), dimensions)
        client = replace(self._caller, max_body_bytes=max_bytes)
        with closing(client.ask(embedder.endpoint, bodies, patience=patience)) as calls:
            for batch in calls:
                if batch is None:
                    yield
                    continue
                answers.latency_seconds += batch.latency_seconds
                problem = batch.problem
                if problem is None:
                    try:
                        vectors = read_vectors(batch.body, len(batches[batch.number]))
                        _check_dimensions(len(vectors[0]), dimensions, answers.dimensions)
                    except _MalformedError as error:
                        problem = Outcome.MALFORMED, str(error)
                    else:
                        answers.dimensions = len(vectors[0])
                        answers.vectors.update(zip(batches[batch.number], vectors, strict=True))
                if problem is not None and batch.number < failed:
                    failed, answers.problem, answers.http_status = batch.number, problem, batch.http_status
        return answers


@dataclass(slots=True)
class _BatchResults:
    """Results of all batches."""

    vectors: dict[str, Vector] = field(default_factory=dict)
    problem: tuple[Outcome, str] | None = None
    http_status: int | None = None
    dimensions: int | None = None
    latency_seconds: float = 0.0


class _MalformedError(Exception):
    """The response has another shape; says where, and quotes nothing."""


class _Embedding(msgspec.Struct, gc=False):
    embedding: msgspec.Raw
    """Read vector by vector: numbers take 16 times the memory of the bytes they come in, and all at once too much."""
    index: int | None = None


class _Body(msgspec.Struct, gc=False):
    data: list[_Embedding]


def read_vectors(body: bytes, count: int) -> list[Vector]:
    """Return the vectors of a response in the order of the texts; raises an error saying what is wrong with it.

    Exactly `count`, of one length, finite in single precision, none all zero. Where items have an `index` it decides.
    """
    if body.count(b"{") > _OBJECTS * (count + _OBJECTS):
        raise _MalformedError(f"far more objects than vectors came for {count} texts")
    items = _decoded(_BODY, body, "").data
    if len(items) != count:
        raise _MalformedError(f"{len(items)} vectors came for {count} texts")
    vectors = _ordered(items, [_vector(item, number) for number, item in enumerate(items)])
    lengths = {len(vector) for vector in vectors}
    if len(lengths) != 1 or lengths == {0}:
        raise _MalformedError("the vectors are empty" if lengths == {0} else "the vectors are of different lengths")
    for vector in vectors:
        if not np.isfinite(vector).all():
            raise _MalformedError("a vector holds a number that is not finite in single precision")
        if not vector.any():
            raise _MalformedError("a vector is all zero, so that it points nowhere")
    return vectors


def _vector(item: _Embedding, number: int) -> Vector:
    raw = bytes(item.embedding)
    if raw.count(b",") >= MAX_DIMENSIONS:
        raise _MalformedError(f"a vector has more than {MAX_DIMENSIONS:,} dimensions")
    with np.errstate(over="ignore"):  # what is infinite then is found
        return np.array(_decoded(_NUMBERS, raw, f".data[{number}].embedding"), dtype=np.float64).astype(np.float32)


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes, where: str) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _MalformedError(f"the answer is not a list of embeddings: {_error_place(error, where)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        note = ", which has no NaN or Infinity" if b"NaN" in body or b"Infinity" in body else ""
        raise _MalformedError(f"the answer is not JSON{note}") from None


def _ordered(items: Sequence[_Embedding], vectors: list[Vector]) -> list[Vector]:
    if all(item.index is None for item in items):
        return vectors
    placed = {item.index: vector for item, vector in zip(items, vectors, strict=True)}
    if placed.keys() != set(range(len(items))):
        raise _MalformedError("the index of the vectors does not say once for each text which is its")
    return [placed[place] for place in range(len(items))]


def _check_dimensions(dimensions: int, declared: int | None, others: int | None) -> None:
    if declared not in {None, dimensions}:
        raise _MalformedError(f"the vectors have {dimensions} dimensions, not the {declared} declared")
    if others not in {None, dimensions}:
        raise _MalformedError(f"some vectors have {dimensions} dimensions and others {others}")


def _error_place(error: msgspec.ValidationError, where: str) -> str:
    """Return where decoding failed, with types and without values."""
    message = str(error).replace("`", "").replace("$", f"${where}", 1)
    return message if len(message) < _MAX_ERROR else "it has another shape"


def _max_response_bytes(texts: int, dimensions: int | None) -> int:
    """Return the most bytes of a batch's response; a number may take 33 bytes on a line of its own."""
    return min(MAX_ANSWER_BYTES, _AROUND_BYTES + texts * (dimensions or MAX_DIMENSIONS) * _NUMBER_BYTES)


def _request_body(embedder: Embedder, texts: Sequence[str]) -> bytes:
    body = {"model": embedder.model, "input": [without_surrogates(text) for text in texts], "encoding_format": "float"}
    return msgspec.json.encode(body | ({"dimensions": embedder.dimensions} if embedder.dimensions else {}))


_BODY = msgspec.json.Decoder(_Body)
_NUMBERS = msgspec.json.Decoder(list[float])
_OBJECTS = 16
"""In an answer there is one object for each vector, and around them a few more."""
_NUMBER_BYTES = 40
_AROUND_BYTES = 100_000
_MAX_ERROR = 200


class _VectorCache:
    """Vectors by embedder and text, the least recently used dropped first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._vectors: OrderedDict[tuple[EmbedderName, bytes], Vector] = OrderedDict()
        self._last_answers: OrderedDict[EmbedderName, dict[bytes, Vector]] = OrderedDict()
        self._generations: dict[EmbedderName, int] = {}
        self._lock = threading.Lock()

    def get(self, name: EmbedderName, texts: Sequence[str]) -> tuple[dict[str, Vector], int]:
        """Return the cached vectors and their generation, in which alone new ones may be stored."""
        vectors: dict[str, Vector] = {}
        with self._lock:
            for text in texts:
                vector = self._vectors.get((name, _text_digest(text)))
                if vector is not None:
                    self._vectors.move_to_end((name, _text_digest(text)))
                    vectors[text] = vector
            return vectors, self._generations.get(name, 0)

    def put(self, name: EmbedderName, vectors: Mapping[str, Vector], generation: int) -> None:
        """Store vectors, unless the model changed since they were requested."""
        with self._lock:
            if self._generations.get(name, 0) != generation:
                return
            for text, vector in vectors.items():
                self._drop((name, _text_digest(text)))
                self._vectors[name, _text_digest(text)] = vector
                self._bytes += vector.nbytes + _ENTRY_BYTES
            while self._bytes > self._most_bytes:
                self._drop(next(iter(self._vectors)))

    def check_model(self, name: EmbedderName, vectors: Mapping[str, Vector]) -> None:
        """Compare fresh vectors with the last ones; drop the cache of an embedder whose model changed."""
        now = {_text_digest(text): vector for text, vector in vectors.items()}
        with self._lock:
            before = self._last_answers.get(name, {})
            both = before.keys() & now.keys()
            if not all(same_vector(before[text], now[text]) for text in both):
                before = {}
            if not both or not before:  # then nothing vouches for what is remembered
                self._forget(name)
            self._last_answers[name] = before | now if len(before | now) <= _MAX_LAST_ANSWERS else now
            self._last_answers.move_to_end(name)
            while len(self._last_answers) > MAX_EMBEDDERS:
                self._forget(self._last_answers.popitem(last=False)[0])

    def forget(self, name: EmbedderName) -> None:
        """Drop everything of an embedder."""
        with self._lock:
            self._forget(name)

    def _forget(self, name: EmbedderName) -> None:
        self._generations[name] = self._generations.get(name, 0) + 1
        for key in [key for key in self._vectors if key[0] == name]:
            self._drop(key)

    def _drop(self, key: tuple[EmbedderName, bytes]) -> None:
        vector = self._vectors.pop(key, None)
        if vector is not None:
            self._bytes -= vector.nbytes + _ENTRY_BYTES


_MAX_LAST_ANSWERS = 1_000


def _text_digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
