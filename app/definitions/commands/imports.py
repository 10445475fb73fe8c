"""`coalmine import`: a suite from another tool's files, into a service or into a canary file."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from app.base import terminal
from app.base.commands import DataDir, ServerUrl, examples
from app.base.documents.texts import plain
from app.base.errors import InvalidInputError, Problem
from app.base.terminal import file_source
from app.base.texts import counted
from app.catalog.documents.canary_export import import_pages, write_canary_file
from app.catalog.documents.canary_files import Documents, suite_notes
from app.catalog.documents.warnings import find_warnings
from app.catalog.exchange import FORMATS, archived_note
from app.catalog.exchange.csv import COLUMNS, IGNORED, parse_columns
from app.catalog.exchange.suite_builder import ImportedSuite, SuiteBuilder, parse_grades
from app.catalog.service.references import API
from app.definitions.commands import canary_files
from app.definitions.commands.resources import apply_here, connect_server

app = typer.Typer(rich_markup_mode=None)

_NAMES = "|".join(FORMATS)
_SHOWN = 20
"""Changes that are listed: an import is mostly many of one kind."""


@app.command(
    "import",
    epilog=examples(
        "coalmine import --from trec topics.txt qrels.txt --suite legal",
        "coalmine import --from csv questions.csv --column article=id --suite help",
        "coalmine import --from beir datasets/scifact --suite scifact --to canaries/scifact.yaml",
        "coalmine import --from quepid book.csv --suite shop --server https://coalmine.example",
    ),
)
def import_suite(  # noqa: PLR0913 - options of a command
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="The files, or the folder they are in.")],
    *,
    form: Annotated[str, typer.Option("--from", metavar=_NAMES, help="Whose files they are.")],
    suite: Annotated[str | None, typer.Option(help="Name of the suite; default: that of the first path.")] = None,
    to: Annotated[str | None, typer.Option(metavar="FILE|-", help="Write a canary file, and import nothing.")] = None,
    as_documents: Annotated[
        bool, typer.Option("--as-documents", help="What they call a document is one here too, not a chunk.")
    ] = False,
    split: Annotated[str, typer.Option(help="Of BEIR: which qrels/SPLIT.tsv (or .jsonl).")] = "test",
    grades: Annotated[
        str | None, typer.Option(metavar="MAP", help="What grades mean: 1=0,2=1,3=2,4=3, or their scale, 0-4.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMN",
            help=f"What a column of a CSV is, such as article=id; may be repeated. COLUMN is one of "
            f"{', '.join(COLUMNS)}; or {IGNORED}.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Import a suite from another tool's queries and judgments, all of it or nothing.

    What the files hold and a suite cannot is said. The canaries are managed by the API afterwards; with --to they
    become a canary file to keep with the code.
    """
    if form not in FORMATS:
        raise typer.BadParameter(f"'{form}' is not a format; there are: {', '.join(FORMATS)}", param_hint="--from")
    builder = SuiteBuilder(
        as_document=as_documents, grades=parse_grades(grades), columns=parse_columns(column or (), form)
    )
    imported = _read(form, _list_files(paths, split), suite or _suite_slug(paths[0]), builder)
    documents = Documents(suites=(imported.suite,))
    changes: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    if to is not None:
        _write_file(to, write_canary_file(documents))
        notes = suite_notes(documents)
    elif server is not None:
        changes, notes = connect_server(server).import_documents(import_pages(documents), dry_run=dry_run)
    else:
        changes, notes, _ = apply_here(documents, data_dir, managed_by=API, dry_run=dry_run)
    if to is None:
        canary_files.show_plan(changes, applied=not dry_run, most=_SHOWN)
        archived = sum(change["action"] == "archive" and change["kind"] == "canary" for change in changes)
        notes = [*notes, archived_note(archived)] if archived else notes
    canary_files.warn(find_warnings(documents))
    for line in (*imported.notes, *notes):
        terminal.note(f"Note: {plain(line)}.")
    size = f"{counted(len(imported.suite.canaries or ()), 'canary')}, {counted(imported.judgments, 'judgment')}"
    terminal.note(f"Suite {imported.suite.slug}: {size}.")


def _read(form: str, files: Sequence[Path], suite: str, builder: SuiteBuilder) -> ImportedSuite:
    # Each file is looked into before it is read, which moves the bar by a block at most.
    with terminal.reading([(file.name, file.stat().st_size) for file in files]) as bar:
        sources = [file_source(file, bar(number)) for number, file in enumerate(files)]
        FORMATS[form].read(sources, builder)
    return builder.build(suite)


def _list_files(paths: Iterable[Path], split: str) -> list[Path]:
    """Return the files of the paths; of a folder those in it and, for BEIR, the qrels of the split."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inner = sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
        qrels = [*sorted((path / "qrels").glob(f"{split}.tsv*")), *sorted((path / "qrels").glob(f"{split}.jsonl*"))][:1]
        if (path / "qrels").is_dir() and not qrels:
            names = ", ".join(sorted(one.name for one in (path / "qrels").iterdir()))
            message = f"has no qrels/{split}.tsv; there are: {names}; choose with --split"
            raise InvalidInputError([Problem(file=str(path), message=message)])
        files += [*inner, *qrels]
        if not inner and not qrels:
            raise InvalidInputError([Problem(file=str(path), message="is an empty folder")])
    return files


def _suite_slug(path: Path) -> str:
    words = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in path.name.split(".")[0].lower())
    slug = "-".join(word for word in words.split("-") if word)[:64]
    if not slug:
        raise typer.BadParameter("say the name of the suite", param_hint="--suite")
    return slug


def _write_file(to: str, text: str) -> None:
    if to == "-":
        typer.echo(text, nl=False)
        return
    if os.path.lexists(to):
        raise InvalidInputError(
            [
                Problem(
                    file=to,
                    message="is there already, so nothing was written; name another file with --to, or remove this",
                )
            ]
        )
    Path(to).write_text(text, encoding="utf-8")
    terminal.note(f"Written to {to}.")
