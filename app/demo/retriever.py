"""BM25 over `bm25s`, with a score that means something: relevance between 0 and 1, the scale `similarity`.

Plain BM25 sums are not comparable between queries. Here a sum is divided by the most the query could have earned,
counting the words no passage knows, and stretched by one fixed monotone curve. It never looks at expected answers.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import bm25s
import numpy as np
import numpy.typing as npt

from app.demo.corpus import Chunk, terms

SCALE = "similarity"

# BM25 as in Robertson and Zaragoza (2009) in Lucene's variant, where one term earns at most its idf.
_K1 = 0.9
_B = 0.4
_TITLE_WEIGHT = 2

# The curve logit(relevance) = steepness * (logit(share) - logit(midpoint)): a share at the midpoint is worth 0.5.
_MIDPOINT = 0.42
_STEEPNESS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A chunk found and its relevance in [0, 1]."""

    chunk: Chunk
    score: float


class Retriever:
    """An immutable index over chunks; safe to search from many threads.

    `version` is a digest of the content: it differs exactly when the chunks or their order do.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = tuple(chunks)
        self.version = _digest(self.chunks)
        passages = [terms(chunk.title) * _TITLE_WEIGHT + terms(chunk.text) for chunk in self.chunks]
        frequencies = Counter(term for passage in passages for term in set(passage))
        self._vocabulary = {term: number for number, term in enumerate(frequencies)}
        self._idf = {term: _idf(frequency, len(passages)) for term, frequency in frequencies.items()}
        self._unknown_idf = _idf(0, len(passages))
        self._index = self._build(passages)

    def search(self, query: str, top_k: int) -> list[Hit]:
        """Return the chunks sharing a word with the query, best first, at most `top_k`; ties stay in index order."""
        query_terms = list(dict.fromkeys(terms(query)))
        term_ids = [self._vocabulary[term] for term in query_terms if term in self._vocabulary]
        if self._index is None or not term_ids:
            return []
        most = sum(self._idf.get(term, self._unknown_idf) for term in query_terms)
        shares = self._index.get_scores_from_ids(term_ids).astype(np.float64) / most
        best = np.argsort(-shares, kind="stable")[:top_k]
        best = best[shares[best] > 0]
        return [
            Hit(chunk=self.chunks[place], score=round(float(score), 6))
            for place, score in zip(best, relevance(shares[best]), strict=True)
        ]

    def _build(self, passages: Sequence[Sequence[str]]) -> Any:
        if not self._vocabulary:
            return None
        index = bm25s.BM25(k1=_K1, b=_B, method="lucene", auto_compile=False)
        numbered = [[self._vocabulary[term] for term in passage] for passage in passages]
        index.index((numbered, dict(self._vocabulary)), create_empty_token=False, show_progress=False)
        return index


def relevance(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Map the share of the attainable BM25 sum to relevance: increasing, 0 to 0 and 1 to 1, the midpoint to 0.5."""
    bounded = np.clip(shares, 0.0, 1.0)
    gained = (bounded * (1 - _MIDPOINT)) ** _STEEPNESS
    missed = ((1 - bounded) * _MIDPOINT) ** _STEEPNESS
    return gained / (gained + missed)


def _idf(frequency: int, passages: int) -> float:
    return float(np.log1p((passages - frequency + 0.5) / (frequency + 0.5)))


def _digest(chunks: Sequence[Chunk]) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for chunk in chunks:
        digest.update(repr((chunk.id, chunk.document, chunk.title, chunk.topic, chunk.text)).encode())
    return f"demo-{digest.hexdigest()}"
