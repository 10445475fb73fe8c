"""CSV with a header: a line for each judgment, the canary's own fields repeated.

The only format besides our own that holds everything.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.formats.catalog.documents import CanaryDocument, SuiteDocument
from app.formats.catalog.exchange.suite_builder import Gathering, Source, Written
from app.formats.fields import did_you_mean, one_line

_OWN = tuple(name for name in CanaryDocument.model_fields if not name.endswith("_chunks") and name != "key")
_CHUNK = ("id", "document", "text", "grade", "forbidden")
COLUMNS = ("key", *_OWN, *_CHUNK)
_ALIASES = {
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
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
"""What spreadsheets begin to compute at, behind however many apostrophes, so that those are told from ours."""
_JSON = frozenset('{["-0123456789tfnNI \t\r\n')
"""What JSON may begin with, as `json` reads it: to try and fail takes longer than all else of a row."""
_TRUE, _FALSE = {"true", "1", "yes", "x"}, {"", "false", "0", "no"}


def read(sources: Sequence[Source], into: Gathering) -> None:
    """Read CSV (or with tabs or semicolons) whose header names at least the query."""
    for source in sources:
        for number, row in rows(source, into, required=("query",), known=COLUMNS, aliases=_ALIASES):
            _row(row, source.name, number, into)


def write(suite: SuiteDocument) -> Written:
    """Write `SUITE.csv`, which holds everything."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)  # lines end as RFC 4180 has it, so that any line break is quoted
    writer.writeheader()
    blank = CanaryDocument(key="x", query="x")
    for canary in suite.canaries or ():
        values = canary.model_dump(mode="json", by_alias=True)
        own = {
            name: _cell(values[name])
            for name in _OWN
            if name == "query" or getattr(canary, name) != getattr(blank, name)
        }
        chunks: list[dict[str, Any]] = [chunk.data() for chunk in canary.expected_chunks]
        chunks += [{**chunk.data(), "forbidden": "true"} for chunk in canary.forbidden_chunks]
        for chunk in chunks or [{}]:
            cells = {name: value for name, value in chunk.items() if value is not None}
            row = {"key": canary.key, **own, **cells}
            writer.writerow({name: harmless(value) for name, value in row.items()})
    return Written(files={f"{suite.slug}.csv": text.getvalue()}, notes=())


def harmless(value: Any) -> Any:
    """Write a cell so that no spreadsheet takes it for a formula: an apostrophe before it, which `rows` takes away."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _as_it_was(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def rows(
    source: Source, into: Gathering, *, required: Sequence[str], known: Sequence[str] = (), aliases: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Read a table with a header: (line, cells by column, empty ones left out). `known` () accepts any column."""
    lines = iter(source.lines())
    header = next((line for line in lines if line.strip()), "")
    delimiter = max("\t;,", key=header.count)
    reader = csv.reader(_again(header.removeprefix("\ufeff"), lines), delimiter=delimiter, strict=True)
    try:
        names = [_column(cell, aliases) for cell in next(reader, [])]
        strangers = [name for name in names if known and name not in known]
        for name in strangers:
            into.problem(source.name, 1, f"unknown column '{one_line(name)}'{did_you_mean(name, known)}")
        missing = [name for name in required if name not in names]
        if missing:
            into.problem(source.name, 1, f"the header has no column '{missing[0]}'")
        if strangers or missing:
            return
        number = reader.line_num
        for cells in reader:
            begun, number = number + 1, reader.line_num
            if len(cells) > len(names):
                into.problem(source.name, begun, f"has {len(cells)} cells, the header names {len(names)}")
            elif cells:
                pairs = zip(names, cells, strict=False)
                yield begun, {name: _as_it_was(cell) for name, cell in pairs if cell.strip()}
    except csv.Error as error:
        into.problem(source.name, reader.line_num, f"is not CSV: {error}")


def _row(row: Mapping[str, str], name: str, number: int, into: Gathering) -> None:
    identity = row.get("key", row.get("query"))
    if identity is None or "query" not in row:
        into.problem(name, number, "has no query")
        return
    own = {field: _value(field, row[field]) for field in _OWN if field in row and field != "query"}
    into.canary(identity, row["query"], name, number, named="key" in row, **own)
    chunk = {field: row[field] for field in ("id", "document", "text") if field in row}
    forbidden = row.get("forbidden", "").strip().lower()
    if forbidden not in _TRUE | _FALSE:
        into.problem(name, number, f"forbidden is true or false, not '{one_line(forbidden)}'")
    elif chunk:
        grade = None if forbidden in _TRUE else into.grade(row.get("grade", "1"), name, number)
        if grade is not None or forbidden in _TRUE:
            into.judgment(identity, name, number, grade, **chunk)


def _value(field: str, cell: str) -> Any:
    """Read a cell: lists are separated by semicolons, mappings and numbers are JSON, else it is a text."""
    if field == "tags" and not cell.startswith("["):
        return [tag.strip() for tag in cell.split(";") if tag.strip()]
    if cell[0] not in _JSON:
        return cell
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _cell(value: Any) -> str:
    if isinstance(value, list) and not any(";" in tag or tag != tag.strip() or tag.startswith("[") for tag in value):
        return ";".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _column(cell: str, aliases: Mapping[str, str]) -> str:
    name = cell.strip().lower().replace(" ", "_")
    return aliases.get(name, name)


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
