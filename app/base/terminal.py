"""Output of commands, texts of others drawn literally. Results on stdout, all else on stderr."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich import progress as rich_progress
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from app.alerts.domain.rules import rule_without_history
from app.base.documents.texts import Table, plain, table_markdown
from app.base.errors import CoalmineError, InvalidInputError, Problem
from app.base.texts import counted
from app.base.values import Verdict
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.warnings import text_of
from app.catalog.exchange.trec import run_lines
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

_PIPED_WIDTH = 160  # where there is no terminal to ask, wide enough for a log or a pager
_STYLES = {Verdict.HEALTHY: "bold green", Verdict.DEGRADED: "bold red", Verdict.UNKNOWN: "bold yellow"}
_SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "archive": ("-", "red")}
_PARTICIPLES = {"create": "created", "update": "updated", "archive": "archived"}

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
            _show_report(_console(), report)
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


def show_plan(changes: Sequence[Mapping[str, Any]], *, applied: bool, most: int | None = None) -> None:
    """Show the changes, a line each with its sign (the first `most`), then their numbers; or that there are none."""
    console = _console()
    for change in changes[:most]:
        sign, style = _SIGNS.get(change["action"], ("?", ""))
        details = [", ".join(change["fields"] or ()), change["note"] or ""]
        summary = "; ".join(detail for detail in details if detail)
        line = plain(f"{change['kind']} {change['name']}{f' ({summary})' if summary else ''}")
        console.print(Text(f"{sign} {line}", style=style), soft_wrap=True)
    if most is not None and len(changes) > most:
        console.print(Text(f"  ... and {len(changes) - most:,} more"))
    counts = {action: sum(change["action"] == action for change in changes) for action in _PARTICIPLES}
    summary = ", ".join(
        f"{count} {'' if applied else 'to be '}{_PARTICIPLES[name]}" for name, count in counts.items() if count
    )
    console.print(Text(f"{summary}." if summary else "Nothing to do: what is in force is what the files say."))


def show_table(table: Table) -> None:
    """Show a table by itself."""
    _draw(_console(), table)


def show_documents(documents: Documents) -> None:
    """Show in a line what files define, the hooks among them whose variables are not set."""
    canaries = sum(len(suite.canaries or ()) for suite in documents.suites)
    counts = {
        "suite": len(documents.suites),
        "canary": canaries,
        "retriever": len(documents.retrievers),
        "check": len(documents.checks),
        "hook": len(documents.hooks) + len(documents.unset_hooks),
    }
    if documents.silences:
        counts["silence"] = len(documents.silences)
    if documents.judges:
        counts["judge"] = len(documents.judges)
    counts_text = [counted(count, name) for name, count in counts.items()]
    valid = "Valid but for variables that are not set" if documents.unset else "All good"
    sys.stdout.write(f"{valid}: {', '.join(counts_text)}.\n")


def warn(warnings: Iterable[Problem]) -> None:
    """Print what is valid and yet without effect, a line each with its file and line."""
    for warning in warnings:
        note(f"Warning: {plain(text_of(warning))}.")


def note(line: str) -> None:
    """Print a line beside the result."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def show_error(error: CoalmineError) -> None:
    """Print every problem on a line: those of files begin with file and line, as editors and CI like it."""
    if isinstance(error, InvalidInputError):
        for problem in error.problems:
            note(f"{plain(str(problem))}")
        return
    for line in str(error).splitlines():
        note(f"coalmine: {plain(line)}")


@contextmanager
def progress(sizes: Sequence[tuple[str, int]]) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """Draw a bar for each (name, size); yields the function that returns the one that advances the n-th."""
    with _bars(rich_progress.MofNCompleteColumn()) as bars:
        tasks = [bars.add_task(plain(name), total=size) for name, size in sizes]
        yield lambda number: lambda count: bars.advance(tasks[number], count)


@contextmanager
def counting(name: str) -> Iterator[Callable[[int, int], None]]:
    """Draw one bar; yields the function that sets how much of how much is done."""
    with _bars(rich_progress.MofNCompleteColumn()) as bars:
        task = bars.add_task(plain(name), total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def reading(sizes: Sequence[tuple[str, int]]) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """Draw a bar of bytes for each (file, size); yields the function that returns the one that advances the n-th."""
    with _bars(rich_progress.DownloadColumn()) as bars:
        tasks = [bars.add_task(plain(name), total=size) for name, size in sizes]
        yield lambda number: lambda count: bars.advance(tasks[number], count)


def _bars(amount: rich_progress.ProgressColumn) -> rich_progress.Progress:
    console = Console(stderr=True, highlight=False)
    name = rich_progress.TextColumn("{task.description}", markup=False)
    columns = (name, rich_progress.BarColumn(), amount, rich_progress.TimeElapsedColumn())
    return rich_progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


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
        _draw(console, table)


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


class _Console(Console):
    """Leaves a closed pipe to the command, which knows the exit code; rich would exit with that of a degraded check."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console() -> Console:
    console = _Console(highlight=False)
    return console if console.is_terminal else _Console(highlight=False, width=_PIPED_WIDTH)


def _draw(console: Console, table: Table) -> None:
    title = Text(table.title, style="bold") if table.title else None
    rich_table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        rich_table.add_column(Text(column), overflow="fold")
    for row in table.rows:
        rich_table.add_row(*[Text(cell) for cell in row])
    console.print(rich_table)
    if table.note:
        console.print(Text(f"{table.note[:1].upper()}{table.note[1:]}.", style="dim"), soft_wrap=True)
