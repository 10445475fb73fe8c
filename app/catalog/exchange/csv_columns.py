"""Columns of a CSV of canaries: what names in a header stand for, and what people say that other names are."""

import csv
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from app.base.documents.fields import did_you_mean, one_line
from app.base.errors import InvalidInputError, Problem
from app.catalog.documents.documents import CanaryDocument
from app.catalog.exchange.suite_builder import Source

OWN_COLUMNS = tuple(name for name in CanaryDocument.model_fields if not name.endswith("_chunks") and name != "key")
COLUMNS = ("key", *OWN_COLUMNS, "id", "document", "text", "grade", "judgment_source", "forbidden")
IGNORED = "ignore"
"""What a column is that is not read."""
COLUMN_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "query": "query (the question)",
        "id": "expected chunk id",
        "document": "expected document",
        "text": "expected text",
        "grade": "grade of the expected chunk",
        "judgment_source": "source of the grade (task:SLUG)",
        "forbidden": "forbidden (true or false)",
        "key": "key of the canary",
        **{name: name.replace("_", " ") for name in OWN_COLUMNS if name != "query"},
    }
)
"""Columns as a person chooses among them, those in use first."""
_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "qid": "key",
        "query_id": "key",
        "query-id": "key",
        "question": "query",
        "query_text": "query",
        "chunk_id": "id",
        "chunk": "id",
        "doc_id": "id",
        "docid": "id",
        "corpus-id": "id",
        "rating": "grade",
        "relevance": "grade",
        "score": "grade",
        "label": "grade",
        "passage": "text",
        "url": "document",
        "source": "document",
    }
)
_SEPARATOR = re.compile(r"[\"']?sep=([;,\t|])[\"']?", re.IGNORECASE)
"""The first line by which Excel says what separates the cells."""
_HINT = "query (or question); id (or chunk_id), document, text; grade, forbidden; key"


def parse_columns(pairs: Iterable[str], form: str) -> Mapping[str, str]:
    """Return columns by their names in the header, of pairs such as `article=id` and `note=ignore`.

    Raises InvalidInputError, also where the format is no table of canaries.
    """
    columns: dict[str, str] = {}
    for pair in pairs:
        name, _, column = pair.rpartition("=")
        message = None
        if form != "csv":
            message = f"is for the format csv, not for {form}"
        elif not name.strip():
            message = f"'{one_line(pair)}' is not NAME=COLUMN, such as article=id"
        elif column not in {*COLUMNS, IGNORED}:
            message = f"'{one_line(column)}' is no column{did_you_mean(column, COLUMNS)}; there are: {list_columns()}"
        if message is not None:
            raise InvalidInputError([Problem(path="column", message=message)])
        columns[plain_name(name)] = column
    return columns


def column_of(name: str, columns: Mapping[str, str]) -> str:
    """Return the column that a name in a header stands for, itself where it is unknown; `columns`: by those given."""
    plain = plain_name(name)
    return columns.get(plain) or _ALIASES.get(plain, plain)


def header_of(source: Source) -> tuple[str, ...]:
    """Return the names in the header of a table as they are written; () where it cannot be read."""
    _, line, delimiter = split_header(source.lines())
    try:
        return tuple(name.strip() for name in next(csv.reader([line], delimiter=delimiter, strict=True), []))
    except csv.Error:
        return ()


def split_header(lines: Iterable[str]) -> tuple[int, str, str]:
    """Return (its line, header, delimiter) of a table, after blank lines and Excel's `sep=;`; reads no further."""
    given = None
    for number, line in enumerate(lines, start=1):
        plain = line.removeprefix("\ufeff")
        separator = _SEPARATOR.fullmatch(plain.strip("\r\n"))
        if separator is not None and given is None:
            given = separator[1]
        elif plain.strip(" \t\r\n;,"):
            return number, plain, given or delimiter_of(plain)
    return 1, "", ","


def delimiter_of(header: str) -> str:
    """Return what separates the cells of a header: a tab, a semicolon or a comma."""
    return max("\t;,", key=header.count)


def plain_name(cell: str) -> str:
    """Return a name in a header in small letters, with underscores for spaces."""
    return cell.strip().lower().replace(" ", "_")


def unknown_column(name: str, known: Iterable[str] | None = None) -> str:
    """Say that a column is unknown, which ones there are, and how to say what it is.

    `known`: the columns of another table than one of canaries, whose columns nobody can assign.
    """
    shown = one_line(name)
    if known is not None:
        listed = list(known)
        near = did_you_mean(name, listed)
        advice = f"{near} Else remove it" if near else "; remove it"
        return f"unknown column '{shown}'{advice}. There are: {', '.join(listed)}"
    near = did_you_mean(name, [*COLUMNS, *_ALIASES])
    return (
        f"unknown column '{shown}'{near}{' T' if near else '; t'}here are: {list_columns()}. "
        f"Say which one it is with column {shown}=id, or leave it out with column {shown}={IGNORED}"
    )


def list_columns() -> str:
    """Return the columns there are, with the names they are often given."""
    rest = [name for name in COLUMNS if name not in _HINT.replace(",", " ").replace(";", " ").split()]
    return f"{_HINT}, {', '.join(rest)}"
