"""Vectors of texts: the result of asking an embedder, and whether it still is the model of the reference.

How an embedder is reached is said in `retrievers`; asking it is done by `client.embeddings`, behind the seam `Embed`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from app.base.values import EmbedderChange, Outcome
from app.retrievers.domain.retrievers import Embedder, EmbeddingCanary, Retriever, ScorerKind

Vector = NDArray[np.float32]

EMBEDDER_AT: Final = "the embedder at "
"""How sentences about an embedder begin, before its host and port."""
SAME_COSINE: Final = 0.999
"""Texts embedded twice by one model are at least this close to themselves: half precision and another order of
summation move the cosine by less than 0.001."""
OTHER_COSINE: Final = 0.9
"""Below it the model is another one: weights or vectors rounded to eight bits keep 0.97 and more, while unrelated
models share no directions, so that theirs is near 0, whatever they are good for."""
COLLAPSED_SHARE: Final = 0.1
"""Share of the reference's gap between similar and dissimilar pairs below which texts count as indistinguishable. Not
zero: where all vectors are nearly one, noise leaves a difference of either sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingResult:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceVectors:
    """Vectors of the embedding canaries from the first run that asked them."""

    pairs: tuple[EmbeddingCanary, ...]
    vectors: Mapping[str, Vector]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCosines:
    """Cosines of one embedding canary."""

    key: str
    similar: bool
    cosine: float
    """Of its two texts, now."""
    reference: float
    """Of its two texts, in the reference."""
    agreement: float
    """Of its texts with their own reference, the lower one; over the dimensions both have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderFinding:
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
