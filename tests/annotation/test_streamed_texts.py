"""Traffic and corpora as the files they are: JSON lines and CSV in the body, taken to disk as they arrive."""

import json
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi import Request

from app.annotation import api as streamed_texts
from app.base.api import bodies
from app.traffic.documents import queries as traffic_lines
from tests.support.api_service import Api, api

TRAFFIC = "/v1/suites/docs/traffic?retriever=search"
CORPUS = "/v1/corpora/handbook"
LINES, CSV = "application/x-ndjson", "text/csv; charset=utf-8"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with a suite and a retriever."""
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


def send(service: Api, path: str, content: Any, kind: str = LINES, **headers: str) -> Any:
    return service.client.post(path, content=content, headers={"content-type": kind, **headers})


def jsonl(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def problems(answer: Any) -> list[tuple[str | None, int | None, str]]:
    assert answer.status_code == 422, answer.text
    return [(one.get("file"), one.get("line"), one["message"]) for one in answer.json()["errors"]]


def test_lines_and_tables_are_taken_as_they_are(service: Api) -> None:
    lines = jsonl({"query": "fees", "count": 3}, {"query": "FEES "})
    assert send(service, TRAFFIC, lines).json() == {"queries": 1, "new": 1, "notes": []}
    table = b'\xef\xbb\xbfquery,count\nfees,2\n"two\nlines",1\n'
    assert send(service, TRAFFIC, table, CSV).json() == {"queries": 2, "new": 1, "notes": []}
    (shown,) = service.get("/v1/suites/docs/traffic")["items"]
    assert (shown["distinct"], shown["traffic"]) == (2, 7)
    texts = jsonl({"_id": "d1", "text": "Fees."}, {"_id": "d2", "text": "Fees."}, {"_id": "d3", "text": "Plans."})
    assert send(service, CORPUS, texts).json()["texts"] == 2
    assert send(service, CORPUS, texts, "application/jsonl").json()["texts"] == 2


def test_a_key_counts_a_stream_once(service: Api) -> None:
    for _ in range(2):
        answer = send(service, TRAFFIC, jsonl({"query": "fees"}), **{"idempotency-key": "one"})
    assert answer.json()["notes"] == ["Received before with the same Idempotency-Key: not counted again."]
    assert service.get("/v1/suites/docs/traffic")["items"][0]["traffic"] == 1


def test_wrong_lines_are_named_and_nothing_is_taken(service: Api) -> None:
    wrong = jsonl({"query": "a"}) + "no JSON\n" + jsonl({"query": "a", "count": 0})
    found = problems(send(service, TRAFFIC, wrong))
    assert [(file, line) for file, line, _ in found] == [("body.jsonl", 3), ("body.jsonl", 2)]
    assert problems(send(service, TRAFFIC, "query,count\nfees,many\n", CSV))[0][:2] == ("body.csv", 2)
    assert problems(send(service, TRAFFIC, b'{"query": "a"}\n{"query": "\xff"}\n')) == [
        ("body.jsonl", 2, "is not UTF-8 text")
    ]
    assert problems(send(service, CORPUS, jsonl({"_id": "a", "text": "A."}, {"text": "B."})))[0][:2] == (
        "body.jsonl",
        2,
    )
    assert service.get("/v1/suites/docs/traffic")["items"] == []
    assert service.client.get(CORPUS).status_code == 404


def test_an_empty_body_a_packed_one_and_other_kinds_are_refused(service: Api) -> None:
    assert "is empty" in problems(send(service, TRAFFIC, ""))[0][2]
    assert send(service, TRAFFIC, b"\x1f\x8b", LINES, **{"content-encoding": "gzip"}).status_code == 415
    plain = send(service, TRAFFIC, "query\nfees\n", "text/plain")
    assert plain.status_code == 415
    assert "Content-Type: application/x-ndjson or application/jsonl or text/csv, or" in plain.json()["detail"]
    assert send(service, CORPUS, "_id,text\na,b\n", "text/csv").status_code == 415


def test_a_line_is_never_held_beyond_its_limit(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_texts, "LONGEST_LINE", 100)
    found = problems(send(service, TRAFFIC, jsonl({"query": "a"}) + "x" * 101))
    assert found[0][:2] == ("body.jsonl", 2)
    assert "longer than 100 bytes" in found[0][2]


def test_more_distinct_queries_than_can_be_held_are_refused(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_lines, "MOST_READ", 2)
    assert send(service, TRAFFIC, jsonl({"query": "a"}, {"query": "b"}, {"query": "a"})).status_code == 200
    found = problems(send(service, TRAFFIC, jsonl({"query": "a"}, {"query": "b"}, {"query": "c"})))
    assert found == [("body.jsonl", 3, "there are more than 2 distinct queries up to here; leave rare ones out")]


@pytest.mark.parametrize("declared", [True, False])
def test_only_streams_may_be_larger_than_what_is_parsed(
    service: Api, monkeypatch: pytest.MonkeyPatch, *, declared: bool
) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 1_000)
    monkeypatch.setattr(bodies, "MAX_STREAM_BYTES", 5_000)

    def sent(path: str, size: int, kind: str = LINES) -> int:
        text = (jsonl({"query": "fees"}) * (size // 18 + 1)).encode()
        content = text if declared else iter([text])
        status: int = send(service, path, content, kind).status_code
        return status

    assert sent(TRAFFIC, 3_000) == 200
    assert sent(TRAFFIC, 6_000) == 413
    assert sent(TRAFFIC, 3_000, "application/json") == 413
    assert sent("/v1/suites/docs/suggestions", 3_000) == 413
    assert sent("/v1/import", 3_000) == 413


def test_a_large_stream_takes_little_memory() -> None:
    line = jsonl({"user_query": "fees", "timestamp": "2026-11-20T10:00:00Z", "client_id": "x" * 2_000}).encode()
    left = 24

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": line * 100, "more_body": left > 0}

    async def read() -> traffic_lines.ReadTraffic:
        scope = {"type": "http", "method": "POST", "headers": [(b"content-type", LINES.encode())]}
        texts = streamed_texts.texts_of("application/x-ndjson")(Request(scope, receive))
        async for sources in texts:
            return traffic_lines.read_traffic(sources, now=datetime.now(UTC))
        raise AssertionError

    tracemalloc.start()
    with ThreadPoolExecutor(1) as pool:  # a browser of another test may keep a loop running in this thread
        found = pool.submit(anyio.run, read).result()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.queries[0].count == 2_400
    assert len(line) * 2_400 > 4_500_000
    assert peak < 3_000_000, f"{peak:,} bytes"
