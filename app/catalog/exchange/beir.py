"""BEIR: `queries.jsonl`, `corpus.jsonl` and `qrels/*.tsv`, as https://github.com/beir-cellar/beir describes them.

Fields of a canary that BEIR does not have are written under `metadata`, which is free, and read back.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from app.base.documents.texts import Source, parse_json_text
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.exchange.suite_builder import SuiteBuilder, SuiteFiles, losses

OURS = "coalmine"
"""The key under `metadata` for the other fields of a canary."""
_REST = frozenset(CanaryDocument.model_fields) - {"key", "query", "expected_chunks"}
_COLUMNS = 3
_QUERY_IDS, _CORPUS_IDS = ("query-id", "query_id", "qid"), ("corpus-id", "corpus_id", "doc_id", "docid")
_GRADES = ("score", "relevance", "grade", "rating", "label")
_QUERY_FILE, _CORPUS_FILE = re.compile("quer|topic"), re.compile("corpus|collection|document|docs|passage")
_QREL_RECORD = re.compile(r"\"(?:corpus[-_]id|doc_?id)\"\s*:")
_LONGEST = 20_000
"""Most characters of a judgment's text."""


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read queries and qrels, and from the corpus the texts of judged documents."""
    corpora = []
    has_queries = any(_QUERY_FILE.search(_file_of(source)) for source in sources)
    for source in sources:
        first = next((line for line in source.lines() if line.strip()), "").lstrip("\ufeff \t")
        if not first.startswith("{"):
            _qrels(source, builder)
        elif _QREL_RECORD.search(first):
            _qrel_records(source, builder)
        elif _CORPUS_FILE.search(_file_of(source)) or (has_queries and not _QUERY_FILE.search(_file_of(source))):
            corpora.append(source)
        else:
            _queries(source, builder)
    judged = builder.judged_ids() if corpora else set()
    for source in corpora:
        builder.add_texts(dict(_texts(source, judged, builder)))


def write(suite: SuiteDocument) -> SuiteFiles:
    """Write `queries.jsonl`, `corpus.jsonl` (the texts of judgments) and `qrels/test.tsv`."""
    queries, qrels = [], ["query-id\tcorpus-id\tscore\n"]
    corpus: dict[str, str] = {}
    notes: list[str] = []
    for canary in suite.canaries or ():
        rest = canary.model_dump(mode="json", exclude_defaults=True, include=set(_REST))
        metadata = {OURS: rest} if rest else {}
        queries.append(_line({"_id": canary.key, "text": canary.query, "metadata": metadata}))
        for chunk in canary.expected_chunks:
            name = chunk.id or chunk.document
            if name is None:
                notes.append("judgments by text alone")
                continue
            if "\t" in name or "\n" in name or name != name.strip():
                notes.append("judgments whose id has a tab, a line break or outer spaces")
                continue
            if chunk.text is not None and corpus.setdefault(name, chunk.text) != chunk.text:
                notes.append("a second text for the same id")
            qrels.append(f"{canary.key}\t{name}\t{chunk.grade}\n")
    texts = [_line({"_id": name, "title": "", "text": text}) for name, text in corpus.items()]
    files = {"queries.jsonl": "".join(queries), "corpus.jsonl": "".join(texts), "qrels/test.tsv": "".join(qrels)}
    return SuiteFiles(files=files, notes=losses(suite, fields=_REST, extra=notes, one_identity=True))


def records(source: Source, builder: SuiteBuilder) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, object) of JSON lines; a line that is no object is a problem."""
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        try:
            record = parse_json_text(line)
        except ValueError:
            builder.add_problem(source.name, number, "is not JSON; every line must be an object of its own")
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            builder.add_problem(source.name, number, "must be a JSON object")


def text_of(record: dict[str, Any], *names: str) -> str | None:
    """Return the first non-empty field of these, as a text."""
    values = (record.get(name) for name in names)
    return next((str(value) for value in values if isinstance(value, str | int) and str(value).strip()), None)


def _queries(source: Source, builder: SuiteBuilder) -> None:
    for number, record in records(source, builder):
        name, query = text_of(record, "_id", "id"), text_of(record, "text")
        if name is None or query is None:
            builder.add_problem(source.name, number, "a query needs '_id' and 'text'")
            continue
        metadata = record.get("metadata")
        ours = metadata.get(OURS) if isinstance(metadata, dict) else None
        rest = {key: value for key, value in ours.items() if key in _REST} if isinstance(ours, dict) else {}
        builder.add_canary(name, query, source.name, number, **rest)


def _qrels(source: Source, builder: SuiteBuilder) -> None:
    for number, line in enumerate(source.lines(), start=1):
        fields = line.rstrip("\r\n").split("\t")
        if not line.strip() or (number == 1 and _is_header(fields)):
            continue
        if len(fields) != _COLUMNS:
            builder.add_problem(source.name, number, "is not a line of qrels: query-id, tab, corpus-id, tab, score")
            continue
        grade = builder.read_grade(fields[2], source.name, number)
        if grade is not None:
            builder.add_judgment(fields[0].strip(), source.name, number, grade, id=fields[1].strip() or None)


def _qrel_records(source: Source, builder: SuiteBuilder) -> None:
    """Read qrels that are JSON lines, as MTEB keeps them."""
    for number, record in records(source, builder):
        query, document = text_of(record, *_QUERY_IDS), text_of(record, *_CORPUS_IDS)
        given = next((record[name] for name in _GRADES if name in record), None)
        if query is None or document is None or given is None:
            builder.add_problem(source.name, number, "a line of qrels needs 'query-id', 'corpus-id' and 'score'")
            continue
        grade = builder.read_grade(str(given), source.name, number)
        if grade is not None:
            builder.add_judgment(query, source.name, number, grade, id=document)


def _is_header(fields: Sequence[str]) -> bool:
    first = fields[0].strip().lower().removeprefix("\ufeff")
    return first in {*_QUERY_IDS, "query"} or fields[-1].strip().lower() in _GRADES


def _file_of(source: Source) -> str:
    return source.name.rpartition("/")[2].lower()


def _texts(source: Source, judged_ids: set[str], builder: SuiteBuilder) -> Iterator[tuple[str, str]]:
    for _, record in records(source, builder):
        name = text_of(record, "_id", "id")
        if name in judged_ids:
            title, text = text_of(record, "title"), text_of(record, "text")
            whole = "\n".join(part for part in (title, text) if part is not None)
            if len(whole) > _LONGEST:
                builder.add_note(f"a text of the corpus was cut to {_LONGEST:,} characters", f"document {name}")
            if whole:
                yield str(name), whole[:_LONGEST]


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
