"""A real Chroma: a suite runs against a collection, finds what it should, and a broken index is seen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.embedder import embedder, embedding, vector
from tests.support.http_servers import Peer
from tests.support.live_indexes import DATABASE, collection
from tests.support.live_suite import CANARIES, CORPUS, KEYS, SOUND, WITHDRAWN, WITHOUT_ONE, asked, report
from tests.support.living import coalmine
from tests.support.servers import chroma

pytestmark = pytest.mark.systems

LOST = {
    "key": "lost",
    "kind": "threshold",
    "measure": "coverage",
    "critical": {"below": 0.99},
    "open": {"bad": 1, "of": 1},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chroma(tmp_path_factory.mktemp("chroma")) as url:
        yield url


@pytest.fixture(scope="module")
def vectors() -> Iterator[Peer]:
    with embedder() as served:
        yield served


def retriever(server: str, name: str, vectors: Peer) -> dict[str, Any]:
    return {"preset": "chroma", "url": server, "options": {"collection": name}, "embedding": embedding(vectors)}


def test_suite_finds_what_it_should(server: str, vectors: Peer) -> None:
    collection(server, "sound")
    found = report(retriever(server, "sound", vectors))
    assert found["run"]["verdict"] == "healthy"
    assert found["run"]["coverage"] == 1.0
    first = next(result for result in found["results"] if result["key"] == KEYS[0])["ranking"][0]
    assert (first["id"], first["document"], first["level"]) == (WITHDRAWN, "compliance/certifications", "id")
    assert first["text"] == next(chunk.text for chunk in CORPUS if chunk.id == WITHDRAWN)
    assert 0 < first["score"] < 1


def test_deleted_chunk_is_missed(server: str, vectors: Peer) -> None:
    address = collection(server, "thinned")
    described = retriever(server, "thinned", vectors)
    assert asked(described) == SOUND
    httpx2.post(f"{address}/delete", json={"ids": [WITHDRAWN]}, trust_env=False).raise_for_status()
    assert asked(described) == WITHOUT_ONE


def test_deleted_collection_is_refused_and_not_taken_for_empty(server: str, vectors: Peer) -> None:
    collection(server, "dropped")
    httpx2.delete(f"{server}{DATABASE}/collections/dropped", trust_env=False).raise_for_status()
    results = report(retriever(server, "dropped", vectors))["results"]
    assert {(result["outcome"], result["http_status"], result["verdict"]) for result in results} == {
        ("refused", 404, "unknown")
    }
    told = f"{server.removeprefix('http://')} has no collection 'dropped' (HTTP 404). Check the collection name"
    assert {result["detail"] for result in results} == {told}


def test_service_watches_a_collection_and_names_what_was_deleted(server: str, vectors: Peer, tmp_path: Path) -> None:
    address = collection(server, "watched")
    check = {"suite": "live", "retriever": "live", "schedule": {"every": "1h"}, "rules": [LOST]}
    with coalmine(tmp_path) as (url, _), httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        for path, body in {
            "/v1/suites/live": {"canaries": CANARIES},
            "/v1/retrievers/live": retriever(server, "watched", vectors),
            "/v1/checks/live": check,
        }.items():
            client.put(path, json=body).raise_for_status()
        run = {"wait_seconds": 60}
        healthy = client.post("/v1/checks/live/runs", json=run).json()
        assert (healthy["status"], healthy["verdict"], healthy["coverage"]) == ("finished", "healthy", 1.0)
        httpx2.post(f"{address}/delete", json={"ids": [WITHDRAWN]}, trust_env=False).raise_for_status()
        degraded = client.post("/v1/checks/live/runs", json=run).json()
        assert degraded["degraded_queries"] == [CANARIES[0]["query"]]
        (alert,) = client.get("/v1/alerts").json()["items"]
        assert (alert["state"], alert["rule"]) == ("firing", "lost")


def test_embedder_that_fails_is_named(server: str, vectors: Peer) -> None:
    collection(server, "unembedded")
    described = retriever(server, "unembedded", vectors)
    described["embedding"]["model"] = "another"
    results = report(described)["results"]
    assert {(result["outcome"], result["step"]) for result in results} == {("refused", "embedder")}


def test_collection_of_another_models_vectors_degrades(server: str, vectors: Peer) -> None:
    address = collection(server, "reembedded")
    shuffled = [vector(chunk.id[::-1]) for chunk in CORPUS]
    body = {"ids": [chunk.id for chunk in CORPUS], "embeddings": shuffled}
    httpx2.post(f"{address}/update", json=body, trust_env=False).raise_for_status()
    found = report(retriever(server, "reembedded", vectors))["run"]
    assert found["verdict"] == "degraded"
    assert found["coverage"] < 0.5
