"""`coalmine validate`: canary files alone, without the service and its database, which take seconds to load."""

from datetime import UTC, datetime

import typer

from app import terminal
from app.commands.base import Paths, examples
from app.commands.files import read_files
from app.formats.catalog.file_notes import silence_notes, suite_notes
from app.formats.catalog.warnings import find_warnings
from app.formats.plain_text import plain

app = typer.Typer(rich_markup_mode=None)


@app.command(epilog=examples("coalmine validate canaries"))
def validate(paths: Paths) -> None:
    """List all errors in canary files, each with file and line."""
    documents = read_files(paths, sends=False)
    terminal.show_documents(documents)
    terminal.warn(find_warnings(documents))
    for line in [*suite_notes(documents), *silence_notes(documents, datetime.now(UTC))]:
        terminal.note(f"Note: {plain(line)}.")
