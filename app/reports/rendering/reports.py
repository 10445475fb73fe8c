"""Renders a report, the plain `{run, worst, results?}` of `records.views`, and compares it with a saved one.

Forms are Markdown, JSON, JUnit XML, tables and HTML. Queries, ids and retrieved texts may be hostile: none of them can
become markup, a mention or a control sequence. An undefined number is shown as a dash, never as 0.
"""

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from app.base import texts
from app.base.errors import InvalidInputError, Problem
from app.base.texts import (
    UNDEFINED,
    Table,
    bad_answers_text,
    counted,
    found_text,
    number,
    outcome_word,
    plain,
    prose,
    shorten,
    table_markdown,
    unjudged_words,
)
from app.base.values import OWN_MEASURES, Category, Outcome, Reason, Verdict, replace
from app.catalog.domain import POOLED_FRAME, labelled
from app.comparison.domain.outcomes import Change, Claim, Side
from app.comparison.domain.sentences import BEFORE_AND_NOW, claim_text
from app.comparison.rendering import difference_text, interval_text, rank_text
from app.comparison.views import ComparisonDecision, Sides
from app.records.views import ReportComparison, not_returned, starter, why_degraded
from app.reports.rendering import report_measures
from app.reports.rendering.report_measures import (
    category_cutoff_tables,
    composition_table,
    lead_line,
    measure_tables,
    pooled_recall_lines,
    recall_lines,
)

if TYPE_CHECKING:  # a gate that renders no page does without them
    from jinja2 import Environment

    from app.reports.views import HeatMap

_SHOWN_FAILURES = 5
_NOT_WAITED_FOR = " (not sent, or aborted)"


def report_markdown(report: Mapping[str, Any]) -> str:
    """Return the report as GitHub-flavoured Markdown: verdict, reasons, failures, counts, tables."""
    run = report["run"]
    reasons = [*map(str, run.get("reasons") or ()), *answer_lines(report)]
    parts = [f"# {prose(report_headline(report))}", *(f"- {prose(reason)}" for reason in reasons)]
    notes = [*failure_lines(report), *note_lines(report)]
    if notes:
        parts += ["", *(f"- {prose(line)}" for line in notes)]
    for line in (*lead_lines(report), counts_line(run), *change_lines(report)):
        parts += ["", prose(line)]
    for table in (*change_tables(report), *report_tables(report), *_category_sections(report)):
        parts += ["", table_markdown(table)]
    return "\n".join(parts) + "\n"


def _category_sections(report: Mapping[str, Any]) -> list[Table]:
    """Return the measures of each category at every cut-off, in reports that have intervals."""
    if "intervals" not in report:
        return []
    return [replace(table, title=f"Measures: {table.title}") for table in category_cutoff_tables(report)]


def report_json(report: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """Return a report, or a list of them, as indented JSON in its own order; ValueError for a number JSON lacks."""
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def report_junit(*reports: Mapping[str, Any]) -> str:
    """Return the reports as JUnit XML: a suite each, its verdict as the first test case, then one per canary.

    The canaries are those of `results`, or else of `worst`. There are failures exactly where the verdict is degraded:
    the verdict, and the degraded canaries, beside a saved report those newly degraded. What is degraded without being
    a failure has its reasons as output. A canary that was not measured is an error, whatever the verdict, and so is an
    unknown verdict; a canary without expectations is skipped.
    """
    suites = "".join([f"\n{_junit_suite(report)}" for report in reports])
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>{suites}\n</testsuites>\n'


def _junit_suite(report: Mapping[str, Any]) -> str:
    """Return a suite as indented XML. Its results are gone through once, and kept as text alone: they may be many."""
    run = report["run"]
    name = str(run.get("check") or run["suite"])
    tally = Counter[str]()
    seconds = 0.0
    degraded = run.get("verdict") == Verdict.DEGRADED
    comparison = report.get("comparison")
    failing = {one["key"] for one in comparison["newly_degraded"]} if comparison is not None else None
    cases: list[str] = [_verdict_case(name, report, tally)]
    for result in report["results"] if "results" in report else report["worst"]:
        latency = result.get("latency_seconds") or 0.0
        seconds += latency
        case = ET.Element(
            "testcase",
            classname=_xml(f"{name}.{result['category']}"),
            name=_xml(str(result["key"])),
            time=f"{latency:.3f}",
        )
        kind, message = _junit_outcome(result, run)
        if kind == "failure" and not (degraded and (failing is None or result["key"] in failing)):
            already = "degraded in the baseline too" if degraded else "degraded"
            ET.SubElement(case, "system-out").text = _xml(f"{already}: {message}")
        elif kind is not None:
            tally[kind] += 1
            element = ET.SubElement(case, kind, message=_xml(message))
            if kind != "skipped":
                element.set("type", ",".join(result["reasons"]) or str(result["outcome"]))
                element.text = _xml("\n".join(_evidence(result)))
        cases.append(_indented(case, 2))
    suite = ET.Element("testsuite", name=_xml(name), tests=str(len(cases)), time=f"{seconds:.3f}")
    if run.get("started_at"):
        suite.set("timestamp", str(run["started_at"]))
    for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(tally[kind]))
    start = _indented(suite, 1)
    return "\n".join([f"{start.removesuffix(' />')}>", *cases, "  </testsuite>"])


def _verdict_case(name: str, report: Mapping[str, Any], tally: Counter[str]) -> str:
    """Return the verdict of a run as a test case, and count it."""
    run = report["run"]
    case = ET.Element("testcase", classname=_xml(name), name="verdict", time="0.000")
    verdict = run.get("verdict")
    reasons = "\n".join(plain(str(reason)) for reason in (*(run.get("reasons") or ()), *answer_lines(report)))
    kind = None if verdict == Verdict.HEALTHY else "failure" if verdict == Verdict.DEGRADED else "error"
    if kind is not None:
        tally[kind] += 1
        message = reasons.split("\n", 1)[0] or str(verdict or run["status"])
        ET.SubElement(case, kind, message=_xml(message), type=str(verdict or run["status"])).text = _xml(reasons)
    elif reasons:
        ET.SubElement(case, "system-out").text = _xml(reasons)
    return _indented(case, 2)


def _indented(element: ET.Element, level: int) -> str:
    """Return an element as XML, indented as one at this level."""
    ET.indent(element, level=level)
    return f"{'  ' * level}{ET.tostring(element, encoding='unicode')}"


def answer_lines(report: Mapping[str, Any]) -> list[str]:
    """Return sentences, without full stops, on what the verdict does not tell: answers that are bad or not judged.

    Or that nothing of what is retrieved was measured. None where there is nothing such.
    """
    healthy = report["run"].get("verdict") == Verdict.HEALTHY
    unjudged = report.get("unjudged_answers") or ""
    text = bad_answers_text(report.get("bad_answers", ()), healthy=healthy, unjudged=unjudged)
    return [plain(one) for one in (report.get("unwatched"), text) if one]


def report_headline(report: Mapping[str, Any]) -> str:
    """Return the verdict of a report in one line, with what its answers were or that nothing was measured."""
    unjudged = report.get("unjudged_answers") or ""
    some = f"were {unjudged_words(unjudged)}" if unjudged else ""
    answers = "are bad" if report.get("bad_answers") else some
    if report.get("unwatched") and not answers:
        return f"Nothing measured: {plain(str(report['run'].get('check') or report['run']['suite']))}"
    return headline(report["run"], answers=answers)


def headline(run: Mapping[str, Any], *, answers: str = "") -> str:
    """Return the verdict in one line: `Degraded: dataforge-docs`; a healthy run with degraded canaries says so.

    So does one whose `answers` are bad or were not judged, of which its verdict does not know.
    """
    verdict = str(run.get("verdict") or run["status"]).capitalize()
    degraded, measured = run["canaries"]["degraded"], run["canaries"]["measured"]
    if run.get("verdict") == Verdict.HEALTHY and degraded:
        by, be = "what was retrieved" if answers else "its rules", "is" if degraded == 1 else "are"
        verdict = f"{verdict} by {by}, although {degraded} of {counted(measured, 'canary')} {be} degraded"
    elif run.get("verdict") == Verdict.HEALTHY and answers:
        verdict = f"{verdict} by what was retrieved"
    verdict += f"; its answers {answers}" if answers else ""
    return f"{verdict}: {plain(str(run.get('check') or run['suite']))}"


def lead_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the numbers to read first, and why they come first; none of a report without a guide."""
    line = lead_line(report)
    return [line, str(report["guide"]["sentence"])] if line else []


def counts_line(run: Mapping[str, Any]) -> str:
    """Return one line: how many questions find their document, canaries by fate, first-hit relevance."""
    counts = run["canaries"]
    found = found_text(run["coverage"], counts["measured"], counts["undefined"])
    lead = f"{found} questions find their document (coverage {number(run['coverage'])}); " if found else ""
    counts_text = ", ".join(f"{counts[name]} {name}" for name in ("measured", "failed", "undefined", "degraded"))
    scores = f"first-hit relevance {number(run['health_score'])}"
    version = f", index version {plain(str(run['index_version']))}" if run.get("index_version") else ""
    return f"{lead}{counted(counts['total'], 'canary')}: {counts_text}; {scores}{version}"


def failure_lines(report: Mapping[str, Any]) -> list[str]:
    """Return a line per kind of probe failure, the most frequent first: `97 x error response: answered 500 (q1, q2)`.

    The first canaries are named.
    """
    run_reasons = report["run"].get("reasons") or ()  # the reason of an early end is listed once
    failures: dict[tuple[str, str], list[str]] = {}
    for result in report.get("results", report["worst"]):
        if result["outcome"] != Outcome.OK:
            detail = "" if result.get("detail") in run_reasons else plain(str(result.get("detail") or ""))
            failures.setdefault((str(result["outcome"]), detail), []).append(plain(str(result["key"])))
    ranked = sorted(failures.items(), key=lambda item: -len(item[1]))
    lines = [
        f"{len(keys)} x {outcome_word(outcome)}{f': {detail}' if detail else ''}"
        f"{_NOT_WAITED_FOR if outcome == Outcome.SKIPPED else ''} ({_first_three(keys)})"
        for (outcome, detail), keys in ranked[:_SHOWN_FAILURES]
    ]
    rest = sum(len(keys) for _, keys in ranked[_SHOWN_FAILURES:])
    return [*lines, f"{rest} x something else"] if rest else lines


def note_lines(report: Mapping[str, Any]) -> list[str]:
    """Return notes from several numbers of a report: chunks under other ids, minimums above all scores."""
    pooled = pooled_recall_lines(report.get("pooled_recall", ()))
    pooled += [f"pooled recall is {POOLED_FRAME}"] * bool(pooled)
    return [*recall_lines(report["run"]), *pooled, *_minimum_lines(report)]


def _minimum_lines(report: Mapping[str, Any]) -> list[str]:
    """Return a note that the minimum may be wrong, where half the canaries are degraded by relevance alone."""
    results = report.get("results", report["worst"])
    low = [result for result in results if result["verdict"] == Verdict.DEGRADED]
    counts = report["run"]["canaries"]
    only_relevance = all(list(result["reasons"]) == [Reason.LOW_RELEVANCE] for result in low)
    if not low or not only_relevance or len(low) != counts["degraded"] or 2 * len(low) < counts["measured"]:
        return []
    scores = _span([result["top_score"] for result in low], ".2f")
    least = _span([result["min_relevance_score"] for result in low], "g")
    scores_text = f"the first hits score {scores}" if len(low) > 1 else f"the first hit scores {scores}"
    todo = "set it to what the scores of this retriever mean"
    return [f"degraded by relevance alone: {scores_text}, below min_relevance_score {least}; {todo}"]


def _span(values: Sequence[float], digits: str) -> str:
    least, most = format(min(values), digits), format(max(values), digits)
    return least if least == most else f"{least} to {most}"


def report_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return the non-empty tables of a report, what is broken first; those of measures only where any was measured."""
    tables = (worst_table(report), *measure_tables(report), composition_table(report))
    return [table for table in tables if table.rows]


def worst_table(report: Mapping[str, Any]) -> Table:
    """Return the worst canaries with their reasons, and the found and missing expected chunks."""
    rows = tuple(
        (
            plain(str(result["key"])),
            shorten(str(result["query"]), 100),
            _reason_text(result, report["run"]),
            number(result["top_score"]),
            _found_text(result),
            _first_three([_judgment_name(judgment) for judgment in not_returned(result)]),
        )
        for result in report["worst"]
    )
    columns = ("canary", "query", "reasons", "relevance", "found", "missing")
    return Table(title="Worst canaries", columns=columns, rows=rows, quoted=frozenset({0, 1, 4, 5}))


_NOT_XML = "[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # XML 1.0, production Char


def _xml(text: str) -> str:
    return re.sub(_NOT_XML, "�", text)  # compiled at its first use: few commands write XML, and it takes 4 ms


def _junit_outcome(result: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the JUnit element of a canary and its message; None = it passed."""
    if result["outcome"] == Outcome.SKIPPED:
        return "error", f"not measured: the run ended first{_NOT_WAITED_FOR}"
    if result["outcome"] != Outcome.OK or result["verdict"] == Verdict.UNKNOWN:
        return "error", _reason_text(result, run)
    if result["verdict"] == Verdict.DEGRADED:
        return "failure", _reason_text(result, run)
    undefined = result["category"] != Category.NEGATIVE and all(value is None for value in result["measures"].values())
    undefined = undefined and not any(result.get(name) for name in _NO_JUDGMENT_NEEDED)
    return ("skipped", "nothing is expected, so nothing is measured") if undefined else (None, "")


_NO_JUDGMENT_NEEDED = ("expect_empty", "forbidden_chunks", "max_age_seconds", "max_latency_seconds")


def _reason_text(result: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    if result["outcome"] == Outcome.OK:
        return "; ".join(why_degraded(result, self_judged=run.get("self_judged"))) or str(result["verdict"])
    status = f" ({result['http_status']})" if result.get("http_status") else ""
    return f"{outcome_word(result['outcome'])}{status}"


def _evidence(result: Mapping[str, Any]) -> list[str]:
    """Return the evidence of a verdict, one fact per line."""
    lines = [f"query: {plain(str(result['query']))}", f"relevance: {number(result['top_score'])}"]
    if result.get("detail"):
        lines.append(f"detail: {plain(str(result['detail']))}")
    lines += [f"missing: {_judgment_name(judgment)}" for judgment in not_returned(result)]
    lines += [
        f"{hit['rank']}. {plain(str(hit['id']))} score {number(hit['score'])}" + _match_text(hit)
        for hit in result["ranking"][:10]
    ]
    return lines


def _match_text(hit: Mapping[str, Any]) -> str:
    if hit["judgment"] is None:
        return ""
    name = f"{_judgment_name(hit['judgment'])} by {hit['level']}"
    return f", matches {name}" if hit["grade"] else f", known irrelevant: {name}"


def _found_text(result: Mapping[str, Any]) -> str:
    hits = [hit for hit in result["ranking"] if hit["judgment"] is not None and hit["grade"]]
    ranks = [f"{_judgment_name(hit['judgment'])} at rank {hit['rank']}" for hit in hits]
    return _first_three([*_forbidden_hits(result), *ranks])


def _forbidden_hits(result: Mapping[str, Any]) -> list[str]:
    places = set(result.get("forbidden_ranks") or ())
    hits = [hit for hit in result["ranking"] if hit["rank"] in places]
    return [f"{_judgment_name(hit['document'] or hit['id'])} (forbidden) at rank {hit['rank']}" for hit in hits]


def _first_three(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004 - a table cell holds three names
    return ", ".join(names[:3]) + more if names else UNDEFINED


def _judgment_name(judgment: Any) -> str:
    """Return the name of an expected chunk: its id, else document, else the beginning of its text."""
    if isinstance(judgment, Mapping):
        judgment = judgment.get("id") or judgment.get("document") or judgment.get("text")
    return shorten(str(judgment), 60)


_COUNTED = (Change.DEGRADED, Change.HEALED, Change.WORSE, Change.BETTER, Change.RERANKED, Change.SAME, Change.UNKNOWN)


def change_lines(report: Mapping[str, Any]) -> list[str]:
    """Return what changed in sentences without full stops: the decision, cautions, canaries, other configuration."""
    since = report.get("since")
    if since is None:
        return []
    decision = since["decision"]
    changed = ", ".join(f"{since['changes'][one]} {one}" for one in _COUNTED if since["changes"].get(one))
    return [
        f"since run {since['before']['id']}: {decision['sentence']}",
        *(caution["sentence"] for caution in decision["cautions"]),
        *([f"canaries since run {since['before']['id']}: {changed}"] if changed else []),
        *since["differences"],
    ]


def change_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return the non-empty tables of what changed: the primary measures, and canaries that degraded or healed."""
    since = report.get("since")
    if since is None:
        return []
    before = f"since run {since['before']['id']}"
    tables = [
        primary_table(since["decision"]["primary"], f"Change {before}", self_judged=_are_self_judged(report, since)),
        _canaries(since["degraded"], f"Degraded {before}"),
        _canaries(since["healed"], f"Healed {before}"),
    ]
    return [table for table in tables if table.rows]


def _are_self_judged(report: Mapping[str, Any], since: Mapping[str, Any]) -> bool:
    """Whether recall of one of two runs is self-judged: where it is of one, its numbers beside the other's are too."""
    return bool(report["run"].get("self_judged") or since["before"].get("self_judged"))


def primary_table(primary: Sequence[Mapping[str, Any]], title: str, *, self_judged: bool) -> Table:
    """Return the table of the primary measures of a decision, before and now."""
    columns = ("measure", "before", "now", "difference", "95 % interval", "result")
    rows = tuple(
        (
            labelled(str(one["measure"]), self_judged=self_judged),
            number(one["a"]),
            number(one["b"]),
            difference_text(one["difference"]),
            interval_text(one["low"], one["high"]),
            claim_text(_member(Claim, one["claim"]), _member(Side, one["winner"]), names=BEFORE_AND_NOW),
        )
        for one in primary
    )
    return Table(title=title, columns=columns, rows=rows)


def _canaries(changed: Sequence[Mapping[str, Any]], title: str) -> Table:
    rows = tuple(
        (
            plain(str(one["key"])),
            shorten(str(one["query"]), 100),
            rank_text(one["rank_before"]),
            rank_text(one["rank_now"]),
            ", ".join(str(reason).replace("_", " ") for reason in one["reasons"]) or UNDEFINED,
        )
        for one in changed
    )
    columns = ("canary", "query", "rank before", "rank now", "reasons")
    return Table(title=title, columns=columns, rows=rows, quoted=frozenset({0, 1}))


def _member(kind: Any, value: Any) -> Any:
    return None if value is None else kind(value)


def _signed(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:+.3f}"


_STEADY = 5e-7  # half of what reports round to
_SHOWN = 50


def compare_reports(
    before: Mapping[str, Any], now: Mapping[str, Any], decision: ComparisonDecision | None = None
) -> ReportComparison:
    """Compare two reports of one check: `baseline`, `differences`, `measures`, `newly_degraded`, `recovered`.

    `decision` is what is decided between them, see `comparison.service.decisions`.

    `differences` are sentences why the two are not strictly comparable; empty = they are. A measure that one side lacks
    has no difference. A canary is newly degraded when it is degraded now and was not, or was absent, before; `why` has
    a sentence for each of `reasons`. It has recovered when it is healthy now and was degraded before. Unknown is
    neither.
    """
    old, new = before["run"], now["run"]
    old_verdicts = {result["key"]: result["verdict"] for result in before["results"]}
    return {
        "baseline": {
            "id": old.get("id"),
            "check": old.get("check"),
            "finished_at": old.get("finished_at"),
            "index_version": old.get("index_version"),
            "verdict": old.get("verdict"),
        },
        "differences": _differences(old, new),
        "decision": decision,
        "measures": {name: _sides(old_value, value) for name, old_value, value in _paired(old, new)},
        "newly_degraded": [
            {
                "key": result["key"],
                "query": result["query"],
                "reasons": result["reasons"],
                "why": why_degraded(result, self_judged=new.get("self_judged")),
            }
            for result in now["results"]
            if result["verdict"] == Verdict.DEGRADED and old_verdicts.get(result["key"]) != Verdict.DEGRADED
        ],
        "recovered": [
            {"key": result["key"], "query": result["query"]}
            for result in now["results"]
            if result["verdict"] == Verdict.HEALTHY and old_verdicts.get(result["key"]) == Verdict.DEGRADED
        ],
    }


def read_reports(name: str, text: str | bytes) -> dict[str, Mapping[str, Any]]:
    """Return a saved report, or a list of them, by check. Raises InvalidInputError where it is not a report."""
    try:
        data = json.loads(text, parse_constant=_not_json)
        reports = data if isinstance(data, list) else [data]
        for report in reports:
            _expect_report(report)
        return {str(report["run"]["check"]): report for report in reports}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = "is not a report saved with `coalmine check --save`"
        raise InvalidInputError([Problem(file=name, message=message)]) from error


def comparison_lines(comparison: Mapping[str, Any]) -> list[str]:
    """Return lines on the baseline of a comparison, and on what makes the two not comparable."""
    baseline = comparison["baseline"]
    when = f" of {plain(str(baseline['finished_at']))}" if baseline["finished_at"] else ""
    changed = f"{len(comparison['newly_degraded'])} newly degraded, {len(comparison['recovered'])} recovered"
    lines = [f"Against the baseline{when}: {changed}"]
    decision = comparison.get("decision")
    if decision is not None:
        told = [decision["sentence"], *(one["sentence"] for one in (*decision["cautions"], *decision["excluded"]))]
        lines += [f"{sentence[:1].upper()}{sentence[1:]}" for sentence in map(plain, told)]
    return lines + [f"Not strictly comparable: {difference}" for difference in comparison["differences"]]


def comparison_tables(report: Mapping[str, Any]) -> tuple[Table, ...]:
    """Return tables of changed measures, newly degraded canaries and recovered ones; tables may be empty.

    There are none of a report without a comparison.
    """
    comparison = report.get("comparison")
    if comparison is None:
        return ()
    own = report["run"].get("self_judged")
    moved = tuple(
        (labelled(plain(name), self_judged=own), number(one["before"]), number(one["now"]), _signed(one["difference"]))
        for name, one in comparison["measures"].items()
        if one["before"] != one["now"] and (one["difference"] is None or abs(one["difference"]) > _STEADY)
    )
    newly = tuple(
        (plain(one["key"]), shorten(one["query"], 100), plain("; ".join(one["why"])))
        for one in comparison["newly_degraded"][:_SHOWN]
    )
    back = tuple((plain(one["key"]), shorten(one["query"], 100)) for one in comparison["recovered"][:_SHOWN])
    quoted = frozenset({0, 1})
    return (
        Table(title="Moved since the baseline", columns=("measure", "baseline", "now", "difference"), rows=moved),
        Table(title="Newly degraded", columns=("canary", "query", "reasons"), rows=newly, quoted=quoted),
        Table(title="Recovered", columns=("canary", "query"), rows=back, quoted=quoted),
    )


def _not_json(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _expect_report(report: Any) -> None:
    """Raise unless the report has every field that a comparison needs."""
    run = report["run"]
    for value in [*run["measures"].values(), *(run[name] for name in OWN_MEASURES[:2])]:
        if not isinstance(value, int | float | None):
            raise TypeError("a measure is a number or null")
    run["check"].strip()
    for result in report["results"]:
        result["key"].strip()
        Verdict(result["verdict"])


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    reasons = {
        "suite_hash": "the suite has changed since",
        "measures_version": "the numbers are of different measures versions",
        "config_hash": "the check or the retriever is configured differently since",
    }
    return [sentence for name, sentence in reasons.items() if old.get(name) != new.get(name)]


def _paired(old: Mapping[str, Any], new: Mapping[str, Any]) -> Sequence[tuple[str, float | None, float | None]]:
    before = {**{name: old.get(name) for name in OWN_MEASURES}, **old["measures"]}
    now = {**{name: new.get(name) for name in OWN_MEASURES}, **new["measures"]}
    return [(name, before.get(name), now.get(name)) for name in dict.fromkeys([*now, *before])]


def _sides(before: float | None, now: float | None) -> Sides:
    difference = None if before is None or now is None else round(now - before, 6)
    return {"before": before, "now": now, "difference": difference}


_HERE: Final = Path(__file__).parents[1] / "templates"


def report_html(*reports_given: Mapping[str, Any], heat_map: "HeatMap | None" = None) -> str:
    """Return reports as one HTML page, a section each: verdict, reasons, failures, counts, tables.

    Unlike the other formats it has the measures of each category at every cut-off, and a picture of the newest runs
    where there were some (`heat_map`).
    """
    from app.reports.rendering.pictures import sheet  # noqa: PLC0415 - see TYPE_CHECKING

    template = _environment().get_template("report_page.html")
    sections = [_section(report) for report in reports_given]
    picture = None if heat_map is None else sheet(heat_map)
    return template.render(policy=page_policy(heat_map), style=_style(), reports=sections, picture=picture).lstrip()


def page_policy(heat_map: "HeatMap | None" = None) -> str:
    """Return the content security policy of the page, which allows only its own style and picture."""
    digest = b64encode(sha256(_style().encode()).digest()).decode()
    images = "" if heat_map is None else "img-src data:; "
    return f"default-src 'none'; style-src 'sha256-{digest}'; {images}base-uri 'none'; form-action 'none'"


def _section(report: Mapping[str, Any]) -> dict[str, object]:
    run = report["run"]
    comparison = report.get("comparison")
    return {
        "run": run,
        "starter": starter(run["trigger"]),
        "headline": report_headline(report),
        "started_at": _when(run.get("started_at")),
        "finished_at": _when(run.get("finished_at")),
        "reasons": [*(texts.plain(str(reason)) for reason in run.get("reasons") or ()), *answer_lines(report)],
        "notes": [texts.plain(line) for line in (*failure_lines(report), *note_lines(report))],
        "counts": counts_line(run),
        "found": found_text(run["coverage"], run["canaries"]["measured"], run["canaries"]["undefined"]),
        "tables": report_tables(report),
        "guide": report.get("guide"),
        "lead": report_measures.lead_numbers(report),
        "categories": report_measures.category_cutoff_tables(report),
        "compared": [*change_lines(report), *([] if comparison is None else comparison_lines(comparison))],
        "moved": [*change_tables(report), *comparison_tables(report)],
    }


def _when(moment: str | None) -> str | None:
    """Return a time of the API in readable form, to the second."""
    return None if moment is None else f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@lru_cache
def _style() -> str:
    return (_HERE / "report_page.css").read_text(encoding="utf-8")


@lru_cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - see TYPE_CHECKING

    return Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
