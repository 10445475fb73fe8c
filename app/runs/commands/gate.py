"""`coalmine check`: the one-shot gate, without a server or a database."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer
from rich.console import Console
from rich.text import Text

from app import USER_AGENT
from app.alerts.domain.rules import rule_without_history
from app.base import terminal
from app.base.commands import Paths, examples, note, now, stopped_by_signals
from app.base.documents.parsing import file_source
from app.base.errors import InvalidInputError, Problem
from app.base.terminal import draw, open_console
from app.base.texts import plain, table_markdown
from app.base.values import Verdict
from app.catalog.documents.canary_files import read_files
from app.comparison.service.decisions import decide_reports, same_expectations
from app.config import load_settings
from app.definitions.commands import canary_files
from app.records.views import ReportDocument
from app.reports.rendering.reports import (
    answer_lines,
    compare_reports,
    comparison_lines,
    comparison_tables,
    counts_line,
    failure_lines,
    note_lines,
    read_reports,
    report_headline,
    report_html,
    report_json,
    report_junit,
    report_markdown,
    report_tables,
)
from app.retrievers.client.probe import RankingsProbe, RetrieverProbe
from app.retrievers.domain.retrievers import Probe
from app.runs.service import gate
from app.runs.service.gate import judged_by_rank

DEGRADED, NOT_MEASURED = 1, 3
NOWHERE = "http://rankings.invalid/"

app = typer.Typer(rich_markup_mode=None)


class Format(StrEnum):
    """How `check` writes its report."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    HTML = "html"
    TREC = "trec"
    COMMENT = "comment"
    """Markdown for a pull request, the saved report beside this one."""


@app.command(
    epilog=examples(
        "coalmine check canaries",
        "coalmine check canaries --url https://staging.example/search --format junit > canaries.xml",
        "coalmine check canaries/docs.yaml --rankings run.trec",
        "coalmine check canaries --save before.json; coalmine check canaries --baseline before.json",
        "coalmine check canaries --baseline before.json --output comment=comment.md --output junit=canaries.xml",
    )
)
def check(  # noqa: PLR0913 - options of a command
    paths: Paths,
    *,
    url: Annotated[str | None, typer.Option(help="Where the retriever is, instead of what the files say.")] = None,
    served: Annotated[
        str | None,
        typer.Option(
            "--served", metavar="URL", help="A callable that coalmine_client serves, for all retrievers of the files."
        ),
    ] = None,
    takes: Annotated[
        str | None,
        typer.Option("--takes", metavar="NAMES", help="With --served: its parameters, by commas; left out, any."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What is written to stdout.")] = Format.TABLE,
    baseline: Annotated[Path | None, typer.Option(help="A saved report to compare with.")] = None,
    save: Annotated[Path | None, typer.Option(help="Save the report as JSON.")] = None,
    output: Annotated[
        list[str] | None, typer.Option(metavar="FORMAT=FILE", help="Write the report to a file too, in this format.")
    ] = None,
    rankings: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Judge a TREC run file instead, its topics being canary keys.")
    ] = None,
    as_documents: Annotated[
        bool, typer.Option("--as-documents", help="With --rankings: what the run names are documents, not chunks.")
    ] = False,
    slug: Annotated[str | None, typer.Option("--check", metavar="SLUG", help="Only this check of the files.")] = None,
) -> None:
    """Run every canary once and judge the answers, without a server or a database.

    Exit code 0: healthy, 1: degraded, 2: unusable input, 3: the retriever could not be measured. It follows the rules
    of the check; without any, coverage must be at least 0.9. With --baseline a check without rules is compared with the
    saved report: a fall by more than chance, or canaries lost for good (asked up to three times more), exit with 1.
    More than a tenth of the queries failing exits with 1 too. No judge is asked: rules on generated answers are named,
    and neither pass nor fail. JUnit has failures only where the exit code is 1, and
    an error for each canary that was not measured.
    """
    outputs = _outputs(output or ())
    documents = read_files(paths, os.environ, sends=False)
    canary_files.warn(documents.unset)
    if rankings is not None:
        from app.catalog.exchange.datasets import read_run  # noqa: PLC0415 - formats of others are rarely wanted

        ranked = read_run(file_source(rankings))
        chosen = gate.choose_targets(documents, check=slug, url=NOWHERE)
        targets, notes = judged_by_rank(chosen, ranked, file=str(rankings), as_documents=as_documents)
        probe: Probe = RankingsProbe(ranked)
        for line in notes:
            note(f"Note: {line}.")
    else:
        targets = gate.choose_targets(documents, check=slug, url=url, served=served, takes=_names(takes))
        probe = RetrieverProbe(load_settings(os.environ).retriever_addresses, USER_AGENT)
    before = read_reports(str(baseline), baseline.read_bytes()) if baseline is not None else {}
    sizes = [(target.check.slug, target.size) for target in targets]
    reports: list[ReportDocument] = []
    saved_reports: list[Mapping[str, Any] | None] = []
    with stopped_by_signals(), terminal.progress(sizes) as bar:
        for number, target in enumerate(targets):
            # A single saved report serves any check where only one is measured.
            lone = next(iter(before.values())) if len(targets) == len(before) == 1 else None
            saved = before.get(target.check.slug) or lone
            report = gate.measure(target, probe, run_id=uuid4().hex, clock=now, answered=bar(number), before=saved)
            if saved is not None:
                report["comparison"] = compare_reports(saved, report, decide_reports(saved, report, target.check.use))
            elif baseline is not None:
                note(f"The baseline has no report of check {target.check.slug}.")
            reports.append(report)
            saved_reports.append(saved)
    if save is not None:
        save.write_text(reports_json(reports), encoding="utf-8")
    for written, file in outputs:
        file.write_text(render_reports(reports, written, saved_reports), encoding="utf-8")
    show_reports(reports, form, saved_reports)
    verdicts = {report["run"]["verdict"] for report in reports}
    if verdicts != {Verdict.HEALTHY}:
        raise typer.Exit(DEGRADED if Verdict.DEGRADED in verdicts else NOT_MEASURED)


def _names(given: str | None) -> list[str] | None:
    return None if given is None else [name for name in given.split(",") if name]


_STYLES = {Verdict.HEALTHY: "bold green", Verdict.DEGRADED: "bold red", Verdict.UNKNOWN: "bold yellow"}


Reports = Sequence[Mapping[str, Any]]


def _outputs(given: Sequence[str]) -> list[tuple[str, Path]]:
    """Return what is written to files, as (format, file). Raises InvalidInputError for what is not FORMAT=FILE."""
    forms = [str(form) for form in Format if form is not Format.TABLE]
    pairs = [(name, Path(file)) for name, _, file in (one.partition("=") for one in given)]
    wrong = [one for one, (name, file) in zip(given, pairs, strict=True) if name not in forms or not file.name]
    if wrong:
        message = f"'{{}}' is not FORMAT=FILE, with a format of {', '.join(forms)}"
        raise InvalidInputError([Problem(path="--output", message=message.format(plain(one))) for one in wrong])
    return pairs


def render_reports(reports: Reports, form: str, saved: Sequence[Mapping[str, Any] | None] = ()) -> str:
    """Return reports in a format other than `table`; `saved`: those that each is compared with, for a `comment`."""
    if form in {"markdown", "html", "comment"}:
        reports = [_without_history_rules(report) for report in reports]
    if form == "comment":
        from app.reports.rendering.comments import Compared, comment_markdown  # noqa: PLC0415 - as read_run

        befores = saved or [None] * len(reports)
        pairs = zip(reports, befores, strict=True)
        return comment_markdown([Compared(report=one, before=was, same=_same(one, was)) for one, was in pairs])
    return _RENDERERS[form](reports)


def _same(report: Mapping[str, Any], before: Mapping[str, Any] | None) -> set[str] | None:
    return None if before is None else same_expectations(before, report.get("expectations") or {})


def _trec(reports: Reports) -> str:
    from app.catalog.exchange.datasets import run_lines  # noqa: PLC0415 - as read_run

    return "".join(line for report in reports for line in run_lines(report))


def show_reports(reports: Reports, form: str, saved: Sequence[Mapping[str, Any] | None] = ()) -> None:
    """Show reports as `table`, `json` (one object or a list), `junit`, `markdown`, `html`, `comment` or a `trec` run.

    Rules that need a history are noted once for all reports; `json` lists them in each report.
    """
    if form in {"table", "markdown", "html", "comment"}:
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
    sys.stdout.write(render_reports(reports, form, saved))
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
    console.print(Text(report_headline(report), style=_STYLES.get(run["verdict"], "bold")), soft_wrap=True)
    for reason in (*run["reasons"], *answer_lines(report)):
        console.print(Text(f"  {plain(str(reason))}"), soft_wrap=True)
    for line in (*failure_lines(report), *note_lines(report)):
        console.print(Text(f"  {line}"), soft_wrap=True)
    for line in (counts_line(run), *_comparison_lines(report)):
        console.print(Text(line), soft_wrap=True)
    compared = comparison_tables(report)
    for table in (*report_tables(report), *[table for table in compared if table.rows]):
        console.print()
        draw(console, table)


def _comparison_lines(report: Mapping[str, Any]) -> list[str]:
    return comparison_lines(report["comparison"]) if "comparison" in report else []


def _markdown(report: Mapping[str, Any]) -> str:
    parts = [report_markdown(report)]
    if "comparison" in report:
        parts += [f"{line}\n" for line in comparison_lines(report["comparison"])]
        parts += [f"{table_markdown(table)}\n" for table in comparison_tables(report) if table.rows]
    return "\n".join(parts)


_RENDERERS: Mapping[str, Callable[[Reports], str]] = {
    "json": reports_json,
    "junit": lambda reports: report_junit(*reports),
    "html": lambda reports: report_html(*reports),
    "markdown": lambda reports: "\n".join(map(_markdown, reports)),
    "trec": _trec,
}
