"""Two retrievers of different kinds, asked by a served Coalmine: page, API and command say the same of them."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.demo.corpus import read_corpus
from app.demo.server import create_demo
from tests.support.compared_retrievers import Comparisons, characters, compared, tf_idf_app, words

pytestmark = pytest.mark.systems

CHUNKS = 40
MISSPELT = range(12)
"""Canaries whose words end otherwise than in the chunk they expect: only parts of words find it."""


def collection() -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    """Make chunks of words of their own, and a question for each."""
    chosen = random.Random(14)  # noqa: S311 - the same words every time

    def word() -> str:
        return "".join(chosen.choice("bdfgklmnprtvz") + chosen.choice("aeiou") for _ in range(4))

    chunks, canaries = [], []
    for number in range(CHUNKS):
        own = [word() for _ in range(8)]
        asked = [f"{one[:-2]}xq" if number in MISSPELT else one for one in own[:3]]
        chunks.append({"doc_id": f"d{number:02}", "text": f"the report of {' '.join(own)}"})
        canaries.append({"key": f"q{number:02}", "query": " ".join(asked), "expected_chunks": [f"d{number:02}"]})
    return chunks, canaries


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparisons]:
    folder: Path = tmp_path_factory.mktemp("compared")
    chunks, canaries = collection()
    corpus = folder / "docs.jsonl"
    corpus.write_text("".join(f"{json.dumps(one)}\n" for one in chunks), encoding="utf-8")
    read = read_corpus([corpus])
    retrievers = {
        "bm25": create_demo([corpus]),
        "words": tf_idf_app(read, words),
        "characters": tf_idf_app(read, characters),
    }
    with compared(folder, retrievers, canaries) as served:
        yield served


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [("bm25", "characters", "better"), ("characters", "bm25", "worse"), ("bm25", "words", "no_difference_shown")],
)
def test_page_api_and_command_give_the_same_verdict(service: Comparisons, a: str, b: str, verdict: str) -> None:
    found = service.compare(a, b)
    assert (found["verdict"], found["canaries"]) == (verdict, CHUNKS)
    assert (found["a"]["retriever"], found["b"]["retriever"]) == (a, b)
    moved = len(MISSPELT) / CHUNKS if verdict == "better" else -len(MISSPELT) / CHUNKS if verdict == "worse" else 0.0
    recall = next(one for one in found["primary"] if one["measure"] == "R@5")
    assert recall["difference"] == pytest.approx(moved, abs=1e-6)
