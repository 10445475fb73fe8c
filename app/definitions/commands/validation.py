"""`coalmine validate`: canary files alone, without the service and its database, which take seconds to load."""

from datetime import UTC, datetime

import typer

from app.base import terminal
from app.base.commands import Paths, examples
from app.base.documents.texts import plain
from app.catalog.documents.canary_files import silence_notes, suite_notes
from app.catalog.documents.warnings import find_warnings
from app.definitions.commands import canary_files
from app.definitions.commands.canary_files import read_files

app = typer.Typer(rich_markup_mode=None)


@app.command(epilog=examples("coalmine validate canaries"))
def validate(paths: Paths) -> None:
    """List all errors in canary files, each with file and line."""
    documents = read_files(paths, sends=False)
    canary_files.show_documents(documents)
    canary_files.warn(find_warnings(documents))
    for line in [*suite_notes(documents), *silence_notes(documents, datetime.now(UTC))]:
        terminal.note(f"Note: {plain(line)}.")
