"""CSV with a header: a line for each judgment, the canary's own fields repeated.

The only format besides canary files that holds all of a canary.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from app.base.documents.fields import did_you_mean, one_line
from app.base.documents.json_texts import parse_json_text
from app.catalog.documents.documents import CanaryDocument, SuiteDocument
from app.catalog.exchange.csv_columns import (
    COLUMNS,
    IGNORED,
    OWN_COLUMNS,
    column_of,
    header_of,
    plain_name,
    split_header,
    unknown_column,
)
from app.catalog.exchange.listed_cells import excel_number, list_of
from app.catalog.exchange.losses import is_left_out
from app.catalog.exchange.suite_builder import Source, SuiteBuilder, SuiteFiles

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
"""The beginning of a cell that spreadsheets evaluate, after any number of apostrophes, one of which may be ours."""
_JSON = frozenset('{["-0123456789tfnNI \t\r\n')
"""First characters of JSON: a failed attempt to parse takes longer than the rest of a row."""
_SEVERAL = re.compile(r", |;|,(?=\S+,)")
_FRACTION = re.compile(r"-?0?[.,][0-9]*[1-9][0-9]*")
_FLOAT_ID = re.compile(r"[0-9]+\.0")
_TEXTS = frozenset({"expected_answer", "category", "segment"})
_TRUE, _FALSE = {"true", "1", "yes", "x"}, {"", "false", "0", "no"}


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read CSV (or with tabs or semicolons) whose header names at least the query, itself or by `builder.columns`."""
    headers = {plain_name(name) for source in sources for name in header_of(source)} if builder.columns else set()
    for name in builder.columns:
        if name not in headers:
            message = f"the header has no column '{one_line(name)}'{did_you_mean(name, headers)}"
            builder.add_problem(sources[0].name, 1, message)
    for source in sources:
        scored = _score_column(source, builder)
        for number, row in rows(source, builder, required=("query",), known=(*COLUMNS, IGNORED)):
            grade = row.get("grade", "")
            if scored is not None and _FRACTION.fullmatch(grade.strip()):
                shown = one_line(scored)
                message = (
                    f"'{grade.strip()[:40]}' in column '{shown}' looks like a similarity, not a grade; leave it out "
                    f"with column {shown}={IGNORED}, or say that it is a grade with column {shown}=grade and grades 0-1"
                )
                builder.add_problem(source.name, number, message)
                continue
            _row(row, source.name, number, builder)


def write(suite: SuiteDocument) -> SuiteFiles:
    """Write `SUITE.csv`, which holds all of a canary."""
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
            cells |= {name: _protect(cells[name]) for name in ("id", "document", "text") if name in cells}
            row = {"key": canary.key, **own, **cells}
            writer.writerow({name: escape_formula(value) for name, value in row.items()})
    left_out = sum(is_left_out(canary, (*OWN_COLUMNS, "forbidden_chunks")) for canary in suite.canaries or ())
    notes = (f"the format cannot hold canaries without judgments (lost {left_out:,}x)",) if left_out else ()
    return SuiteFiles(files={f"{suite.slug}.csv": text.getvalue()}, notes=notes)


def _score_column(source: Source, builder: SuiteBuilder) -> str | None:
    """Return the column that is read as the grade by the name `score` alone; None where there is none."""
    names = (name for name in header_of(source) if plain_name(name) == "score")
    return next((name for name in names if "score" not in builder.columns and not builder.maps_grades), None)


def escape_formula(value: Any) -> Any:
    """Return a cell that no spreadsheet evaluates as a formula: with an apostrophe before it, which `rows` removes."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _protect(value: str) -> str:
    """Return the value of a cell; one that would be read as a list or refused becomes a list of one."""
    return (
        json.dumps([value], ensure_ascii=False)
        if list_of(value, numbers=True) is not None or excel_number(value)
        else value
    )


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
    first, header, delimiter = split_header(lines)
    reader = csv.reader(chain([header], lines), delimiter=delimiter, strict=True)
    try:
        written = next(reader, [])
        if aliases is None:
            names = [column_of(name, builder.columns) for name in written]
        else:
            names = [aliases.get(name, name) for name in map(plain_name, written)]
        unknown = [name for name in names if known and name and name not in known]
        for name in unknown:
            builder.add_problem(source.name, first, unknown_column(name, None if aliases is None else known))
        twice = [name for name in {*builder.columns.values()} - {IGNORED} if names.count(name) > 1]
        for name in twice:
            builder.add_problem(source.name, first, f"several columns are '{name}'; one may be ignored")
        missing = [name for name in required if name not in names]
        if missing:
            builder.add_problem(source.name, first, f"the header has no column '{missing[0]}'")
        if unknown or missing or twice:
            return
        number = reader.line_num
        for cells in reader:
            begun, number = first + number, reader.line_num
            filled = [place for place, cell in enumerate(cells) if cell.strip()]  # none in blank rows of spreadsheets
            problem = _misplaced(filled, cells, names)
            if problem is not None:
                builder.add_problem(source.name, begun, problem)
            elif filled:
                yield begun, {names[place]: _unescape_formula(cells[place]) for place in filled}
    except csv.Error as error:
        builder.add_problem(source.name, first - 1 + reader.line_num, f"is not CSV: {error}")


def _misplaced(filled: Sequence[int], cells: Sequence[str], names: Sequence[str]) -> str | None:
    """Return which value has no column; None where each has one. Spreadsheets add columns without name and value."""
    if filled and filled[-1] >= len(names):
        return f"has {len(cells)} cells, the header names {len(names)}"
    nameless = next((place for place in filled if not names[place]), None)
    return None if nameless is None else f"has a value in column {nameless + 1}, which the header does not name"


def _row(row: Mapping[str, str], name: str, number: int, builder: SuiteBuilder) -> None:
    identity = row.get("key", row.get("query"))
    if identity is None or "query" not in row:
        builder.add_problem(name, number, "has no query")
        return
    own = {field: _value(field, row[field]) for field in OWN_COLUMNS if field in row and field != "query"}
    builder.add_canary(identity, row["query"], name, number, named="key" in row, **own)
    chunks = _chunks(row, name, number, builder)
    forbidden = row.get("forbidden", "").strip().lower()
    if forbidden not in _TRUE | _FALSE:
        builder.add_problem(name, number, f"forbidden is true or false, not '{one_line(forbidden)}'")
    elif chunks:
        grade = None if forbidden in _TRUE else builder.read_grade(row.get("grade", "1"), name, number)
        source = row.get("judgment_source") if grade is not None else None
        if grade is not None or forbidden in _TRUE:
            for chunk in chunks:
                builder.add_judgment(identity, name, number, grade, source=source, **chunk)


def _chunks(row: Mapping[str, str], file: str, line: int, builder: SuiteBuilder) -> list[dict[str, str]]:
    """Return the chunks of a row: one, or several where its cells are lists of as many items."""
    cells: dict[str, list[str]] = {}
    for field in ("id", "document", "text"):
        if field not in row:
            continue
        items = list_of(row[field], numbers=field != "text")
        if items is not None and len(items) > 1:
            builder.add_note(f"a list in a cell of {field} was read as several judgments", f"{file}:{line}")
        if items is None and field != "text":
            problem = excel_number(row[field])
            if problem is not None:
                builder.add_problem(file, line, f"the {field} {problem}")
                return []
            if _SEVERAL.search(row[field]):
                builder.add_note(
                    f'an {field} with a comma or semicolon was taken for one; several are written as ["a", "b"] '
                    "or in a row each",
                    f"{file}:{line}",
                )
            if _FLOAT_ID.fullmatch(row[field].strip()):
                builder.add_note(f"an {field} ends in .0, as spreadsheets write whole numbers", f"{file}:{line}")
        cells[field] = [row[field]] if items is None else items
    sizes = {field: len(items) for field, items in cells.items()}
    if len(set(sizes.values())) > 1:
        counts = " and ".join(f"{size} in {field}" for field, size in sizes.items())
        builder.add_problem(file, line, f"lists must be of one length; there are {counts}")
        return []
    return [dict(zip(cells, items, strict=True)) for items in zip(*cells.values(), strict=True)]


def _value(field: str, cell: str) -> Any:
    """Return a cell's value: lists are separated by semicolons, mappings and numbers are JSON, else it is a text."""
    if field == "tags" and not cell.startswith("["):
        return [tag.strip() for tag in cell.split(";") if tag.strip()]
    if field in _TEXTS or cell[0] not in _JSON:
        return cell
    try:
        return parse_json_text(cell)
    except ValueError:
        return cell


def _cell(value: Any) -> str:
    if isinstance(value, list) and not any(";" in tag or tag != tag.strip() or tag.startswith("[") for tag in value):
        return ";".join(value)
    return value if isinstance(value, str) else json.dumps(value)
