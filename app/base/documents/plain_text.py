"""Texts of strangers made harmless: one line of them, a table of them, and both as Markdown."""

import re
import unicodedata
from dataclasses import dataclass

UNDEFINED = "\N{EN DASH}"


def table_markdown(table: "Table") -> str:
    """Return a table as a section of Markdown, without a line break at its end."""
    note = ["", f"{prose(table.note[:1].upper() + table.note[1:])}."] if table.note else []
    return "\n".join([f"## {table.title}", "", *_table_lines(table), *note])


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Texts to draw as a table. Free of control characters, but otherwise as hostile as their source."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    quoted: frozenset[int] = frozenset()
    """Columns that hold texts of others, to be shown literally; the rest are numbers and words of ours."""
    note: str = ""
    """Sentence of ours that explains the numbers, without a full stop."""


def number(value: float | None) -> str:
    """Write a number with three decimals, and None as undefined."""
    return UNDEFINED if value is None else f"{value:.3f}"


def plain(text: str) -> str:
    """Return the text on one line without control, formatting (such as right-to-left marks) or unpaired characters."""
    spaced = "".join(" " if character.isspace() else character for character in text)
    printable = "".join(character for character in spaced if unicodedata.category(character) not in _UNSHOWN)
    return " ".join(printable.split())


def shorten(text: str, limit: int) -> str:
    """Return `plain` text of at most `limit` characters."""
    line = plain(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


_UNSHOWN = {"Cc", "Cf", "Cs"}


def _table_lines(table: Table) -> list[str]:
    lines = [
        [prose(column) for column in table.columns],
        ["---"] * len(table.columns),
        *(
            [code(cell) if position in table.quoted else prose(cell) for position, cell in enumerate(row)]
            for row in table.rows
        ),
    ]
    return [f"| {' | '.join(line)} |" for line in lines]


def prose(text: str) -> str:
    """Escape everything Markdown could read as markup, except within words.

    Round brackets and exclamation marks are markup only beside square brackets, which are escaped; `R@5` mentions
    nobody.
    """
    return re.sub(r"([\\`*{}\[\]#+|<>~&]|(?<!\w)_|_(?!\w)|@(?!\d)|(?<!\w)@)", r"\\\1", plain(text))


def code(text: str) -> str:
    """Show a text literally, in a code span: no markup, mention or link is made of it. Pipes are escaped for tables."""
    line = plain(text)
    if line in {"", UNDEFINED}:
        return UNDEFINED
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    padding = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{padding}{line}{padding}{fence}".replace("|", "\\|")
