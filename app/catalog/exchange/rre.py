"""Rated Ranking Evaluator (https://github.com/SeaseLtd/rated-ranking-evaluator): its ratings JSON.

Queries of one group share their judgments; a query is the `$query` of its placeholders, or its only one.
Topics become tags.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from app.base.documents.fields import one_line
from app.base.documents.texts import Source
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.exchange.suite_builder import SuiteBuilder, SuiteFiles, losses, objects_in

_TAG = 64


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read ratings by topics, by query groups, or by queries alone (as Quepid writes them)."""
    for source in sources:
        try:
            whole: Any = builder.parse_json(source)
        except ValueError as error:
            builder.add_problem(source.name, 1, str(error))
            continue
        any_file = False
        for topic, group in _groups(whole):
            any_file = True
            _group(topic, group, source.name, builder)
        if not any_file:
            builder.add_problem(source.name, 1, "holds no 'topics', no 'query_groups' and no 'queries'")


def write(suite: SuiteDocument) -> SuiteFiles:
    """Write `ratings.json`: a group for each canary, named by its key, under its first tag as the topic."""
    topics: dict[str, list[dict[str, Any]]] = {}
    notes: list[str] = []
    for canary in suite.canaries or ():
        relevant: dict[str, dict[str, int]] = {}
        for chunk in canary.expected_chunks:
            name = chunk.id or chunk.document
            if name is None:
                notes.append("judgments by text alone")
            else:
                relevant[name] = {"gain": chunk.grade}
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
            yield str(topic.get("description") or "").strip()[:_TAG] or None, group
        yield from ((None, query) for query in objects_in(topic.get("queries")))
    yield from ((None, group) for group in objects_in(whole.get("query_groups")))
    yield from ((None, query) for query in objects_in(whole.get("queries")))


def _group(topic: str | None, group: dict[str, Any], file: str, builder: SuiteBuilder) -> None:
    queries = [query for one in objects_in(group.get("queries")) or [group] if (query := _query(one)) is not None]
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


def _query(one: dict[str, Any]) -> str | None:
    placeholders = one.get("placeholders")
    if not isinstance(placeholders, dict):
        return None
    query = placeholders.get("$query", next(iter(placeholders.values())) if len(placeholders) == 1 else None)
    return query if isinstance(query, str) and query.strip() else None
