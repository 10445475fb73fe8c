"""Re-scoring from outside: over REST with a worker that does it, and by command on a database or a service."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.runs.service import rescoring
from tests.support.api_service import CANARIES, Api, api
from tests.support.http_servers import Reply, peer, reply

CORRECTED: list[dict[str, Any]] = [{**CANARIES[0], "expected_chunks": ["c9"]}, *CANARIES[1:]]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service of one run in which one canary misses, and a suite that has been corrected since."""
    with api(tmp_path) as opened:
        _miss_and_correct(opened)
        yield opened


def _miss_and_correct(opened: Api) -> None:
    opened.docs()
    opened.retriever.found["How long is data kept?"] = ["c9", "c8"]
    opened.run()
    opened.docs(canaries=CORRECTED)


def _work(opened: Api) -> None:
    """Do what the worker does."""
    store = opened.service.store
    claimed = rescoring.claim(store, owner="test", now=datetime.now(UTC))
    assert claimed is not None
    assert rescoring.carry_on(store, claimed, owner="test", clock=lambda: datetime.now(UTC))


def test_a_rescoring_is_asked_for_followed_and_read(service: Api) -> None:
    asked = service.client.post("/v1/checks/docs/rescorings")
    assert asked.status_code == 202
    place = asked.headers["location"]
    shape = asked.json()
    assert (shape["status"], shape["progress"]) == ("queued", {"runs_done": 0, "runs_total": 1})
    assert (shape["before"], shape["after"], shape["note"], shape["since"]) == (None, None, None, None)
    assert service.get(place) == shape
    _work(service)
    found = service.get(place)
    assert (found["status"], found["progress"]) == ("finished", {"runs_done": 1, "runs_total": 1})
    assert (found["before"]["coverage"], found["after"]["coverage"]) == (0.5, 1.0)
    assert service.get("/v1/checks/docs/rescorings") == {"items": [found], "next": None}
    assert service.client.post("/v1/checks/docs/rescorings").status_code == 200, "there is nothing left to do"


def test_every_way_of_reading_a_run_takes_the_version(service: Api) -> None:
    asked = service.retriever.asked
    service.client.post("/v1/checks/docs/rescorings", json={"since": "2026-01-01T00:00:00+01:00"})
    _work(service)
    (found,) = service.get("/v1/checks/docs/rescorings")["items"]
    version = found["measures_version"]
    run = service.get("/v1/checks/docs/health")["id"]
    for path in (f"/v1/runs/{run}", "/v1/checks/docs/health"):
        old, new = service.get(path), service.get(path, measures_version=version)
        assert (old["coverage"], old["measures_version"], new["coverage"], new["measures_version"]) == (
            0.5,
            "2",
            1.0,
            version,
        )
        assert service.get(path, measures_version="2") == old
    results = service.get(f"/v1/runs/{run}/results", measures_version=version, verdict="degraded")
    assert results["items"] == []
    series = service.get("/v1/checks/docs/series", measures_version=version)
    assert ([point["mean"] for point in series["points"]], series["measures_version"]) == ([1.0], version)
    report = service.client.get(f"/v1/runs/{run}/report", params={"measures_version": version, "format": "markdown"})
    assert report.text.startswith("# Healthy")
    assert service.retriever.asked == asked


def test_what_cannot_be_is_said_and_how_it_should_be(service: Api) -> None:
    run = service.get("/v1/checks/docs/health")["id"]
    for path in (f"/v1/runs/{run}", f"/v1/runs/{run}/results", "/v1/checks/docs/series", "/v1/checks/docs/health"):
        answer = service.client.get(path, params={"measures_version": "2.r7"})
        assert answer.status_code == 422
        told = {"path": "measures_version", "message": "there is no version '2.r7'; there are: 2"}
        assert answer.json()["errors"] == [told]
    for since in ("yesterday", "2026-01-01T00:00:00", 7):
        answer = service.client.post("/v1/checks/docs/rescorings", json={"since": since})
        told = {"path": "since", "message": "must be a time with a time zone, such as 2026-01-31T12:00:00Z"}
        assert answer.json()["errors"] == [told]
    assert service.client.post("/v1/checks/none/rescorings").status_code == 404
    for wrong in ("7", "x"):
        answer = service.client.get(f"/v1/rescorings/{wrong}")
        assert (answer.status_code, answer.json()["detail"]) == (404, f"there is no re-scoring '{wrong}'")
    service.client.post("/v1/checks/docs/rescorings")
    answer = service.client.get(f"/v1/runs/{run}", params={"measures_version": "2.r1"})
    assert answer.status_code == 404
    assert answer.json()["detail"] == f"run '{run}' is not in measures version 2.r1 yet: the re-scoring is running"


@pytest.mark.both
def test_the_worker_does_it_without_asking_anybody(tmp_path: Path, database_url: str) -> None:
    with api(tmp_path, database_url=database_url) as opened:
        _miss_and_correct(opened)
    with api(tmp_path, database_url=database_url, with_worker=True) as opened:
        found = opened.client.post("/v1/checks/docs/rescorings", json={"wait_seconds": 60})
        assert (found.status_code, found.json()["status"]) == (200, "finished")
        assert found.json()["after"]["coverage"] == 1.0
        assert opened.retriever.asked == 0


# --- by command ----------------------------------------------------------------------------------------------


def _said(shape: Mapping[str, Any], status: int = 200) -> Reply:
    return reply(json.dumps(shape).encode(), status)


def _rescore(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["rescore", *[str(argument) for argument in arguments]])


def test_the_command_shows_before_and_after(tmp_path: Path) -> None:
    with api(tmp_path) as opened:
        _miss_and_correct(opened)
    result = _rescore("docs", "--since", "30d", "--data-dir", tmp_path)
    assert result.exit_code == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert lines[0][:4] == ["docs:", "1", "run", "since"]
    assert lines[0][-2:] == ["judged", "anew"]
    assert lines[1] == ["measures", "version", "2.r1"]
    assert lines[2] == ["before", "after"]
    assert ["coverage", "0.500", "1.000"] in lines
    assert ["degraded", "canaries,", "summed", "over", "runs", "1", "0"] in lines
    assert ["healthy", "runs", "0", "1"] in lines
    whole = _rescore("docs", "--data-dir", tmp_path)
    assert whole.stdout.splitlines()[0] == "docs: 1 run, judged anew"
    assert whole.stdout.splitlines()[1:] == result.stdout.splitlines()[1:]
    wider = _rescore("docs", "--since", "1d", "--data-dir", tmp_path)
    assert wider.stdout == whole.stdout
    assert "asked for from further back before; all of its runs are counted" in wider.stderr


def test_the_command_says_that_there_are_no_runs_in_its_range(tmp_path: Path) -> None:
    with api(tmp_path) as opened:
        opened.docs()
        assert _rescore("docs", "--data-dir", tmp_path).stdout == (
            "docs: no run has ended, so there is nothing to judge anew.\n"
        )
        opened.docs(canaries=CORRECTED)
        result = _rescore("docs", "--since", "1h", "--data-dir", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("docs: no run has ended since 20")
    assert result.stdout.endswith(" UTC, so there is nothing to judge anew.\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nothing",), "coalmine: there is no check 'nothing'"),
        (("docs", "--since", "soon"), "'soon' is not a duration"),
    ],
    ids=["check", "since"],
)
def test_the_command_refuses_in_words(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    with api(tmp_path) as opened:
        opened.docs()
    result = _rescore(*arguments, "--data-dir", tmp_path)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_the_command_follows_a_service_until_it_has_finished() -> None:
    side: dict[str, Any] = {
        "runs": 2,
        "coverage": 0.5,
        "health_score": None,
        "degraded": 1,
        "verdicts": {"degraded": 2},
    }
    after = {**side, "coverage": 1.0, "verdicts": {"unknown": 2}}
    shape: dict[str, Any] = {
        "id": "7",
        "check": "docs",
        "measures_version": "1.r7",
        "since": None,
        "note": None,
        "before": None,
        "after": None,
    }
    begun: dict[str, Any] = {**shape, "status": "queued", "progress": {"runs_done": 0, "runs_total": 2}}
    done: dict[str, Any] = {**shape, "status": "finished", "progress": {"runs_done": 2, "runs_total": 2}}
    done |= {"before": side, "after": after, "note": "3 canaries asked something else then: kept as they were judged"}
    answers = iter([_said(begun, 202), _said(begun), _said(done)])
    with peer(lambda _: next(answers)) as server:
        result = _rescore("docs", "--since", "1d", "--server", server.url)
    assert result.exit_code == 0, result.stderr
    assert [seen.target for seen in server.seen] == ["/v1/checks/docs/rescorings", *["/v1/rescorings/7"] * 2]
    since = datetime.fromisoformat(json.loads(server.seen[0].body)["since"])
    assert timedelta(days=1) <= datetime.now(UTC) - since < timedelta(days=1, minutes=5)
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert ["coverage", "0.500", "1.000"] in lines
    assert ["unknown", "runs", "0", "2"] in lines
    assert "Note: 3 canaries asked something else then: kept as they were judged." in result.stderr
