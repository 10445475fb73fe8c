"""Embedders that need no download: latent semantic indexing (Deerwester et al. 1990), learned from the texts.

TF-IDF (log tf, idf) of words or of character 4-grams, a truncated SVD of 150 dimensions, length 1. The SVD is the
randomised one (Halko et al. 2011), seeded, so that a refit takes a second and the same texts have the same vectors.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from app.demo.corpus import terms as stems
from benchmarks.foreign.collections import Chunk
from benchmarks.foreign.systems import Build

DIMENSIONS: Final = 150
_OVERSAMPLED: Final = 20
_POWER_STEPS: Final = 3
_WORD: Final = re.compile(r"[a-z0-9]+")
Floats = NDArray[np.float64]
Terms = Callable[[str], list[str]]


def words(text: str) -> list[str]:
    """Return the words of a text as they stand: no stemming, no stop words."""
    return _WORD.findall(text.lower())


def grams(text: str) -> list[str]:
    """Return the character 4-grams of a text."""
    line = " ".join(words(text))
    return [line[place : place + 4] for place in range(len(line) - 3)]


class Embedder:
    """Vectors of texts; learned once, it knows nothing of texts that come later."""

    def __init__(self, texts: Sequence[str], *, terms: Terms = words) -> None:
        self._terms = terms
        found = Counter(chain.from_iterable(set(terms(text)) for text in texts))
        self._places = {term: place for place, term in enumerate(sorted(t for t, n in found.items() if n > 1))}
        self._weights = np.array([np.log(len(texts) / found[term]) for term in self._places])
        matrix = self._matrix(texts)
        draw = np.random.default_rng(7).normal(size=(matrix.shape[1], DIMENSIONS + _OVERSAMPLED))
        basis, _ = np.linalg.qr(matrix @ draw)
        for _ in range(_POWER_STEPS):
            basis, _ = np.linalg.qr(matrix @ (matrix.T @ basis))
        _, _, axes = np.linalg.svd((matrix.T @ basis).T, full_matrices=False)
        self._axes: Floats = axes[:DIMENSIONS].T

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Embed texts, a row each, at length 1; a text without a known term has the vector of none."""
        return unit(self._matrix(texts) @ self._axes)

    def _matrix(self, texts: Sequence[str]) -> sparse.csr_matrix:
        ends, columns, data = [0], [], []
        for text in texts:
            counts = Counter(term for term in self._terms(text) if term in self._places)
            columns += [self._places[term] for term in counts]
            data += [1 + np.log(count) for count in counts.values()]
            ends.append(len(columns))
        places = np.array(columns, dtype=np.int64)
        values = np.array(data) * self._weights[places]
        return sparse.csr_matrix((values, places, ends), shape=(len(texts), len(self._places)))


def unit(vectors: Floats) -> Floats:
    """Return the vectors at length 1; a null vector points nowhere in particular, as that of a model would."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    constant = np.full(vectors.shape[1], vectors.shape[1] ** -0.5)
    return np.where(lengths > 0, vectors / np.where(lengths > 0, lengths, 1), constant)


def coarse(vectors: Floats, dimensions: int | None, *, one_bit: bool = False) -> Floats:
    """Keep the first dimensions, others 0, or the signs alone."""
    changed = vectors.copy()
    if dimensions is not None:
        changed[:, dimensions:] = 0
    if one_bit:
        changed = np.where(changed >= 0, 1.0, -1.0)
    return unit(changed)


class Models:
    """The embedders of a system: the usual one and another, learned from the healthy chunks, and refitted ones."""

    def __init__(self, healthy: Sequence[Chunk]) -> None:
        self._texts = [chunk.text for chunk in healthy]

    @cached_property
    def usual(self) -> Embedder:
        """LSI over words."""
        return Embedder(self._texts)

    @cached_property
    def other(self) -> Embedder:
        """LSI over character 4-grams."""
        return Embedder(self._texts, terms=grams)

    def of(self, build: Build, *, fixed: bool) -> tuple[Embedder, Embedder]:
        """Return the embedder of the chunks and that of the queries. `fixed`: a model is not learned from the index."""
        usual = self.usual
        if build.other_analyzer or (
            build.refit and not fixed and [chunk.text for chunk in build.chunks] != self._texts
        ):
            usual = Embedder([chunk.text for chunk in build.chunks], terms=stems if build.other_analyzer else words)
        documents = self.other if build.other_index_model else usual
        return documents, self.other if build.other_query_model else usual
