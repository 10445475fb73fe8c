"""The one-shot check: what it says about a retriever, in which form, and by which exit code."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx2
import pytest
from typer.testing import CliRunner, Result

from app.base.errors import InvalidInputError
from app.base.values import Outcome
from app.catalog.documents.canary_files import Documents, read_canary_files
from app.cli import app
from app.demo.server import create_demo
from app.reports.rendering.reports import compare_reports, read_reports
from app.runs.service.gate import choose_targets, measure
from tests.support.fakes import FakeClock, FakeProbe, answered, failed, hits
from tests.support.http_servers import HANG, closed_port, peer
from tests.support.living import coalmine, serving, until

CANARIES = Path(__file__).parents[2] / "canaries"

SUITE = """
suite: small
canaries:
  - {key: a, query: alpha, expected_chunks: [doc-alpha]}
  - {key: b, query: beta, expected_chunks: [doc-beta], category: procedural}
  - {key: c, query: gamma, expected_chunks: [doc-gamma]}
  - {key: d, query: delta, category: negative}
"""
RETRIEVER = """
retrievers:
  - {slug: there, url: "http://127.0.0.1:1/search", response: {hits: results, id: id}}
"""
CHECKS = """
checks:
  - {slug: loose, suite: small, retriever: there, schedule: {every: 5m}, rules: [
      {kind: threshold, measure: coverage, critical: {below: 0.3}}]}
  - {slug: strict, suite: small, retriever: there, schedule: {every: 5m}}
  - {slug: asleep, suite: small, retriever: there, schedule: {every: 5m}, enabled: false}
"""


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, arguments)], env=environment)


@contextmanager
def demo() -> Iterator[tuple[str, str]]:
    with serving(create_demo()) as url:
        yield url, f"{url}/search"


def documents(text: str) -> Documents:
    return read_canary_files([("canaries.yaml", text)], {}, None)


def measured(probe: FakeProbe, text: str = SUITE + RETRIEVER) -> dict[str, Any]:
    (target,) = choose_targets(documents(text))
    return {**measure(target, probe, run_id="run-1", clock=FakeClock())}


# --- against a real retriever --------------------------------------------------------------------------------


def test_a_healthy_retriever_passes_with_a_table_of_measures() -> None:
    with demo() as (_, url):
        result = run(CANARIES, "--url", url)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Healthy: dataforge-docs\n")
    assert "NDCG" in result.stdout
    assert result.stderr == "regression: needs the history of a service; not evaluated here.\n"


def test_a_broken_retriever_fails_names_what_got_worse_and_its_repair_shows_as_recovered(tmp_path: Path) -> None:
    before, broken = tmp_path / "before.json", tmp_path / "broken.json"
    with demo() as (base, url):
        assert run(CANARIES, "--url", url, "--save", before).exit_code == 0
        httpx2.post(f"{base}/fault", json={"kind": "loss", "size": 0.3})
        result = run(CANARIES, "--url", url, "--baseline", before, "--save", broken, "--format", "json")
        shown = run(CANARIES, "--url", url, "--baseline", before)
        httpx2.post(f"{base}/fault", json={"kind": "none"})
        healed = run(CANARIES, "--url", url, "--baseline", broken, "--format", "json")
    assert (result.exit_code, shown.exit_code, healed.exit_code) == (1, 1, 0)
    report = json.loads(result.stdout)
    assert report == json.loads(broken.read_text(encoding="utf-8"))
    assert report["run"]["verdict"] == "degraded"
    comparison = report["comparison"]
    assert comparison["differences"] == []
    assert comparison["measures"]["coverage"]["before"] == 1.0
    assert comparison["measures"]["coverage"]["difference"] == pytest.approx(report["run"]["coverage"] - 1, abs=1e-6)
    assert comparison["decision"]["verdict"] == "worse"
    assert comparison["decision"]["sentence"] in shown.stdout.replace("Worse", "worse")
    newly = {canary["key"] for canary in comparison["newly_degraded"]}
    assert newly == {one["key"] for one in report["results"] if one["verdict"] == "degraded"}
    assert "oauth2-setup" in newly
    assert "Newly degraded" in shown.stdout
    assert "oauth2-setup" in shown.stdout
    repaired = json.loads(healed.stdout)["comparison"]
    assert {canary["key"] for canary in repaired["recovered"]} == newly
    assert repaired["newly_degraded"] == []


def test_chunks_that_came_back_under_other_ids_are_found_and_said_to_be(tmp_path: Path) -> None:
    query = "How long is data kept?"
    with demo() as (_, url):
        first = httpx2.post(url, json={"query": query, "top_k": 1}).json()["results"][0]
        expected = [{"id": "an-id-of-old", "text": first["text"]}]
        suite = {"suite": "small", "canaries": [{"key": "kept", "query": query, "expected_chunks": expected}]}
        (tmp_path / "small.yaml").write_text(json.dumps(suite), encoding="utf-8")
        shown = run(tmp_path, "--url", url)
    assert shown.exit_code == 0, shown.output
    assert "  recall by id 0.00, by passage 1.00: the expected texts have other ids\n" in shown.stdout


def test_the_gate_and_the_service_say_the_same_of_the_same_answers(tmp_path: Path) -> None:
    varying = {"id", "trigger", "scheduled_for", "started_at", "finished_at", "latency_seconds"}
    with demo() as (base, _):
        httpx2.post(f"{base}/fault", json={"kind": "loss", "size": 0.2})
        environment = {"DEMO_URL": base}
        with coalmine(tmp_path, canaries=CANARIES, environment=environment) as (url, _):
            health = f"{url}/v1/checks/dataforge-docs/health"
            run_of_service = until(lambda: answer.json() if (answer := httpx2.get(health)).is_success else None)
        result = run(CANARIES, "--format", "json", **environment)
    gate_run = json.loads(result.stdout)["run"]
    assert gate_run.keys() == run_of_service.keys() - {"progress"}
    assert gate_run["trigger"] == "cli"
    alone = [reason for reason in gate_run["reasons"] if reason.startswith("rule 'regression' says nothing")]
    assert len(alone) == 1  # it has no history
    gate_run["reasons"].remove(alone[0])
    assert {name: gate_run[name] for name in gate_run.keys() - varying} == {
        name: run_of_service[name] for name in gate_run.keys() - varying
    }


def test_a_retriever_that_is_not_there_is_not_measurable() -> None:
    with closed_port() as port:
        result = run(CANARIES, "--url", f"http://127.0.0.1:{port}/search")
    assert result.exit_code == 3
    assert result.stdout.startswith("Unknown: dataforge-docs")
    assert "the run was ended early: 10 probes in a row failed (10 unreachable)" in result.stdout
    assert " x unreachable: " in result.stdout
    assert re.search(r"^ *[0-9]+ x skipped \(not sent, or aborted\) \(.+\)$", result.stdout, re.MULTILINE)
    assert "NDCG" not in result.stdout


def test_a_suite_alone_is_enough_when_the_url_is_given(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(
        "suite: lone\ncanaries:\n"
        "- {key: a, query: What is DataForge's data retention policy?, expected_chunks: [retention_policy_doc]}\n",
        encoding="utf-8",
    )
    with demo() as (_, url):
        result = run(file, "--url", url, "--format", "json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["run"]["check"] == "lone"
    assert report["results"][0]["ranking"][0]["document"] is not None
    assert report["results"][0]["ranking"][0]["text"] is not None


def test_junit_and_markdown_are_what_their_readers_expect(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SUITE + RETRIEVER + CHECKS, encoding="utf-8")
    with demo() as (_, url):
        junit = run(file, "--url", url, "--format", "junit")
        markdown = run(file, "--url", url, "--format", "markdown", "--check", "loose")
        both = run(file, "--url", url, "--format", "json")
    suites = ET.fromstring(junit.stdout)  # noqa: S314 - our own output
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in suites] == [
        ("loose", "5", "4"),
        ("strict", "5", "4"),
    ]
    assert markdown.stdout.startswith("# Degraded: loose\n")
    assert "## Worst canaries" in markdown.stdout
    assert [report["run"]["check"] for report in json.loads(both.stdout)] == ["loose", "strict"]


def test_an_interrupted_check_says_so_and_judges_nothing() -> None:
    with peer(HANG) as hanging:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "app.cli", "check", str(CANARIES), "--url", hanging.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(lambda: hanging.seen or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (130, "", "Interrupted.\n")


# --- unusable input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments", "complaint"),
    [
        ("suite: s\ncanarys: []\n", (), "canaries.yaml:2: canarys: unknown key 'canarys'; did you mean 'canaries'?"),
        (SUITE, (), "the files define no retriever; say where it is with --url"),
        (SUITE, ("--url", "ftp://x"), "url: must be an address that begins with http:// or https:// and names a host"),
        (RETRIEVER, (), "the files define no suite"),
        ("suite: s\n" + RETRIEVER, (), "suite 's' has no canaries"),
        (
            SUITE + RETRIEVER + CHECKS,
            ("--check", "strikt"),
            "--check: the files define no check 'strikt'; did you mean",
        ),
        (SUITE + RETRIEVER, ("--baseline", "canaries.yaml"), "canaries.yaml: is not a report saved with"),
        (SUITE + RETRIEVER, ("--baseline", "missing.json"), "coalmine: missing.json: No such file or directory"),
    ],
)
def test_unusable_input_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, arguments: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("canaries.yaml").write_text(text, encoding="utf-8")
    result = run("canaries.yaml", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert complaint in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "saved",
    ["[]x", "[1]", '{"run": {}}', '{"run": {"check": "a", "measures": {"R@5": "x"}}, "results": []}', "NaN", "{}"],
)
def test_a_baseline_that_is_no_report_is_refused(saved: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a report"):
        read_reports("saved.json", saved)


# --- what is measured ----------------------------------------------------------------------------------------


def test_every_enabled_check_is_a_target_or_the_one_that_is_named() -> None:
    wanted = documents(SUITE + RETRIEVER + CHECKS)
    assert [target.check.slug for target in choose_targets(wanted)] == ["loose", "strict"]
    assert [target.check.slug for target in choose_targets(wanted, check="asleep")] == ["asleep"]
    moved = choose_targets(wanted, check="loose", url="https://staging.example/search")
    assert moved[0].retriever.url == "https://staging.example/search"
    assert moved[0].retriever.response.hits == "results"


def test_an_url_keeps_the_secrets_and_the_mapping_of_the_retriever() -> None:
    text = SUITE + RETRIEVER.replace("response:", "request: {headers: {x-key: secret}}, response:")
    (target,) = choose_targets(documents(text), url="http://other.example/")
    assert target.retriever.request.headers == {"x-key": "secret"}


def test_the_report_is_of_the_shape_all_reports_have() -> None:
    report = measured(FakeProbe())
    run_of_gate = report["run"]
    assert (run_of_gate["id"], run_of_gate["trigger"], run_of_gate["status"]) == ("run-1", "cli", "finished")
    assert run_of_gate["verdict"] == "healthy"
    assert run_of_gate["canaries"] == {"total": 4, "measured": 4, "failed": 0, "undefined": 1, "degraded": 0}
    assert run_of_gate["started_at"] == "2026-03-02T12:00:00Z"
    assert run_of_gate["categories"]["negative"]["coverage"] is None
    assert [result["key"] for result in report["results"]] == ["a", "b", "c", "d"]
    assert report["results"][0]["measures"]["R@5"] == 1.0
    assert report["worst"] == []


def test_failed_probes_are_no_measurement_and_half_of_them_make_the_run_unknown() -> None:
    probe = FakeProbe(answers={"alpha": failed(Outcome.TIMEOUT), "beta": failed(Outcome.REFUSED, http_status=500)})
    mixed = measured(probe)
    assert mixed["run"]["canaries"]["failed"] == 2
    assert mixed["run"]["coverage"] == 1.0
    assert mixed["run"]["verdict"] == "degraded", "half of the queries got an error"
    probe.answers["gamma"] = failed(Outcome.MALFORMED)
    unknown = measured(probe)
    assert unknown["run"]["verdict"] == "unknown"
    assert [result["verdict"] for result in unknown["results"]] == ["unknown"] * 3 + ["healthy"]


def test_what_was_never_asked_is_skipped_and_the_run_partial() -> None:
    class Interrupted(FakeProbe):
        """Stops after the first batch."""

        def __call__(self, asking: Any, asks: Any) -> Any:
            yield next(iter(super().__call__(asking, asks)))

    report = measured(Interrupted(batch=3))
    assert report["run"]["status"] == "partial"
    assert report["run"]["probes"] == {"ok": 3, "skipped": 1}
    assert report["results"][0]["outcome"] == "skipped"


def test_a_floor_that_is_not_computed_is_refused_without_a_check_too() -> None:
    text = (SUITE + RETRIEVER).replace("[doc-beta]", "[doc-beta], floors: {R@7: 0.5}")
    with pytest.raises(InvalidInputError, match=r"canary 'small/b' has a floor on R@7: .* add 7 to the cutoffs"):
        choose_targets(documents(text))


def test_progress_hears_of_every_answer() -> None:
    (target,) = choose_targets(documents(SUITE + RETRIEVER))
    heard: list[int] = []
    measure(target, FakeProbe(batch=3), run_id="r", clock=FakeClock(), answered=heard.append)
    assert heard == [3, 1]
    assert target.size == 4


def test_a_comparison_says_what_speaks_against_it_and_counts_unknown_as_neither() -> None:
    before = measured(FakeProbe(answers={"alpha": answered(hits("noise"))}))
    text = (SUITE + RETRIEVER).replace("key: c", "key: new")
    probe = FakeProbe(answers={"alpha": failed(Outcome.TIMEOUT), "gamma": answered(hits("noise"))})
    comparison = compare_reports(before, measured(probe, text))
    assert comparison["differences"] == ["the suite has changed since"]
    assert [canary["key"] for canary in comparison["newly_degraded"]] == ["new"]
    assert comparison["recovered"] == []
    assert comparison["measures"]["NDCG@20"] == {"before": None, "now": None, "difference": None}
