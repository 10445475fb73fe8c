"""When two rankings are the same ranking: scores settle to the retriever's precision, then everything is hashed."""

import math
from hashlib import blake2b
from struct import pack

from app.domain.model import Ranking

HASH_BYTES = 16
RELEVANCE_DECIMALS = 3
"""What a scorer outside the retriever says twice of one hit may differ by less."""


def decimals_of(precision: float) -> int:
    """Give the decimals that a score precision such as 1e-6 keeps; at most 15, also for 0."""
    return min(15, max(0, -math.floor(math.log10(max(precision, 1e-15)) + 1e-9)))


def settle(ranking: Ranking, decimals: int) -> Ranking:
    """Round scores and relevance, so that what is judged is exactly what is stored, and take the fingerprint."""
    scores = tuple([None if score is None else round(score, decimals) + 0.0 for score in ranking.scores])
    relevance = None if ranking.relevance is None else round(ranking.relevance, RELEVANCE_DECIMALS)
    return Ranking(
        ids=ranking.ids,
        documents=ranking.documents,
        texts=ranking.texts,
        scores=scores,
        returned=ranking.returned,
        updated=ranking.updated,
        relevance=relevance,
        fingerprint=_fingerprint(ranking, scores, relevance),
    )


def _fingerprint(ranking: Ranking, scores: tuple[float | None, ...], relevance: float | None) -> bytes:
    """Hash ids, documents, texts, scores and, where there are any, times and relevance: 16 bytes.

    Equal exactly for equal settled rankings. Each part's length goes in as well, so that no hostile text can imitate
    another split.
    """
    parts = [*ranking.ids, *[text or "" for text in ranking.texts], *[document or "" for document in ranking.documents]]
    numbers = [math.nan if score is None else score for score in scores]
    count = len(ranking.ids)
    absent = bytes([value is None for value in (*ranking.texts, *ranking.documents)])
    head = pack(f"<2I{len(parts)}I{count}d", ranking.returned, count, *map(len, parts), *numbers)
    if ranking.updated is not None:
        times = [math.nan if moment is None else moment for moment in ranking.updated]
        head += pack(f"<B{count}d", 2, *times)  # flags of absence are 0 or 1: 2 and 3 are taken for none
    if relevance is not None:
        head += pack("<Bd", 3, relevance)
    return blake2b(head + absent + "".join(parts).encode(), digest_size=HASH_BYTES).digest()


def chunk_fingerprint(chunk: str, document: str | None, text: str | None) -> bytes:
    """Hash one retrieved chunk: 16 bytes."""
    parts = [part.encode() if part is not None else b"" for part in (chunk, document, text)]
    head = pack("<3I2?", *map(len, parts), document is None, text is None)
    return blake2b(head + b"".join(parts), digest_size=HASH_BYTES).digest()
