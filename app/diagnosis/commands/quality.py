"""`coalmine quality`: the retrieval quality report of a check, from stored answers."""

from typing import Annotated, Literal

import typer

from app.base.commands import DataDir, ServerUrl, examples, now
from app.definitions.commands.resources import connect_server, open_database
from app.diagnosis.documents import quality_markdown
from app.diagnosis.service import quality as reporting
from app.reports.documents.reports import report_json

app = typer.Typer(rich_markup_mode=None)


@app.command(epilog=examples("coalmine quality docs", "coalmine quality docs --server https://coalmine.example"))
def quality(
    check: Annotated[str, typer.Argument(metavar="CHECK", help="The check to report on.")],
    *,
    form: Annotated[Literal["markdown", "json"], typer.Option("--format", help="How to write it.")] = "markdown",
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Report the retrieval quality of a check from stored answers.

    Chunks, embeddings, recall, precision, vocabulary, chunk boundaries, slow drift: where to look, with examples; what
    was not measured is unknown.
    """
    if server is not None:
        report = connect_server(server).quality(check)
    else:
        with open_database(data_dir) as (_, store):
            report = reporting.report(store, check, now=now())
    typer.echo(quality_markdown(report) if form == "markdown" else report_json(report), nl=False)
