"""Scores that jitter, on a retriever that somebody else wrote: what is stored, whether it alarms, what is still found.

    python -m benchmarks.jitter [FOLDER] [RUNS]

FOLDER (default ../shared/data/xquad_en) has documents and queries. A real Chroma (`.venv-servers`) holds the chunks,
embedded by latent semantic indexing, see `chroma_collection`. On the way to it every query vector is moved at random
by 0.3 % of its length, as vectors of a model are that computes in low precision: distances move in the fourth digit
and near ties swap. Two checks of 300 canaries watch it, one as a newcomer has it and one with `score_tolerance: 0`.
After the healthy runs one chunk in twenty is deleted. About two minutes.
"""

import json
import sqlite3
import sys
import tempfile
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.chroma_collection import MODEL, NAME, Chunk, Collection, Embedder
from benchmarks.service_process import Service
from benchmarks.text_indexes import read_collection

CANARIES: Final = 300
MOVED: Final = 0.003
FAULTY_RUNS: Final = 10
CHECKS: Final = {"default": None, "every-move": 0}
"""Their tolerances; None = the one of the service."""


class JitteringCollection(Collection):
    """A Chroma whose query vectors differ a little each time."""

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        if request.path.endswith("/query"):
            asked = json.loads(body)
            asked["query_embeddings"] = [_moved(vector) for vector in asked["query_embeddings"]]
            body = json.dumps(asked).encode()
        return super()._forward(request, body)


def _moved(vector: Sequence[float]) -> list[float]:
    noise = _CHANCE.normal(size=len(vector))
    moved: list[float] = (np.array(vector) + noise * (MOVED * np.linalg.norm(vector) / np.linalg.norm(noise))).tolist()
    return moved


_CHANCE: Final = np.random.default_rng(7)


def main(folder: str = "../shared/data/xquad_en", runs: str = "60") -> None:
    """Print what both checks stored and said."""
    collection = read_collection(Path(folder))
    chunks = [Chunk(id=str(place), document="d", text=text) for place, text in enumerate(collection.texts)]
    embedder = Embedder(collection.texts, by_words=True)
    with (
        tempfile.TemporaryDirectory() as home,
        JitteringCollection(folder=Path(home), embedders=[embedder], chunks=chunks).running() as chroma,
        Service(Path(home) / "data") as service,
    ):
        _define(service, chroma, [(one.text, sorted(one.relevant)) for one in collection.queries[:CANARIES]])
        for check in CHECKS:
            _run(service, check)
        stored = {check: _stored(Path(home), check) for check in CHECKS}
        for _ in range(int(runs) - 1):
            for check in CHECKS:
                _run(service, check)
        for check in CHECKS:
            states, rankings = (now - then for now, then in zip(_stored(Path(home), check), stored[check], strict=True))
            results = (int(runs) - 1) * CANARIES
            alerts = service.get("/v1/alerts", check=check)["items"]
            print(
                f"{check}: {results:,} results after the first run, {states:,} states and {rankings:,} rankings stored",
                end="",
            )
            print(f"; {len(alerts)} alerts", flush=True)
        chroma.delete(chunks[::20])
        for check in CHECKS:
            found = next((number for number in range(1, FAULTY_RUNS + 1) if _alarms(service, check)), None)
            print(f"{check}: one chunk in twenty deleted, found in run {found}")


def _define(service: Service, chroma: Collection, questions: Sequence[tuple[str, Sequence[int]]]) -> None:
    canaries = [
        {"key": f"q{number}", "query": query, "expected_chunks": [str(one) for one in relevant]}
        for number, (query, relevant) in enumerate(questions)
    ]
    service.put("/v1/suites/xquad", {"canaries": canaries})
    for check, tolerance in CHECKS.items():
        described: dict[str, Any] = {
            "preset": "chroma",
            "url": f"http://127.0.0.1:{chroma.port}",
            "options": {"collection": NAME},
            "embedding": {"url": chroma.embedder_url, "model": MODEL},
        }
        described |= {} if tolerance is None else {"score_tolerance": tolerance}
        service.put(f"/v1/retrievers/{check}", described)
        service.put(f"/v1/checks/{check}", {"suite": "xquad", "retriever": check, "schedule": {"every": "1d"}})


def _run(service: Service, check: str) -> Mapping[str, Any]:
    run: Mapping[str, Any] = service.post(f"/v1/checks/{check}/runs", {"wait_seconds": 60})
    return run


def _alarms(service: Service, check: str) -> bool:
    _run(service, check)
    return any(one["state"] == "firing" for one in service.get("/v1/alerts", check=check)["items"])


def _stored(home: Path, check: str) -> tuple[int, int]:
    """Count states and the different rankings in them."""
    mine = "SELECT id FROM definitions WHERE kind = 'check' AND slug = ?"
    question = f"SELECT count(*), count(DISTINCT ranking_id) FROM states WHERE check_id = ({mine})"  # noqa: S608 - ours
    with sqlite3.connect(home / "data" / "coalmine.db") as database:
        states, rankings = database.execute(question, (check,)).fetchone()
    return int(states), int(rankings)


if __name__ == "__main__":
    main(*sys.argv[1:3])
