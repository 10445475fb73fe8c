"""Reports: what people read after a run, whatever a retriever or a query tries to smuggle into it."""

import json
from io import StringIO
from itertools import pairwise
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console

from app.base.terminal import draw
from app.base.texts import UNDEFINED, Table, plain
from app.base.values import replace
from app.reports.rendering.report_measures import category_table, cutoff_table, whole_table
from app.reports.rendering.reports import (
    failure_lines,
    headline,
    note_lines,
    report_json,
    report_junit,
    report_markdown,
    worst_table,
)


def result(**changes: Any) -> dict[str, Any]:
    return {
        "key": "retention",
        "query": "How long is data kept?",
        "category": "simple_factual",
        "tags": [],
        "outcome": "ok",
        "http_status": 200,
        "detail": None,
        "latency_seconds": 0.25,
        "verdict": "healthy",
        "reasons": [],
        "top_score": 0.91,
        "any_match": True,
        "measures": {"R@5": 1.0},
        "ranking": [],
        "missing": [],
        "k": 2,
        "min_relevance_score": 0.5,
        "max_relevance_score": 0.5,
        "floors": {},
        "since_run": None,
    } | changes


def degraded(**changes: Any) -> dict[str, Any]:
    ranking = [
        {
            "rank": rank,
            "id": f"chunk-{rank}",
            "document": None,
            "text": "text",
            "score": 1 / rank,
            "relevance": 1 / rank,
            "judgment": {"id": "other_doc", "grade": 1} if rank == 3 else None,
            "level": "passage" if rank == 3 else None,
            "grade": 1 if rank == 3 else None,
        }
        for rank in (1, 2, 3)
    ]
    return result(
        verdict="degraded",
        reasons=["low_relevance", "missing"],
        top_score=0.3,
        ranking=ranking,
        missing=[{"id": "retention_policy_doc", "grade": 1}],
        **changes,
    )


WHY = "relevance 0.300 is below its minimum 0.5; no expected chunk in the top 2, the first is at rank 3"
FAILED = result(
    key="slow", verdict="unknown", outcome="refused", http_status=503, detail="said 503", top_score=None, measures={}
)


def report(*results: dict[str, Any], **changes: Any) -> dict[str, Any]:
    run = {
        "check": "docs",
        "suite": "dataforge",
        "status": "finished",
        "started_at": "2025-01-01T00:00:00Z",
        "verdict": "degraded",
        "reasons": ["coverage 0.850 is below 0.9 (critical)"],
        "index_version": "v7",
        "health_score": 0.75,
        "coverage": 0.8512,
        "canaries": {"total": 4, "measured": 3, "failed": 1, "undefined": 1, "degraded": 2},
        "measures": {"MRR": 0.5, "NDCG@1": 0.25, "R@10": None, "R@1": 1 / 3, "Hit@1": 1.0, "MAP": None, "Odd@1": 0.1},
        "categories": {
            "procedural": {"canaries": 2, "health_score": 0.5, "coverage": None, "measures": {"MRR": 0.4, "R@1": 0.1}}
        },
    } | changes
    return {"run": run, "worst": [one for one in results if one["verdict"] != "healthy"], "results": list(results)}


def cells(markdown: str) -> list[list[Token]]:
    """Return the tokens inside each table cell, as GitHub-flavoured Markdown reads them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [after.children or [] for before, after in pairwise(tokens) if before.type in {"td_open", "th_open"}]


def text_of(cell: list[Token]) -> str:
    return "".join(token.content for token in cell)


def test_markdown_says_verdict_reasons_counts_and_measures() -> None:
    text = report_markdown(report(degraded()))
    assert text.startswith("# Degraded: docs\n- coverage 0.850 is below 0.9 (critical)\n")
    assert (
        "2 of 2 questions find their document (coverage 0.851); 4 canaries: 3 measured, 1 failed, 1 undefined, "
        "2 degraded; first-hit relevance 0.750" in text
    )
    read = [text_of(cell) for cell in cells(text)]
    assert read[12:20] == ["measure", "@1", "Hit", "1.000", "R", "0.333", "NDCG", "0.250"]
    assert read[6:12] == [
        "retention",
        "How long is data kept?",
        WHY,
        "0.300",
        "other_doc at rank 3",
        "retention_policy_doc",
    ]


def test_undefined_is_a_dash_and_never_zero() -> None:
    run = report()["run"]
    assert whole_table(run).rows == (("MRR", "0.500"), ("MAP", UNDEFINED))
    several = {**run, "categories": {**run["categories"], "comparative": run["categories"]["procedural"]}}
    assert category_table(several).rows[0] == ("procedural", "2", UNDEFINED, "0.500", "0.400")
    assert category_table(run).rows == (), "one category alone has nothing to be compared with"
    empty = {**run, "health_score": None, "coverage": None, "measures": {}, "categories": {}}
    assert "0.000" not in report_markdown({"run": empty, "worst": [FAILED]})


@pytest.mark.parametrize(
    ("verdict", "degraded", "measured", "said"),
    [
        ("healthy", 0, 3, "Healthy: docs"),
        ("healthy", 2, 2, "Healthy by its rules, although 2 of 2 canaries are degraded: docs"),
        ("healthy", 1, 1, "Healthy by its rules, although 1 of 1 canary is degraded: docs"),
        ("degraded", 2, 2, "Degraded: docs"),
        ("unknown", None, None, "Unknown: docs"),
    ],
)
def test_a_healthy_headline_admits_degraded_canaries(
    verdict: str, degraded: int | None, measured: int | None, said: str
) -> None:
    assert (
        headline({"check": "docs", "verdict": verdict, "canaries": {"degraded": degraded, "measured": measured}})
        == said
    )


def test_failures_are_told_by_what_they_ran_into_the_most_frequent_first() -> None:
    strange = [result(verdict="unknown", outcome="malformed", detail=f"no {number}") for number in range(6)]
    told = failure_lines(report(FAILED, *strange, FAILED, result()))
    assert told[0] == "2 x error response: said 503 (slow, slow)"
    assert told[1:5] == [f"1 x malformed: no {number} (retention)" for number in range(4)]
    assert told[5:] == ["2 x something else"]
    assert failure_lines(report(result())) == []
    assert "- 1 x error response: said 503 (slow)" in report_markdown(report(FAILED))


def test_recall_by_id_and_by_passage_have_rows_only_where_they_are_defined() -> None:
    undefined = {"R@5": 0.5, "R_id@5": None, "R_passage@5": None}
    assert [row[0] for row in cutoff_table(report(measures=undefined)["run"]).rows] == ["R"]
    defined = {"R@5": 0.5, "R_id@5": 0.0, "R_passage@5": 1.0, "R_id@20": None, "R_passage@20": None}
    assert cutoff_table(report(measures=defined)["run"]).rows == (
        ("R", "0.500"),
        ("R_id", "0.000"),
        ("R_passage", "1.000"),
    )


@pytest.mark.parametrize(
    ("measures", "told"),
    [
        ({"R_id@10": 0.2, "R_passage@10": 0.95}, True),
        ({"R_id@10": 0.4, "R_passage@10": 0.7}, True),
        ({"R_id@10": 0.41, "R_passage@10": 0.7}, False),
        ({"R_id@10": None, "R_passage@10": None}, False),
        ({"R_id@1": 0.0, "R_passage@1": 0.9, "R_id@10": 0.9, "R_passage@10": 0.9}, False),
        ({"R_id@10": 0.0, "R_passage@10": 0.9, "R_id@20": None, "R_passage@20": None}, True),
        ({"R@10": 0.2}, False),
    ],
)
def test_chunks_that_came_back_under_other_ids_are_worth_a_word(
    measures: dict[str, float | None], *, told: bool
) -> None:
    assert (len(note_lines(report(measures=measures))) == 1) is told


def test_the_note_on_other_ids_names_both_recalls() -> None:
    measures = {"R_id@5": 0.2, "R_passage@5": 0.95}
    note = "recall by id 0.20, by passage 0.95: the expected texts have other ids"
    assert note_lines(report(measures=measures)) == [note]
    assert f"- {note}\n" in report_markdown(report(measures=measures))


def low(key: str, score: float, **changes: Any) -> dict[str, Any]:
    return result(key=key, verdict="degraded", reasons=["low_relevance"], top_score=score, **changes)


def counts(*, measured: int, degraded: int) -> dict[str, int]:
    return {"total": measured, "measured": measured, "failed": 0, "undefined": 0, "degraded": degraded}


def test_a_minimum_above_all_scores_is_told_as_what_may_be_wrong() -> None:
    two = report(low("a", 0.312), low("b", 0.42), verdict="healthy", canaries=counts(measured=2, degraded=2))
    told = "degraded by relevance alone: the first hits score 0.31 to 0.42, below min_relevance_score 0.5"
    assert note_lines(two) == [f"{told}; set it to what the scores of this retriever mean"]
    one = report(low("a", 0.2, min_relevance_score=0.8), canaries=counts(measured=1, degraded=1))
    assert "the first hit scores 0.20, below min_relevance_score 0.8;" in note_lines(one)[0]


@pytest.mark.parametrize(
    ("results", "measured"),
    [
        ([low("a", 0.3), degraded()], 2),  # one is missing what it expects
        ([low("a", 0.3), result(), result()], 3),  # most are fine: that one is the news
        ([], 2),
    ],
)
def test_other_faults_are_not_blamed_on_the_minimum(results: list[dict[str, Any]], measured: int) -> None:
    bad = sum(one["verdict"] == "degraded" for one in results)
    assert note_lines(report(*results, canaries=counts(measured=measured, degraded=bad))) == []


HOSTILE = [
    "a | b",
    "`|` and ``",
    "<script>alert(1)</script>",
    "![x](https://evil.example/x.png)",
    "[click](javascript:alert)",
    "@team please #1",
    "line\nbreak\r\n\r\n# Heading",
    "\x1b[31mred\x1b[0m\x07",
    "\u202eright to left",
    "\\",
    "a\\|b",
    "``` fence",
    "*bold* _em_ ~~del~~",
    "",
]


def test_no_query_id_or_text_becomes_markup() -> None:
    for text in HOSTILE:
        bad = degraded(key=text or "x", query=text)
        bad["missing"] = [{"text": text, "grade": 1}]
        read = cells(report_markdown(report(bad)))[6:12]
        assert len(read) == 6, text
        assert {token.type for cell in read for token in cell} <= {"code_inline", "text"}, text
        assert text_of(read[1]) == (plain(text) or UNDEFINED), text
        assert read[1][0].type == ("code_inline" if plain(text) else "text"), text


@settings(deadline=None)
@given(st.text() | st.text(st.sampled_from("|`\\ a\n")))
def test_any_text_stays_in_its_cell(text: str) -> None:
    read = cells(report_markdown(report(degraded(query=text))))[6:12]
    assert [text_of(read[0]), text_of(read[3])] == ["retention", "0.300"]
    assert {token.type for token in read[1]} <= {"code_inline", "text"}


def test_reasons_and_index_versions_become_no_markup() -> None:
    for reason in HOSTILE:
        text = report_markdown(report(reasons=[reason or "x"], index_version=reason))
        tokens = MarkdownIt("commonmark").parse(text)
        inside = {child.type for token in tokens for child in token.children or []}
        assert inside <= {"text", "text_special", "softbreak"}, reason
        assert not {token.type for token in tokens} & {"html_block", "fence", "code_block"}, reason
        assert next(token.content for token in tokens if token.type == "inline") == "Degraded: docs", reason


def junit(*results: dict[str, Any]) -> ET.Element:
    root = ET.fromstring(report_junit(report(*results)))  # noqa: S314 - our own text
    [suite] = root
    return suite


def test_junit_tells_the_fate_of_every_canary() -> None:
    undefined = result(key="open", any_match=None, measures={"R@5": None})
    negative = result(key="none", category="negative", measures={"R@5": None})
    unasked = result(key="late", verdict="unknown", outcome="skipped", latency_seconds=None, measures={})
    suite = junit(result(), degraded(key="bad"), FAILED, undefined, negative, unasked)
    assert {
        name: suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped", "time", "timestamp")
    } == {
        "name": "docs",
        "tests": "7",
        "failures": "2",
        "errors": "2",
        "skipped": "1",
        "time": "1.250",
        "timestamp": "2025-01-01T00:00:00Z",
    }
    fates = {case.get("name"): [(told.tag, told.get("message")) for told in case] for case in suite}
    assert fates == {
        "verdict": [("failure", "coverage 0.850 is below 0.9 (critical)")],
        "retention": [],
        "bad": [("failure", WHY)],
        "slow": [("error", "error response (503)")],
        "open": [("skipped", "nothing is expected, so nothing is measured")],
        "none": [],
        "late": [("error", "not measured: the run ended first (not sent, or aborted)")],
    }


def test_junit_goes_through_results_once_and_indents_them_as_a_tree() -> None:
    two = report(result(), degraded(key="bad")), report(FAILED)
    text = report_junit(*({**one, "results": iter(one["results"])} for one in two))
    tree = ET.fromstring(text)  # noqa: S314 - our own text
    ET.indent(tree)
    assert text == f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(tree, encoding="unicode")}\n'
    assert [suite.get("tests") for suite in tree] == ["3", "2"]


def test_a_junit_failure_carries_its_evidence() -> None:
    suite = junit(degraded())
    assert suite[1].get("classname") == "docs.simple_factual"
    assert (suite[1][0].text or "").splitlines() == [
        "query: How long is data kept?",
        "relevance: 0.300",
        "missing: retention_policy_doc",
        "1. chunk-1 score 1.000",
        "2. chunk-2 score 0.500",
        "3. chunk-3 score 0.333, matches other_doc by passage",
    ]


@settings(deadline=None)
@given(st.text(st.characters()))
def test_junit_is_xml_whatever_a_text_holds(text: str) -> None:
    bad = degraded(key=text, query=text)
    bad["ranking"][0]["id"] = text
    suite = junit(bad)
    assert suite[1][0].get("message") == WHY
    assert report_junit(report(bad)).encode()


def test_junit_without_all_results_has_the_worst() -> None:
    short = report(result(), degraded(key="bad"))
    del short["results"]
    suite = ET.fromstring(report_junit(short))[0]  # noqa: S314 - our own text
    assert [case.get("name") for case in suite] == ["verdict", "bad"]


def junit_counts(whole: dict[str, Any]) -> tuple[str | None, str | None]:
    suite = ET.fromstring(report_junit(whole))[0]  # noqa: S314 - our own text
    return suite.get("failures"), suite.get("errors")


def test_junit_has_failures_exactly_where_the_verdict_is_degraded() -> None:
    bad = degraded(key="bad")
    assert junit_counts(report(bad, verdict="healthy", reasons=[])) == ("0", "0")
    assert junit_counts(report(bad, FAILED, verdict="healthy", reasons=[])) == ("0", "1"), "unmeasured is never passed"
    assert junit_counts(report(bad)) == ("2", "0")
    assert junit_counts(report(bad, verdict="unknown")) == ("0", "1")
    newly = {"newly_degraded": [{"key": "bad"}], "recovered": []}
    assert junit_counts({**report(bad, degraded(key="old")), "comparison": newly}) == ("2", "0")


def test_json_is_the_report_itself() -> None:
    whole = report(degraded(query="é"))
    assert json.loads(report_json(whole)) == whole
    assert "é" in report_json(whole)
    with pytest.raises(ValueError, match="JSON"):
        report_json(report(health_score=float("nan")))


def test_tables_for_a_terminal_hold_no_control_sequence() -> None:
    [row] = worst_table(report(degraded(query="\x1b[2Jgone\u202e"))).rows
    assert row[1] == "[2Jgone"


def test_what_is_known_to_be_irrelevant_is_not_told_as_found() -> None:
    bad = degraded()
    bad["ranking"][0] |= {"judgment": {"id": "old_doc", "grade": 0}, "level": "id", "grade": 0}
    assert worst_table(report(bad)).rows[0][4] == "other_doc at rank 3"
    junit = report_junit(report(bad))
    assert "known irrelevant: old_doc by id" in junit
    assert "matches old_doc" not in junit
    bad["ranking"][2] |= bad["ranking"][0] | {"rank": 3}
    assert worst_table(report(bad)).rows[0][4] == UNDEFINED


def test_what_must_not_come_is_named_before_what_was_found() -> None:
    bad = degraded()
    bad["forbidden_ranks"] = [1]
    bad["ranking"][0] |= {"id": "g1", "document": "globex/contract.pdf"}
    assert worst_table(report(bad)).rows[0][4].startswith("globex/contract.pdf (forbidden) at rank 1")


def test_a_cell_names_three_chunks_and_counts_the_rest() -> None:
    bad = degraded()
    bad["missing"] = [{"id": str(number), "grade": 1} for number in range(5)]
    assert worst_table(report(bad)).rows[0][5] == "0, 1, 2 and 2 more"


def test_a_table_that_would_break_words_is_drawn_as_records_and_an_empty_one_says_none() -> None:
    table = Table(
        title="Worst canaries",
        columns=("canary", "query", "missing"),
        rows=(("retention", "How long is data kept?", "retention_policy_doc"), ("rest", "", UNDEFINED)),
        note="two of them",
    )
    drawn = {width: Console(width=width, file=StringIO(), highlight=False) for width in (80, 30)}
    for console in drawn.values():
        draw(console, table)
    wide, narrow = (cast("StringIO", console.file).getvalue() for console in drawn.values())
    assert "canary" in wide
    assert narrow.splitlines() == [
        "Worst canaries",
        "retention",
        *(line.ljust(30) for line in ("  query: How long is data", "  kept?", "  missing:", "  retention_policy_doc")),
        "rest",
        "Two of them.",
    ]
    empty = Console(width=80, file=StringIO())
    draw(empty, replace(table, rows=()))
    assert cast("StringIO", empty.file).getvalue() == "Worst canaries: none\n"
