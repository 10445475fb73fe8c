"""Relevance of first hits: the cosine of an embedder, or the score of a reranker, which is cached for a while.

A run leaves a scorer alone that does not answer (`ScorerBreaker`). What scales mean is said in `domain.retrievers`.
Shapes: https://docs.cohere.com/reference/rerank, https://jina.ai/reranker/ and
https://huggingface.github.io/text-embeddings-inference/
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from app.base.addresses import Endpoint
from app.base.values import Outcome, replace
from app.retrievers.client.credentials import credentials_digest
from app.retrievers.client.embeddings import Embeddings
from app.retrievers.client.endpoint_client import PATIENCE_SECONDS, CallOutcome, EndpointClient
from app.retrievers.client.responses import without_surrogates
from app.retrievers.domain.retrievers import Embedder, Scale, Scorer, ScorerKind, cosine, scale_relevance

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
