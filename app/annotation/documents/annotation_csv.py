"""Annotations as CSV: a line for each grade of an annotator, with the chunk it is about."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from app.base.documents.fields import MOST_PROBLEMS, one_line
from app.base.errors import InvalidInputError, Problem
from app.catalog.exchange.csv_tables import escape_formula, rows
from app.catalog.exchange.suite_builder import Source, SuiteBuilder

COLUMNS: Final = ("canary", "chunk_id", "document", "text", "annotator", "grade")
SKIPPED: Final = "skip"
"""Grade of an item that an annotator skipped."""
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationLine:
    """A grade of an annotator; `grade` None = skipped. `place` is its file and line."""

    canary: str
    chunk_id: str
    document: str
    text: str
    annotator: str
    grade: int | None
    place: tuple[str, int] = ("", 0)


def write_annotations(lines: Iterable[AnnotationLine]) -> str:
    """Write annotations as CSV; no cell is evaluated by a spreadsheet."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for line in lines:
        values = asdict(line) | {"grade": SKIPPED if line.grade is None else line.grade}
        writer.writerow([escape_formula(values[name]) for name in COLUMNS])
    return text.getvalue()


def read_annotations(sources: Sequence[Source], *, highest: int) -> list[AnnotationLine]:
    """Read annotations; a chunk is named by its id or its text. Raises InvalidInputError with every problem."""
    builder = SuiteBuilder()
    problems: list[Problem] = []
    found: list[AnnotationLine] = []
    for source in sources:
        for number, row in rows(source, builder, required=("canary", "annotator", "grade"), known=COLUMNS, aliases={}):
            reason = _problem(row, highest)
            if reason is not None:
                problems.append(Problem(message=reason, file=source.name, line=number))
            else:
                found.append(_line(row, source.name, number))
    problems += builder.problems
    if problems:
        raise InvalidInputError(problems[:MOST_PROBLEMS])
    return found


def _problem(row: dict[str, str], highest: int) -> str | None:
    for name in ("canary", "annotator", "grade"):
        if name not in row:
            return f"has no {name}"
    if "chunk_id" not in row and "text" not in row:
        return "has neither a chunk_id nor a text"
    if len(row["annotator"]) > _LONGEST_NAME:
        return f"names an annotator of more than {_LONGEST_NAME} characters"
    grade = row["grade"].strip().lower()
    if grade != SKIPPED and not (grade.isascii() and grade.isdecimal() and int(grade[:3]) <= highest):
        return f"has the grade '{one_line(grade)}'; grades are 0 to {highest}, or {SKIPPED}"
    return None


def _line(row: dict[str, str], file: str, number: int) -> AnnotationLine:
    grade = row["grade"].strip().lower()
    return AnnotationLine(
        canary=row["canary"],
        chunk_id=row.get("chunk_id", ""),
        document=row.get("document", ""),
        text=row.get("text", ""),
        annotator=row["annotator"].strip(),
        grade=None if grade == SKIPPED else int(grade),
        place=(file, number),
    )
