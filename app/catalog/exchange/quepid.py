"""Quepid (https://github.com/o19s/quepid): its case and book exports, as CSV or JSON.

A document that several people rated gets the rounded mean of their ratings; queries have no key but their text.
"""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from app.base.documents.texts import Source
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.exchange.csv import escape_formula, excel_number, header_of, plain_name, rows
from app.catalog.exchange.suite_builder import SuiteBuilder, SuiteFiles, losses, objects_in

_ALIASES = {"doc_id": "docid", "document_id": "docid", "query_text": "query"}
_OF_CASES = {"team_name", "case_name", "case_id", "snapshot_name", "snapshot_time", "doc_position"}
"""Columns of exports of a case: such a table has no judges."""
_NO_JUDGES = {"query", "docid", "title", "notes", "information_need"}


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read exports: `query,docid,rating`, a column for each judge, the detailed case, or the JSON of a case or book."""
    for source in sources:
        first = next((line for line in source.lines() if line.strip()), "")
        if first.lstrip().startswith("{"):
            _json(source, builder)
        else:
            _csv(source, builder)


def write(suite: SuiteDocument) -> SuiteFiles:
    """Write `SUITE.csv` in Quepid's basic form, which its import takes: `query,docid,rating`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["query", "docid", "rating"])
    notes: list[str] = []
    queries: set[str] = set()
    for canary in suite.canaries or ():
        if canary.query in queries:
            notes.append("two canaries with the same query")
        queries.add(canary.query)
        for chunk in canary.expected_chunks:
            name = chunk.id or chunk.document
            if name is None:
                notes.append("judgments by text alone")
            elif excel_number(name):
                notes.append("ids that look like numbers of a spreadsheet (1.5E+10)")
            else:
                writer.writerow([escape_formula(canary.query), escape_formula(name), chunk.grade])
        notes.append("keys")
    lost = losses(suite, fields=(), extra=notes, texts=False, one_identity=True)
    return SuiteFiles(files={f"{suite.slug}.csv": text.getvalue()}, notes=lost)


def _csv(source: Source, builder: SuiteBuilder) -> None:
    ratings: dict[tuple[str, str], list[float]] = defaultdict(list)
    lines: dict[tuple[str, str], int] = {}
    names = {_ALIASES.get(name, name) for name in map(plain_name, header_of(source))}
    is_judged_once = "rating" in names or bool(names & _OF_CASES)
    for number, row in rows(source, builder, required=("query",), aliases=_ALIASES):
        if "query" not in row:
            builder.add_problem(source.name, number, "has no query")
            continue
        builder.add_canary(row["query"], row["query"], source.name, number)
        if "docid" not in row:
            continue  # a query without ratings has a line of its own
        problem = excel_number(row["docid"])
        if problem is not None:
            builder.add_problem(source.name, number, f"the document {problem}")
            continue
        place = (row["query"], row["docid"])
        lines.setdefault(place, number)
        judges = ["rating"] if is_judged_once else [name for name in row if name not in _NO_JUDGES]
        ratings[place] += []
        for column, cell in [(name, row[name]) for name in judges if name in row]:
            if cell.strip().lower() == "null":  # nobody rated it
                continue
            rating = _rating(cell)
            if rating is not None:
                ratings[place].append(rating)
            elif column == "rating":
                builder.add_problem(source.name, number, f"the rating '{cell[:40]}' is not a number")
    for (query, document), values in ratings.items():
        _judge(query, document, values, source.name, lines[query, document], builder)


def _json(source: Source, builder: SuiteBuilder) -> None:
    try:
        whole: Any = builder.parse_json(source)
    except ValueError as error:
        builder.add_problem(source.name, 1, str(error))
        return
    if not isinstance(whole.get("query_doc_pairs", whole.get("queries")), list):
        builder.add_problem(source.name, 1, "is neither a case ('queries') nor a book ('query_doc_pairs') of Quepid")
    for pair in objects_in(whole.get("query_doc_pairs")):
        values = [one.get("rating") for one in objects_in(pair.get("judgements"))]
        _pair(pair.get("query_text"), pair.get("doc_id"), values, source.name, builder)
    rated: dict[tuple[str, str], list[float]] = defaultdict(list)
    for query in objects_in(whole.get("queries")):
        text, ratings = query.get("query_text", query.get("query")), query.get("ratings")
        if isinstance(ratings, dict):
            ratings = [{"doc_id": name, "rating": rating} for name, rating in ratings.items()]
        for one in objects_in(ratings):
            document, rating = one.get("doc_id"), _rating(one.get("rating"))
            if not isinstance(text, str) or not text.strip() or document is None:
                _pair(text, document, (), source.name, builder)
            else:  # several people may have rated it
                rated[text, str(document)] += [] if rating is None else [rating]
    for (text, document), given in rated.items():
        _pair(text, document, given, source.name, builder)


def _pair(query: Any, document: Any, ratings: Sequence[Any], file: str, builder: SuiteBuilder) -> None:
    if not isinstance(query, str) or not query.strip() or document is None:
        builder.add_problem(file, 1, "a pair without a query or a document")
        return
    builder.add_canary(query, query, file, 1)
    _judge(query, str(document), [rating for one in ratings if (rating := _rating(one)) is not None], file, 1, builder)


def _judge(query: str, document: str, ratings: Sequence[float], file: str, line: int, builder: SuiteBuilder) -> None:
    if not ratings:
        builder.add_note("a document that nobody rated was left out", f"{file}:{line}")
        return
    if len(set(ratings)) > 1:
        builder.add_note("judges disagreed; the mean of their ratings was taken", f"{file}:{line}")
    mean = math.floor(sum(ratings) / len(ratings) + 0.5) if len(ratings) > 1 else ratings[0]
    grade = builder.read_grade(str(mean), file, line)
    if grade is not None:
        builder.add_judgment(query, file, line, grade, id=document)


def _rating(ratings: Any) -> float | None:
    """Return a rating; None where it is not a number, such as the empty cell of a judge who has not rated yet."""
    try:
        value = float(ratings)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
