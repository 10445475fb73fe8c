"""Retrievers of several kinds over one collection, served over HTTP, measured and compared by a served Coalmine."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel
from scipy import sparse
from typer.testing import CliRunner

from app.base.documents.fields import parse_document
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.store import API
from app.cli import app as command_line
from app.definitions.service import applying
from app.demo.corpus import Chunk
from app.retrievers.documents.retrievers import RetrieverDocument
from tests.support.living import coalmine, serving, until

SHORTEST, LONGEST = 3, 5
"""Lengths of character n-grams."""
FETCH_K = 10
_WORD = re.compile(r"\w+")
Terms = Callable[[str], list[str]]


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
    """Cosine of TF-IDF vectors: 1 + log of the count, times 1 + log of N over the number of chunks with the term."""

    def __init__(self, chunks: Sequence[Chunk], terms: Terms) -> None:
        self._ids = [chunk.id for chunk in chunks]
        self._terms = terms
        counts = [Counter(terms(chunk.text)) for chunk in chunks]
        spread = Counter(term for one in counts for term in one)
        self._columns = {term: place for place, term in enumerate(spread)}
        self._idf = np.array([math.log(len(chunks) / count) + 1 for count in spread.values()])
        self._matrix = sparse.vstack([self._vector(one) for one in counts]).tocsr()

    def search(self, query: str, hits: int) -> list[tuple[str, float]]:
        """Return the nearest chunks, best first; ties stay in index order."""
        scores = (self._matrix @ self._vector(Counter(self._terms(query))).T).toarray().ravel()
        best = np.argsort(-scores, kind="stable")[:hits]
        return [(self._ids[place], round(float(min(scores[place], 1.0)), 6)) for place in best if scores[place] > 0]

    def _vector(self, counts: Counter[str]) -> Any:
        known = {self._columns[term]: count for term, count in counts.items() if term in self._columns}
        columns = np.fromiter(known, dtype=np.intp, count=len(known))
        weights = (1 + np.log(np.array(list(known.values()), dtype=np.float64))) * self._idf[columns]
        weights /= np.linalg.norm(weights) or 1.0
        return sparse.csr_matrix((weights, ([0] * len(known), columns)), shape=(1, len(self._columns)))


class _Search(BaseModel):
    query: str
    top_k: int


def tf_idf_app(chunks: Sequence[Chunk], terms: Terms) -> FastAPI:
    """Build a retriever by TF-IDF that is asked as the demo's is."""
    index, retriever = TfIdf(chunks, terms), FastAPI()

    @retriever.post("/search")
    def search(body: _Search) -> dict[str, Any]:
        return {"results": [{"id": one, "score": score} for one, score in index.search(body.query, body.top_k)]}

    return retriever


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """A served Coalmine that has measured every retriever."""

    url: str

    def compare(self, a: str, b: str) -> dict[str, Any]:
        """Compare the checks of two retrievers by API, page and command; fails unless all three say the same."""
        references = {"a": f"check:{a}", "b": f"check:{b}"}
        found: dict[str, Any] = httpx2.get(f"{self.url}/v1/compare", params=references).raise_for_status().json()
        page = unescape(httpx2.get(f"{self.url}/compare", params=references).raise_for_status().text)
        asked = ["compare", *references.values(), "--server", self.url]
        table, as_json = (CliRunner().invoke(command_line, [*asked, "--format", form]) for form in ("table", "json"))
        sentence = f"{found['sentence'][:1].upper()}{found['sentence'][1:]}."
        assert sentence in page
        assert table.stdout.startswith(sentence)
        told = json.loads(as_json.stdout)
        assert {name: told[name] for name in ("verdict", "primary")} == {
            name: found[name] for name in ("verdict", "primary")
        }
        assert table.exit_code == as_json.exit_code == (found["verdict"] in {"worse", "trade"})
        return found


@contextmanager
def compared(
    data_dir: Path, retrievers: Mapping[str, FastAPI], canaries: Sequence[Mapping[str, Any]], *, seconds: float = 60.0
) -> Iterator[Comparisons]:
    """Serve these retrievers and Coalmine, whose worker carries out a run of a check for each."""
    with ExitStack() as stack:
        urls = {name: stack.enter_context(serving(one)) for name, one in retrievers.items()}
        url, service = stack.enter_context(coalmine(data_dir))
        applying.apply(service.store, service.vault, _documents(urls, canaries), managed_by=API, now=datetime.now(UTC))
        for name in urls:
            run = httpx2.post(f"{url}/v1/checks/{name}/runs", json={}).raise_for_status().json()["id"]
            ended = until(lambda run=run: _ended(f"{url}/v1/runs/{run}"), seconds=seconds)
            assert ended["probes"] == {"ok": len(canaries)}
        yield Comparisons(url=url)


def _ended(address: str) -> dict[str, Any] | None:
    run: dict[str, Any] = httpx2.get(address).raise_for_status().json()
    return None if run["finished_at"] is None else run


def _documents(urls: Mapping[str, str], canaries: Sequence[Mapping[str, Any]]) -> Documents:
    shape = {
        "request": {"method": "POST", "json": {"query": "{{ query }}", "top_k": "{{ k }}"}},
        "response": {"hits": "results", "id": "id", "score": "score"},
    }
    check = {"suite": "questions", "schedule": {"every": "1d"}, "k": 5, "fetch_k": FETCH_K}
    return Documents(
        suites=(parse_document(SuiteDocument, {"slug": "questions", "canaries": list(canaries)}),),
        retrievers=tuple(
            parse_document(RetrieverDocument, {**shape, "slug": name, "url": f"{url}/search"})
            for name, url in urls.items()
        ),
        checks=tuple(parse_document(CheckDocument, {**check, "slug": name, "retriever": name}) for name in urls),
        hooks=(),
    )
