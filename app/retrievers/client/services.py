"""Services beside the retriever: how they are asked, vectors of texts from them, and the relevance of first hits.

`EndpointClient`, which adds credentials, limits and attempts, asks judges and answerers too. Vectors are requested from
an OpenAI-compatible `/v1/embeddings`, in batches, and cached by text; relevance is the cosine of an embedder or the
score of a reranker. Which response is a failure is decided in `responses`, what scales mean is said in
`domain.retrievers`. Shapes:
https://platform.openai.com/docs/api-reference/embeddings/create, https://docs.cohere.com/reference/rerank,
https://jina.ai/reranker/ and https://huggingface.github.io/text-embeddings-inference/
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from http import HTTPStatus
from typing import TypeVar

import msgspec
import numpy as np

from app.base.addresses import AddressPolicy, Endpoint, OAuth2
from app.base.errors import InvalidInputError, Problem
from app.base.limits import Limits, Peer
from app.base.net.transfer import Request, header_line
from app.base.net.transport import exchange
from app.base.values import Outcome
from app.retrievers.client.credentials import CredentialError, Keyring, credentials_digest, masked
from app.retrievers.client.responses import response_problem, with_utf8_body, without_surrogates
from app.retrievers.domain.retrievers import (
    Embedder,
    EmbeddingResult,
    Scale,
    Scorer,
    ScorerKind,
    Vector,
    cosine,
    same_vector,
    scale_relevance,
)

CONCURRENCY = 4
"""Requests to one service at a time, over everything that asks it: they are heavy, and other people's."""
RETRIES = 1
PATIENCE_SECONDS = 30.0
"""For how long a service that refuses every request by 429 is asked again, where nobody says otherwise."""
MAX_ANSWER_BYTES = 64_000_000
"""Of one answer: 256 vectors of 4,096 numbers with all their digits take 25 MB."""
CACHE_BYTES = 64_000_000
MAX_DIMENSIONS = 65_536
"""Of a vector; models have 256 to 8,192."""
MAX_EMBEDDERS = 256
_ENTRY_BYTES = 300  # what an entry takes besides its numbers
T = TypeVar("T")
EmbedderName = tuple[str, bytes, str, int | None]
"""An embedder: URL, digest of the credentials, model and dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """Response to one body, or why there is none. `number` is the body's place."""

    number: int
    body: bytes = b""
    http_status: int | None = None
    problem: tuple[Outcome, str] | None = None
    """Outcome and one sentence for people, without a secret or a piece of a body; None = there is an answer to read."""
    latency_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointClient:
    """Client of services beside retrievers, with their credentials."""

    policy: AddressPolicy
    keyring: Keyring
    user_agent: str
    max_body_bytes: int = MAX_ANSWER_BYTES
    limits: Limits = field(default_factory=Limits)

    def ask(
        self, endpoint: Endpoint, bodies: Sequence[bytes], *, patience: float = PATIENCE_SECONDS
    ) -> Generator[CallOutcome | None, None, None]:
        """Post every body and yield what comes of each, as it comes; whatever the service does is part of that.

        Yields None where nothing came for a while, so that the caller may stop; closing it cancels the rest. A token
        that was refused is fetched anew, once. What is refused by 429, or 503 with `Retry-After`, is sent again until
        the service has accepted nothing for `patience` in seconds. Raises InvalidInputError for an endpoint that cannot
        be asked.
        """
        lines = self._lines(endpoint)
        unauthorized_numbers: list[int] = []
        with closing(self._round(endpoint, lines, dict(enumerate(bodies)), patience)) as answers:
            for call in answers:
                unauthorized = call is not None and call.http_status == HTTPStatus.UNAUTHORIZED
                if call is not None and unauthorized and isinstance(endpoint.auth, OAuth2):
                    unauthorized_numbers.append(call.number)
                else:
                    yield call
        if unauthorized_numbers:
            self.keyring.forget(endpoint.auth)
            with closing(
                self._round(endpoint, lines, {number: bodies[number] for number in unauthorized_numbers}, patience)
            ) as answers:
                yield from answers

    def _round(
        self, endpoint: Endpoint, lines: tuple[bytes, ...], bodies: dict[int, bytes], patience: float
    ) -> Generator[CallOutcome | None, None, None]:
        if not bodies:
            return
        try:
            auth = self.keyring.request_auth(endpoint.auth, endpoint.tls, endpoint.headers)
        except CredentialError as error:
            problem = error.outcome, error.detail
            yield from (CallOutcome(number=number, http_status=error.http_status, problem=problem) for number in bodies)
            return
        failed = False
        requests = (
            Request(
                tag=number,
                url=endpoint.url,
                headers=lines,
                body=body,
                timeout_seconds=endpoint.timeout_seconds,
                max_body_bytes=self.max_body_bytes,
                retries=0 if failed else RETRIES,  # drawn while answers come in: one that hangs is not waited for twice
            )
            for number, body in bodies.items()
        )
        exchanged = exchange(
            requests,
            policy=self.policy,
            concurrency=CONCURRENCY,
            auth=auth,
            peer=Peer(limits=self.limits, name=f"service at {endpoint.url}", patience=patience),
        )
        with closing(exchanged) as batches:
            for batch in batches:
                if not batch:
                    yield None
                for number, received in batch:
                    failed = failed or received.failure is not None
                    response = with_utf8_body(received)
                    reason = response_problem(response)
                    yield CallOutcome(
                        number=number,
                        body=response.body,
                        http_status=response.status,
                        problem=None if reason is None else (reason[0], masked(reason[1], auth.secrets)),
                        latency_seconds=response.latency_seconds,
                    )

    def _lines(self, endpoint: Endpoint) -> tuple[bytes, ...]:
        names = {name.lower() for name in endpoint.headers}
        defaults = {"accept": "application/json", "content-type": "application/json", "user-agent": self.user_agent}
        fields = {name: value for name, value in defaults.items() if name not in names} | dict(endpoint.headers)
        try:
            return (*(header_line(name, value) for name, value in fields.items()), b"expect:")
        except ValueError as error:
            raise InvalidInputError([Problem(path="headers", message=str(error))]) from None


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


MAX_SCORES = 50_000


SCORE_SECONDS = 3_600.0
"""Age after which a score is requested again, so that a changed reranker is noticed."""


MAX_BODY_BYTES = 1_000_000
"""Of an answer, which is about one text."""


MAX_FAILURES = 5
"""Pairs in a row without an answer that open the breaker: a scorer that hangs must not hold up a run."""


Pair = tuple[str, str]
"""A query and the text of its first hit."""


ScoreResult = tuple[dict[Pair, float], Counter[str]]
"""Relevance by pair, and the reasons why others have none."""


@dataclass(slots=True, kw_only=True)
class ScorerBreaker:
    """Circuit breaker of a run for its scorer; once open it stays open."""

    failures: int = 0
    open_reason: str | None = None

    def record_failure(self, reason: str, *, pairs: int = 1) -> str:
        """Count pairs without an answer; returns the reason to report for them."""
        self.failures += pairs
        if self.failures >= MAX_FAILURES and self.open_reason is None:
            self.open_reason = f"{reason}; it was left alone for the rest of the run"
        return self.open_reason or reason

    def record_success(self) -> None:
        """Reset the count, as a pair was answered."""
        self.failures = 0


class RelevanceScorer:
    """Scores first hits for the scorer kinds embedding and rerank; one for all runs and their threads."""

    def __init__(
        self, services: EndpointClient, embed: Embeddings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._embed = embed
        self._caller = replace(services, max_body_bytes=MAX_BODY_BYTES)
        self._cache = _ScoreCache(clock)

    def of_first_hits(
        self,
        scorer: Scorer,
        retriever_embedder: Embedder | None,
        pairs: Sequence[Pair],
        breaker: ScorerBreaker,
        *,
        patience: float = PATIENCE_SECONDS,
    ) -> Generator[None, None, tuple[list[float | None], str | None]]:
        """Return the relevance in [0, 1] of each (query, text), and one sentence if some are None.

        A scorer of kind embedding without an embedder of its own takes that of the retriever. A blank text has no
        relevance. Once the `breaker` of the run is open, nothing is sent. Yields where nothing came for a while, so
        that the caller may stop. A service that refuses requests is asked again, see `EndpointClient.ask`. Raises
        ValueError for a scorer that measures nothing outside or has no endpoint, and
        InvalidInputError for one that cannot be asked at all.
        """
        distinct = list(dict.fromkeys(pair for pair in pairs if pair[1].strip()))
        blank = Counter(["the first hit has no text"] * sum(not text.strip() for _, text in pairs))
        embedder = scorer.embedder or retriever_embedder
        if scorer.kind is ScorerKind.EMBEDDING and embedder is not None:
            relevance, reasons = yield from self._cosines(embedder, distinct, breaker, patience)
        elif scorer.kind is ScorerKind.RERANK and scorer.reranker is not None:
            relevance, reasons = yield from self._scores(scorer, scorer.reranker, distinct, breaker, patience)
        else:
            raise ValueError(f"A scorer of kind {scorer.kind} without its endpoint measures nothing from outside.")
        relevances = [relevance.get(pair) for pair in pairs]
        return relevances, _summarize_reasons(blank + reasons, relevances)

    def _cosines(
        self, embedder: Embedder, pairs: Sequence[Pair], breaker: ScorerBreaker, patience: float
    ) -> Generator[None, None, ScoreResult]:
        if breaker.open_reason is not None:
            return {}, Counter({breaker.open_reason: len(pairs)})
        embedded = yield from self._embed.interruptibly(
            embedder, [text for pair in pairs for text in pair], patience=patience
        )
        vectors = embedded.vectors
        cosines: dict[Pair, float] = {}
        for query, text in pairs:
            if query in vectors and text in vectors:
                cosines[query, text] = scale_relevance(Scale.COSINE, cosine(vectors[query], vectors[text]))
        reason = f"the embedder: {embedded.detail or embedded.outcome}"
        if cosines:
            breaker.record_success()
        elif pairs:
            # One request holds many pairs. What is refused is refused at once; only what hangs costs the run its time.
            reason = breaker.record_failure(reason, pairs=len(pairs) if embedded.outcome is Outcome.TIMEOUT else 1)
        return cosines, Counter({reason: len(pairs) - len(cosines)})

    def _scores(
        self, scorer: Scorer, endpoint: Endpoint, pairs: Sequence[Pair], breaker: ScorerBreaker, patience: float
    ) -> Generator[None, None, ScoreResult]:
        scale = scorer.scale or Scale.SIMILARITY
        secret = credentials_digest(endpoint.auth, endpoint.tls, endpoint.headers)
        name = (endpoint.url, secret, scorer.model, scale)
        scores = self._cache.get(name, pairs)
        uncached = [pair for pair in pairs if pair not in scores]
        reasons: Counter[str] = Counter()
        received: dict[Pair, float] = {}
        # First as many as patience can bear: who fails is not sent everything before the first failure is heard.
        for chunk in (uncached[:MAX_FAILURES], uncached[MAX_FAILURES:]):
            bodies = [] if breaker.open_reason is not None else [_body(scorer.model, scale, pair) for pair in chunk]
            with closing(self._caller.ask(endpoint, bodies, patience=patience)) as answers:
                for call in answers:
                    if call is None:
                        yield
                        continue
                    try:
                        received[chunk[call.number]] = _call_score(call)
                        breaker.record_success()
                    except _NoScoreError as error:
                        reasons[f"the reranker: {error}"] += 1
                        breaker.record_failure(f"the reranker: {error}")
                    if breaker.open_reason is not None:
                        break
        if breaker.open_reason is not None:
            reasons = Counter({breaker.open_reason: len(uncached) - len(received)})
        self._cache.put(name, received)
        relevance: dict[Pair, float] = {}
        for pair, score in (scores | received).items():
            try:
                relevance[pair] = scale_relevance(scale, score)
            except ValueError:  # never clipped in silence
                reasons[f"the reranker: its score is outside the declared scale, {scale}"] += 1
        return relevance, reasons


class _Score(msgspec.Struct):
    index: int
    relevance_score: float | None = None
    score: float | None = None


class _Results(msgspec.Struct):
    results: list[_Score]


class _NoScoreError(Exception):
    """There is no score; says why, and quotes nothing."""


def _call_score(call: CallOutcome) -> float:
    if call.problem is not None:
        raise _NoScoreError(call.problem[1])
    return read_score(call.body)


def read_score(body: bytes) -> float:
    """Return the score of the one text of a request: Cohere's and Jina's shape, or TEI's list; raises otherwise."""
    try:
        items = _LIST.decode(body) if body.lstrip()[:1] == b"[" else _RESULTS.decode(body).results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _NoScoreError("the answer is not a list of results with index and score") from None
    if len(items) != 1 or items[0].index != 0:
        raise _NoScoreError("the answer does not hold exactly one result for one text")
    score = items[0].score if items[0].relevance_score is None else items[0].relevance_score
    if score is None:
        raise _NoScoreError("the result has neither relevance_score nor score")
    return score


def _body(model: str | None, scale: Scale, pair: Pair) -> bytes:
    """Body in Cohere's and Jina's shape where a model is named, else in TEI's, which serves a single one."""
    query, text = map(without_surrogates, pair)
    if model is not None:
        return msgspec.json.encode({"model": model, "query": query, "documents": [text], "top_n": 1})
    # Long chunks are cut as other rerankers cut them; TEI refuses them otherwise.
    return msgspec.json.encode({"query": query, "texts": [text], "truncate": True, "raw_scores": scale is Scale.LOGIT})


def _summarize_reasons(reasons: Counter[str], relevances: Sequence[float | None]) -> str | None:
    if None not in relevances:
        return None
    reason = reasons.most_common(1)[0][0]
    return f"{reason} (and other reasons)" if len(reasons) > 1 else reason  # of how many is said of the whole run


_LIST = msgspec.json.Decoder(list[_Score])


_RESULTS = msgspec.json.Decoder(_Results)


ScoreName = tuple[str, bytes, str | None, Scale]
"""A reranker: its URL, a digest of the credentials it is asked with, its model and scale."""


class _ScoreCache:
    """Scores by reranker and pair, for a while, the least recently used dropped first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._scores: OrderedDict[tuple[ScoreName, bytes], tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: ScoreName, pairs: Sequence[Pair]) -> dict[Pair, float]:
        since = self._clock() - SCORE_SECONDS
        scores: dict[Pair, float] = {}
        with self._lock:
            for pair in pairs:
                key = (name, _pair_digest(pair))
                score, at = self._scores.get(key, (0.0, since - 1))
                if at >= since:
                    self._scores.move_to_end(key)
                    scores[pair] = score
        return scores

    def put(self, name: ScoreName, scores: Mapping[Pair, float]) -> None:
        now = self._clock()
        with self._lock:
            for pair, score in scores.items():
                self._scores[name, _pair_digest(pair)] = (score, now)
            while len(self._scores) > MAX_SCORES:
                self._scores.popitem(last=False)


def _pair_digest(pair: Pair) -> bytes:
    query, text = (part.encode(errors="surrogatepass") for part in pair)
    return blake2b(len(query).to_bytes(8) + query + text, digest_size=16).digest()
