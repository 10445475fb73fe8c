"""OpenSearch Search Relevance Workbench: its judgment lists, `judgmentRatings`.

https://docs.opensearch.org/latest/search-plugins/search-relevance/judgments/. Ratings are 0 to 1 or grades.
"""

import json
from collections.abc import Sequence
from typing import Any

from app.base.documents.fields import one_line
from app.base.documents.texts import Source
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.exchange.beir import text_of
from app.catalog.exchange.suite_builder import SuiteBuilder, SuiteFiles, graded_names, losses, objects_in, parse_number


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read judgment lists: as they are imported, or as they are returned with `ratings` under `judgmentRatings`."""
    for source in sources:
        try:
            whole: Any = builder.parse_json(source)
        except ValueError as error:
            builder.add_problem(source.name, 1, str(error))
            continue
        listed = whole.get("judgmentRatings") if isinstance(whole, dict) else whole
        queries = objects_in(listed)
        if not queries:
            builder.add_problem(source.name, 1, "holds no 'judgmentRatings'")
        is_share = not builder.maps_grades and _are_shares(queries)
        if is_share:
            builder.add_note("ratings of 0 to 1 were scaled to grades of 0 to 3", source.name)
        for one in queries:
            _query(one, is_share, source.name, builder)


def write(suite: SuiteDocument) -> SuiteFiles:
    """Write `judgments.json`, the body that imports a judgment list."""
    rated: list[dict[str, Any]] = []
    notes: list[str] = []
    queries: set[str] = set()
    for canary in suite.canaries or ():
        notes += ["two canaries with the same query"] if canary.query in queries else []
        queries.add(canary.query)
        ratings = [{"docId": name, "rating": str(grade)} for name, grade in graded_names(canary, notes).items()]
        rated.append({"query": canary.query, "ratings": ratings})
        notes.append("keys")
    whole = {"name": suite.slug, "type": "IMPORT_JUDGMENT", "judgmentRatings": rated}
    lost = losses(suite, fields=(), extra=notes, texts=False, one_identity=True)
    return SuiteFiles(files={"judgments.json": json.dumps(whole, indent=2, ensure_ascii=False) + "\n"}, notes=lost)


def _query(one: dict[str, Any], is_share: bool, file: str, builder: SuiteBuilder) -> None:  # noqa: FBT001
    query = text_of(one, "query")
    if query is None:
        builder.add_problem(file, 1, "a list of ratings has no 'query'")
        return
    builder.add_canary(query, query, file, 1, named=False)
    for rating in objects_in(one.get("ratings")):
        document = text_of(rating, "docId")
        if document is None or rating.get("rating") is None:
            builder.add_problem(file, 1, f"a rating of query '{one_line(query)}' has no docId or no rating")
            continue
        given = str(rating["rating"])
        grade = builder.read_grade(str(3 * parse_number(given)) if is_share else given, file, 1)
        if grade is not None:
            builder.add_judgment(query, file, 1, grade, id=document)


def _are_shares(queries: Sequence[dict[str, Any]]) -> bool:
    """Whether all ratings are from 0 to 1 and some between: shares, not grades."""
    try:
        ratings = [
            parse_number(str(rating["rating"]))
            for one in queries
            for rating in objects_in(one.get("ratings"))
            if rating.get("rating") is not None
        ]
    except ValueError:
        return False
    return all(0 <= rating <= 1 for rating in ratings) and any(0 < rating < 1 for rating in ratings)
