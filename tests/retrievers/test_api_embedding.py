"""The embedder of a retriever over the API of a living service: shown, swapped, accepted."""

import json
from pathlib import Path
from typing import Any

import httpx2

from tests.support.embedders import FakeModel, vector
from tests.support.http_servers import Reply, Seen, peer, reply
from tests.support.living import coalmine

CHUNKS = {"c1": "Data is kept for thirty days.", "c2": "Invoices are sent every month."}


class Index:
    """A retriever that takes vectors: the nearest chunk of an index made by the model it was made with."""

    def __call__(self, seen: Seen) -> Reply:
        """Answer with the chunks by inner product."""
        asked = json.loads(seen.body)["vector"]
        scored = sorted(
            ((sum(a * b for a, b in zip(asked, vector(text), strict=False)), key) for key, text in CHUNKS.items()),
            reverse=True,
        )
        found = [{"id": key, "score": score, "text": CHUNKS[key]} for score, key in scored]
        return reply(json.dumps({"hits": found}).encode())


def _define(client: httpx2.Client, embedder: str, retriever: str) -> None:
    canaries = [{"key": "kept", "query": "How long is data kept?", "expected_chunks": ["c1"]}]
    bodies: dict[str, Any] = {
        "/v1/suites/docs": {"canaries": canaries},
        "/v1/retrievers/search": {
            "url": retriever,
            "request": {"json": {"vector": "{{ vector }}", "limit": "{{ k }}"}},
            "response": {"hits": "hits", "id": "id", "score": "score", "text": "text"},
            "scorer": {"kind": "score", "scale": "cosine"},
            "embedding": {"url": f"{embedder}/v1", "model": "m"},
        },
        "/v1/checks/docs": {"suite": "docs", "retriever": "search", "schedule": {"cron": "0 0 29 2 *"}},
    }
    for path, body in bodies.items():
        answer = client.put(path, json=body)
        assert answer.status_code == 201, answer.text


def _run(client: httpx2.Client) -> dict[str, Any]:
    answer = client.post("/v1/checks/docs/runs", json={"wait_seconds": 60})
    assert answer.status_code == 200, answer.text
    run: dict[str, Any] = answer.json()
    return run


def test_a_service_names_a_swapped_embedder_until_somebody_accepts_it(tmp_path: Path) -> None:
    model = FakeModel()
    with (
        peer(model) as embedder,
        peer(Index()) as retriever,
        coalmine(tmp_path) as (url, _),
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        _define(client, embedder.url, retriever.url)
        assert client.get("/v1/retrievers/search/embedding").json()["finding"] is None
        first = _run(client)
        assert (first["embedder"]["kind"], first["coverage"]) == ("same", 1.0)
        learned = client.get("/v1/retrievers/search/embedding").json()
        assert learned["reference"] == {
            "run": first["id"],
            "at": learned["reference"]["at"],
            "dimensions": 64,
            "texts": 9,
        }

        model.model = "two"
        swapped = _run(client)
        assert (swapped["embedder"]["kind"], swapped["verdict"]) == ("swapped", "degraded")
        assert "How long is data kept?" in model.texts[-1:], "the query has to be embedded by the new model"
        shown = client.get("/v1/retrievers/search/embedding").json()
        assert (shown["finding"], shown["since_run"]) == (swapped["embedder"], swapped["id"])
        (alert,) = [one for one in client.get("/v1/alerts").json()["items"] if one["kind"] == "embedding"]
        assert (alert["state"], alert["severity"]) == ("firing", "critical")

        assert client.delete("/v1/retrievers/search/embedding").status_code == 204
        accepted = client.get("/v1/retrievers/search/embedding").json()
        assert (accepted["reference"], accepted["finding"]["kind"]) == (None, "swapped")
        assert _run(client)["embedder"]["kind"] == "same"
        assert client.get(f"/v1/alerts/{alert['id']}").json()["state"] == "resolved"
