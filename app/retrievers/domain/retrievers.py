"""A retriever as a value: endpoint, request, response mapping, scorer, embedder; and `Probe`, which queries it.

Before it the lanes in which several processes share a retriever; below it what scores mean as relevance between 0 and
1, and how an embedder is compared with its reference. Answers are values of `base`; documents and presets that fill
these in are in `documents` and `presets`.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from app.base.addresses import Auth, Endpoint, IdentityAuth, Tls
from app.base.limits import LARGEST_ANSWER_BYTES, Reserve
from app.base.schedules import LEAST_PATIENCE_SECONDS
from app.base.values import (
    EMPTY,
    Answer,
    Confidential,
    EmbedderChange,
    Outcome,
    Turn,
    Value,
    field,
)

PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
"""Stands for a value in a template; the group is its name."""
HISTORY: Final = "history"
"""Placeholder of the conversation before a query, in the JSON of a request alone."""


def _empty() -> Mapping[str, Any]:
    return EMPTY


class Dialect(StrEnum):
    """Protocol of a retriever."""

    HTTP = "http"
    SQL = "sql"
    MCP = "mcp"


# --- authentication ----------------------------------------------------------------------------------------


class AnswerSource(Value):
    """Endpoint that answers a query from retrieved texts.

    `json` is the body, with `{{ query }}` and `{{ contexts }}`, a list of texts; `path` the JMESPath of the answer.
    """

    endpoint: Endpoint
    json: Any
    path: str


# --- the scorer ------------------------------------------------------------------------------


class EmbeddingCanary(Value):
    """Two texts whose vectors are known to be close, or known not to be."""

    key: str
    texts: tuple[str, str]
    similar: bool


class Embedder(Value):
    """Endpoint that turns texts into vectors: an OpenAI-compatible `/v1/embeddings`."""

    endpoint: Endpoint
    model: str
    dimensions: int | None = None
    """Requested of the model where it can shorten its vectors; its vectors must have them then."""
    batch: int = 64
    canaries: tuple[EmbeddingCanary, ...] = ()


class ScorerKind(StrEnum):
    """Source of `top_score`."""

    SCORE = "score"
    JUDGED = "judged"
    EMBEDDING = "embedding"
    RERANK = "rerank"


class Scale(StrEnum):
    """Meaning of scores; mapped to relevance as s, max(0, s), 1/(1+d), 1/(1+e^-s), s/(s+anchor)."""

    SIMILARITY = "similarity"
    COSINE = "cosine"
    DISTANCE = "distance"
    LOGIT = "logit"
    UNBOUNDED = "unbounded"


class Scorer(Value):
    """A relevance scorer: maps the first hit to `top_score` in [0, 1].

    `embedder` belongs to the kind embedding, `reranker` (a `/rerank` of the Cohere, Jina or TEI shape) and its `model`
    to rerank; `scale` is that of the retriever's scores or of the reranker's.
    """

    kind: ScorerKind
    scale: Scale | None = None
    anchor: float | None = None
    embedder: Embedder | None = None
    reranker: Endpoint | None = None
    model: str | None = None


# --- the retriever -------------------------------------------------------------------------------------------


WHOLE_FIELDS: Final = ("index_version", "answer", "error", "partial", "unwrap")
"""Fields of a mapping that are of the whole response; the others are of its hits."""


class ResponseMapping(Value):
    """JMESPath of the hits and their fields in a response.

    `hits` is evaluated on the whole body and gives a list, the field paths on each of its items. Without `hits` the
    answer is column-shaped: the field paths are evaluated on the whole body and each gives a list, one item per hit.
    `index_version` is evaluated on the body or, written `header:NAME`, on the response headers. None = not mapped.
    """

    hits: str | None
    id: str | None = None
    score: str | None = None
    text: str | None = None
    document: str | None = None
    updated: str | None = None
    index_version: str | None = None
    answer: str | None = None
    """Of the text that the retriever generated from its hits, evaluated on the body."""
    error: str | None = None
    """Of an error within the response, evaluated on the body; None = the usual fields."""
    partial: str | None = None
    """Of what says that the response is not whole, evaluated on the body; None = the usual fields."""
    unwrap: str | None = None
    """Of a text in the body that is JSON itself, on which all other paths are then evaluated."""
    absent: str | None = None
    """What an absent list of hits means: `empty`, or None = that the response is malformed."""


def missing_resource(url: str, options: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (option, value) that a URL names last, which a 404 says is missing; None = it names none."""
    names = [name for name in PLACEHOLDER.findall(url) if name in options]
    return (names[-1], options[names[-1]]) if names else None


class Lookup(Value):
    """A value fetched once per run and then known to the templates by `name`, such as the id of a named collection."""

    name: str
    url: str
    path: str


class FactRequest(Value):
    """A request whose answer holds a number that says something of the index, and the JMESPath of that number.

    Over HTTP it has a `url`, at the host of the retriever; of a database it is one statement with one value.
    """

    name: str
    path: str = "@"
    url: str | None = None
    method: str = "GET"
    json: Any = None
    sql: str | None = None


class ExactSearch(Value):
    """What is different in a request that searches the whole index instead of its approximate structure.

    Each part replaces that of the retriever; None = it stays. `settings` are of the transaction of a statement.
    """

    canaries: int
    """How many canaries of a run are compared."""
    url: str | None = None
    json: Any = None
    sql: str | None = None
    settings: Mapping[str, str] = field(default_factory=_empty)


class Retriever(Confidential):
    """The endpoint a check watches: request, response mapping and limits.

    Templates (`url`, values of `query_parameters` and `json`) may hold `{{ query }}`, `{{ k }}`, the names of
    `options` and of the lookup and, where there is an embedder, `{{ vector }}`.
    """

    hidden: ClassVar = ("headers",)

    slug: str
    url: str
    dialect: Dialect = Dialect.HTTP
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=_empty)
    """Secret: values are never logged, shown or exported."""
    query_parameters: Mapping[str, Any] = field(default_factory=_empty)
    json: Any = None
    """The request body; for MCP the arguments of the tool. A value that is only a placeholder keeps its type."""
    options: Mapping[str, str] = field(default_factory=_empty)
    """Variables of the templates by name, such as the collection."""
    lookup: Lookup | None = None
    sql: str | None = None
    """One SELECT with the parameters `:query`, `:k`, `:vector` and options; its columns are what the mapping reads."""
    tool: str | None = None
    auth: Auth | IdentityAuth | None = None
    asked_as: str | None = None
    """The identity whose credentials `auth` is, where each has its own; see `client.identities`."""
    tls: Tls | None = None
    embedder: Embedder | None = None
    response: ResponseMapping
    scorer: Scorer
    answer: AnswerSource | None = None
    """Where answers come from, unless its responses have them."""
    concurrency: int = 8
    requests_per_second: float | None = None
    timeout_seconds: float = 10.0
    retries: int = 1
    breaker: int | None = 10
    """After so many failed probes in a row a run is ended early; None = never."""
    max_body_bytes: int = LARGEST_ANSWER_BYTES
    score_precision: float = 1e-6
    """Scores are rounded to its digits."""
    score_tolerance: float = 0.002
    """A score that moved by less holds as it was: a share of the largest score of its answer, 0 = every move counts."""
    writes: bool = False
    """Whether its request changes the source, as that of a planted document: what answers it has no hits to read."""
    facts: tuple[FactRequest, ...] = ()
    """Requests for numbers of the index, asked once a run."""
    exact: ExactSearch | None = None
    """How an exact search is asked for; None = it is not compared with one."""
    reads: Mapping[str, str] | None = None
    """Of a request for facts: the JMESPath of each number in its answer, by name; None = it is asked for hits."""
    settings: Mapping[str, str] = field(default_factory=_empty)
    """Of a database, for the transaction of its statement."""
    is_exact: bool = False
    """Whether its request is that of an exact search, beside a run."""

    @property
    def is_usual(self) -> bool:
        """Whether it is asked as in a run: what is kept from one run to the next is of such requests alone."""
        return not self.writes and self.reads is None and not self.is_exact

    @property
    def gives_answers(self) -> bool:
        """Whether there is an answer to a query besides the hits."""
        return self.answer is not None or self.response.answer is not None

    @property
    def lone_auth(self) -> Auth | None:
        """The credentials of all its requests. Raises TypeError where each identity has its own."""
        if isinstance(self.auth, IdentityAuth):
            raise TypeError("Nobody said as whom the retriever is asked.")
        return self.auth


class ProbeQuery(Value):
    """One query for a retriever; `position` is its place in the run's frozen canary list."""

    position: int = 0
    query: str
    key: str = ""
    vars: Mapping[str, str] = field(default_factory=_empty)
    """Values of options of the retriever for this query alone."""
    history: tuple[Turn, ...] = ()
    """The conversation before it."""


class Trace(Protocol):
    """Trace of the probes of one run (W3C Trace Context)."""

    @property
    def traceparent(self) -> str:
        """Parent of requests of the run as a whole, such as a lookup."""
        ...

    def begin(self, item: ProbeQuery) -> str:
        """Begin the span of a probe, from any thread; returns the traceparent to send with it, always the same one."""
        ...


class Lane(Value):
    """A share in the limits of a retriever that several processes ask: what its lanes may do adds up to them."""

    number: int
    concurrency: int
    reserve: Reserve
    """Of the rate, which the lanes have in common."""


_MOST_LANES: Final = 4


def lane_count(retriever: Retriever) -> int:
    """Give the number of lanes of a retriever."""
    return min(_MOST_LANES, retriever.concurrency)


def fan_out(retriever: Retriever, lane: int) -> int:
    """Give the number of requests at a time in a lane; those of all lanes add up to what the retriever takes."""
    lanes = lane_count(retriever)
    return retriever.concurrency // lanes + (lane < retriever.concurrency % lanes)


KEPT_CHARACTERS: Final = 200_000
"""How much of a body goes into an exchange: enough to suggest a mapping from; people are shown less."""


class ProbeContext(Value):
    """What the probes of one run have in common."""

    retriever: Retriever
    k: int
    """Number of hits to request, the check's `fetch_k`."""
    run_id: str
    shows: bool = False
    """Whether answers carry their request and response."""
    trace: Trace | None = None
    defined_at: datetime | None = None
    """When a run read the definition of the retriever: of limits that were edited meanwhile the newest hold."""
    patience_seconds: float = LEAST_PATIENCE_SECONDS
    """For how long a retriever that refuses every request is asked again; no refusal of what `shows` is."""
    lane: Lane | None = None
    """None = the limits of the retriever are those of this process."""

    @property
    def patience(self) -> float:
        """Seconds for which a refused request is sent again; 0 = it is not, since somebody wants to see its answer."""
        return 0.0 if self.shows else self.patience_seconds

    @property
    def concurrency(self) -> int:
        """How many requests may be under way."""
        return self.retriever.concurrency if self.lane is None else self.lane.concurrency


class Probe(Protocol):
    """Sends queries to a retriever; the first of the two seams where tests put a fake."""

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Yield batches of (position, answer) as answers come in, each position once.

        A batch may be empty: nothing came for a while, and the caller may want to stop. Failures of the retriever are
        answers, never exceptions. Closing the iterator cancels the rest.
        """
        ...


TOLERANCE: Final = 1e-6


def score_relevance(scorer: Scorer, score: float | None) -> float | None:
    """Relevance of a score of the retriever; None without one. Raises ValueError for one outside its scale."""
    if score is None or scorer.kind is not ScorerKind.SCORE:
        return None
    if scorer.scale is None:
        raise ValueError("A scorer of kind score needs a scale.")
    return scale_relevance(scorer.scale, score, scorer.anchor)


def scale_relevance(scale: Scale, score: float, anchor: float | None = None) -> float:
    """Relevance in [0, 1] of a score on this scale. Raises ValueError for a score outside the scale."""
    if not in_scale(scale, score):
        raise ValueError(f"The score {score} is outside the scale {scale}.")
    match scale:
        case Scale.SIMILARITY | Scale.COSINE:
            return min(1.0, max(0.0, score))
        case Scale.DISTANCE:
            return 1.0 / (1.0 + max(0.0, score))
        case Scale.LOGIT:
            return _logistic(score)
        case Scale.UNBOUNDED:
            return _saturating(max(0.0, score), anchor)


def measures_relevance(scorer: Scorer) -> bool:
    """Whether this scorer measures relevance: `judged` only repeats the judgments."""
    return scorer.kind is not ScorerKind.JUDGED


def is_external(scorer: Scorer) -> bool:
    """Whether a service beside the retriever measures relevance, and so of the first hit only."""
    return scorer.kind in {ScorerKind.EMBEDDING, ScorerKind.RERANK}


SCALE_RANGES: Final = {
    Scale.SIMILARITY: "0 to 1 (cosine: -1 to 1)",
    Scale.COSINE: "-1 to 1",
    Scale.DISTANCE: "0 and more",
    Scale.UNBOUNDED: "0 and more",
    Scale.LOGIT: "any number",
}
"""Which scores a scale has, in words."""


def in_scale(scale: Scale, score: float) -> bool:
    """Whether a score may occur on this scale, give or take rounding; NaN and infinity occur on none."""
    if not math.isfinite(score):
        return False
    match scale:
        case Scale.SIMILARITY:
            return -TOLERANCE <= score <= 1.0 + TOLERANCE
        case Scale.COSINE:
            return -1.0 - TOLERANCE <= score <= 1.0 + TOLERANCE
        case Scale.DISTANCE | Scale.UNBOUNDED:
            return score >= -TOLERANCE
        case Scale.LOGIT:
            return True


def _logistic(score: float) -> float:
    """1 / (1 + e^-s), from the side on which the exponential cannot overflow."""
    if score >= 0.0:
        return 1.0 / (1.0 + math.exp(-score))
    grown = math.exp(score)
    return grown / (1.0 + grown)


def _saturating(score: float, anchor: float | None) -> float:
    """Return s / (s + anchor), one half at the anchor, without overflow of the sum."""
    if anchor is None or not (math.isfinite(anchor) and anchor > 0.0):
        raise ValueError("The scale unbounded needs a positive anchor: the score that means one half.")
    return 1.0 / (1.0 + anchor / score) if score > 0.0 else 0.0


Vector = NDArray[np.float32]

EMBEDDER_AT: Final = "the embedder at "
"""How sentences about an embedder begin, before its host and port."""
SAME_COSINE: Final = 0.999
"""Texts embedded twice by one model are at least this close to themselves: half precision and another order of
summation move the cosine by less than 0.001."""
OTHER_COSINE: Final = 0.9
"""Below it the model is another one: weights or vectors rounded to eight bits keep 0.97 and more, while unrelated
models share no directions, so that theirs is near 0, whatever they are good for."""
_OF_EACH_MODEL: Final = 2  # texts; a single one may be an accident of its own
COLLAPSED_SHARE: Final = 0.1
"""Share of the reference's gap between similar and dissimilar pairs below which texts count as indistinguishable. Not
zero: where all vectors are nearly one, noise leaves a difference of either sign."""


class EmbeddingResult(Value):
    """Vectors of texts, or why some are missing. `outcome` is `ok` exactly when every text has its vector.

    Else outcome, status and detail are those of the first failed batch; the vectors of the others are here.
    """

    vectors: Mapping[str, Vector]
    """By text; all finite, none all zero, and of one length."""
    outcome: Outcome = Outcome.OK
    http_status: int | None = None
    detail: str | None = None
    """One sentence for people: why the outcome is not `ok`. Never holds a secret or a piece of a body."""
    latency_seconds: float = 0.0
    """Total of the requests; 0 where all came from the cache."""


class Embed(Protocol):
    """Turns texts into vectors; a seam where tests put a fake."""

    def __call__(self, embedder: Embedder, texts: Sequence[str], *, refresh: bool = False) -> EmbeddingResult:
        """Return the vector of each text, from the cache unless `refresh`.

        Fresh vectors may have other dimensions than the embedder declares: `compare_embedder` judges them. Where they
        differ from earlier ones the cache of this embedder is emptied. Failures of the embedder are outcomes, never
        exceptions.
        """
        ...


class ReferenceVectors(Value):
    """Vectors of the embedding canaries from the first run that asked them."""

    pairs: tuple[EmbeddingCanary, ...]
    vectors: Mapping[str, Vector]


class PairCosines(Value):
    """Cosines of one embedding canary."""

    key: str
    similar: bool
    cosine: float
    """Of its two texts, now."""
    reference: float
    """Of its two texts, in the reference."""
    agreement: float
    """Of its texts with their own reference, the lower one; over the dimensions both have."""


class EmbedderFinding(Value):
    """Difference between an embedder and its reference."""

    kind: EmbedderChange
    reason: str
    """A sentence without its full stop, for people."""
    dimensions: int
    pairs: tuple[PairCosines, ...]


def compare_embedder(reference: ReferenceVectors, now: Mapping[str, Vector], *, where: str) -> EmbedderFinding:
    """Compare vectors of known texts with the reference; `where` names the embedder.

    `now` holds a vector for every text of the reference. Cosines, so lengths do not matter. The first kind that holds
    is returned: `same`, `truncated`, `collapsed`, `drifted`, `swapped`.
    """
    pairs = tuple([_cosines(pair, reference.vectors, now) for pair in reference.pairs])
    before, dimensions = _dimensions(reference.vectors), _dimensions(now)
    lowest = min(pair.agreement for pair in pairs)
    if dimensions != before:
        kind, reason = _resized(where, before, dimensions, lowest)
    elif lowest >= SAME_COSINE:
        kind, reason = EmbedderChange.SAME, f"{EMBEDDER_AT}{where} answers as it did"
    elif (mixed := _two_models(reference.vectors, now)) is not None:
        kind, reason = EmbedderChange.SWAPPED, f"{EMBEDDER_AT}{where} answers with vectors of two models: {mixed}"
    elif (gaps := _similarity_gaps(pairs)) is not None and gaps[1] < COLLAPSED_SHARE * gaps[0]:
        note = f"similar texts are closer than dissimilar ones by a cosine of {gaps[1]:.2f}, which was {gaps[0]:.2f}"
        kind, reason = EmbedderChange.COLLAPSED, f"{EMBEDDER_AT}{where} no longer tells texts apart: {note}"
    elif lowest >= OTHER_COSINE:
        note = f"known texts have cosine {lowest:.3f} with their own reference, as after rounding"
        kind, reason = EmbedderChange.DRIFTED, f"{EMBEDDER_AT}{where} answers slightly differently: {note}"
    else:
        kind, reason = EmbedderChange.SWAPPED, f"{_other_model(where)} ({_cosine_note(lowest)})"
    return EmbedderFinding(kind=kind, reason=reason, dimensions=dimensions, pairs=pairs)


def same_vector(one: Vector, other: Vector) -> bool:
    """Whether two vectors of one text come from the same model in the same precision."""
    return one.shape == other.shape and cosine(one, other) >= SAME_COSINE


def cosine(one: Vector, other: Vector) -> float:
    """Cosine of two vectors of one length, in [-1, 1]; 0 for a vector of zeros."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    a, b = a / (np.abs(a).max() or 1.0), b / (np.abs(b).max() or 1.0)  # so that no square leaves the range
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return min(1.0, max(-1.0, float(a @ b) / norms)) if norms else 0.0


def embedding_canaries(embedder: Embedder) -> tuple[EmbeddingCanary, ...]:
    """Pairs an embedder is checked with: its own, or general ones."""
    return embedder.canaries or DEFAULT_CANARIES


def watched_embedder(retriever: Retriever) -> Embedder | None:
    """Embedder that the answers of a retriever depend on: that of its queries, else that of its scorer."""
    scoring = retriever.scorer.embedder if retriever.scorer.kind is ScorerKind.EMBEDDING else None
    return retriever.embedder or scoring


def distinct_texts(pairs: Sequence[EmbeddingCanary]) -> tuple[str, ...]:
    """Texts of pairs in order, each once."""
    return tuple(dict.fromkeys(text for pair in pairs for text in pair.texts))


DEFAULT_CANARIES: Final = tuple(
    EmbeddingCanary(key=key, texts=texts, similar=similar)
    for key, similar, texts in (
        ("password", True, ("How do I reset my password?", "I forgot my password and need a new one.")),
        ("refund", True, ("How can I get my money back?", "What is your refund policy?")),
        ("rain", True, ("It is raining heavily today.", "There is heavy rain today.")),
        ("password-volcano", False, ("How do I reset my password?", "A volcano erupts when magma rises.")),
        ("refund-cake", False, ("What is your refund policy?", "Whisk the eggs and fold in the flour.")),
        ("rain-budget", False, ("It is raining heavily today.", "Parliament has passed the annual budget.")),
    )
)
"""Three pairs that are close for every embedder of texts, and three that are not."""


def _cosines(pair: EmbeddingCanary, before: Mapping[str, Vector], now: Mapping[str, Vector]) -> PairCosines:
    first, second = pair.texts
    return PairCosines(
        key=pair.key,
        similar=pair.similar,
        cosine=cosine(now[first], now[second]),
        reference=cosine(before[first], before[second]),
        agreement=min(_agreement(before[text], now[text]) for text in pair.texts),
    )


def _agreement(before: Vector, now: Vector) -> float:
    shared = min(len(before), len(now))
    return cosine(before[:shared], now[:shared])


def _two_models(before: Mapping[str, Vector], now: Mapping[str, Vector]) -> str | None:
    """Say that some texts have the vectors they had and others those of another model; None where it is not so.

    Two instances behind a balancer, or a cache of answers that an older model gave.
    """
    agreements = [_agreement(vector, now[text]) for text, vector in before.items()]
    same, other = ([one for one in agreements if one >= SAME_COSINE], [one for one in agreements if one < OTHER_COSINE])
    if min(len(same), len(other)) < _OF_EACH_MODEL or len(same) + len(other) < len(agreements):
        return None
    return f"{len(same)} of {len(agreements)} known texts as before, {len(other)} with cosine {max(other):.2f} or less"


def _dimensions(vectors: Mapping[str, Vector]) -> int:
    return len(next(iter(vectors.values())))


def _resized(where: str, before: int, now: int, agreement: float) -> tuple[EmbedderChange, str]:
    if agreement < OTHER_COSINE:
        note = f"{now} dimensions instead of {before}, {_cosine_note(agreement)}"
        return EmbedderChange.SWAPPED, f"{_other_model(where)} ({note})"
    if now < before:
        note = f"{now} dimensions, the first ones of the {before} there were"
        return EmbedderChange.TRUNCATED, f"{EMBEDDER_AT}{where} answers with truncated vectors: {note}"
    note = f"{now} dimensions, of which only the first {before} are those there were"
    return EmbedderChange.SWAPPED, f"{_other_model(where)} ({note})"


def _other_model(where: str) -> str:
    return f"{EMBEDDER_AT}{where} answers with vectors of another model"


def _cosine_note(agreement: float) -> str:
    return f"cosine of known texts {agreement:.2f}, 1.00 expected"


def _similarity_gaps(pairs: Sequence[PairCosines]) -> tuple[float, float] | None:
    """Return how much closer similar pairs are than dissimilar ones, before and now; None if unmeasurable."""
    similar = [pair for pair in pairs if pair.similar]
    dissimilar = [pair for pair in pairs if not pair.similar]
    if not similar or not dissimilar:
        return None
    before = _mean([pair.reference for pair in similar]) - _mean([pair.reference for pair in dissimilar])
    now = _mean([pair.cosine for pair in similar]) - _mean([pair.cosine for pair in dissimilar])
    return (before, now) if before > 0 else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
