"""Showing reports of runs on the command line, in each of their forms."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from app.alerts.domain.rules import rule_without_history
from app.base.documents.texts import plain, table_markdown
from app.base.terminal import draw, note, open_console
from app.base.values import Verdict
from app.catalog.exchange.datasets import run_lines
from app.reports.documents.report_pages import report_html
from app.reports.documents.reports import (
    comparison_lines,
    comparison_tables,
    counts_line,
    failure_lines,
    headline,
    note_lines,
    report_json,
    report_junit,
    report_markdown,
    report_tables,
)

_STYLES = {Verdict.HEALTHY: "bold green", Verdict.DEGRADED: "bold red", Verdict.UNKNOWN: "bold yellow"}


Reports = Sequence[Mapping[str, Any]]


def show_reports(reports: Reports, form: str) -> None:
    """Show reports as `table`, `json` (one object or a list), `junit`, `markdown`, `html` or a `trec` run.

    Rules that need a history are noted once for all reports; `json` lists them in each report.
    """
    if form in {"table", "markdown", "html"}:
        keys = {
            key: None for report in reports for one in report["run"]["reasons"] if (key := rule_without_history(one))
        }
        reports = [_without_history_rules(report) for report in reports]
        if keys:
            verb = "needs" if len(keys) == 1 else "need"
            note(f"{plain(', '.join(keys))}: {verb} the history of a service; not evaluated here.")
    if form == "table":
        for report in reports:
            _show_report(open_console(), report)
        return
    sys.stdout.write(_RENDERERS[form](reports))
    if form == "junit":  # has no place for a comparison
        for report in reports:
            for line in _comparison_lines(report):
                note(line)


def _without_history_rules(report: Mapping[str, Any]) -> Mapping[str, Any]:
    run = report["run"]
    return {**report, "run": {**run, "reasons": [one for one in run["reasons"] if rule_without_history(one) is None]}}


def reports_json(reports: Reports) -> str:
    """JSON of the reports: an object for one, a list for several."""
    return report_json(reports[0] if len(reports) == 1 else reports)


def _show_report(console: Console, report: Mapping[str, Any]) -> None:
    run = report["run"]
    console.print(Text(headline(run), style=_STYLES.get(run["verdict"], "bold")), soft_wrap=True)
    for reason in run["reasons"]:
        console.print(Text(f"  {plain(str(reason))}"), soft_wrap=True)
    for line in (*failure_lines(report), *note_lines(report)):
        console.print(Text(f"  {line}"), soft_wrap=True)
    for line in (counts_line(run), *_comparison_lines(report)):
        console.print(Text(line), soft_wrap=True)
    compared = comparison_tables(report["comparison"]) if "comparison" in report else ()
    for table in (*report_tables(report), *[table for table in compared if table.rows]):
        console.print()
        draw(console, table)


def _comparison_lines(report: Mapping[str, Any]) -> list[str]:
    return comparison_lines(report["comparison"]) if "comparison" in report else []


def _markdown(report: Mapping[str, Any]) -> str:
    parts = [report_markdown(report)]
    if "comparison" in report:
        parts += [f"{line}\n" for line in comparison_lines(report["comparison"])]
        parts += [f"{table_markdown(table)}\n" for table in comparison_tables(report["comparison"]) if table.rows]
    return "\n".join(parts)


_RENDERERS: Mapping[str, Callable[[Reports], str]] = {
    "json": reports_json,
    "junit": lambda reports: report_junit(*reports),
    "html": lambda reports: report_html(*reports),
    "markdown": lambda reports: "\n".join(map(_markdown, reports)),
    "trec": lambda reports: "".join(line for report in reports for line in run_lines(report)),
}
