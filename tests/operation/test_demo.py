"""The demo over HTTP: what it answers, and that each fault shows in the answers and heals."""

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.demo.faults import FaultKind
from app.demo.server import RECEIVED, create_demo
from tests.support import event_loops
from tests.support.asgi_client import TestClient

QUERY = "How do I configure OAuth2 authentication?"


@pytest.fixture
def demo() -> Iterator[TestClient]:
    """Return a client of a healthy demo of its own."""
    with TestClient(create_demo()) as client:
        yield client


def ask(demo: TestClient, query: str = QUERY, top_k: int = 5) -> dict[str, Any]:
    """Search and return the body of a good answer."""
    answer = demo.post("/search", json={"query": query, "top_k": top_k})
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def wreck(demo: TestClient, **fault: Any) -> dict[str, Any]:
    """Set a fault and return what is in force."""
    answer = demo.post("/fault", json=fault)
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def test_its_hook_lists_the_newest_messages_first_and_refuses_what_is_none(demo: TestClient) -> None:
    for number in range(RECEIVED + 1):
        assert demo.post("/hook", content=json.dumps({"number": number})).status_code == 200
    assert [message["number"] for message in demo.get("/hook").json()["received"]] == list(range(RECEIVED, 0, -1))
    for body in (b"", b"[]", b"no JSON"):
        assert demo.post("/hook", content=body).status_code == 422
    assert len(demo.get("/hook").json()["received"]) == RECEIVED


def test_an_answer_has_the_shape_the_shipped_mapping_reads(demo: TestClient) -> None:
    body = ask(demo)
    assert set(body) == {"index", "scale", "results"}
    assert body["scale"] == "similarity"
    first = body["results"][0]
    assert first["id"] == "oauth2_config_doc"
    assert first["metadata"] == {
        "source": "security/oauth2",
        "topic": "security",
        "title": "Configure OAuth2 authentication",
    }
    assert 0.8 <= first["score"] <= 1
    assert first["text"].startswith("To configure OAuth2")
    assert len(body["results"]) == 5


def test_the_same_question_has_the_same_answer_from_any_app(demo: TestClient) -> None:
    with TestClient(create_demo()) as other:
        assert ask(demo) == ask(other) == ask(demo)


@pytest.mark.parametrize("kind", ["loss", "topic", "duplicates", "rechunk"])
def test_faults_of_the_index_change_its_version_and_size_and_heal(demo: TestClient, kind: str) -> None:
    healthy = ask(demo)
    report = wreck(demo, kind=kind)
    assert report["kind"] == kind
    assert report["index"] == ask(demo)["index"] != healthy["index"]
    assert report["chunks"] != report["healthy_chunks"] == 107
    assert demo.get("/fault").json() == report
    healed = wreck(demo, kind="none")
    assert (healed["kind"], healed["chunks"], healed["index"]) == ("none", 107, healthy["index"])
    assert ask(demo) == healthy


def test_a_lost_topic_is_not_found_any_more(demo: TestClient) -> None:
    assert wreck(demo, kind="topic")["topic"] == "security"
    assert all(hit["metadata"]["topic"] != "security" for hit in ask(demo, top_k=50)["results"])
    wreck(demo, kind="topic", topic="billing")
    assert ask(demo)["results"][0]["id"] == "oauth2_config_doc"


def test_a_total_loss_answers_with_nothing(demo: TestClient) -> None:
    assert wreck(demo, kind="loss", size=1)["chunks"] == 0
    assert ask(demo)["results"] == []


def test_truncated_answers_are_short(demo: TestClient) -> None:
    healthy = ask(demo)
    wreck(demo, kind="truncate")
    assert ask(demo) == healthy | {"results": healthy["results"][:2]}


def test_rescaled_answers_keep_ranking_and_index(demo: TestClient) -> None:
    healthy = ask(demo)
    wreck(demo, kind="rescale", size=0.5)
    rescaled = ask(demo)
    assert rescaled["index"] == healthy["index"]
    assert [hit["id"] for hit in rescaled["results"]] == [hit["id"] for hit in healthy["results"]]
    assert rescaled["results"][0]["score"] == pytest.approx(healthy["results"][0]["score"] / 2, abs=1e-6)


def test_errors_are_500_for_searches_only_and_repeat_in_sequence(demo: TestClient) -> None:
    def statuses() -> list[int]:
        wreck(demo, kind="errors", size=0.5)
        return [demo.post("/search", json={"query": QUERY}).status_code for _ in range(40)]

    first = statuses()
    assert first == statuses()
    assert set(first) == {200, 500}
    wreck(demo, kind="errors", size=1)
    failed = demo.post("/search", json={"query": QUERY})
    assert (failed.status_code, failed.json()["status"]) == (500, 500)
    assert demo.get("/healthz").status_code == demo.get("/fault").status_code == 200
    wreck(demo, kind="none")
    assert ask(demo)["results"]


def test_slow_answers_are_good_answers(demo: TestClient) -> None:
    healthy = ask(demo)
    assert wreck(demo, kind="latency", size=0.01)["size"] == 0.01
    assert ask(demo) == healthy


def test_held_up_searches_do_not_hold_up_healing() -> None:
    async def story() -> bool:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(create_demo()), base_url="http://demo") as client:
            await client.post("/fault", json={"kind": "latency", "size": 60})
            searches = [asyncio.create_task(client.post("/search", json={"query": QUERY})) for _ in range(64)]
            healed = await asyncio.wait_for(client.post("/fault", json={"kind": "none"}), 20)
            held_up = not any(search.done() for search in searches)
            for search in searches:
                search.cancel()
            await asyncio.gather(*searches, return_exceptions=True)
            return held_up and healed.json()["kind"] == "none"

    assert event_loops.run(story())


def test_searches_during_changes_see_one_index_or_the_other(demo: TestClient) -> None:
    healthy = ask(demo)
    wreck(demo, kind="loss", size=0.5)
    lossy = ask(demo)
    done = threading.Event()

    def search() -> bool:
        seen = []
        while not done.is_set():
            seen.append(ask(demo))
        return all(answer in (healthy, lossy) for answer in seen)

    with ThreadPoolExecutor(3) as pool:
        searches = [pool.submit(search) for _ in range(3)]
        try:
            for _ in range(5):
                wreck(demo, kind="none")
                wreck(demo, kind="loss", size=0.5)
        finally:
            done.set()
        assert all(each.result() for each in searches)


def test_a_bad_fault_is_refused_by_field_with_the_kinds_and_changes_nothing(demo: TestClient) -> None:
    for body, field, said in [
        (b'{"kind": "flood"}', "kind", "loss, topic, duplicates, truncate, rescale, rechunk, latency, errors"),
        (b'{"kind": 3}', "kind", ""),
        (b"{}", "kind", ""),
        (b'{"kind": "loss", "size": 2}', "size", "from 0 to 1"),
        (b'{"kind": "loss", "size": -1}', "size", "from 0 to 1"),
        (b'{"kind": "truncate", "size": 1.5}', "size", "a whole number"),
        (b'{"kind": "latency", "size": 3600}', "size", "from 0 to 60"),
        (b'{"kind": "loss", "size": "big"}', "size", ""),
        (b'{"kind": "loss", "size": true}', "size", ""),
        (b'{"kind": "loss", "size": NaN}', "size", ""),
        (b'{"kind": "topic", "topic": "gardening"}', "topic", "security"),
        (b'{"kind": "loss", "sise": 0.1}', "sise", ""),
        (b"{oops", "body", ""),
        (b"", "body", ""),
    ]:
        before = wreck(demo, kind="loss", size=0.2)
        refused = demo.post("/fault", content=body)
        assert refused.status_code == 422, body
        assert refused.headers["content-type"] == "application/problem+json", body
        problem = refused.json()
        assert [error["path"] for error in problem["errors"]] == [field], body
        assert field in problem["detail"], body
        assert said in problem["detail"], body
        assert problem["kinds"] == [str(kind) for kind in FaultKind], body
        assert demo.get("/fault").json() == before, body


def test_a_bad_search_is_refused_by_field(demo: TestClient) -> None:
    for body, field in [
        ({"top_k": 5}, "query"),
        ({"query": ""}, "query"),
        ({"query": "x", "top_k": 0}, "top_k"),
        ({"query": "x", "top_k": "5"}, "top_k"),
    ]:
        refused = demo.post("/search", json=body)
        assert refused.status_code == 422, body
        assert [error["path"] for error in refused.json()["errors"]] == [field], body


def test_curl_may_leave_out_the_content_type(demo: TestClient) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = demo.post("/fault", content=b'{"kind": "loss", "size": 0.1}', headers=headers)
    assert (answer.status_code, answer.json()["size"]) == (200, 0.1)


def test_the_page_says_how_to_break_and_heal_and_fetches_nothing(demo: TestClient) -> None:
    page = demo.get("/", headers={"host": "127.0.0.1:8001"})
    assert page.headers["content-type"].startswith("text/html")
    assert "curl http://127.0.0.1:8001/fault" in page.text
    assert all(f"<code>{kind}</code>" in page.text for kind in FaultKind)
    assert "src=" not in page.text
    assert "<script" not in page.text
    hostile = demo.get("/", headers={"host": '"><script>'})
    assert "<script" not in hostile.text


def test_other_corpora_are_served_in_chunks_with_distractors(tmp_path: Path) -> None:
    served = tmp_path / "docs.jsonl.gz"
    text = "Canaries were taken down the pit. " * 20 + "They warned of firedamp."
    served.write_bytes(gzip.compress(json.dumps({"doc_id": "pit", "text": text, "topic": "mines"}).encode()))
    distractor = tmp_path / "others.jsonl"
    distractor.write_text('{"id": "song", "text": "Canaries sing in the morning."}\n', encoding="utf-8")
    with TestClient(create_demo([served, distractor], chunk_characters=400)) as demo:
        first, *others = ask(demo, "what warned of firedamp?")["results"]
        assert (first["id"], first["metadata"]["source"], others) == ("pit#1", "pit", [])
        assert {hit["metadata"]["source"] for hit in ask(demo, "canaries")["results"]} == {"pit", "song"}
