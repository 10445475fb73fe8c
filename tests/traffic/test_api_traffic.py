"""Traffic over REST: in, reach, suggestions, out; and that queries of users are nowhere else."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_service import Api, api

PRIVATE = "my card visa4929 was charged twice, ada lovelace"
HOSTILE = ("<script>alert(1)</script>", "=cmd()", "{{ 7 * 7 }}", "'; drop table traffic_queries; --")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with a suite, a check that has run, and a retriever."""
    with api(tmp_path) as opened:
        opened.docs()
        opened.run()
        yield opened


def post(service: Api, text: str, *, name: str = "traffic.jsonl") -> Any:
    return service.client.post("/v1/suites/docs/traffic", params={"retriever": "search"}, json={"files": {name: text}})


def lines(*queries: str) -> str:
    return "\n".join(json.dumps({"query": query, "count": 9 - place}) for place, query in enumerate(queries))


def test_traffic_is_summed_up_and_never_given_back(service: Api) -> None:
    answer = post(service, lines(PRIVATE, *HOSTILE))
    assert answer.json() == {"queries": 5, "new": 5, "notes": []}
    (shown,) = service.get("/v1/suites/docs/traffic")["items"]
    assert (shown["retriever"], shown["distinct"], shown["traffic"]) == ("search", 5, 9 + 8 + 7 + 6 + 5)
    assert set(shown) == {"retriever", "distinct", "traffic", "first_seen", "last_seen"}


def test_a_wrong_line_takes_none_and_is_named_with_its_field(service: Api) -> None:
    answer = post(service, '{"query": "good"}\n{"query": "q", "count": "many"}\n')
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert (problem["file"], problem["line"], problem["path"]) == ("traffic.jsonl", 2, "count")
    assert service.get("/v1/suites/docs/traffic")["items"] == []


def test_one_query_or_all_are_forgotten(service: Api) -> None:
    post(service, lines(PRIVATE, *HOSTILE))
    path = "/v1/suites/docs/traffic"
    assert service.client.request("DELETE", path, json={"query": f"  {PRIVATE.upper()} "}).json() == {"forgotten": 1}
    assert service.client.request("DELETE", path, json={"retriever": "other"}).json() == {"forgotten": 0}
    assert service.client.delete(path).json() == {"forgotten": 4}
    assert service.get(path)["items"] == []


def test_reach_has_progress_an_interval_and_groups(service: Api) -> None:
    post(service, lines(PRIVATE, *HOSTILE))
    asked = service.client.post("/v1/suites/docs/reach", json={"retriever": "search"})
    assert asked.status_code == 202
    assert (asked.json()["state"], asked.json()["asked"], asked.json()["sample"]) == ("asking", 0, 5)
    assert asked.json()["value"] is None
    service.ask_sample()
    found = service.get("/v1/suites/docs/reach", retriever="search")
    assert (found["state"], found["asked"], found["answered"]) == ("asked", 5, 5)
    assert (found["value"], found["low"], found["high"]) == (1, 1, 1), "every query finds c1, which a canary expects"
    assert found["groups"] == [{"group": "c1", "traffic": 35, "covered": True}]


def test_suggestions_open_a_task(service: Api) -> None:
    service.retriever.found = {query.casefold(): [f"x{place}"] for place, query in enumerate(HOSTILE)}
    service.reached(*HOSTILE)
    found = service.get("/v1/suites/docs/suggestions", retriever="search")["items"]
    assert [one["query"] for one in found] == [query.casefold() for query in HOSTILE]
    body = {"retriever": "search", "task": "gaps", "queries": [one["query"] for one in found[:2]]}
    task = service.client.post("/v1/suites/docs/suggestions", json=body).json()
    assert (task["slug"], task["canaries"], len(task["keys"])) == ("gaps", 2, 2)
    stored = service.get(f"/v1/suites/docs/canaries/{task['keys'][0]}")
    assert (stored["query"], stored["expected_chunks"]) == (HOSTILE[0], [])


def test_queries_of_users_are_in_no_metric_log_export_or_page_address(
    service: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        service.reached(PRIVATE, *HOSTILE)
        service.retriever.found = {PRIVATE: ["x1"]}
        service.run()
        shown = [
            service.client.get(path)
            for path in (
                "/metrics",
                "/v1/export",
                "/v1/export?format=csv&suite=docs",
                "/suites/docs/export?format=jsonl",
                "/v1/runs/1/report",
                "/v1/suites/docs/traffic",
                "/v1/suites/docs/reach?retriever=search",
            )
        ]
        service.client.request("DELETE", "/v1/suites/docs/traffic", json={"query": PRIVATE})
    told = [record.getMessage() + str(record.__dict__) for record in caplog.records]
    assert any("httpx" in record.name or "request" in record.getMessage() for record in caplog.records), "logs are read"
    assert all(answer.is_success for answer in shown)
    for text in (*(answer.text for answer in shown), *told):
        assert "visa4929" not in text
        assert "lovelace" not in text
