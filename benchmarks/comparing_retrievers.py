"""Three real retrievers over one collection, compared by page, API and command line: all must say the same.

    python -m benchmarks.comparing_retrievers [FOLDER] [DATA]

FOLDER (default ../shared/data/xquad_en) holds docs.jsonl.gz {doc_id, text} and queries.jsonl.gz {qid, text, doc_id}.
Each paragraph is a chunk, each question a canary that expects its paragraph. All retrievers are asked for 10 hits:

- BM25, the demo's: Lucene's variant, k1 .9, b .4; words folded and cut by its light stemmer, without stop words
- TF-IDF of words: lower case, no stop words, no stemmer; 1 + log of the count, times 1 + log of N over the number of
  chunks that have the term; cosine
- TF-IDF of character n-grams: the same of 3 to 5 characters within words, a space at both ends of each

Runs are carried out and stored by the service itself; with DATA its database stays in that folder.
"""

import gzip
import json
import math
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from fastapi.testclient import TestClient
from scipy import sparse
from typer.testing import CliRunner

from app.cli import app as command_line
from app.config import Settings
from app.demo.corpus import Chunk, read_corpus
from app.demo.retriever import Retriever
from app.domain.model import Answer, Outcome, Ranking, Trigger
from app.domain.probing.retrievers import ProbeContext, ProbeQuery
from app.formats.catalog.canary_files import Documents
from app.formats.catalog.documents import CheckDocument, RetrieverDocument, SuiteDocument
from app.formats.validation_messages import parse_document
from app.main import Service, create_app, open_service
from app.services.catalog import applying
from app.services.catalog.references import API
from app.services.runs import runs, scheduling
from app.services.runs.plans import Planner
from app.store.engine import Store
from app.store.migrate import migrate

FETCH_K = 10
SHORTEST, LONGEST = 3, 5
Search = Callable[[str], Sequence[tuple[str, float]]]
Terms = Callable[[str], list[str]]
_WORD = re.compile(r"\w+")


def main(folder: str = "../shared/data/xquad_en", data: str | None = None) -> None:
    """Print the table of measures and every pair's verdict, after checking that page, API and command agree."""
    chunks = read_corpus([Path(folder) / "docs.jsonl.gz"])
    searches: dict[str, Search] = {
        "bm25": bm25(chunks),
        "words": TfIdf(chunks, words).search,
        "characters": TfIdf(chunks, characters).search,
    }
    with tempfile.TemporaryDirectory() as temporary:
        settings = Settings(data_dir=Path(data or temporary))
        store = Store(f"sqlite:///{settings.data_dir}/coalmine.db")
        migrate(store)
        store.close()
        service = open_service(settings, environment={}, with_worker=False)
        carry_out(service, documents(Path(folder), searches), searches)
        with TestClient(create_app(service), base_url="http://127.0.0.1:8000") as client:
            for a, b in combinations(searches, 2):
                show(client, settings.data_dir, f"check:{a}", f"check:{b}")


def show(client: TestClient, folder: Path, a: str, b: str) -> None:
    """Print a comparison, after checking that all three say it."""
    found = client.get("/v1/compare", params={"a": a, "b": b}).json()
    page = client.get("/compare", params={"a": a, "b": b}).text
    told = CliRunner().invoke(command_line, ["compare", a, b, "--data-dir", str(folder)])
    sentence = found["sentence"][:1].upper() + found["sentence"][1:]
    assert sentence in page
    assert told.stdout.startswith(f"{sentence}.")
    assert told.exit_code == (found["verdict"] in {"worse", "trade"})
    print(f"\n{a} against {b}: {found['verdict']}, exit code {told.exit_code}\n{sentence}.")
    for one in found["primary"]:
        interval = "every canary alike" if one["low"] is None else f"{one['low']:+.3f} to {one['high']:+.3f}"
        print(f"| {one['measure']} | {one['a']:.3f} | {one['b']:.3f} | {interval} | {one['corrected_p']:.4f} |")
    for part in found["by_category"]:
        print(part["category"], part["canaries"], part["winner"])
    print(found["wins"])


def carry_out(service: Service, wanted: Documents, searches: Mapping[str, Search]) -> None:
    """Put the definitions in force and carry out a run of each check."""
    now = datetime.now(UTC)
    applying.apply(service.store, service.vault, wanted, managed_by=API, now=now)

    def probe(context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        search = searches[context.retriever.slug]
        yield [(one.position, answer(search(one.query))) for one in queries]

    for slug in searches:
        run_id, _ = scheduling.run_now(
            service.store, slug, trigger=Trigger.API, index_version=None, idempotency_key=None, now=now
        )
        claimed = runs.begin(service.store, run_id, owner="bench", now=now)
        assert claimed is not None
        planner = Planner(service.store, service.vault)
        runs.execute(planner, probe, claimed, owner="bench", clock=lambda: datetime.now(UTC), stopping=lambda: False)


def answer(found: Sequence[tuple[str, float]]) -> Answer:
    """Make the answer that brings these hits."""
    ids = tuple(chunk for chunk, _ in found)
    nothing = (None,) * len(ids)
    scores = tuple(score for _, score in found)
    ranking = Ranking(ids=ids, documents=nothing, texts=nothing, scores=scores, returned=len(ids))
    return Answer(outcome=Outcome.OK, latency_seconds=0.01, ranking=ranking)


def documents(folder: Path, names: Mapping[str, Search]) -> Documents:
    """Make a canary of every question, and a check for each retriever; those of how and why are procedural."""
    with gzip.open(folder / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        queries = [json.loads(line) for line in lines]
    canaries = [
        {
            "key": query["qid"],
            "query": query["text"],
            "expected_chunks": [query["doc_id"]],
            "category": "procedural" if query["text"].lower().startswith(("how", "why")) else "simple_factual",
        }
        for query in queries
    ]
    suite = {"slug": "xquad", "canaries": canaries}
    shape = {"url": "http://127.0.0.1:1/search", "response": {"hits": "hits", "id": "id", "score": "score"}}
    check = {"suite": "xquad", "schedule": {"every": "1d"}, "k": 5, "fetch_k": FETCH_K}
    return Documents(
        suites=(parse_document(SuiteDocument, suite),),
        retrievers=tuple(parse_document(RetrieverDocument, {**shape, "slug": name}) for name in names),
        checks=tuple(parse_document(CheckDocument, {**check, "slug": name, "retriever": name}) for name in names),
        hooks=(),
    )


def bm25(chunks: Sequence[Chunk]) -> Search:
    """Search by the demo's BM25."""
    index = Retriever(chunks)
    return lambda query: [(hit.chunk.id, hit.score) for hit in index.search(query, FETCH_K)]


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return _WORD.findall(text.casefold())


def characters(text: str) -> list[str]:
    """Return the character n-grams of the words of a text, each word between spaces."""
    padded = [f" {word} " for word in words(text)]
    return [
        word[start : start + length]
        for word in padded
        for length in range(SHORTEST, LONGEST + 1)
        for start in range(max(len(word) - length, 0) + 1)
    ]


class TfIdf:
    """Cosine of TF-IDF vectors."""

    def __init__(self, chunks: Sequence[Chunk], terms: Terms) -> None:
        self._ids = [chunk.id for chunk in chunks]
        self._terms = terms
        counts = [Counter(terms(chunk.text)) for chunk in chunks]
        spread = Counter(term for one in counts for term in one)
        self._columns = {term: place for place, term in enumerate(spread)}
        self._idf = np.array([math.log(len(chunks) / count) + 1 for count in spread.values()])
        self._matrix = sparse.vstack([self._vector(one) for one in counts]).tocsr()

    def search(self, query: str) -> list[tuple[str, float]]:
        """Return the nearest chunks, best first; ties stay in index order."""
        scores = (self._matrix @ self._vector(Counter(self._terms(query))).T).toarray().ravel()
        best = np.argsort(-scores, kind="stable")[:FETCH_K]
        return [(self._ids[place], round(float(min(scores[place], 1.0)), 6)) for place in best if scores[place] > 0]

    def _vector(self, counts: Counter[str]) -> Any:
        known = {self._columns[term]: count for term, count in counts.items() if term in self._columns}
        columns = np.fromiter(known, dtype=np.intp, count=len(known))
        weights = (1 + np.log(np.array(list(known.values()), dtype=np.float64))) * self._idf[columns]
        weights /= np.linalg.norm(weights) or 1.0
        return sparse.csr_matrix((weights, ([0] * len(known), columns)), shape=(1, len(self._columns)))


if __name__ == "__main__":
    main(*sys.argv[1:])
