"""A run over a public collection: every question a canary, the demo retriever serving the documents.

    python -m benchmarks.collection [FOLDER] [DISTRACTORS.jsonl.gz ...]

FOLDER (default ../shared/data/xquad_en) holds docs.jsonl.gz {doc_id, text} and queries.jsonl.gz {qid, text, doc_id,
topic, refs: [[start, end, text]]}. Documents are cut into chunks of about 400 characters; expected are the chunks
of the question's document that hold its answer. The run is carried out and stored by the service itself.
"""

import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from app.base.addresses import retriever_policy
from app.base.db.engine import Store
from app.base.db.files import migrate
from app.base.documents.validation_messages import parse_document
from app.base.values import Trigger
from app.base.vault import Vault
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.documents import CheckDocument
from app.catalog.service import applying
from app.catalog.service.references import API
from app.demo.corpus import read_corpus
from app.records.service import results
from app.records.service import runs as run_views
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.documents.retrievers import RetrieverDocument
from app.runs.service import due_checks, runs
from app.runs.service.plans import Planner

CHUNK_CHARACTERS = 400
PORT = 18_474


def main() -> None:
    """Print how many canaries the run stored, and its means."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data/xquad_en")
    corpus = [folder / "docs.jsonl.gz", *map(Path, sys.argv[2:])]
    with tempfile.TemporaryDirectory() as data, demo(corpus) as url:
        store, vault = Store(f"sqlite:///{data}/coalmine.db"), Vault("a key for the benchmark only")
        migrate(store)
        wanted = documents(folder, corpus, url)
        applying.apply(store, vault, wanted, managed_by=API, now=datetime.now(UTC))
        started = time.perf_counter()
        run = one_run(store, vault)
        seconds = time.perf_counter() - started
        stored = results.report(store, run["id"])["results"]
        measures = {name: run["measures"][name] for name in ("Hit@1", "Hit@5", "R@5", "MRR", "NDCG@10")}
        print(f"{folder.name}: {len(stored)} canaries stored, {run['canaries']}, {seconds:.1f} s, {run['verdict']}")
        print(", ".join(f"{name} {value:.3f}" for name, value in measures.items()))
        print(f"health score {run['health_score']:.3f}, coverage {run['coverage']:.3f}, probes {run['probes']}")
        store.close()


@contextmanager
def demo(corpus: list[Path]) -> Iterator[str]:
    """Serve the documents with `coalmine demo --corpus ...`, as a user would."""
    files = [argument for file in corpus for argument in ("--corpus", str(file))]
    options = ["--port", str(PORT), "--chunk-characters", str(CHUNK_CHARACTERS), *files]
    process = subprocess.Popen([sys.executable, "-m", "app.cli", "demo", *options])  # noqa: S603 - our own command
    url = f"http://127.0.0.1:{PORT}"
    try:
        for _ in range(300):
            with suppress(OSError), urlopen(f"{url}/healthz"):  # noqa: S310 - just started above
                break
            assert process.poll() is None, "the demo did not start"
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def one_run(store: Store, vault: Vault) -> dict[str, Any]:
    """Queue, claim and carry out a run, and read it back."""
    now = datetime.now(UTC)
    run_id, _ = due_checks.run_now(
        store, "collection", trigger=Trigger.API, index_version=None, idempotency_key=None, now=now
    )
    claimed = runs.begin(store, run_id, owner="bench", now=now)
    assert claimed is not None
    runs.execute(
        Planner(store, vault),
        RetrieverProbe(retriever_policy(), "coalmine-bench"),
        claimed,
        owner="bench",
        clock=lambda: datetime.now(UTC),
        stopping=lambda: False,
    )
    return {**run_views.run(store, str(run_id))}


def documents(folder: Path, corpus: list[Path], url: str) -> Documents:
    """Make a canary of every question."""
    chunks: dict[str, list[tuple[str, str]]] = {}
    for chunk in read_corpus(corpus, chunk_characters=CHUNK_CHARACTERS):
        chunks.setdefault(chunk.document, []).append((chunk.id, chunk.text))
    canaries = [
        {
            "key": query["qid"],
            "query": query["text"],
            "expected_chunks": [
                name for name, text in chunks[query["doc_id"]] if any(answer in text for _, _, answer in query["refs"])
            ]
            or [{"document": query["doc_id"]}],  # the cut went through the answer itself
            "min_relevance_score": 0.1,
            "tags": [query["topic"]],
        }
        for query in lines(folder / "queries.jsonl.gz")
    ]
    retriever = {
        "slug": "demo",
        "url": f"{url}/search",
        "request": {"method": "POST", "json": {"query": "{{ query }}", "top_k": "{{ k }}"}},
        "response": {"hits": "results", "id": "id", "score": "score", "text": "text", "document": "metadata.source"},
        "scorer": {"kind": "score", "scale": "similarity"},
    }
    check = {"slug": "collection", "suite": "collection", "retriever": "demo", "schedule": {"every": "1d"}}
    return Documents(
        suites=(parse_document(SuiteDocument, {"slug": "collection", "canaries": canaries}),),
        retrievers=(parse_document(RetrieverDocument, retriever),),
        checks=(parse_document(CheckDocument, check),),
    )


def lines(file: Path) -> Iterator[dict[str, Any]]:
    """Read a compressed file of JSON lines."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


if __name__ == "__main__":
    main()
