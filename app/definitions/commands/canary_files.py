"""`coalmine validate`, and how commands show what canary files define and would change.

Without the service and its database, which take seconds to load.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer
from rich.text import Text

from app.base.commands import Paths, examples, note
from app.base.errors import Problem
from app.base.terminal import open_console
from app.base.texts import counted, plain
from app.catalog.documents.canary_files import Documents, read_files
from app.catalog.documents.warnings import find_warnings, silence_notes, suite_notes, text_of

app = typer.Typer(rich_markup_mode=None)


@app.command(epilog=examples("coalmine validate canaries"))
def validate(paths: Paths) -> None:
    """List all errors in canary files, each with file and line."""
    documents = read_files(paths, os.environ, sends=False)
    show_documents(documents)
    warn(find_warnings(documents))
    for line in [*suite_notes(documents), *silence_notes(documents, datetime.now(UTC))]:
        note(f"Note: {plain(line)}.")


_SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "archive": ("-", "red")}
_PARTICIPLES = {"create": "created", "update": "updated", "archive": "archived"}


def show_plan(changes: Sequence[Mapping[str, Any]], *, applied: bool, most: int | None = None) -> None:
    """Show the changes, a line each with its sign (the first `most`), then their numbers; or that there are none."""
    console = open_console()
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
