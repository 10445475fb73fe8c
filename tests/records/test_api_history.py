"""What happened, over REST: runs from wish to result, evidence, series, alerts and deliveries, in full shape."""

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.base.values import Answer, Outcome
from app.hooks.domain import Receipt
from app.records.service.plans import SHARD, Planner
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from app.runs.service import execution
from tests.support.api_service import CANARIES, HOOK_SECRET, Api, Obedient, api
from tests.support.living import until

RUN = {
    "id", "check", "suite", "retriever", "trigger", "index_version", "status", "scheduled_for", "started_at",
    "finished_at", "verdict", "reasons", "health_score", "coverage", "degraded_queries", "canaries", "measures",
    "categories", "tags", "suite_hash", "config_hash", "measures_version", "probes", "latency_seconds", "progress",
}  # fmt: skip
RESULT = {
    "key", "query", "category", "tags", "outcome", "http_status", "latency_seconds", "verdict", "reasons", "top_score",
    "any_match", "measures", "ranking", "missing", "since_run", "k", "min_relevance_score", "max_relevance_score",
    "floors",
}  # fmt: skip
HIT = {"rank", "id", "document", "text", "score", "relevance", "judgment", "level", "grade"}
ALERT = {
    "id", "check", "rule", "kind", "scope", "severity", "state", "opened_at", "resolved_at", "acknowledged_at",
    "reason", "dedupe_key", "transitions",
}  # fmt: skip
DELIVERY = {"id", "hook", "alert_id", "type", "state", "next_attempt_at", "waits_for", "attempts"}
OAUTH, RETENTION = "How do I set up OAuth2?", "How long is data kept?"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


@pytest.fixture(scope="module")
def only_read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service to tests that change nothing of it."""
    with api(tmp_path_factory.mktemp("only-read")) as opened:
        opened.docs()
        yield opened


@pytest.fixture
def either(tmp_path: Path, database_url: str) -> Iterator[Api]:
    """Give the service on SQLite, then on PostgreSQL."""
    with api(tmp_path, database_url=database_url) as opened:
        opened.docs()
        yield opened


def test_health_is_not_found_before_the_first_run(service: Api) -> None:
    answer = service.client.get("/v1/checks/docs/health")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"] == "check 'docs' has no ended run yet"
    service.client.post("/v1/checks/docs/runs")
    assert service.client.get("/v1/checks/docs/health").status_code == 404, "a queued run is no health"
    service.work()
    assert service.get("/v1/checks/docs/health")["verdict"] == "healthy"


def test_a_run_says_everything_the_contract_promises(either: Api) -> None:
    either.retriever.found[OAUTH] = ["c9"]
    run = either.run(trigger="update", index_version="mine")
    assert run.keys() >= RUN
    assert (run["check"], run["suite"], run["retriever"]) == ("docs", "docs", "search")
    assert (run["trigger"], run["status"], run["verdict"]) == ("update", "finished", "degraded")
    assert run["index_version"] == "v1", "what the retriever reports takes the place of what the caller said"
    assert run["health_score"] == 0.75
    assert run["coverage"] == 0.5
    assert run["degraded_queries"] == [OAUTH]
    assert run["canaries"] == {"total": 3, "measured": 3, "failed": 0, "undefined": 1, "degraded": 1}
    assert run["measures"]["R@3"] == 0.5
    assert run["measures"]["R@20"] is None, "beyond what was fetched there is no measurement"
    assert run["categories"]["procedural"].keys() >= {"canaries", "health_score", "coverage", "measures"}
    assert run["categories"]["procedural"]["coverage"] == 0.0
    assert run["categories"]["negative"]["coverage"] is None
    assert run["tags"]["legal"]["canaries"] == 2
    assert run["probes"]["ok"] == 3
    assert run["latency_seconds"] == {"p50": 0.25, "p95": 0.25, "max": 0.25}
    assert run["progress"] is None
    assert run["scheduled_for"].endswith("Z")
    assert run["reasons"]
    assert run["suite_hash"]
    assert run["config_hash"]
    assert run == either.get("/v1/checks/docs/health")


def test_an_older_run_reads_as_it_did_when_it_was_the_newest(either: Api) -> None:
    either.retriever.found[OAUTH] = ["c9"]
    either.retriever.outcomes[RETENTION] = Outcome.TIMEOUT
    then = either.run()
    either.retriever.found.clear()
    either.retriever.outcomes.clear()
    either.run()
    assert either.get(f"/v1/runs/{then['id']}") == then


def test_a_failed_probe_is_no_measurement(service: Api) -> None:
    for canary in CANARIES[:2]:
        service.retriever.outcomes[canary["query"]] = Outcome.REFUSED
    run = service.run()
    assert run["verdict"] == "unknown"
    assert run["status"] == "finished"
    assert run["health_score"] is None
    assert run["coverage"] is None
    assert run["canaries"]["failed"] == 2
    assert run["degraded_queries"] == []
    results = service.get(f"/v1/runs/{run['id']}/results", verdict="unknown")["items"]
    assert [result["key"] for result in results] == ["retention", "oauth"]
    first = results[0]
    assert first.keys() >= RESULT
    assert (first["outcome"], first["http_status"], first["verdict"]) == ("refused", 503, "unknown")
    assert first["detail"] == "The retriever is ill."
    assert first["top_score"] is None
    assert first["any_match"] is None
    assert first["ranking"] == []
    assert first["since_run"] is None


def test_a_run_that_cannot_be_carried_out_says_why(service: Api) -> None:
    service.put("/v1/suites/docs", {"canaries": []})
    run = service.run()
    assert (run["status"], run["verdict"]) == ("failed", "unknown")
    assert run["reasons"] == ["suite 'docs' has no canaries"]
    assert run["coverage"] is None
    assert service.get("/v1/checks/docs/health") == run
    assert service.get(f"/v1/runs/{run['id']}/results") == {"items": [], "next": None}
    assert service.get(f"/v1/runs/{run['id']}/report")["worst"] == []
    assert service.get("/v1/checks/docs/runs")["items"][0]["status"] == "failed"


def test_results_carry_their_evidence(service: Api) -> None:
    service.retriever.found[OAUTH] = ["c9", "c3"]
    first = service.run()
    service.run()
    run = service.run()
    by_key = {item["key"]: item for item in service.get(f"/v1/runs/{run['id']}/results")["items"]}
    result = by_key["oauth"]
    assert result.keys() >= RESULT
    assert (result["query"], result["category"], result["tags"]) == (OAUTH, "procedural", ["legal"])
    assert (result["verdict"], result["reasons"], result["any_match"]) == ("healthy", [], True)
    assert result["top_score"] == 0.75
    assert result["latency_seconds"] == pytest.approx(0.25, rel=0.01)
    assert result["measures"]["RR"] == 0.5
    assert result["since_run"] == first["id"], "an unchanged state says since when it holds"
    assert all(hit.keys() >= HIT for hit in result["ranking"])
    assert [(hit["rank"], hit["id"], hit["level"], hit["grade"]) for hit in result["ranking"]] == [
        (1, "c9", None, None),
        (2, "c3", "id", 1),
    ]
    assert result["ranking"][1]["judgment"] == {"id": "c3", "grade": 1}
    assert result["ranking"][1]["text"] == "text of c3"
    assert result["missing"] == [{"id": "c2", "grade": 1}]


@pytest.mark.databases
def test_results_are_filtered_and_come_in_pages(either: Api) -> None:
    either.retriever.found[OAUTH] = []
    run = either.run()
    path = f"/v1/runs/{run['id']}/results"

    def keys(**parameters: Any) -> list[str]:
        return [item["key"] for item in either.get(path, **parameters)["items"]]

    assert keys() == ["retention", "oauth", "moon"]
    assert keys(verdict="degraded") == ["oauth"]
    assert keys(category="negative") == ["moon"]
    assert keys(tag="legal") == ["retention", "oauth"]
    assert keys(tag="legal", verdict="healthy") == ["retention"]
    assert keys(tag="none-has-it") == []
    first = either.get(path, limit=1, tag="legal")
    assert isinstance(first["next"], str)
    second = either.get(path, limit=1, tag="legal", after=first["next"])
    assert [item["key"] for item in first["items"] + second["items"]] == ["retention", "oauth"]
    assert second["next"] is None


@pytest.mark.both
def test_runs_are_listed_newest_first_in_pages(either: Api) -> None:
    ids = [either.run()["id"] for _ in range(5)]
    first = either.get("/v1/checks/docs/runs", limit=3)
    rest = either.get("/v1/checks/docs/runs", limit=3, after=first["next"])
    assert [run["id"] for run in first["items"] + rest["items"]] == ids[::-1]
    assert rest["next"] is None
    assert all(run.keys() >= RUN for run in first["items"])
    assert first["items"][0]["categories"]["procedural"]["coverage"] == 1.0
    assert first["items"][0]["degraded_queries"] == []


def test_a_listed_run_names_its_degraded_queries(service: Api) -> None:
    service.retriever.found[OAUTH] = []
    service.run()
    assert service.get("/v1/checks/docs/runs")["items"][0]["degraded_queries"] == [OAUTH]


def test_what_is_not_there_is_a_problem(only_read: Api) -> None:
    paths = [
        "/v1/checks/nope/health", "/v1/checks/nope/runs", "/v1/checks/nope/series", "/v1/checks/nope",
        "/v1/checks/nope/canaries/oauth/history", "/v1/checks/docs/canaries/nope/history", "/v1/runs/999",
        "/v1/runs/999/results", "/v1/runs/999/report", "/v1/runs/abc", "/v1/runs/-1", "/v1/runs/1e3", "/v1/runs/٣",
        f"/v1/runs/{10**30}", f"/v1/alerts/{10**30}", "/v1/alerts/999", "/v1/alerts/²", "/v1/deliveries/999",
        "/v1/deliveries/x", "/v1/nothing", "/v1/alerts?check=nope", "/v1/deliveries?hook=nope", "/v1/runs/1/",
        "/v1/suites/..%2F..%2Fetc%2Fpasswd", "/v1/suites/../../etc/passwd", "/v1/suites/nope/canaries",
        "/v1/suites/nope/canaries/x", "/v1/retrievers/UPPER", "/v1/hooks/%E2%82%AC",
    ]  # fmt: skip
    for path in paths:
        answer = only_read.client.get(path)
        assert answer.status_code == 404, path
        assert answer.headers["content-type"] == "application/problem+json", path
        problem = answer.json()
        assert (problem["type"], problem["status"]) == ("/problems/not-found", 404), path
        assert problem.keys() >= {"type", "title", "status", "detail"}, path


def test_a_wish_is_accepted_with_the_place_of_the_run(service: Api) -> None:
    answer = service.client.post("/v1/checks/docs/runs", json={"index_version": "v7", "trigger": "cli"})
    assert answer.status_code == 202
    run = answer.json()
    assert answer.headers["location"] == f"/v1/runs/{run['id']}"
    assert run.keys() >= RUN
    assert (run["status"], run["trigger"], run["index_version"]) == ("queued", "cli", "v7")
    assert run["progress"] == {"done": 0, "total": None}
    for absent in ("started_at", "finished_at", "verdict", "health_score", "coverage"):
        assert run[absent] is None
    assert run["degraded_queries"] == []
    assert service.client.get(f"/v1/runs/{run['id']}/report").status_code == 409
    assert service.client.post("/v1/checks/nope/runs").status_code == 404
    service.client.delete("/v1/checks/docs")
    assert service.client.post("/v1/checks/docs/runs").status_code == 404


def test_a_run_under_way_tells_its_progress(either: Api) -> None:
    many = [{"key": f"k{number}", "query": f"q{number}", "expected_chunks": ["c1"]} for number in range(SHARD + 1)]
    either.put("/v1/suites/docs", {"canaries": many})
    seen: list[dict[str, Any]] = []
    times = iter(_moments())

    def probe(context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        for batch in Obedient()(context, queries):
            seen.append(either.get("/v1/runs/1"))
            yield batch

    either.client.post("/v1/checks/docs/runs")
    store = either.service.store
    claimed = execution.begin(store, 1, owner="me", now=next(times))
    assert claimed is not None
    execution.execute(
        Planner(store, either.service.vault),
        probe,
        claimed,
        owner="me",
        clock=lambda: next(times),
        stopping=lambda: False,
    )
    assert {run["status"] for run in seen} == {"running"}
    assert seen[0]["progress"] == {"done": 0, "total": SHARD + 1}
    assert seen[-1]["progress"] == {"done": SHARD, "total": SHARD + 1}
    assert seen[0]["started_at"] is not None
    assert seen[0]["verdict"] is None
    assert either.get("/v1/runs/1")["progress"] is None


def _moments() -> Iterator[datetime]:
    at = datetime.now(UTC)
    while True:
        yield at
        at += timedelta(seconds=1)


@pytest.mark.both
def test_while_a_run_is_active_exactly_one_follow_up_is_queued(either: Api) -> None:
    def wish(**body: Any) -> dict[str, Any]:
        shape: dict[str, Any] = either.client.post("/v1/checks/docs/runs", json=body).json()
        return shape

    active = wish()
    assert wish()["id"] == active["id"], "what has not asked anything yet can be joined"
    claimed = execution.begin(either.service.store, int(active["id"]), owner="me", now=datetime.now(UTC))
    assert claimed is not None
    assert str(claimed.id) == active["id"]
    follow_up = wish()
    assert follow_up["id"] != active["id"], "the active run may have seen the old index"
    assert follow_up["status"] == "queued"
    joined = wish(index_version="v2", trigger="update")
    assert (joined["id"], joined["index_version"], joined["trigger"]) == (follow_up["id"], "v2", "update")
    assert [run["status"] for run in either.get("/v1/checks/docs/runs")["items"]] == ["queued", "running"]
    assert execution.begin(either.service.store, int(follow_up["id"]), owner="me", now=datetime.now(UTC)) is None


def test_the_same_idempotency_key_leads_to_the_same_run(either: Api) -> None:
    def wish(key: str, **body: Any) -> Any:
        return either.client.post("/v1/checks/docs/runs", json=body, headers={"idempotency-key": key})

    first = wish("deploy-1", index_version="v1").json()
    either.work()
    again = wish("deploy-1", index_version="v1")
    assert again.status_code == 202
    assert again.json()["id"] == first["id"]
    assert again.json()["status"] == "finished"
    assert wish("deploy-1", index_version="v1", wait_seconds=1).status_code == 200, "it has ended: nothing to wait for"
    other = wish("deploy-1", index_version="v2")
    assert other.status_code == 409
    assert other.json()["detail"] == "this Idempotency-Key was used with another request"
    assert wish("deploy-2", index_version="v1").json()["id"] != first["id"]


def test_waiting_gives_the_run_when_it_has_ended(tmp_path: Path) -> None:
    with api(tmp_path, with_worker=True) as service:
        service.docs(enabled=False)
        answer = service.client.post("/v1/checks/docs/runs", json={"wait_seconds": 60})
        assert answer.status_code == 200
        assert answer.json()["status"] == "finished"
        assert answer.json() == service.get(answer.headers["location"])


def test_waiting_ends_with_202_when_the_run_takes_longer(tmp_path: Path) -> None:
    with api(tmp_path, with_worker=True) as service:
        go_on = threading.Event()
        answers = service.retriever._answer
        service.retriever._answer = lambda query, k: go_on.wait(60) and answers(query, k)  # type: ignore[method-assign,assignment,return-value] # a slow retriever # fmt: skip
        service.docs(enabled=False)
        try:
            answer = service.client.post("/v1/checks/docs/runs", json={"wait_seconds": 0.3})
            assert answer.status_code == 202
            assert answer.json()["status"] in {"queued", "running"}
        finally:
            go_on.set()
        until(lambda: service.get("/v1/runs/1")["status"] == "finished")


def test_a_report_comes_in_three_formats(service: Api) -> None:
    service.retriever.found[OAUTH] = []
    run = service.run()
    path = f"/v1/runs/{run['id']}/report"
    report = service.get(path)
    assert report.keys() == {
        "run",
        "worst",
        "guide",
        "intervals",
        "since",
        "pooled_recall",
        "composition",
        "confirmed",
        "corrected",
        "rated",
        "bad_answers",
        "unjudged_answers",
        "unwatched",
    }
    assert report["bad_answers"] == []
    assert report["run"] == run
    assert [result["key"] for result in report["worst"]] == ["oauth"]
    assert report["worst"][0].keys() >= RESULT
    assert report == service.get(path, format="json")
    markdown = service.client.get(path, params={"format": "markdown"})
    assert markdown.headers["content-type"] == "text/markdown; charset=utf-8"
    assert OAUTH in markdown.text
    junit = service.client.get(path, params={"format": "junit"})
    assert junit.headers["content-type"] == "application/xml"
    assert "<testsuite" in junit.text
    assert service.client.get(path, params={"format": "pdf"}).status_code == 422


def test_a_series_has_a_point_per_run_and_a_mark_per_index(either: Api) -> None:
    either.run()
    either.retriever.found[OAUTH] = []
    either.retriever.index_version = "v2"
    either.run()
    series = either.get("/v1/checks/docs/series")
    assert series.keys() >= {"check", "measure", "category", "points", "marks"}
    assert (series["check"], series["measure"], series["category"]) == ("docs", "coverage", None)
    assert all(point.keys() >= {"at", "mean", "min", "max", "runs"} for point in series["points"])
    assert [(point["mean"], point["runs"]) for point in series["points"]] == [(1.0, 1), (0.5, 1)]
    assert [mark["index_version"] for mark in series["marks"]] == ["v1", "v2"]
    assert all(mark["at"].endswith("Z") for mark in series["marks"])
    assert series["edits"] == [], "the suite is as it was first asked"
    joined = either.get("/v1/checks/docs/series", points=1)["points"]
    assert [(p["mean"], p["min"], p["max"], p["runs"]) for p in joined] == [(0.75, 0.5, 1.0, 2)]
    category = either.get("/v1/checks/docs/series", category="procedural")
    assert category["category"] == "procedural"
    assert [point["mean"] for point in category["points"]] == [1.0, 0.0]
    assert [p["mean"] for p in either.get("/v1/checks/docs/series", measure="MRR@3")["points"]] == [0.75, 0.5]
    assert [p["mean"] for p in either.get("/v1/checks/docs/series", measure="recall@3")["points"]] == [1.0, 0.5]
    assert either.get("/v1/checks/docs/series", measure="R@20")["points"] == [], "never measured, but known"


def test_a_series_is_cut_to_its_period(service: Api) -> None:
    service.run()
    finished = datetime.fromisoformat(service.get("/v1/runs/1")["finished_at"])

    def points(**period: datetime) -> int:
        texts = {name: moment.isoformat() for name, moment in period.items()}
        return len(service.get("/v1/checks/docs/series", **texts)["points"])

    assert points(to=finished + timedelta(seconds=1)) == 1
    assert points(to=finished - timedelta(seconds=1)) == 0
    assert points(**{"from": finished - timedelta(days=300), "to": finished + timedelta(seconds=1)}) == 1


def test_a_series_nobody_can_give_names_the_parameter(service: Api) -> None:
    service.run()
    cases: list[tuple[dict[str, str], str]] = [
        ({"measure": "beauty"}, "measure"),
        ({"measure": "procedural/coverage"}, "measure"),
        ({"measure": "R@5", "category": "procedural"}, "measure"),
        ({"category": "everything"}, "category"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2026-01-01T00:00:00"}, "from"),
        ({"to": "0001-01-01T00:00:00Z"}, "to"),
        ({"from": "2026-02-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "from"),
        ({"points": "0"}, "points"),
        ({"points": "many"}, "points"),
    ]
    for parameters, path in cases:
        answer = service.client.get("/v1/checks/docs/series", params=parameters)
        assert answer.status_code == 422, parameters
        assert [error["path"] for error in answer.json()["errors"]] == [path], parameters


def test_a_measure_that_is_not_kept_is_told_with_those_that_are(service: Api) -> None:
    service.run()
    for parameters in ({"measure": "beauty"}, {"measure": "beauty", "category": "procedural"}):
        answer = service.client.get("/v1/checks/docs/series", params=parameters)
        (error,) = answer.json()["errors"]
        told, _, names = error["message"].partition("; there are: ")
        assert told == "'beauty' is not kept for this check"
        kept = names.split(", ")
        assert {"health_score", "coverage"} <= set(kept)
        for name in (*kept[:2], kept[-1]):
            there = service.client.get("/v1/checks/docs/series", params={**parameters, "measure": name})
            assert there.status_code == 200, name


def test_a_list_that_has_no_numbers_of_a_rescoring_says_where_they_are(service: Api) -> None:
    parameters = {"measures_version": "1.r1"}
    answer = service.client.get("/v1/checks/docs/canaries/oauth/history", params=parameters)
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["path"]) == (422, "measures_version")
    assert error["message"].startswith(
        "is for the health, runs, series and heat map of a check, and for a run with its results and report"
    )


def test_the_history_of_a_canary_has_a_state_per_change(either: Api) -> None:
    first = either.run()
    either.run()
    either.retriever.found[OAUTH] = ["c9"]
    third = either.run()
    history = either.get("/v1/checks/docs/canaries/oauth/history")
    assert (history["check"], history["key"]) == ("docs", "oauth")
    now, before = history["items"]
    assert (now["verdict"], now["reasons"], now["ranking"]) == ("degraded", ["missing"], ["c9"])
    assert (now["first_run"], now["last_run"], now["until"]) == (third["id"], None, None)
    assert (before["verdict"], before["first_run"]) == ("healthy", first["id"])
    assert before["from"] == first["finished_at"]
    assert now["from"] == third["finished_at"]
    assert before["measures"]["RR"] == 0.5
    assert len(either.get("/v1/checks/docs/canaries/oauth/history", limit=1)["items"]) == 1


@pytest.mark.both
def test_an_alert_tells_its_story(either: Api) -> None:
    either.run()
    assert either.get("/v1/alerts") == {"items": [], "next": None}
    either.retriever.found[OAUTH] = []
    runs_ = [either.run() for _ in range(2)]
    (alert,) = either.get("/v1/alerts")["items"]
    assert alert.keys() >= ALERT
    assert (alert["check"], alert["kind"], alert["severity"], alert["state"]) == (
        "docs",
        "threshold",
        "critical",
        "firing",
    )
    assert alert["rule"] == "threshold-coverage"
    assert alert["opened_at"] is not None
    assert alert["resolved_at"] is None
    assert alert["acknowledged_at"] is None
    assert alert["dedupe_key"]
    (opened,) = alert["transitions"]
    assert opened.keys() >= {"at", "type", "reason", "run_id", "evidence"}
    assert (opened["type"], opened["run_id"]) == ("opened", runs_[-1]["id"])
    assert opened["evidence"]["canaries"][0]["key"] == "oauth"
    whole = either.get(f"/v1/alerts/{alert['id']}")
    assert whole["since"]["run_id"] == alert["since_run"]
    (told,) = whole["transitions"]
    assert told.pop("fleet")["headline"]
    for one in told["evidence"]["canaries"]:  # what only the whole says: why each fell, where somebody asked
        assert [one.pop(name) for name in ("cause", "cause_reason", "persistent")] == [None, None, None]
    assert {name: whole[name] for name in alert} == alert
    assert [one["state"] for one in whole["deliveries"]] == ["pending"]
    for parameters, count in (
        ({"state": "firing"}, 1),
        ({"state": "resolved"}, 0),
        ({"check": "docs"}, 1),
        ({"after": alert["id"]}, 0),
    ):
        assert len(either.get("/v1/alerts", **parameters)["items"]) == count
    assert either.client.get("/v1/alerts", params={"state": "loud"}).status_code == 422
    either.retriever.found.clear()
    for _ in range(2):
        either.run()
    whole = either.get(f"/v1/alerts/{alert['id']}")
    assert whole["state"] == "resolved"
    assert whole["resolved_at"] is not None
    assert [change["type"] for change in whole["transitions"]] == ["opened", "resolved"]


@pytest.mark.both
def test_deliveries_are_listed_with_their_attempts(either: Api) -> None:
    either.mailbox.receipts.append(Receipt(ok=False, http_status=500, error="refused", detail="It said 500."))
    answer = either.client.post("/v1/hooks/ops/test")
    assert answer.status_code == 202
    delivery = answer.json()
    assert delivery.keys() >= DELIVERY
    assert (delivery["hook"], delivery["type"], delivery["state"]) == ("ops", "hook.test", "pending")
    assert delivery["alert_id"] is None
    assert delivery["attempts"] == []
    assert either.deliver() == 1
    failed = either.get(f"/v1/deliveries/{delivery['id']}")
    assert (failed["state"], len(failed["attempts"])) == ("pending", 1)
    assert failed["next_attempt_at"] is not None
    assert failed["attempts"][0].keys() >= {"at", "http_status", "error", "latency_seconds"}
    assert (failed["attempts"][0]["http_status"], failed["attempts"][0]["error"]) == (500, "refused")
    assert either.client.post(f"/v1/deliveries/{delivery['id']}/replay").status_code == 409
    second = either.client.post("/v1/hooks/ops/test").json()
    either.deliver()
    done = either.get(f"/v1/deliveries/{second['id']}")
    assert (done["state"], done["next_attempt_at"]) == ("delivered", None)
    assert [one["id"] for one in either.get("/v1/deliveries")["items"]] == [second["id"], delivery["id"]]
    assert [one["id"] for one in either.get("/v1/deliveries", state="delivered")["items"]] == [second["id"]]
    assert either.get("/v1/deliveries", hook="ops", limit=1)["next"] == second["id"]
    assert either.client.post("/v1/hooks/nope/test").status_code == 404


def test_a_dead_delivery_can_be_replayed_and_a_gone_hook_says_so(service: Api) -> None:
    service.mailbox.receipts.append(Receipt(ok=False, http_status=410, error="refused", untaken=True, gone=True))
    delivery = service.client.post("/v1/hooks/ops/test").json()
    service.deliver()
    assert service.get(f"/v1/deliveries/{delivery['id']}")["state"] == "dead"
    hook = service.get("/v1/hooks/ops")
    assert hook["disabled_reason"] is not None
    assert service.client.post("/v1/hooks/ops/test").status_code == 409
    service.put("/v1/hooks/ops", {**hook, "secret": HOOK_SECRET})
    assert service.get("/v1/hooks/ops")["disabled_reason"] is None, "saving a hook enables it again"
    replayed = service.client.post(f"/v1/deliveries/{delivery['id']}/replay")
    assert replayed.status_code == 202
    assert replayed.json()["state"] == "pending"
    service.deliver()
    assert service.get(f"/v1/deliveries/{delivery['id']}")["state"] == "delivered"
