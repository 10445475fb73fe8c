"""The one-shot check and rules that want a history: what a saved report can stand in for, and what nothing can."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from app.base.values import Answer, Outcome, replace
from app.catalog.documents.canary_files import read_canary_files
from app.reports.rendering.reports import compare_reports
from app.retrievers.domain.retrievers import ProbeQuery
from app.runs.commands.gate import show_reports
from app.runs.service.gate import choose_targets, measure
from tests.support.fakes import FakeClock, FakeProbe, answered, failed, hits

KEYS = [f"c{number}" for number in range(12)]
DROP = {"kind": "drop", "measure": "coverage", "critical": {"by": 0.2}}


def report(
    probe: FakeProbe,
    *rules: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
    by: str = "id",
    source: str | None = None,
) -> dict[str, Any]:
    came = {} if source is None else {"source": source}
    page = {
        "suite": "s",
        "canaries": [{"key": key, "query": key, "expected_chunks": [{by: f"doc-{key}", **came}]} for key in KEYS],
        "retrievers": [{"slug": "r", "url": "http://127.0.0.1:1/", "response": {"hits": "hits", "id": "id", by: by}}],
        "checks": [{"slug": "c", "suite": "s", "retriever": "r", "schedule": {"every": "5m"}, "rules": list(rules)}],
    }
    (target,) = choose_targets(read_canary_files([("canaries.yaml", yaml.safe_dump(page))], {}, None))
    return {**measure(target, probe, run_id="run-1", clock=FakeClock(), before=before)}


def said(report: Mapping[str, Any]) -> tuple[str, list[str]]:
    return report["run"]["verdict"], report["run"]["reasons"]


def lost(*keys: str) -> FakeProbe:
    return FakeProbe(answers={key: answered(hits("noise")) for key in keys})


def test_a_named_canary_and_a_latency_need_no_history() -> None:
    named = {"kind": "canary", "canary": "c3"}
    slow = {"kind": "latency", "percentile": "p50", "critical": {"above": "100ms"}}
    assert said(report(lost("c3"), named)) == ("degraded", ["canary 'c3' is degraded: missing (critical)"])
    assert said(report(lost("c4"), named)) == ("healthy", [])
    assert said(report(FakeProbe(), slow)) == ("degraded", ["median latency 500 ms is above 100 ms (critical)"])


@pytest.mark.parametrize(("source", "label"), [("retriever:r", " (self-judged)"), ("retriever:x", ""), (None, "")])
def test_a_reason_about_recall_says_where_it_is_self_judged(
    source: str | None, label: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bound = {"kind": "threshold", "measure": "R@5", "critical": {"below": 0.95}}
    fell = {"kind": "drop", "measure": "R@5", "critical": {"by": 0.2}}
    before = report(FakeProbe(), source=source)
    found = report(lost(*KEYS[:8]), bound, fell, before=before, source=source)
    below, drop = said(found)[1]
    assert below == f"R@5{label} 0.333 is below 0.95 (critical)"
    assert drop.startswith(f"R@5{label} 0.333 against 1.000 in the baseline, ")
    assert (found["run"]["self_judged"], found["run"]["judged_by"]) == (
        bool(label),
        ["x"] if source == "retriever:x" else [],
    )
    for form in ("table", "junit", "markdown", "html"):
        show_reports([found], form)
        shown = " ".join(capsys.readouterr().out.split())
        assert below in shown, form
        assert form == "junit" or ("brought up by x alone: what only r finds" in shown) is (source == "retriever:x"), (
            form
        )
    show_reports([{**found, "comparison": compare_reports(before, found)}], "markdown")
    assert f"| R@5{label} | 1.000 | 0.333 | -0.667 |" in capsys.readouterr().out


def test_a_named_canary_whose_probe_failed_or_that_is_not_there_says_nothing_and_says_so() -> None:
    probe = FakeProbe(answers={"c3": failed(Outcome.TIMEOUT)})
    assert said(report(probe, {"kind": "canary", "canary": "c3"})) == (
        "healthy",
        [
            "rule 'canary-c3' says nothing: canary 'c3' was not measured",
            "retriever does not answer in time (1 of 12 probes)",
        ],
    )
    assert said(report(FakeProbe(), {"kind": "canary", "canary": "x"}))[1] == [
        "rule 'canary-x' says nothing: canary 'x' was not asked"
    ]


def test_a_regression_is_not_told_from_a_single_run_and_that_is_said() -> None:
    why = "rule 'regression' says nothing: it compares with earlier runs, and no detector evaluated this one"
    assert said(report(lost(*KEYS[1:]), {"kind": "regression"})) == ("healthy", [why])
    nothing = "coverage is 0: no canary found what it expects (critical)"
    assert said(report(lost(*KEYS), {"kind": "regression"})) == ("degraded", [nothing, why])


def test_expected_ids_that_are_documents_of_the_hits_are_said_to_be_so() -> None:
    probe = FakeProbe(
        answers={key: answered(replace(hits(f"{key}#1"), documents=(f"doc-{key}",))) for key in KEYS[:4]}
        | {key: answered(hits("noise")) for key in KEYS[4:]}
    )
    hint = (
        "the expected ids are documents of the hits for 4 of 12 canaries, not ids of hits: import with "
        "--as-documents, or expect documents"
    )
    assert hint in said(report(probe))[1]
    assert hint not in said(report(lost(*KEYS)))[1]


def test_expected_documents_that_are_ids_of_the_hits_are_said_to_be_so() -> None:
    probe = FakeProbe(answers={key: answered(hits("noise", f"doc-{key}")) for key in KEYS})
    hint = (
        "the expected documents are ids of the hits for 12 of 12 canaries, not documents of hits: import that column "
        "as id, or expect ids"
    )
    assert hint in said(report(probe, by="document"))[1]
    assert hint not in said(report(lost(*KEYS), by="document"))[1]


def test_a_bound_on_what_no_canary_has_says_nothing_and_that_is_said() -> None:
    check = {"slug": "c", "suite": "s", "retriever": "r", "schedule": {"every": "5m"}}
    page: dict[str, Any] = {
        "suite": "s",
        "canaries": [{"key": "c0", "query": "c0"}, {"key": "none", "query": "none", "category": "negative"}],
        "retrievers": [{"slug": "r", "url": "http://127.0.0.1:1/", "response": {"hits": "hits", "id": "id"}}],
    }

    def reasons(*rules: Mapping[str, Any]) -> list[str]:
        text = yaml.safe_dump({**page, "checks": [{**check, "rules": [*rules]}]})
        (target,) = choose_targets(read_canary_files([("canaries.yaml", text)], {}, None))
        return said({**measure(target, FakeProbe(), run_id="run-1", clock=FakeClock())})[1]

    why = "was not measured, for no canary of the suite expects a chunk"
    assert reasons() == [f"rule 'threshold-coverage' says nothing: coverage {why}", ABSOLUTE]
    share = {"kind": "threshold", "measure": "degraded_share", "critical": {"above": 0.5}}
    assert reasons(share) == []


ABSOLUTE = (
    "the check has no rules and a single run no history: coverage must be at least 0.9 "
    "(a service has no such bound: it compares with earlier runs)"
)
COMPARED = "the check has no rules: it is compared with the saved report"


def test_a_check_without_rules_keeps_a_coverage_that_is_said() -> None:
    assert said(report(FakeProbe())) == ("healthy", [ABSOLUTE])
    assert said(report(lost(*KEYS[:3]))) == ("degraded", ["coverage 0.750 is below 0.9 (critical)", ABSOLUTE])


def test_beside_a_saved_report_a_lasting_loss_of_one_canary_is_degraded() -> None:
    saved = report(lost(*KEYS[:3]))
    assert said(report(lost(*KEYS[:3]), before=saved)) == ("healthy", [COMPARED])
    assert said(report(lost(*KEYS[:4]), before=saved)) == (
        "degraded",
        ["1 canary lost since the baseline, and when asked again: c3 (critical)", COMPARED],
    )


def test_a_canary_that_is_found_when_asked_again_is_no_loss() -> None:
    saved = report(FakeProbe())
    asked: list[str] = []

    def flicker(ask: ProbeQuery) -> Answer:
        asked.append(ask.key)
        return answered(hits("noise" if asked.count("c3") == 1 and ask.key == "c3" else f"doc-{ask.key}"))

    assert said(report(FakeProbe(otherwise=flicker), before=saved)) == ("healthy", [COMPARED])
    assert asked.count("c3") == 2, "asked again once, since it was found then"


def test_a_fall_by_more_than_chance_is_degraded_and_asks_nobody_again() -> None:
    saved, asked = report(FakeProbe()), list[str]()

    def half(ask: ProbeQuery) -> Answer:
        asked.append(ask.key)
        return answered(hits("noise" if ask.key in KEYS[:8] else f"doc-{ask.key}"))

    verdict, reasons = said(report(FakeProbe(otherwise=half), before=saved))
    assert verdict == "degraded"
    assert reasons[0].startswith("8 canaries lost since the baseline: c0, c1, c2, c3, c4, c5, c6, c7; coverage 0.333")
    assert len(asked) == len(KEYS)


def test_an_order_that_is_worse_by_more_than_chance_is_a_warning() -> None:
    saved = report(FakeProbe())
    behind = FakeProbe(otherwise=lambda ask: answered(hits("noise", "more noise", f"doc-{ask.key}")))
    verdict, reasons = said(report(behind, before=saved))
    assert verdict == "degraded"
    assert reasons[0].startswith("worse than the baseline: NDCG@")
    assert reasons[0].endswith("(warning)")


def test_a_regression_rule_is_judged_by_a_saved_report_too() -> None:
    saved = report(FakeProbe(), {"kind": "regression"})
    verdict, reasons = said(report(lost("c3"), {"kind": "regression"}, before=saved))
    assert (verdict, reasons) == ("degraded", ["1 canary lost since the baseline, and when asked again: c3 (critical)"])


def test_a_saved_report_that_measured_nothing_is_no_baseline() -> None:
    saved = report(FakeProbe(otherwise=lambda _ask: failed(Outcome.TIMEOUT)))
    assert said(report(FakeProbe(), before=saved)) == ("healthy", [ABSOLUTE])


def test_a_drop_is_told_from_a_saved_report_and_from_nothing_else() -> None:
    before = report(FakeProbe(), DROP)
    why = "rule 'drop-coverage' says nothing: a single run has no baseline; name a saved report with --baseline"
    assert said(before) == ("healthy", [why])
    verdict, reasons = said(report(lost(*KEYS[:6]), DROP, before=before))
    assert verdict == "degraded"
    assert reasons[0].startswith("coverage 0.500 against 1.000 in the baseline, -0.500 (95 % between -")
    assert said(report(lost(*KEYS[:5]), DROP, before=before)) == ("healthy", []), "p is 2 of 32 ways: 0.0625"
    assert said(report(FakeProbe(), DROP, before=before)) == ("healthy", [])


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        ({"run": {"measures_version": "0"}}, "the saved report is of another measures version"),
        ({"results": []}, "only 0 canaries can be compared with the baseline; it takes 10 to tell a drop from chance"),
    ],
)
def test_a_saved_report_that_cannot_be_compared_is_no_baseline(spoiled: Mapping[str, Any], why: str) -> None:
    saved = report(FakeProbe())
    before = {"run": {**saved["run"], **spoiled.get("run", {})}, "results": spoiled.get("results", saved["results"])}
    assert said(report(lost(*KEYS[:5]), DROP, before=before)) == (
        "healthy",
        [f"rule 'drop-coverage' says nothing: {why}"],
    )


def test_an_unknown_run_names_no_rules() -> None:
    probe = FakeProbe(otherwise=lambda _ask: failed(Outcome.TIMEOUT))
    verdict, reasons = said(report(probe, {"kind": "regression"}, DROP))
    assert verdict == "unknown"
    assert not any("says nothing" in reason for reason in reasons)


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_rules_that_need_a_history_are_one_note_for_all_checks(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    reports = [report(FakeProbe(), {"kind": "regression"}) for _ in range(3)]
    show_reports(reports, form)
    shown = capsys.readouterr()
    assert shown.err == "regression: needs the history of a service; not evaluated here.\n"
    assert "says nothing" not in shown.out


def test_the_json_report_lists_the_rules_that_need_a_history(capsys: pytest.CaptureFixture[str]) -> None:
    show_reports([report(FakeProbe(), {"kind": "regression"})], "json")
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "rule 'regression' says nothing: " in shown.out
