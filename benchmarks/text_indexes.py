"""Two retrievers over the texts of a public collection, for measurements: BM25, and latent semantic indexing."""

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds

from app.base.values import Ranking
from app.demo.corpus import cut, terms

CHUNK_CHARACTERS = 400
DIMENSIONS = 200
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query with the places of the texts that are relevant to it; `topic` as the collection has it."""

    text: str
    relevant: frozenset[int]
    document: str = ""
    topic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Texts with ids and documents, and queries."""

    name: str
    ids: tuple[str, ...]
    documents: tuple[str, ...]
    texts: tuple[str, ...]
    queries: tuple[Query, ...]

    def ranking(self, places: Sequence[int]) -> Ranking:
        """Return the ranking of these texts."""
        return Ranking(
            ids=tuple(self.ids[place] for place in places),
            documents=tuple(self.documents[place] for place in places),
            texts=tuple(self.texts[place] for place in places),
            scores=(None,) * len(places),
            returned=len(places),
        )


def read_collection(folder: Path) -> Collection:
    """Read docs.jsonl.gz and queries.jsonl.gz: whole documents with qrels, or chunks that overlap the evidence."""
    documents, queries = read_lines(folder / "docs.jsonl.gz"), read_lines(folder / "queries.jsonl.gz")
    if "qrels" in queries[0]:
        places = {one["doc_id"]: place for place, one in enumerate(documents)}
        return Collection(
            name=folder.name,
            ids=tuple(places),
            documents=tuple(places),
            texts=tuple(f"{one['title']} {one['text']}" for one in documents),
            queries=tuple(
                Query(text=one["text"], relevant=frozenset(places[name] for name in one["qrels"])) for one in queries
            ),
        )
    chunks: list[tuple[str, str]] = []
    spans: dict[str, list[tuple[int, int, int]]] = {}
    for one in documents:
        spans[one["doc_id"]], start = [], 0
        for piece in cut(one["text"], CHUNK_CHARACTERS):
            end = start + letters(piece)
            spans[one["doc_id"]].append((start, end, len(chunks)))
            chunks.append((one["doc_id"], piece))
            start = end
    texts = {one["doc_id"]: one["text"] for one in documents}
    return Collection(
        name=folder.name,
        ids=tuple(f"{document}#{place}" for place, (document, _) in enumerate(chunks)),
        documents=tuple(document for document, _ in chunks),
        texts=tuple(text for _, text in chunks),
        queries=tuple(
            Query(
                text=one["text"],
                relevant=overlapping(texts[one["doc_id"]], spans[one["doc_id"]], one["refs"]),
                document=one["doc_id"],
                topic=one["topic"],
            )
            for one in queries
        ),
    )


def overlapping(text: str, spans: list[tuple[int, int, int]], refs: list[tuple[int, int, str]]) -> frozenset[int]:
    """Return the chunks that hold a part of the evidence, of at least 20 letters where it is that long."""
    found = set()
    for first, last, _ in refs:
        start = letters(text[:first])
        end = start + letters(text[first:last])
        for left, right, place in spans:
            if min(end, right) - max(start, left) >= min(20, end - start):
                found.add(place)
    return frozenset(found)


def letters(text: str) -> int:
    """Count what is not white space, which cutting changes."""
    return len("".join(text.split()))


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Read a compressed file of JSON lines."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def rank_bm25(
    texts: Sequence[str], queries: Sequence[str], depth: int, *, terms_of: Callable[[str], list[str]] = terms
) -> list[list[int]]:
    """Return the places of the best texts by BM25 (Lucene's, k1 1.2, b .75), the demo's stemmer; ties by place."""
    index = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    index.index([terms_of(text) for text in texts], show_progress=False)
    asked = [[term for term in terms_of(query) if term in index.vocab_dict] for query in queries]
    return best(np.array([index.get_scores(words) if words else np.zeros(len(texts)) for words in asked]), depth)


def rank_lsi(
    texts: Sequence[str], queries: Sequence[str], depth: int, *, terms_of: Callable[[str], list[str]] = terms
) -> list[list[int]]:
    """Return the places of the best texts by the cosine of the 200 first singular vectors of log TF-IDF."""
    vocabulary: dict[str, int] = {}
    words = [terms_of(text) for text in texts]
    for term in chain.from_iterable(words):
        vocabulary.setdefault(term, len(vocabulary))
    counts = count_terms(words, vocabulary)
    idf = np.log(len(texts) / np.maximum((counts > 0).sum(axis=0), 1))
    matrix = sparse.csr_matrix(counts).log1p().multiply(idf).tocsr()
    _, _, basis = svds(matrix, k=min(DIMENSIONS, min(matrix.shape) - 1), random_state=0)
    asked = (
        sparse.csr_matrix(count_terms([terms_of(query) for query in queries], vocabulary)).log1p().multiply(idf).tocsr()
    )
    return best(unit(asked @ basis.T) @ unit(matrix @ basis.T).T, depth)


def count_terms(texts: Sequence[Sequence[str]], vocabulary: dict[str, int]) -> Any:
    """Return the counts of terms, one row a text."""
    cells = [(row, vocabulary[term]) for row, words in enumerate(texts) for term in words if term in vocabulary]
    rows, columns = np.array(cells).T
    return sparse.csr_matrix((np.ones(len(cells)), (rows, columns)), shape=(len(texts), len(vocabulary)))


def unit(vectors: Floats) -> Floats:
    """Return the vectors at length 1; a null vector stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def best(scores: Floats, depth: int) -> list[list[int]]:
    """Return the places of the highest scores of each row, the best first."""
    return [[int(place) for place in np.argsort(-row, kind="stable")[:depth]] for row in scores]
