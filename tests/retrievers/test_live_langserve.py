"""A real LangServe app with a retriever: a suite runs, finds what it should, and a broken index is seen."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_suite import KEYS, SOUND, WITHDRAWN, WITHOUT_ONE, asked, report, write_corpus
from tests.support.servers import langserve

pytestmark = pytest.mark.systems


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus") / "corpus.jsonl"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Iterator[str]:
    with langserve(tmp_path_factory.mktemp("langserve"), corpus) as url:
        yield f"{url}/search/invoke"


def test_suite_finds_what_it_should_by_texts_alone(server: str, corpus: Path) -> None:
    write_corpus(corpus)
    found = report({"preset": "langserve", "url": server})
    assert found["run"]["verdict"] == "healthy"
    assert found["run"]["coverage"] == 1.0
    first = next(result for result in found["results"] if result["key"] == KEYS[0])["ranking"][0]
    assert (first["document"], first["level"], first["score"]) == ("compliance/certifications", "text", None)


def test_ids_are_read_where_the_retriever_has_them(server: str, corpus: Path) -> None:
    write_corpus(corpus)
    found = report({"preset": "langserve", "url": server, "response": {"id": "id"}})
    first = next(result for result in found["results"] if result["key"] == KEYS[0])["ranking"][0]
    assert (first["id"], first["level"]) == (WITHDRAWN, "id")


def test_lost_chunk_is_missed(server: str, corpus: Path) -> None:
    write_corpus(corpus)
    assert asked({"preset": "langserve", "url": server}) == SOUND
    write_corpus(corpus, without=WITHDRAWN)
    assert asked({"preset": "langserve", "url": server}) == WITHOUT_ONE


def test_lost_index_is_refused_and_not_taken_for_empty(server: str, corpus: Path) -> None:
    corpus.unlink(missing_ok=True)
    results = report({"preset": "langserve", "url": server})["results"]
    assert {(result["outcome"], result["http_status"], result["verdict"]) for result in results} == {
        ("refused", 500, "unknown")
    }
