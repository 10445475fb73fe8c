"""The one-shot check of rules on generated answers: it asks no judge, and says so."""

from typing import Any

import pytest
import yaml

from app.catalog.documents.canary_files import read_canary_files
from app.runs.commands.gate import render_reports, show_reports
from app.runs.service.gate import choose_targets, measure
from tests.support.fakes import FakeClock, FakeProbe, answered, hits

FAITHFUL = {"kind": "threshold", "measure": "faithful", "critical": {"below": 0.6}}
RELEVANT = {"kind": "threshold", "measure": "answer_relevance", "warning": {"below": 0.6}}
GROUNDED = {"kind": "threshold", "measure": "utilisation", "warning": {"below": 0.6}}
COVERAGE = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.5}}


def report(*rules: dict[str, Any], lost: tuple[str, ...] = ()) -> dict[str, Any]:
    """Give the report of a check of four canaries whose answers a judge reads."""
    page = {
        "suite": "s",
        "canaries": [{"key": key, "query": key, "expected_chunks": [f"doc-{key}"]} for key in "abcd"],
        "retrievers": [
            {
                "slug": "r",
                "url": "http://127.0.0.1:1/",
                "response": {"hits": "hits", "id": "id", "answer": "answer"},
            }
        ],
        "judges": [{"slug": "j", "url": "http://127.0.0.1:1/v1", "model": "m"}],
        "checks": [
            {
                "slug": "cli",
                "suite": "s",
                "retriever": "r",
                "judge": "j",
                "schedule": {"every": "5m"},
                "rules": list(rules),
            }
        ],
    }
    (target,) = choose_targets(read_canary_files([("canaries.yaml", yaml.safe_dump(page))], {}, None))
    probe = FakeProbe(answers={key: answered(hits("noise")) for key in lost})
    return {**measure(target, probe, run_id="run-1", clock=FakeClock())}


NOT_ASKED = "rule 'threshold-faithful' needs a judge, which this command does not ask"


def test_a_rule_that_needs_a_judge_is_named_and_the_check_not_called_healthy_by_its_rules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = report(FAITHFUL, COVERAGE, lost=("a",))
    assert (found["run"]["verdict"], found["unjudged_answers"]) == ("healthy", NOT_ASKED)
    show_reports([found], "table")
    told = capsys.readouterr().out
    assert told.startswith(
        "Healthy by what was retrieved, although 1 of 4 canaries is degraded; its answers were not judged: cli\n"
        f"  healthy by what was retrieved; {NOT_ASKED}\n"
    )
    for form in ("markdown", "comment", "html", "junit"):
        written = render_reports([found], form)
        assert "which this command does not ask" in written
        assert "ealthy by its rules" not in written
    for form in ("json", "markdown", "html"):
        assert "uncalibrated" not in render_reports([found], form), "there was no judge"


def test_a_check_that_is_degraded_by_what_was_retrieved_says_the_same() -> None:
    found = report(FAITHFUL, COVERAGE, lost=("a", "b", "c"))
    assert found["run"]["verdict"] == "degraded"
    assert render_reports([found], "markdown").startswith("# Degraded; its answers were not judged: cli")


def test_all_rules_on_answers_are_named() -> None:
    found = report(FAITHFUL, RELEVANT, GROUNDED, COVERAGE)
    assert found["unjudged_answers"] == (
        "rules 'threshold-faithful' and 'threshold-answer_relevance' need a judge, which this command does not ask; "
        "rule 'threshold-utilisation' is about generated answers, which this command does not read"
    )
    assert found["run"]["reasons"] == []


def test_a_check_without_rules_on_answers_is_healthy_as_ever() -> None:
    found = report(COVERAGE)
    assert found["unjudged_answers"] is None
    assert render_reports([found], "markdown").startswith("# Healthy: cli")
    assert report({**FAITHFUL, "enabled": False}, COVERAGE)["unjudged_answers"] is None
