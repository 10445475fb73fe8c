"""Diagnoses from outside: over the API, from the command line on a service, and in a worker that nothing stops."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from app.base.values import Answer
from app.cli import app
from app.config import Settings
from app.hooks.domain import Hook, Message, Receipt
from app.main import create_app, open_service
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from tests.support.api_service import HOOK_SECRET, Api, api
from tests.support.fakes import ActingSend
from tests.support.http_servers import Reply, peer, reply
from tests.support.library import Library, shelf
from tests.support.living import serving, until

DIAGNOSIS = "/v1/checks/docs/canaries/oauth/diagnosis"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service whose check was well once and then lost what `oauth` expects."""
    with api(tmp_path_factory.mktemp("diagnosis")) as opened:
        opened.docs()
        opened.run()
        opened.retriever.found = {"How do I set up OAuth2?": ["c7", "c8"]}
        opened.run()
        yield opened


def test_a_canary_is_asked_about_over_the_api(service: Api) -> None:
    refused = service.client.get("/v1/checks/docs/canaries/retention/diagnosis")
    assert (refused.status_code, refused.json()["type"]) == (404, "/problems/not-found")
    assert "POST to this URL to diagnose it" in refused.json()["detail"]
    answer = service.client.post(DIAGNOSIS)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found == service.get(DIAGNOSIS)
    assert (found["check"], found["key"], found["persistent"]) == ("docs", "oauth", True)
    assert found["requested_by"] == "anyone on this machine"
    assert found["evidence"]["asked"]["repeat"] == 3
    assert service.client.post("/v1/checks/docs/canaries/nobody/diagnosis").status_code == 404
    assert service.client.post("/v1/checks/docs/canaries/moon/diagnosis").status_code == 409


def test_no_retrieved_text_leaves_with_a_diagnosis(service: Api) -> None:
    assert "text of c7" not in service.client.post(DIAGNOSIS).text


@pytest.mark.parametrize(
    "body", [{"accept": "some"}, {"accept": ["x"]}, {"accept": ["9" * 19]}, {"accept": ["7"]}, {"accepted": "all"}, []]
)
def test_what_names_no_proposal_is_refused(service: Api, body: Any) -> None:
    answer = service.client.post("/v1/checks/docs/reanchors", json=body)
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-input"), answer.text


def test_proposals_are_listed_by_state(service: Api) -> None:
    assert service.get("/v1/checks/docs/reanchors", state="proposed") == {"items": [], "next": None}
    assert service.client.get("/v1/checks/docs/reanchors", params={"state": "open"}).status_code == 422
    assert service.client.get("/v1/checks/nothing/reanchors").status_code == 404


# --- the command on a service --------------------------------------------------------------------------------


def _command(url: str, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["reanchor", "--check", "docs", "--server", url, *arguments])


def test_the_command_asks_a_service(service: Api) -> None:
    with serving(service.client.app) as url:
        listed = _command(url)
        assert (listed.exit_code, "no judgment waits" in listed.stdout) == (0, True), listed.output
        refused = _command(url, "--accept", "7")
        assert (refused.exit_code, "has no proposal '7'" in refused.stderr) == (2, True), refused.output


def _decision(diff: str) -> dict[str, Any]:
    empty: dict[str, Any] = {name: [] for name in ("accepted", "rejected", "outdated", "unchanged")}
    patch = {"file": "a.yaml", "canaries": ["a"], "diff": diff, "yaml": ""}
    return {**empty, "to_commit": [{"id": "1", "key": "a", "state": "proposed"}], "patches": [patch]}


def test_a_patch_of_a_service_goes_to_stdout_without_what_a_terminal_would_obey() -> None:
    body = json.dumps(_decision("--- a/a.yaml\n\x1b]0;owned\x07+\tx\r\n")).encode()
    with peer(reply(status=200, body=body)) as elsewhere:
        decided = _command(elsewhere.url, "--accept", "all")
    assert decided.stdout_bytes == b"--- a/a.yaml\n]0;owned+\tx\r\n"
    assert "commit the patch" in decided.stderr


@pytest.mark.parametrize("answer", [reply(status=200, body=b"{}"), reply(status=200, body=b'{"items": 7}')])
def test_a_service_that_is_none_is_told_so(answer: Reply) -> None:
    with peer(answer) as elsewhere:
        for arguments in ((), ("--accept", "all")):
            refused = _command(elsewhere.url, *arguments)
            assert (refused.exit_code, "did not answer as Coalmine does" in refused.stderr) == (2, True)


# --- the worker ----------------------------------------------------------------------------------------------


@dataclass
class Exploding:
    """Answers runs, and raises what no retriever should where a diagnosis asks."""

    library: Library = field(default_factory=Library)
    exploded: int = 0

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Ask the library."""
        if context.run_id.endswith("-diagnosis"):
            self.exploded += 1
            raise RuntimeError("a bug of our own")
        yield from self.library(context, queries)


def test_a_diagnosis_that_breaks_holds_up_neither_runs_nor_news(tmp_path: Path) -> None:
    probe, sent = Exploding(), list[dict[str, Any]]()

    def send(_hook: Hook, message: Message) -> Receipt:
        sent.append(json.loads(message.body))
        return Receipt(ok=True, http_status=204)

    service = open_service(Settings(data_dir=tmp_path), environment={}, probe=probe, send=ActingSend(act=send))
    with serving(create_app(service)) as url:
        opened = Outside(url)
        opened.define()
        opened.run()
        del probe.library.chunks["refunds"]
        opened.run()
        until(lambda: sent)  # at once, not after the patience of half a minute
        assert probe.exploded == 1
        assert sent[0]["data"]["degraded"][0]["cause"] is None
        del probe.library.chunks["tokens"]
        assert opened.run()["canaries"]["degraded"] == 2
        assert service.worker is not None
        assert service.worker.alive


@dataclass(frozen=True)
class Outside:
    """A client of a service over HTTP, for what a worker does by itself."""

    url: str

    def define(self) -> None:
        """Define a check over the library that opens an alert at the first bad run."""
        rule = {"kind": "threshold", "measure": "coverage", "critical": {"below": 1.0}, "open": {"bad": 1, "of": 1}}
        mapping = {"hits": "hits", "id": "id", "score": "score", "text": "text"}
        with httpx2.Client(base_url=self.url) as client:
            for path, body in {
                "/v1/suites/docs": {"canaries": shelf()},
                "/v1/retrievers/search": {
                    "url": "http://127.0.0.1:1/",
                    "response": mapping,
                    "scorer": {"kind": "score", "scale": "similarity"},
                },
                "/v1/hooks/ops": {"kind": "webhook", "url": "http://127.0.0.1:1/", "secret": HOOK_SECRET},
                "/v1/checks/docs": {
                    "suite": "docs",
                    "retriever": "search",
                    "schedule": {"every": "1h"},
                    "k": 3,
                    "rules": [rule],
                    "hooks": ["ops"],
                },
            }.items():
                answer = client.put(path, json=body)
                assert answer.status_code == 201, answer.text

    def run(self) -> dict[str, Any]:
        """Run the check to its end."""
        with httpx2.Client(base_url=self.url, timeout=60) as client:
            run: dict[str, Any] = client.post("/v1/checks/docs/runs", json={"wait_seconds": 30}).json()
        assert run["status"] == "finished", run
        return run
