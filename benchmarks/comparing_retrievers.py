"""Three real retrievers over one collection, compared by page, API and command line: all must say the same.

    python -m benchmarks.comparing_retrievers [FOLDER]

FOLDER (default ../shared/data/xquad_en) holds docs.jsonl.gz {doc_id, text} and queries.jsonl.gz {qid, text, doc_id}.
Each paragraph is a chunk, each question a canary that expects its paragraph. All retrievers are asked for 10 hits:

- BM25, the demo's: Lucene's variant, k1 .9, b .4; lower case, its light stemmer, stop words left out
- TF-IDF of words: lower case, stop words kept, no stemmer; 1 + log of the count, times 1 + log of N over the number of
  chunks that have the term; cosine
- TF-IDF of character n-grams: the same of 3 to 5 characters within words, a space at both ends of each

Each is served over HTTP and asked by the worker of a served Coalmine, as in production.
"""

import gzip
import json
import sys
import tempfile
from itertools import combinations
from pathlib import Path
from typing import Any

from app.demo.corpus import read_corpus
from app.demo.server import create_demo
from tests.support.compared_retrievers import characters, compared, tf_idf_app, words

RUN_SECONDS = 300.0


def main(folder: str = "../shared/data/xquad_en") -> None:
    """Print a table of every pair's measures and its verdict, after checking that page, API and command agree."""
    corpus = [Path(folder) / "docs.jsonl.gz"]
    chunks = read_corpus(corpus)
    retrievers = {
        "bm25": create_demo(corpus),
        "words": tf_idf_app(chunks, words),
        "characters": tf_idf_app(chunks, characters),
    }
    canaries = read_canaries(Path(folder) / "queries.jsonl.gz")
    print(f"{len(chunks)} chunks, {len(canaries)} canaries")
    with (
        tempfile.TemporaryDirectory() as data,
        compared(Path(data), retrievers, canaries, seconds=RUN_SECONDS) as service,
    ):
        for a, b in combinations(retrievers, 2):
            show(f"{a} against {b}", service.compare(a, b))


def show(title: str, found: dict[str, Any]) -> None:
    """Print a comparison."""
    print(f"\n{title}: {found['verdict']}\n{found['sentence']}")
    print("| measure | A | B | difference | 95 % interval | p, corrected |")
    for one in found["primary"]:
        interval = "every canary alike" if one["low"] is None else f"{one['low']:+.3f} to {one['high']:+.3f}"
        means = f"{one['a']:.3f} | {one['b']:.3f} | {one['difference']:+.3f}"
        print(f"| {one['measure']} | {means} | {interval} | {one['corrected_p']:.3f} |")
    for part in found["by_category"]:
        print(f"{part['category']}, {part['canaries']} canaries: higher in {part['winner']}")
    print(f"canaries higher in: {found['wins']}")


def read_canaries(path: Path) -> list[dict[str, Any]]:
    """Make a canary of every question; those of how and why are procedural."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        queries = [json.loads(line) for line in lines]
    return [
        {
            "key": query["qid"],
            "query": query["text"],
            "expected_chunks": [query["doc_id"]],
            "category": "procedural" if query["text"].lower().startswith(("how", "why")) else "simple_factual",
        }
        for query in queries
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
