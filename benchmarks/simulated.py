"""Retrievers to be broken, for benchmarks/diagnosis.py: by words and by vectors, over chunks that may be changed.

A world keeps its encoder when its chunks change, as a vector index does; a word index counts its words anew.
"""

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from app.base.values import Canary, Judgment, Ranking
from app.demo.analysis import terms
from app.demo.corpus import Chunk, read_corpus
from app.demo.retriever import Retriever
from app.retrievers.domain.retrievers import Scale

Search = Callable[[str, int], Ranking]
"""Answers a query with so many hits."""

CHUNK_CHARACTERS = 400
DIMENSIONS = 200


@dataclass(frozen=True)
class World:
    """Chunks, canaries that expect some of them, and the way to index chunks."""

    name: str
    chunks: tuple[Chunk, ...]
    canaries: tuple[Canary, ...]
    index: Callable[[Sequence[Chunk]], Search]
    other: Callable[[Sequence[Chunk]], dict[str, Search]]
    """Other encoders or scorings of the same chunks, by name."""
    scale: Scale

    @cached_property
    def before(self) -> Search:
        """Answer while all is well."""
        return lru_cache(maxsize=None)(self.index(self.chunks))

    def chance(self, name: str) -> random.Random:
        """Give randomness that is the same every time."""
        return random.Random(f"{self.name}:{name}")  # noqa: S311 - a simulation


def bundled() -> World:
    """Take the demo as it is shipped: its documentation, its canaries."""
    entries = yaml.safe_load(Path("canaries/dataforge.yaml").read_text(encoding="utf-8"))["canaries"]
    canaries = [
        Canary(
            key=entry["key"],
            query=entry["query"],
            judgments=tuple(Judgment(**(one if isinstance(one, dict) else {"id": one})) for one in expected),
            min_relevance_score=entry.get("min_relevance_score", 0.5),
        )
        for entry in entries
        if (expected := entry.get("expected_chunks")) and entry.get("category") != "negative"
    ]
    chunks = read_corpus()
    return World("demo", chunks, tuple(canaries), by_words, words_otherwise, Scale.SIMILARITY)


def collection(folder: Path, distractors: Sequence[Path], *, vectors: bool, scale: Scale = Scale.COSINE) -> World:
    """Read a public collection: every question a canary that expects the chunks which hold its answer."""
    with_spans = folder.name != "cranfield"
    files = [folder / "docs.jsonl.gz", *distractors]
    chunks = read_corpus(files, chunk_characters=CHUNK_CHARACTERS if with_spans else None)
    within: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        within.setdefault(chunk.document, []).append(chunk)
    canaries = []
    for query in _lines(folder / "queries.jsonl.gz"):
        if with_spans:
            spans = [text for _, _, text in query["refs"]]
            expected = [chunk.id for chunk in within[query["doc_id"]] if any(span in chunk.text for span in spans)]
        else:
            expected = [name for name in query["qrels"] if name in within]
        judgments = tuple(Judgment(id=name) for name in expected)
        if judgments:
            canaries.append(Canary(key=query["qid"], query=query["text"], judgments=judgments, min_relevance_score=0))
    name = f"{folder.name}, {'vectors' if vectors else 'words'}"
    if vectors:
        encoder = Encoder(chunks)
        return World(name, chunks, tuple(canaries), encoder.index, encoder.otherwise, scale)
    return World(name, chunks, tuple(canaries), by_words, words_otherwise, Scale.SIMILARITY)


def by_words(chunks: Sequence[Chunk]) -> Search:
    """Index chunks as the demo does: BM25."""
    retriever = Retriever(chunks)

    def search(query: str, k: int) -> Ranking:
        hits = retriever.search(query, k)
        return ranking([hit.chunk for hit in hits], [hit.score for hit in hits])

    return search


def words_otherwise(chunks: Sequence[Chunk]) -> dict[str, Search]:
    """Break the scoring of a word index: scores halved, and queries that lost every other word."""
    search = by_words(chunks)

    def halved(query: str, k: int) -> Ranking:
        found = search(query, k)
        return replace(found, scores=tuple(round((score or 0.0) / 2, 6) for score in found.scores))

    def shortened(query: str, k: int) -> Ranking:
        return search(" ".join(terms(query)[::2]), k)

    return {"scores halved": halved, "half the words": shortened}


class Encoder:
    """Latent semantic analysis (Deerwester et al. 1990): tf-idf, then the strongest directions of the collection."""

    def __init__(self, chunks: Sequence[Chunk], seed: int = 1) -> None:
        counted = [Counter(terms(chunk.text)) for chunk in chunks]
        frequencies = Counter(term for counts in counted for term in counts)
        self._words = {term: number for number, term in enumerate(frequencies)}
        self._idf = np.log(len(chunks) / np.array([frequencies[term] for term in self._words]))
        table = np.stack([self._weights(counts) for counts in counted])
        # Halko, Martinsson and Tropp (2011): a random projection, sharpened twice.
        generator = np.random.default_rng(seed)
        basis = generator.standard_normal((table.shape[0], DIMENSIONS + 20), dtype=np.float32)
        for _ in range(3):
            basis, _ = np.linalg.qr(table @ (table.T @ basis))
        _, _, directions = np.linalg.svd(basis.T @ table, full_matrices=False)
        self._directions = directions[:DIMENSIONS].T
        self._vectors = {chunk.text: vector for chunk, vector in zip(chunks, table @ self._directions, strict=True)}

    def vector(self, text: str) -> NDArray[np.float32]:
        """Encode a text."""
        if text not in self._vectors:
            self._vectors[text] = self._weights(Counter(terms(text))) @ self._directions
        vector: NDArray[np.float32] = self._vectors[text]
        return vector

    def index(self, chunks: Sequence[Chunk]) -> Search:
        """Index the vectors of chunks, by cosine."""
        return self._index(chunks, lambda vector: vector)

    def otherwise(self, chunks: Sequence[Chunk]) -> dict[str, Search]:
        """Break the encoder: fewer dimensions, other weights, signs alone, noise in the queries, another model."""
        generator = np.random.default_rng(2)
        turned, _ = np.linalg.qr(generator.standard_normal((DIMENSIONS, DIMENSIONS), dtype=np.float32))
        noise = generator.standard_normal((DIMENSIONS, DIMENSIONS), dtype=np.float32) / DIMENSIONS**0.5
        return {
            "a quarter of the dimensions": self._index(chunks, lambda vector: vector[..., : DIMENSIONS // 4]),
            "signs alone": self._index(chunks, np.sign),
            "queries encoded otherwise": self._index(
                chunks, lambda vector: vector, lambda query: query + query @ noise
            ),
            "queries of another model": self._index(chunks, lambda vector: vector, lambda query: query @ turned),
        }

    def _weights(self, counts: Counter[str]) -> NDArray[np.float32]:
        row = np.zeros(len(self._words), dtype=np.float32)
        for term, count in counts.items():
            if (place := self._words.get(term)) is not None:
                row[place] = (1 + np.log(count)) * self._idf[place]
        return _unit(row)

    def _index(
        self,
        chunks: Sequence[Chunk],
        change: Callable[[NDArray[np.float32]], NDArray[np.float32]],
        ask: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda query: query,
    ) -> Search:
        table = _unit(change(np.stack([self.vector(chunk.text) for chunk in chunks])))

        def search(query: str, k: int) -> Ranking:
            scores = table @ _unit(change(ask(self.vector(query))))
            best = np.argsort(-scores, kind="stable")[:k]
            return ranking([chunks[place] for place in best], [round(float(scores[place]), 6) for place in best])

        return search


def ranking(chunks: Sequence[Chunk], scores: Sequence[float]) -> Ranking:
    """Write down an answer."""
    return Ranking(
        ids=tuple(chunk.id for chunk in chunks),
        documents=tuple(chunk.document for chunk in chunks),
        texts=tuple(chunk.text for chunk in chunks),
        scores=tuple(scores),
        returned=len(chunks),
    )


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)
    return unit


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)
