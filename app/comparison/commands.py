"""`coalmine compare`: two runs, checks or retrievers, and which one is better."""

from enum import StrEnum
from typing import Annotated, Final

import typer

from app.base import terminal
from app.base.commands import DataDir, ServerUrl, examples
from app.comparison.domain.outcomes import CautionKind, ComparisonVerdict, Side, missing_canaries
from app.comparison.rendering import (
    ComparisonReport,
    comparison_headline,
    comparison_markdown,
    comparison_notes,
    comparison_tables,
)
from app.comparison.service import comparisons
from app.definitions.commands.resources import connect_server, open_database
from app.reports.rendering.reports import report_json

app = typer.Typer(rich_markup_mode=None)

WORSE: Final = 1
NOT_COMPARED: Final = 2
"""Nothing, too little of a side, or something else than what is asked by now was measured: such a candidate passes no
gate by its exit code."""
_MOST: Final = 500
"""Number of canaries in JSON, as many as a page of the API has at most."""
_SHOWN: Final = 10
"""Number of losses and of wins."""


class Format(StrEnum):
    """How a comparison is written."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


@app.command(
    epilog=examples(
        "coalmine compare check:bm25 check:vectors",
        "coalmine compare run:41 run:42 --format markdown",
        "coalmine compare check:live check:candidate --server https://coalmine.example",
    )
)
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="run:ID, check:SLUG or retriever:SLUG: its newest ended run.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one, which is held against A.")],
    *,
    form: Annotated[Format, typer.Option("--format", help="What is written to stdout.")] = Format.TABLE,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Compare two runs, checks or retrievers, and say whether B is better than A.

    Over the canaries that both measured and that expect the same, and over those that rule out the same answers. Exit
    code 1: B is worse, or better in one measure and worse in another, or it returns more forbidden chunks; 0: better,
    or no difference is shown; 2: they cannot be compared, too few canaries can, one side left more than 10 %
    unanswered, or the newest run of one is of something else than what it asks by now, as before its retriever was
    edited.
    """
    if server is not None:
        service = connect_server(server)
        losses, wins = (service.compare(a, b, winner=side, limit=_SHOWN) for side in (Side.A, Side.B))
        whole = service.compare(a, b, limit=_MOST) if form is Format.JSON else losses
    else:
        with open_database(data_dir) as (_, store):
            losses, wins = (
                comparisons.compare_references(store, a, b, winner=side, limit=_SHOWN)[0] for side in (Side.A, Side.B)
            )
            whole = comparisons.compare_references(store, a, b, limit=_MOST)[0] if form is Format.JSON else losses
    if form is Format.JSON:
        typer.echo(report_json(whole), nl=False)
    else:
        _show(ComparisonReport(view=whole, losses=losses["items"], wins=wins["items"]), form)
    if whole["verdict"] in {ComparisonVerdict.WORSE, ComparisonVerdict.TRADE}:
        raise typer.Exit(WORSE)
    # By values: a service of another release may name reasons that this one does not know.
    excluded = {one["reason"]: one["canaries"] for one in whole["excluded"]}
    if missing_canaries(excluded, whole["canaries"]):
        raise typer.Exit(NOT_COMPARED)
    if any(one.get("kind") == CautionKind.OUTDATED for one in whole["cautions"]):
        raise typer.Exit(NOT_COMPARED)
    if whole["verdict"] == ComparisonVerdict.TOO_FEW:
        raise typer.Exit(NOT_COMPARED)


def _show(report: ComparisonReport, form: Format) -> None:
    if form is Format.MARKDOWN:
        typer.echo(comparison_markdown(report), nl=False)
        return
    typer.echo(comparison_headline(report.view))
    for note in comparison_notes(report.view):
        typer.echo(f"  {note}")
    for table in comparison_tables(report):
        typer.echo("")
        terminal.show_table(table)
