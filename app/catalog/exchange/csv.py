"""CSV with a header: a line for each judgment, the canary's own fields repeated.

The only format besides canary files that holds all of a canary.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from app.base.documents.fields import did_you_mean, one_line
from app.base.errors import InvalidInputError, Problem
from app.base.texts import Source, parse_json_text
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.exchange.suite_builder import SuiteBuilder, SuiteFiles, is_left_out

csv.field_size_limit(10_000_000)  # exports hold whole documents in a cell; files and lines have limits of their own
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


_ITEM = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*,?""", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPES: Mapping[str, str] = MappingProxyType({"n": "\n", "t": "\t", "r": "\r", "'": "'", '"': '"', "\\": "\\"})
_LAST_CODE, _FIRST_HALF, _LAST_HALF = 0x10FFFF, 0xD800, 0xDFFF
_EXCEL_NUMBER = re.compile(r"\s*[0-9](?:[.,][0-9]+)?E\+[0-9]+\s*", re.IGNORECASE)


def list_of(text: str, *, numbers: bool = False) -> list[str] | None:
    """Return the items of a text that is a list of texts (or whole numbers) in JSON or Python, or None."""
    whole = text.strip()
    if not (whole.startswith("[") and whole.endswith("]")):
        return None
    try:
        items = parse_json_text(whole)
    except ValueError:
        items = _quoted_items(whole[1:-1])
    if not isinstance(items, list) or not items:
        return None
    if numbers:
        items = [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in items]
    return items if all(isinstance(item, str) and item.strip() for item in items) else None


def excel_number(text: str) -> str | None:
    """Return what is wrong with an id that a spreadsheet shortened, such as 1.23457E+15; None where nothing is."""
    if _EXCEL_NUMBER.fullmatch(text) is None:
        return None
    return (
        f"'{text.strip()[:40]}' is a number that a spreadsheet shortened, its digits are lost; format the column as "
        f'text and export it again, or write ["{text.strip()[:40]}"] if that is the id'
    )


def _quoted_items(inner: str) -> list[str] | None:
    """Return the quoted texts of a Python list, also without commas between them, as numpy writes them."""
    items, at = [], 0
    while at < len(inner.rstrip()):
        item = _ITEM.match(inner, at)
        if item is None:
            return None
        items.append(_ESCAPE.sub(_unescape, item[1][1:-1]))
        at = item.end()
    return items


def _unescape(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return _ESCAPES.get(escape[2], escape[0])
    code = int(escape[1][1:], 16)
    return chr(code) if code <= _LAST_CODE and not _FIRST_HALF <= code <= _LAST_HALF else escape[0]
