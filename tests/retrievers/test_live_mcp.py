"""A real MCP server, with sessions and without: a suite runs, finds what it should, and a broken index is seen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_suite import KEYS, SOUND, WITHDRAWN, WITHOUT_ONE, asked, report, write_corpus
from tests.support.servers import mcp

pytestmark = pytest.mark.systems


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus") / "corpus.jsonl"


@pytest.fixture(scope="module", params=["sessions", "stateless"])
def retriever(tmp_path_factory: pytest.TempPathFactory, corpus: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    with mcp(tmp_path_factory.mktemp("mcp"), corpus, stateless=request.param == "stateless") as url:
        yield {"preset": "mcp", "url": url, "request": {"tool": "search"}}


def test_suite_finds_what_it_should(retriever: dict[str, Any], corpus: Path) -> None:
    write_corpus(corpus)
    described = {**retriever, "response": {"score": "score"}, "scorer": {"scale": "similarity"}}
    found = report(described)
    assert found["run"]["verdict"] == "healthy"
    assert found["run"]["coverage"] == 1.0
    first = next(result for result in found["results"] if result["key"] == KEYS[0])["ranking"][0]
    assert (first["id"], first["document"], first["level"]) == (WITHDRAWN, "compliance/certifications", "id")
    assert 0 < first["score"] < 1


def test_lost_chunk_is_missed(retriever: dict[str, Any], corpus: Path) -> None:
    write_corpus(corpus)
    assert asked(retriever) == SOUND
    write_corpus(corpus, without=WITHDRAWN)
    assert asked(retriever) == WITHOUT_ONE


def test_lost_index_is_refused_and_not_taken_for_empty(retriever: dict[str, Any], corpus: Path) -> None:
    corpus.unlink(missing_ok=True)
    results = report(retriever)["results"]
    assert {(result["outcome"], result["detail"], result["verdict"]) for result in results} == {
        ("refused", "the tool answered that it failed", "unknown")
    }


def test_tool_that_is_gone_is_refused(retriever: dict[str, Any], corpus: Path) -> None:
    write_corpus(corpus)
    assert {told[0] for told in asked({**retriever, "request": {"tool": "find"}}).values()} == {"refused"}
