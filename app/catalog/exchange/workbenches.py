"""Suites of search workbenches: ratings that people gave to pairs of a query and a document.

- Quepid's exports of cases and books, CSV or JSON (https://github.com/o19s/quepid): several ratings of a document give
  their rounded mean; queries have no key but their text.
- Rated Ranking Evaluator, its ratings (https://github.com/SeaseLtd/rated-ranking-evaluator): queries of one group share
  their judgments, topics become tags; a query is the `$query` of its placeholders, or its only one.
- Elasticsearch, the body of `_rank_eval` (https://www.elastic.co/guide/en/elasticsearch/reference/current/search-rank-eval.html):
  the query of a request is the text of its only full-text clause, or what its template is given.
- OpenSearch, `judgmentRatings` (https://docs.opensearch.org/latest/search-plugins/search-relevance/judgments/): ratings
  are 0 to 1 or grades.
"""

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from app.base.documents.fields import one_line
from app.base.texts import Source
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.exchange.csv import escape_formula, excel_number, header_of, plain_name, rows
from app.catalog.exchange.datasets import text_of
from app.catalog.exchange.suite_builder import (
    SuiteBuilder,
    SuiteFiles,
    graded_names,
    losses,
    named_chunks,
    objects_in,
    parse_number,
)

_ALIASES = {"doc_id": "docid", "document_id": "docid", "query_text": "query"}
_OF_CASES = {"team_name", "case_name", "case_id", "snapshot_name", "snapshot_time", "doc_position"}
"""Columns of exports of a case: such a table has no judges."""
_NO_JUDGES = {"query", "docid", "title", "notes", "information_need"}


def read_quepid(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read exports: `query,docid,rating`, a column for each judge, the detailed case, or the JSON of a case or book."""
    for source in sources:
        first = next((line for line in source.lines() if line.strip()), "")
        if first.lstrip().startswith("{"):
            _quepid_json(source, builder)
        else:
            _quepid_csv(source, builder)


def write_quepid(suite: SuiteDocument) -> SuiteFiles:
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
        for name, chunk in named_chunks(canary, notes):
            if excel_number(name):
                notes.append("ids that look like numbers of a spreadsheet (1.5E+10)")
            else:
                writer.writerow([escape_formula(canary.query), escape_formula(name), chunk.grade])
        notes.append("keys")
    lost = losses(suite, fields=(), extra=notes, texts=False, one_identity=True)
    return SuiteFiles(files={f"{suite.slug}.csv": text.getvalue()}, notes=lost)


def _quepid_csv(source: Source, builder: SuiteBuilder) -> None:
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


def _quepid_json(source: Source, builder: SuiteBuilder) -> None:
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


_LONGEST_TAG = 64


def read_rre(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read ratings by topics, by query groups, or by queries alone (as Quepid writes them)."""
    for source, whole in builder.parse_each(sources):
        any_file = False
        for topic, group in _groups(whole):
            any_file = True
            _group(topic, group, source.name, builder)
        if not any_file:
            builder.add_problem(source.name, 1, "holds no 'topics', no 'query_groups' and no 'queries'")


def write_rre(suite: SuiteDocument) -> SuiteFiles:
    """Write `ratings.json`: a group for each canary, named by its key, under its first tag as the topic."""
    topics: dict[str, list[dict[str, Any]]] = {}
    notes: list[str] = []
    for canary in suite.canaries or ():
        relevant = {name: {"gain": chunk.grade} for name, chunk in named_chunks(canary, notes)}
        notes += ["tags but the first"] if len(canary.tags) > 1 else []
        group = {
            "name": canary.key,
            "queries": [{"template": "query.json", "placeholders": {"$query": canary.query}}],
            "relevant_documents": relevant,
        }
        topics.setdefault(canary.tags[0] if canary.tags else "", []).append(group)
    whole = {
        "index": suite.slug,
        "id_field": "id",
        "topics": [{"description": topic, "query_groups": groups} for topic, groups in topics.items()],
    }
    lost = losses(suite, fields={"tags"}, extra=notes, texts=False, one_identity=True)
    return SuiteFiles(files={"ratings.json": json.dumps(whole, indent=2, ensure_ascii=False) + "\n"}, notes=lost)


def _groups(whole: Any) -> Iterator[tuple[str | None, dict[str, Any]]]:
    if not isinstance(whole, dict):
        return
    for topic in objects_in(whole.get("topics")):
        for group in objects_in(topic.get("query_groups")):
            yield str(topic.get("description") or "").strip()[:_LONGEST_TAG] or None, group
        yield from ((None, query) for query in objects_in(topic.get("queries")))
    yield from ((None, group) for group in objects_in(whole.get("query_groups")))
    yield from ((None, query) for query in objects_in(whole.get("queries")))


def _group(topic: str | None, group: dict[str, Any], file: str, builder: SuiteBuilder) -> None:
    queries = [query for one in objects_in(group.get("queries")) or [group] if (query := _query_text(one)) is not None]
    name = str(group.get("name") or "").strip()
    if not queries:
        builder.add_problem(
            file, 1, f"group '{name[:40]}' has no query with a $query placeholder, or with a single one"
        )
        return
    relevant = group.get("relevant_documents")
    problem = _unreadable(relevant)
    if problem is not None:
        builder.add_problem(file, 1, f"group '{name[:40]}': relevant_documents {problem}")
        return
    for query in queries:
        named = bool(name) and len(queries) == 1
        identity = name if named else query
        builder.add_canary(identity, query, file, 1, named=named, **({"tags": [topic]} if topic else {}))
        for document, grade in _judged(relevant):
            given = builder.read_grade(str(grade), file, 1)
            if given is not None:
                builder.add_judgment(identity, file, 1, given, id=document)


def _unreadable(relevant: Any) -> str | None:
    """Return what is wrong with the judgments of a group; None where nothing is."""
    forms = "write {document: {gain: 1}} or {gain: [documents]}"
    if relevant is not None and not isinstance(relevant, dict):
        return f"is no object; {forms}"
    bare = [name for name, value in (relevant or {}).items() if not isinstance(value, dict | list)]
    return f"has neither a gain nor documents for '{one_line(str(bare[0]))}'; {forms}" if bare else None


def _judged(relevant: Any) -> Iterator[tuple[str, Any]]:
    """Yield (document, gain) of `{document: {gain}}`, and of the older `{gain: [documents]}`."""
    for name, value in relevant.items() if isinstance(relevant, dict) else ():
        if isinstance(value, dict):
            yield name, value.get("gain", 1)
        elif isinstance(value, list):
            yield from ((str(document), name) for document in value)


def _query_text(one: dict[str, Any]) -> str | None:
    placeholders = one.get("placeholders")
    if not isinstance(placeholders, dict):
        return None
    query = placeholders.get("$query", next(iter(placeholders.values())) if len(placeholders) == 1 else None)
    return query if isinstance(query, str) and query.strip() else None


_QUERY_NAMES = frozenset({"query", "query_string", "query_text", "q", "text", "question"})
_FULL_TEXT = frozenset({"match", "match_phrase", "match_phrase_prefix", "match_bool_prefix", "term"})


def read_elasticsearch(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read `requests` with their ratings."""
    for source, whole in builder.parse_each(sources):
        requests = objects_in(whole.get("requests")) if isinstance(whole, dict) else []
        if not requests:
            builder.add_problem(source.name, 1, "holds no 'requests' of a ranking evaluation")
        for one in requests:
            _request(one, source.name, builder)


def write_elasticsearch(suite: SuiteDocument) -> SuiteFiles:
    """Write `rank-eval.json`: for each canary a request that searches the field `text`."""
    requests: list[dict[str, Any]] = []
    notes: list[str] = []
    for canary in suite.canaries or ():
        ratings = [
            {"_index": suite.slug, "_id": name, "rating": grade} for name, grade in graded_names(canary, notes).items()
        ]
        query = {"query": {"match": {"text": {"query": canary.query}}}}
        requests.append({"id": canary.key, "request": query, "ratings": ratings})
    whole = {"requests": requests, "metric": {"dcg": {"k": 10, "normalize": True}}}
    lost = losses(suite, fields=(), extra=notes, texts=False, one_identity=True)
    return SuiteFiles(files={"rank-eval.json": json.dumps(whole, indent=2, ensure_ascii=False) + "\n"}, notes=lost)


def _request(one: dict[str, Any], file: str, builder: SuiteBuilder) -> None:
    name = text_of(one, "id")
    queries = list(dict.fromkeys(_queries(one.get("params") or one.get("request"))))
    if len(queries) != 1:
        found = f"{len(queries)} query texts" if queries else "no query text"
        shown = "" if name is None else f" '{one_line(name)}'"
        builder.add_problem(
            file, 1, f"request{shown} has {found}; one is needed, as match, multi_match or params.query"
        )
        return
    identity = name or queries[0]
    builder.add_canary(identity, queries[0], file, 1, named=name is not None)
    for rating in objects_in(one.get("ratings")):
        document = text_of(rating, "_id")
        if document is None or rating.get("rating") is None:
            builder.add_problem(file, 1, f"a rating of request '{one_line(identity)}' has no _id or no rating")
            continue
        grade = builder.read_grade(str(rating["rating"]), file, 1)
        if grade is not None:
            builder.add_judgment(identity, file, 1, grade, id=document)


def _queries(value: Any) -> Iterator[str]:
    """Yield the texts of full-text clauses, and of parameters of a template that are called as a query is."""
    if isinstance(value, list):
        for item in value:
            yield from _queries(item)
    for name, inner in value.items() if isinstance(value, dict) else ():
        if name in _FULL_TEXT and isinstance(inner, dict):
            for clause in inner.values():
                text = clause.get("query", clause.get("value")) if isinstance(clause, dict) else clause
                if isinstance(text, str) and text.strip():
                    yield text
        elif name in _QUERY_NAMES and isinstance(inner, str) and inner.strip():
            yield inner
        else:
            yield from _queries(inner)


def read_opensearch(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read judgment lists: as they are imported, or as they are returned with `ratings` under `judgmentRatings`."""
    for source, whole in builder.parse_each(sources):
        listed = whole.get("judgmentRatings") if isinstance(whole, dict) else whole
        queries = objects_in(listed)
        if not queries:
            builder.add_problem(source.name, 1, "holds no 'judgmentRatings'")
        is_share = not builder.maps_grades and _are_shares(queries)
        if is_share:
            builder.add_note("ratings of 0 to 1 were scaled to grades of 0 to 3", source.name)
        for one in queries:
            _judged_query(one, source.name, builder, is_share=is_share)


def write_opensearch(suite: SuiteDocument) -> SuiteFiles:
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


def _judged_query(one: dict[str, Any], file: str, builder: SuiteBuilder, *, is_share: bool) -> None:
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
