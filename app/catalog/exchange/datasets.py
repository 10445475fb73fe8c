"""Suites of evaluation datasets.

- BEIR (https://github.com/beir-cellar/beir): `queries.jsonl`, `corpus.jsonl`, `qrels/*.tsv`; what a canary has and BEIR
  has not is written under `metadata`, which is free, and read back.
- JSON of question and context, lines or an array, by Ragas (https://docs.ragas.io/en/stable/concepts/components/eval_dataset/),
  LangSmith (https://docs.langchain.com/langsmith), Langfuse and DeepEval: expected chunks are texts; ids in a list of
  the same length belong to the texts at their places.
- LlamaIndex: `EmbeddingQAFinetuneDataset`, which its retriever evaluation saves
  (https://docs.llamaindex.ai/en/stable/examples/evaluation/retrieval/retriever_eval/).
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from json import JSONDecoder
from typing import Any

from app.base.documents.fields import one_line
from app.base.documents.texts import Source, parse_json_text
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.exchange.csv import list_of
from app.catalog.exchange.suite_builder import SuiteBuilder, SuiteFiles, graded_names, losses

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


def read_beir(sources: Sequence[Source], builder: SuiteBuilder) -> None:
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


def write_beir(suite: SuiteDocument) -> SuiteFiles:
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


_QUESTIONS = ("user_input", "question", "query", "input", "prompt", "text")
_IDS = ("id", "example_id", "key", "_id", "qid")
_CONTEXTS = ("reference_contexts", "expected_contexts", "ground_truth_contexts", "reference_context")
_CONTEXT_IDS = ("reference_context_ids", "expected_ids", "relevant_ids", "document_ids", "source_ids")
_ANSWERS = ("reference", "expected_answer", "ground_truth", "expected_output", "expectedOutput")
_NESTED = ("inputs", "outputs", "reference_outputs", "metadata", "input", "expectedOutput", "expected_output")
_OF_GOLDENS = ("retrieval_context", "expected_output", "expected_tools")
"""Fields of DeepEval's goldens, whose `context` is what is expected."""
_GAP = re.compile(r"[\s,]*")
_RETRIEVED = f"retrieved contexts were left out; expected chunks are read from {', '.join(_CONTEXTS[:2])}"


def read_json_lines(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read one example a line, or a JSON array of them, without recorded answers and retrieved contexts."""
    for source in sources:
        first = next((line for line in source.lines() if line.strip()), "").lstrip("\ufeff \t")
        for number, record in (_items if first.startswith("[") else records)(source, builder):
            flat = _flattened(record)
            question = text_of(flat, *_QUESTIONS)
            if question is None:
                names = ", ".join(_QUESTIONS[:4])
                builder.add_problem(source.name, number, f"has no question; looked for {names}")
                continue
            _example(record, flat, question, (source.name, number), builder)


def _example(
    record: dict[str, Any], flat: dict[str, Any], question: str, place: tuple[str, int], builder: SuiteBuilder
) -> None:
    own = text_of(flat, *_IDS)
    identity = own or question
    expects = _CONTEXTS + (("context",) if any(name in record for name in _OF_GOLDENS) else ())
    texts, names = _listed(flat, expects), _listed(flat, _CONTEXT_IDS)
    if texts and names and len(texts) != len(names):
        message = (
            f"has {len(texts)} texts and {len(names)} ids of what is expected; each id is of the text at its place"
        )
        builder.add_problem(*place, message)
        return
    fields = {"category": text_of(flat, "category")}
    fields["expected_answer"] = _answer(record, flat) if texts or names else None
    given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    builder.add_canary(identity, question, *place, named=own is not None, **given)
    for text, name in zip_longest(texts, names):
        if text or name:
            builder.add_judgment(identity, *place, 1, id=name or None, text=text or None)
    if any(flat.get(name) for name in ("retrieved_contexts", "contexts", "retrieval_context")):
        builder.add_note(_RETRIEVED, f"{place[0]}:{place[1]}")


def _answer(record: dict[str, Any], flat: dict[str, Any]) -> str | None:
    """Return the expected answer; `answer` is one in LangSmith's outputs alone, elsewhere it is a recorded one."""
    outputs = [record.get(name) for name in _NESTED if "utput" in name]
    return text_of(flat, *_ANSWERS) or next(
        (text for one in outputs if isinstance(one, dict) and (text := text_of(one, "answer")) is not None), None
    )


def _items(source: Source, builder: SuiteBuilder) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, object) of a JSON array."""
    try:
        builder.parse_json(source)
    except ValueError as error:
        builder.add_problem(source.name, 1, str(error))
        return
    text, decoder = "".join(source.lines()), JSONDecoder()
    at, line, counted_to = text.index("[") + 1, 1, 0
    while (at := _GAP.match(text, at).end()) < len(text) and text[at] != "]":  # type: ignore[union-attr] # may be empty
        line, counted_to = line + text.count("\n", counted_to, at), at
        record, at = decoder.raw_decode(text, at)
        if isinstance(record, dict):
            yield line, record
        else:
            builder.add_problem(source.name, line, "must be a JSON object")


def write_json_lines(suite: SuiteDocument) -> SuiteFiles:
    """Write `SUITE.jsonl` in the shape of Ragas' single-turn samples, with ids beside the texts."""
    lines = []
    notes: list[str] = []
    for canary in suite.canaries or ():
        relevant = [chunk for chunk in canary.expected_chunks if chunk.grade]
        notes += ["known irrelevant chunks"] if len(relevant) < len(canary.expected_chunks) else []
        sample: dict[str, object] = {"id": canary.key, "user_input": canary.query}
        texts = [chunk.text or "" for chunk in relevant]  # in the order of the ids
        names = [chunk.id or chunk.document or "" for chunk in relevant]
        sample |= {"reference_contexts": texts} if any(texts) else {}
        sample |= {"reference_context_ids": names} if any(names) else {}
        if canary.expected_answer is not None and relevant:
            sample["reference"] = canary.expected_answer
        notes += [] if relevant else ["canaries without relevant chunks"]
        lines.append(json.dumps(sample, ensure_ascii=False) + "\n")
    lost = losses(suite, fields={"expected_answer"}, extra=notes, one_identity=True, grades=False)
    return SuiteFiles(files={f"{suite.slug}.jsonl": "".join(lines)}, notes=lost)


def _flattened(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with what LangSmith and Langfuse nest (`inputs`, `outputs`, ...) merged into its top level."""
    merged: dict[str, Any] = {}
    for one in reversed([record.get(name) for name in _NESTED]):
        merged |= one if isinstance(one, dict) else {}
    return merged | {name: value for name, value in record.items() if not (name in _NESTED and isinstance(value, dict))}


def _listed(record: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Return the items of the first of these fields that has any; an item that is no text or is blank is ''."""
    for name in names:
        value = record.get(name)
        if isinstance(value, str):
            value = list_of(value, numbers=True) or [value]
        items = [_item(one) for one in (value if isinstance(value, list) else [value])]
        if any(items):
            return items
    return []


def _item(item: Any) -> str:
    if isinstance(item, dict):
        return text_of(item, "page_content", "text", "content") or ""
    return str(item) if isinstance(item, str | int) and not isinstance(item, bool) and str(item).strip() else ""


def read_llamaindex(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read queries, the ids that are relevant to them, and the texts of these."""
    for source, whole in builder.parse_each(sources):
        parts = whole if isinstance(whole, dict) else {}
        queries, relevant = parts.get("queries"), parts.get("relevant_docs")
        if not isinstance(queries, dict) or not isinstance(relevant, dict):
            builder.add_problem(source.name, 1, "needs 'queries' {id: text} and 'relevant_docs' {id: [node id]}")
            continue
        for name, query in queries.items():
            if not isinstance(query, str) or not query.strip():
                builder.add_problem(source.name, 1, f"query '{one_line(name)}' has no text")
                continue
            builder.add_canary(name, query, source.name, 1)
        for name, nodes in relevant.items():
            for node in nodes if isinstance(nodes, list) else [nodes]:
                builder.add_judgment(name, source.name, 1, 1, id=str(node))
        corpus = parts.get("corpus")
        texts = corpus.items() if isinstance(corpus, dict) else ()
        builder.add_texts({name: text for name, text in texts if isinstance(text, str) and text.strip()})


def write_llamaindex(suite: SuiteDocument) -> SuiteFiles:
    """Write `dataset.json`; a relevant chunk is one of grade 1 or above."""
    notes: list[str] = []
    queries: dict[str, str] = {}
    relevant: dict[str, list[str]] = {}
    corpus: dict[str, str] = {}
    for canary in suite.canaries or ():
        names = graded_names(canary, notes)
        notes += ["known irrelevant chunks"] if not all(names.values()) else []
        queries[canary.key] = canary.query
        relevant[canary.key] = [name for name, grade in names.items() if grade]
        for chunk in canary.expected_chunks:
            name = chunk.id or chunk.document
            if name and chunk.text is not None and corpus.setdefault(name, chunk.text) != chunk.text:
                notes.append("a second text for the same id")
    whole = {"queries": queries, "corpus": corpus, "relevant_docs": relevant, "mode": "text"}
    lost = losses(suite, fields=(), extra=notes, one_identity=True, grades=False)
    return SuiteFiles(files={"dataset.json": json.dumps(whole, indent=2, ensure_ascii=False) + "\n"}, notes=lost)
