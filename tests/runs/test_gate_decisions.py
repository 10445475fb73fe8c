"""What the gate claims of a run against a saved report: by the engine of all comparisons, and of which canaries."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.values import Outcome, replace
from app.catalog.documents.canary_files import read_canary_files
from app.catalog.domain import Use
from app.comparison.service import comparisons
from app.comparison.service.decisions import decide_reports, same_expectations
from app.reports.rendering.reports import compare_reports, comparison_lines, read_reports
from app.runs.service.gate import choose_targets, measure
from tests.support.fakes import FakeClock, FakeProbe, answered, failed, hits
from tests.support.world import RETRIEVER, World, canary, page

KEYS = tuple(f"c{number:02}" for number in range(24))
LOST = {key: answered(hits("noise")) for key in KEYS[:10]}
REGRESSION = [{"kind": "regression"}]
DROPS = (
    {"kind": "drop", "measure": "coverage", "critical": {"by": 0.1}},
    {"kind": "drop", "measure": "MRR", "critical": {"by": 0.03}},
)


def gate(
    answers: Mapping[str, Any] | None = None,
    *,
    before: Mapping[str, Any] | None = None,
    canaries: Sequence[Mapping[str, Any]] | None = None,
    **check: Any,
) -> dict[str, Any]:
    """Measure a check of 24 canaries with `coalmine check` and give the report as it is read back."""
    fields = {"k": 5, "rules": [], "hooks": [], **check}
    with_texts = {**RETRIEVER, "response": {**RETRIEVER["response"], "text": "text"}}
    document = {**page(canaries or [canary(key) for key in KEYS], **fields), "retrievers": [with_texts]}
    documents = read_canary_files([("canaries.yaml", json.dumps(document))], {}, None)
    (target,) = choose_targets(documents)
    probe = FakeProbe(answers=dict(answers or {}))
    report = measure(target, probe, run_id="run-1", clock=FakeClock(), before=before)
    (read,) = read_reports("saved.json", json.dumps(report)).values()
    return dict(read)


def drop_reasons(report: Mapping[str, Any]) -> str:
    return " ".join(report["run"]["reasons"])


def test_what_is_decided_stands_in_the_report_and_among_its_lines() -> None:
    before, now = gate(), gate(LOST)
    decision = decide_reports(before, now)
    assert decision is not None
    assert (decision["verdict"], decision["canaries"]) == ("worse", 24)
    assert [one["measure"] for one in decision["primary"]] == ["NDCG@10", "R@5", "P@5", "MRR@10", "coverage"]
    assert {one["claim"] for one in decision["primary"]} == {"claimed"}
    lines = comparison_lines(compare_reports(before, now, decision))
    assert lines[1].startswith("Worse than before: NDCG@10 down 0.417 (95 % between -0.6")
    back = decide_reports(now, before)
    assert back is not None
    assert back["verdict"] == "better"


def test_the_measure_of_the_use_of_the_check_leads() -> None:
    decision = decide_reports(gate(), gate(LOST), Use.COMPLETENESS)
    assert decision is not None
    assert decision["sentence"].startswith("worse than before: R@5 down 0.417")


def test_forbidden_chunks_are_counted_in_reports_as_the_service_counts_them() -> None:
    asked = [canary(key, forbidden_chunks=["payroll"]) for key in KEYS]
    before, now = gate(canaries=asked), gate({KEYS[0]: answered(hits("doc-c00", "payroll"))}, canaries=asked)
    decision = decide_reports(before, now)
    assert decision is not None
    assert (decision["verdict"], decision["violations"][0]["only_b"]) == ("worse", [KEYS[0]])
    assert decision["sentence"].startswith("worse than before: forbidden chunks for 1 of 24 canaries now, for 0 before")


def test_one_canary_less_is_not_claimed() -> None:
    before, now = gate(), gate({KEYS[0]: LOST[KEYS[0]]})
    decision = decide_reports(before, now)
    assert decision is not None
    assert decision["verdict"] == "no_difference_shown"
    assert comparison_lines(compare_reports(before, now, decision))[1].startswith("No difference shown between before")


def test_the_gate_and_the_service_decide_the_same(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in KEYS], k=5, rules=[], hooks=[]))
    first = world.run()
    world.probe.answers = dict(LOST)
    second = world.run()
    found = comparisons.diff(world.store, str(first.id), str(second.id))
    decision = decide_reports(gate(), gate(LOST))
    assert decision is not None
    assert decision["sentence"] == found["decision"]["sentence"]
    assert decision["primary"] == found["decision"]["primary"]


def test_a_canary_that_expects_something_else_now_is_neither_compared_nor_a_drop() -> None:
    others = [canary(key, expected_chunks=["other"]) if key in LOST else canary(key) for key in KEYS]
    before = gate(rules=DROPS)
    now = gate(before=before, canaries=others, rules=DROPS)
    decision = decide_reports(before, now)
    assert decision is not None
    assert (decision["verdict"], decision["canaries"]) == ("no_difference_shown", 14)
    assert [(one["reason"], one["canaries"]) for one in decision["excluded"]] == [("other_judgments", 10)]
    assert now["run"]["coverage"] == pytest.approx(14 / 24, abs=1e-6)
    assert now["run"]["verdict"] == "healthy"


def test_a_canary_that_was_not_measured_is_named() -> None:
    decision = decide_reports(gate(), gate({KEYS[3]: failed(Outcome.TIMEOUT)}))
    assert decision is not None
    assert [one["sentence"] for one in decision["excluded"]] == ["1 canary was not measured now: c03"]


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (0, "cut in 0 %, empty in 100 % of 24 chunks compared"),
        (60, "cut to 60 characters in 100 %, empty in 0 % of 24 chunks"),
    ],
)
def test_chunks_that_lost_their_texts_since_the_saved_report_are_lost(cut: int, words: str) -> None:
    text = (
        "Audit logs are kept for thirty days unless the contract names another term. Administrators read them in the "
        "console, and support reads them where a ticket asks for it. At the end of a contract they are removed from "
        "all regions within a week, and backups of them follow a month later."
    )

    def answers(length: int) -> dict[str, Any]:
        found = {key: hits(f"doc-{key}") for key in KEYS}
        return {key: answered(replace(one, texts=(f"{key}: {text}"[:length],))) for key, one in found.items()}

    before = gate(answers(400), rules=REGRESSION)
    assert gate(answers(400), before=before, rules=REGRESSION)["run"]["verdict"] == "healthy"
    now = gate(answers(cut), before=before, rules=REGRESSION)
    assert now["run"]["verdict"] == "degraded"
    assert now["run"]["coverage"] == 0.0
    assert f"Texts of the same chunks changed since the saved report: {words}" in drop_reasons(now)
    one = {**answers(400), **{key: answer for key, answer in answers(cut).items() if key == KEYS[0]}}
    alone = gate(one, before=before, rules=REGRESSION)
    assert alone["run"]["verdict"] == "degraded", "asked again, its text was gone again"
    assert KEYS[0] in drop_reasons(alone)


def test_drops_of_the_gate_are_claimed_and_those_of_whole_rankings_at_equal_depth_alone() -> None:
    before = gate(rules=DROPS)
    now = gate(LOST, before=before, rules=DROPS)
    assert now["run"]["verdict"] == "degraded"
    assert "coverage 0.583 against 1.000" in drop_reasons(now)
    deep = {key: answered(hits(*(f"n{rank}" for rank in range(12)), f"doc-{key}")) for key in KEYS[:12]}
    shallow = gate(
        {key: answered(hits("noise")) for key in deep}, before=gate(deep, rules=DROPS, fetch_k=20), rules=DROPS
    )
    assert "the saved report asked for another number of hits (fetch_k)" in drop_reasons(shallow)
    assert shallow["run"]["verdict"] == "healthy", "coverage at 5 is as it was"


@pytest.mark.parametrize("strip", [("expectations", "fetch_k"), ("expectations",)])
def test_a_report_of_an_earlier_release_is_still_decided(strip: Sequence[str]) -> None:
    before = {name: value for name, value in gate().items() if name not in strip}
    now = gate(LOST, before=before, rules=DROPS)
    decision = decide_reports(before, now)
    assert decision is not None
    assert decision["verdict"] == "worse"
    assert now["run"]["verdict"] == "degraded"
    assert same_expectations(before, {"c00": "x"}) is None
    changed = gate(canaries=[canary(key) for key in KEYS[1:]])
    assert decide_reports(before, changed) is None, "the suite changed, and it does not say what it expected"


@pytest.mark.parametrize(
    "spoiled",
    [
        {"expectations": ["c00"]},
        {"expectations": {"c00": ["x"]}},
        {"results": [{"key": "c00", "verdict": "healthy"}]},
        {"results": [{"key": "c00", "verdict": "healthy", "measures": 3, "query": "q", "k": 5}]},
    ],
)
def test_a_report_that_was_written_by_hand_is_compared_without_a_decision(spoiled: dict[str, Any]) -> None:
    before, now = {**gate(), **spoiled}, gate(canaries=[canary(key) for key in KEYS[1:]])
    assert decide_reports(before, now) is None
    comparison = compare_reports(before, now, None)
    assert comparison["decision"] is None
    assert comparison_lines(comparison)[0].startswith("Against the baseline")


def test_a_report_of_other_measures_is_not_decided(tmp_path: Path) -> None:
    before, now = gate(), gate(LOST)
    before["run"] = {**before["run"], "measures_version": "1"}
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(before), encoding="utf-8")
    (read,) = read_reports("saved.json", saved.read_text(encoding="utf-8")).values()
    assert decide_reports(read, now) is None
