"""Elasticsearch and OpenSearch: the body of the ranking evaluation API, `_rank_eval`.

https://www.elastic.co/guide/en/elasticsearch/reference/current/search-rank-eval.html. The query of a request is the
text of its only full-text clause, or what its template is given.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from app.base.documents.fields import one_line
from app.base.documents.texts import Source
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.exchange.beir import text_of
from app.catalog.exchange.suite_builder import SuiteBuilder, SuiteFiles, graded_names, losses, objects_in

_QUERY_NAMES = frozenset({"query", "query_string", "query_text", "q", "text", "question"})
_FULL_TEXT = frozenset({"match", "match_phrase", "match_phrase_prefix", "match_bool_prefix", "term"})


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read `requests` with their ratings."""
    for source in sources:
        try:
            whole: Any = builder.parse_json(source)
        except ValueError as error:
            builder.add_problem(source.name, 1, str(error))
            continue
        requests = objects_in(whole.get("requests")) if isinstance(whole, dict) else []
        if not requests:
            builder.add_problem(source.name, 1, "holds no 'requests' of a ranking evaluation")
        for one in requests:
            _request(one, source.name, builder)


def write(suite: SuiteDocument) -> SuiteFiles:
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
