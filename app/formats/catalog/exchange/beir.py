"""BEIR: `queries.jsonl`, `corpus.jsonl` and `qrels/*.tsv`, as https://github.com/beir-cellar/beir describes them.

What of a canary BEIR has no place for goes under `metadata`, which is free, so that it comes back.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from app.formats.catalog.documents import CanaryDocument, SuiteDocument
from app.formats.catalog.exchange.losses import losses
from app.formats.catalog.exchange.suite_builder import Gathering, Source, Written

OURS = "coalmine"
"""The key under `metadata` where the rest of a canary stands."""
_REST = frozenset(CanaryDocument.model_fields) - {"key", "query", "expected_chunks"}
_COLUMNS = 3
_LONGEST = 20_000
"""Characters a judgment's text may have."""


def read(sources: Sequence[Source], into: Gathering) -> None:
    """Read queries and qrels, and of the corpus the texts of what is judged relevant."""
    corpora = []
    for source in sources:
        first = next((line for line in source.lines() if line.strip()), "")
        if not first.lstrip().startswith("{"):
            _qrels(source, into)
        elif "corpus" in source.name.rpartition("/")[2]:
            corpora.append(source)
        else:
            _queries(source, into)
    judged = into.judged_ids() if corpora else set()
    for source in corpora:
        into.texts(dict(_texts(source, judged, into)))


def write(suite: SuiteDocument) -> Written:
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
    return Written(files=files, notes=losses(suite, keeps=_REST, also=notes, one_identity=True))


def records(source: Source, into: Gathering) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read a line of JSON at a time: (line, object); what is none is a problem."""
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            into.problem(source.name, number, "is not JSON; every line must be an object of its own")
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            into.problem(source.name, number, "must be a JSON object")


def text_of(record: dict[str, Any], *names: str) -> str | None:
    """Return the first of these fields that holds something, as a text."""
    values = (record.get(name) for name in names)
    return next((str(value) for value in values if isinstance(value, str | int) and str(value).strip()), None)


def _queries(source: Source, into: Gathering) -> None:
    for number, record in records(source, into):
        name, query = text_of(record, "_id", "id"), text_of(record, "text")
        if name is None or query is None:
            into.problem(source.name, number, "a query needs '_id' and 'text'")
            continue
        metadata = record.get("metadata")
        ours = metadata.get(OURS) if isinstance(metadata, dict) else None
        rest = {key: value for key, value in ours.items() if key in _REST} if isinstance(ours, dict) else {}
        into.canary(name, query, source.name, number, **rest)


def _qrels(source: Source, into: Gathering) -> None:
    for number, line in enumerate(source.lines(), start=1):
        fields = line.rstrip("\r\n").split("\t")
        if not line.strip() or (number == 1 and fields[-1].strip() == "score"):
            continue
        if len(fields) != _COLUMNS:
            into.problem(source.name, number, "is not a line of qrels: query-id, tab, corpus-id, tab, score")
            continue
        grade = into.grade(fields[2], source.name, number)
        if grade is not None:
            into.judgment(fields[0].strip(), source.name, number, grade, id=fields[1].strip() or None)


def _texts(source: Source, wanted: set[str], into: Gathering) -> Iterator[tuple[str, str]]:
    for _, record in records(source, into):
        name = text_of(record, "_id", "id")
        if name in wanted:
            title, text = text_of(record, "title"), text_of(record, "text")
            whole = "\n".join(part for part in (title, text) if part is not None)
            if len(whole) > _LONGEST:
                into.note(f"a text of the corpus was cut to {_LONGEST:,} characters", f"document {name}")
            if whole:
                yield str(name), whole[:_LONGEST]


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
