"""CSV with a header: a line for each judgment, the canary's own fields repeated.

The only format besides canary files that is lossless.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from app.formats.catalog.documents import CanaryDocument, SuiteDocument
from app.formats.catalog.exchange.csv_columns import (
    COLUMNS,
    IGNORED,
    OWN_COLUMNS,
    column_of,
    delimiter_of,
    header_of,
    plain_name,
    unknown_column,
)
from app.formats.catalog.exchange.suite_builder import Source, SuiteBuilder, SuiteFiles
from app.formats.fields import did_you_mean, one_line
from app.formats.json_texts import parse_json_text

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
"""The beginning of a cell that spreadsheets evaluate, after any number of apostrophes, one of which may be ours."""
_JSON = frozenset('{["-0123456789tfnNI \t\r\n')
"""First characters of JSON: a failed attempt to parse takes longer than the rest of a row."""
_TRUE, _FALSE = {"true", "1", "yes", "x"}, {"", "false", "0", "no"}


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read CSV (or with tabs or semicolons) whose header names at least the query, itself or by `builder.columns`."""
    headers = {plain_name(name) for source in sources for name in header_of(source)} if builder.columns else set()
    for name in builder.columns:
        if name not in headers:
            message = f"the header has no column '{one_line(name)}'{did_you_mean(name, headers)}"
            builder.add_problem(sources[0].name, 1, message)
    for source in sources:
        for number, row in rows(source, builder, required=("query",), known=(*COLUMNS, IGNORED)):
            _row(row, source.name, number, builder)


def write(suite: SuiteDocument) -> SuiteFiles:
    """Write `SUITE.csv`, without losses."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)  # lines end as RFC 4180 has it, so that any line break is quoted
    writer.writeheader()
    blank = CanaryDocument(key="x", query="x")
    for canary in suite.canaries or ():
        values = canary.model_dump(mode="json", by_alias=True)
        own = {
            name: _cell(values[name])
            for name in OWN_COLUMNS
            if name == "query" or getattr(canary, name) != getattr(blank, name)
        }
        chunks = [chunk.data() for chunk in canary.expected_chunks]
        chunks += [{**chunk.data(), "forbidden": "true"} for chunk in canary.forbidden_chunks]
        for chunk in chunks or [{}]:
            cells = {
                "judgment_source" if name == "source" else name: value  # a column `source` is read as the document
                for name, value in chunk.items()
                if value is not None
            }
            row = {"key": canary.key, **own, **cells}
            writer.writerow({name: escape_formula(value) for name, value in row.items()})
    return SuiteFiles(files={f"{suite.slug}.csv": text.getvalue()}, notes=())


def escape_formula(value: Any) -> Any:
    """Return a cell that no spreadsheet evaluates as a formula: with an apostrophe before it, which `rows` removes."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _unescape_formula(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def rows(
    source: Source,
    builder: SuiteBuilder,
    *,
    required: Sequence[str],
    known: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, non-empty cells by column) of a table with a header. `known` () accepts any column.

    `aliases`: columns by other names; without them those of a CSV of canaries.
    """
    lines = iter(source.lines())
    header = next((line for line in lines if line.strip()), "")
    reader = csv.reader(chain([header.removeprefix("\ufeff")], lines), delimiter=delimiter_of(header), strict=True)
    try:
        written = next(reader, [])
        if aliases is None:
            names = [column_of(name, builder.columns) for name in written]
        else:
            names = [aliases.get(name, name) for name in map(plain_name, written)]
        unknown = [name for name in names if known and name not in known]
        for name in unknown:
            builder.add_problem(source.name, 1, unknown_column(name))
        twice = [name for name in {*builder.columns.values()} - {IGNORED} if names.count(name) > 1]
        for name in twice:
            builder.add_problem(source.name, 1, f"several columns are '{name}'; one may be ignored")
        missing = [name for name in required if name not in names]
        if missing:
            builder.add_problem(source.name, 1, f"the header has no column '{missing[0]}'")
        if unknown or missing or twice:
            return
        number = reader.line_num
        for cells in reader:
            begun, number = number + 1, reader.line_num
            if len(cells) > len(names):
                builder.add_problem(source.name, begun, f"has {len(cells)} cells, the header names {len(names)}")
            elif cells:
                pairs = zip(names, cells, strict=False)
                yield begun, {name: _unescape_formula(cell) for name, cell in pairs if cell.strip()}
    except csv.Error as error:
        builder.add_problem(source.name, reader.line_num, f"is not CSV: {error}")


def _row(row: Mapping[str, str], name: str, number: int, builder: SuiteBuilder) -> None:
    identity = row.get("key", row.get("query"))
    if identity is None or "query" not in row:
        builder.add_problem(name, number, "has no query")
        return
    own = {field: _value(field, row[field]) for field in OWN_COLUMNS if field in row and field != "query"}
    builder.add_canary(identity, row["query"], name, number, named="key" in row, **own)
    chunk = {field: row[field] for field in ("id", "document", "text") if field in row}
    forbidden = row.get("forbidden", "").strip().lower()
    if forbidden not in _TRUE | _FALSE:
        builder.add_problem(name, number, f"forbidden is true or false, not '{one_line(forbidden)}'")
    elif chunk:
        grade = None if forbidden in _TRUE else builder.read_grade(row.get("grade", "1"), name, number)
        source = row.get("judgment_source") if grade is not None else None
        if grade is not None or forbidden in _TRUE:
            builder.add_judgment(identity, name, number, grade, source=source, **chunk)


def _value(field: str, cell: str) -> Any:
    """Return a cell's value: lists are separated by semicolons, mappings and numbers are JSON, else it is a text."""
    if field == "tags" and not cell.startswith("["):
        return [tag.strip() for tag in cell.split(";") if tag.strip()]
    if cell[0] not in _JSON:
        return cell
    try:
        return parse_json_text(cell)
    except ValueError:
        return cell


def _cell(value: Any) -> str:
    if isinstance(value, list) and not any(";" in tag or tag != tag.strip() or tag.startswith("[") for tag in value):
        return ";".join(value)
    return value if isinstance(value, str) else json.dumps(value)
