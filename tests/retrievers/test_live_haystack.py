"""A real Hayhooks with a BM25 pipeline: a suite runs, finds what it should, and a broken index is seen."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.live_suite import KEYS, SOUND, WITHDRAWN, WITHOUT_ONE, asked, report, write_corpus
from tests.support.servers import PROGRAMS, hayhooks

pytestmark = pytest.mark.systems


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hayhooks(tmp_path_factory.mktemp("hayhooks")) as url:
        yield url


@pytest.fixture
def deploy(server: str, tmp_path: Path) -> Callable[[str, str | None], dict[str, Any]]:
    """Give a way to deploy the pipeline over the corpus, or over what is left of it; gives the retriever."""

    def deployed(name: str, without: str | None = None) -> dict[str, Any]:
        corpus = write_corpus(tmp_path / "corpus.jsonl", without=without)
        wrapper = (PROGRAMS / "haystack_wrapper.py").read_text(encoding="utf-8").replace("CORPUS", str(corpus))
        body = {"name": name, "files": {"pipeline_wrapper.py": wrapper}, "overwrite": True, "save_files": False}
        httpx2.post(f"{server}/deploy_files", json=body, timeout=30, trust_env=False).raise_for_status()
        return {"preset": "haystack", "url": server, "options": {"pipeline": name}}

    return deployed


def test_suite_finds_what_it_should(deploy: Callable[..., dict[str, Any]]) -> None:
    found = report(deploy("sound"))
    assert found["run"]["verdict"] == "healthy"
    assert found["run"]["coverage"] == 1.0
    first = next(result for result in found["results"] if result["key"] == KEYS[0])["ranking"][0]
    assert (first["id"], first["document"], first["level"]) == (WITHDRAWN, "compliance/certifications", "id")
    assert first["score"] > 1  # BM25 has no scale, so that relevance follows from the judgments


def test_chunk_lost_by_reindexing_is_missed(deploy: Callable[..., dict[str, Any]]) -> None:
    assert asked(deploy("reindexed")) == SOUND
    assert asked(deploy("reindexed", WITHDRAWN)) == WITHOUT_ONE


def test_undeployed_pipeline_is_refused_and_not_taken_for_empty(
    server: str, deploy: Callable[..., dict[str, Any]]
) -> None:
    described = deploy("undeployed")
    httpx2.post(f"{server}/undeploy/undeployed", trust_env=False).raise_for_status()
    results = report(described)["results"]
    assert {(result["outcome"], result["http_status"], result["verdict"]) for result in results} == {
        ("refused", 404, "unknown")
    }
