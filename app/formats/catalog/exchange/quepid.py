"""Quepid (https://github.com/o19s/quepid): its case and book exports, as CSV or JSON.

A document that several people rated gets the rounded mean of their ratings; queries have no key but their text.
"""

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from app.formats.catalog.documents import SuiteDocument
from app.formats.catalog.exchange.csv_tables import harmless, rows
from app.formats.catalog.exchange.losses import losses
from app.formats.catalog.exchange.suite_builder import Gathering, Source, Written, objects_in

_ALIASES = {"doc_id": "docid", "document_id": "docid", "query_text": "query"}
_DETAIL = {"team_name", "case_name", "case_id", "doc_position", "title"}
"""Columns of the detailed case export that are no judge's ratings."""


def read(sources: Sequence[Source], into: Gathering) -> None:
    """Read exports: `query,docid,rating`, a column for each judge, the detailed case, or the JSON of a case or book."""
    for source in sources:
        first = next((line for line in source.lines() if line.strip()), "")
        if first.lstrip().startswith("{"):
            _json(source, into)
        else:
            _csv(source, into)


def write(suite: SuiteDocument) -> Written:
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
            else:
                writer.writerow([harmless(canary.query), harmless(name), chunk.grade])
        notes.append("keys")
    lost = losses(suite, keeps=(), also=notes, texts=False, one_identity=True)
    return Written(files={f"{suite.slug}.csv": text.getvalue()}, notes=lost)


def _csv(source: Source, into: Gathering) -> None:
    ratings: dict[tuple[str, str], list[float]] = defaultdict(list)
    lines: dict[tuple[str, str], int] = {}
    for number, row in rows(source, into, required=("query",), aliases=_ALIASES):
        if "query" not in row:
            into.problem(source.name, number, "has no query")
            continue
        into.canary(row["query"], row["query"], source.name, number)
        if "docid" not in row:
            continue  # a query without ratings has a line of its own
        place = (row["query"], row["docid"])
        lines.setdefault(place, number)
        judges = {"rating": row["rating"]} if "rating" in row else row
        for column, cell in judges.items():
            if column in {"query", "docid", *_DETAIL}:
                continue
            rating = _rating(cell)
            if rating is not None:
                ratings[place].append(rating)
            elif column == "rating":
                into.problem(source.name, number, f"the rating '{cell[:40]}' is not a number")
    for (query, document), given in ratings.items():
        _judge(query, document, given, source.name, lines[query, document], into)


def _json(source: Source, into: Gathering) -> None:
    try:
        whole: Any = json.loads("".join(source.lines()))
    except (ValueError, RecursionError):
        into.problem(source.name, 1, "is not JSON")
        return
    if not isinstance(whole.get("query_doc_pairs", whole.get("queries")), list):
        into.problem(source.name, 1, "is neither a case ('queries') nor a book ('query_doc_pairs') of Quepid")
    for pair in objects_in(whole.get("query_doc_pairs")):
        given = [one.get("rating") for one in objects_in(pair.get("judgements"))]
        _pair(pair.get("query_text"), pair.get("doc_id"), given, source.name, into)
    for query in objects_in(whole.get("queries")):
        text, ratings = query.get("query_text", query.get("query")), query.get("ratings")
        if isinstance(ratings, dict):
            ratings = [{"doc_id": name, "rating": rating} for name, rating in ratings.items()]
        for one in objects_in(ratings):
            _pair(text, one.get("doc_id"), [one.get("rating")], source.name, into)


def _pair(query: Any, document: Any, given: Sequence[Any], file: str, into: Gathering) -> None:
    if not isinstance(query, str) or not query.strip() or document is None:
        into.problem(file, 1, "a pair without a query or a document")
        return
    into.canary(query, query, file, 1)
    _judge(query, str(document), [rating for one in given if (rating := _rating(one)) is not None], file, 1, into)


def _judge(query: str, document: str, given: Sequence[float], file: str, line: int, into: Gathering) -> None:
    if not given:
        into.note("a document that nobody rated was left out", f"{file}:{line}")
        return
    if len(set(given)) > 1:
        into.note("judges disagreed; the mean of their ratings was taken", f"{file}:{line}")
    mean = math.floor(sum(given) / len(given) + 0.5) if len(given) > 1 else given[0]
    grade = into.grade(str(mean), file, line)
    if grade is not None:
        into.judgment(query, file, line, grade, id=document)


def _rating(given: Any) -> float | None:
    """Read a rating; None for what is none, such as the empty cell of a judge who has not rated yet."""
    try:
        value = float(given)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
