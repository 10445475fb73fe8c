"""Suites of evaluation datasets, read and written; and runs of trec_eval.

- BEIR (https://github.com/beir-cellar/beir): `queries.jsonl`, `corpus.jsonl`, `qrels/*.tsv`; what a canary has and BEIR
  has not is written under `metadata`, which is free, and read back.
- JSON of question and context, lines or an array, by Ragas (https://docs.ragas.io/en/stable/concepts/components/eval_dataset/),
  LangSmith (https://docs.langchain.com/langsmith), Langfuse and DeepEval: expected chunks are texts; ids in a list of
  the same length belong to the texts at their places.
- LlamaIndex: `EmbeddingQAFinetuneDataset`, which its retriever evaluation saves
  (https://docs.llamaindex.ai/en/stable/examples/evaluation/retrieval/retriever_eval/).
- TREC: topics, tagged or a line each, and qrels. A run, which has rankings and no judgments, is read and written too.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import c_float
from itertools import zip_longest
from json import JSONDecoder
from typing import Any

from app.base.documents.fields import MOST_PROBLEMS, one_line
from app.base.errors import InvalidInputError, Problem
from app.base.texts import Source, parse_json_text
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.exchange.csv import list_of
from app.catalog.exchange.suite_builder import (
    SuiteBuilder,
    SuiteFiles,
    graded_names,
    losses,
    named_chunks,
    parse_number,
)

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
        for name, chunk in named_chunks(canary, notes):
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


_QREL, _RUN, _MS_MARCO = 4, 6, 3
_LONGEST_TOPIC = 20_000
_TOPIC_BEGINS = re.compile(r"(?=<top(?:ic)?[\s>])", re.IGNORECASE)
_NUMBER = re.compile(
    r"""<num(?:ber)?>\s*(?:Number:\s*)?([^\s<]+)|<top(?:ic)?\s[^<>]*?\b(?:number|id)\s*=\s*["']([^"'<>]+)""",
    re.IGNORECASE,
)
_TITLE = re.compile(r"<(?:[a-z]{2}-)?(?:title|query)>\s*(?:Topic:\s*)?(.*)", re.IGNORECASE | re.DOTALL)
_BODY = re.compile(r"<topic\s[^<>]*>([^<]*)", re.IGNORECASE)
"""A topic that is its text alone, as those of clinical trials."""
_ENTITY = re.compile(r"&#?[A-Za-z0-9]{1,31};")


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read topics and qrels; a run has no judgments and is refused."""
    for source in sources:
        first = next((line for line in source.lines() if line.strip() and not _is_comment(line)), "")
        fields = first.split()
        if first.lstrip().startswith("<"):
            _tagged_topics(source, builder)
        elif len(fields) == _RUN and fields[1].upper() == "Q0":
            message = "is a run: `coalmine check PATH --rankings FILE` judges it; it does not say what is expected"
            builder.add_problem(source.name, None, message)
        elif _qrel_fields(first) is not None and first.strip().count("\t") != 1:  # a topic has one tab
            _trec_qrels(source, builder)
        else:
            _plain_topics(source, builder)


def write(suite: SuiteDocument) -> SuiteFiles:
    """Write `topics.tsv` and `qrels.txt`."""
    topics, qrels = [], []
    notes: list[str] = []
    for canary in suite.canaries or ():
        query = " ".join(canary.query.split())
        if query != canary.query:
            notes.append("line breaks and runs of spaces in queries")
        topics.append(f"{canary.key}\t{query}\n")
        for name, chunk in named_chunks(canary, notes):
            if len(name.split()) != 1:
                notes.append("judgments whose id has spaces in it")
            else:
                qrels.append(f"{canary.key} 0 {name} {chunk.grade}\n")
    lost = losses(suite, fields={"query"}, extra=notes, texts=False, one_identity=True)
    return SuiteFiles(files={"topics.tsv": "".join(topics), "qrels.txt": "".join(qrels)}, notes=lost)


def read_run(source: Source) -> dict[str, list[tuple[str, float]]]:
    """Return a run by topic: (document, score) in trec_eval's order, by falling score and then falling name.

    As there, scores are compared as 32-bit floats: those that differ by less tie.
    Raises InvalidInputError with file and line.
    """
    rankings: dict[str, dict[str, float]] = {}
    problems: list[Problem] = []
    for number, line in enumerate(source.lines(), start=1):
        fields = line.split()
        if not fields:
            continue
        wrong = _run_problem(fields)
        if wrong is not None:
            problems.append(Problem(message=wrong, file=source.name, line=number))
            if len(problems) >= MOST_PROBLEMS:
                break
            continue
        score = float(fields[4])
        if rankings.setdefault(fields[0], {}).setdefault(fields[2], score) is not score:
            message = f"'{one_line(fields[2])}' is in the ranking of topic '{one_line(fields[0])}' already"
            problems.append(Problem(message=message, file=source.name, line=number))
    if problems or not rankings:
        raise InvalidInputError(problems or [Problem(message="is empty", file=source.name)])
    return {
        topic: sorted(ranking.items(), key=lambda hit: (c_float(hit[1]).value, hit[0]), reverse=True)
        for topic, ranking in rankings.items()
    }


def write_run(rankings: Mapping[str, Sequence[str]], name: str) -> Iterator[str]:
    """Yield rankings by topic as lines of a run; scores fall with the rank, since trec_eval sorts by them."""
    tag = re.sub(r"\s+", "-", name) or "coalmine"
    for topic, documents in rankings.items():
        for rank, document in enumerate(documents, start=1):
            if len(document.split()) == 1:
                yield f"{topic} Q0 {document} {rank} {len(documents) - rank + 1} {tag}\n"


def run_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the results of a report as lines of a run, by canary key."""
    rankings = {one["key"]: [hit["id"] for hit in one["ranking"] or ()] for one in report["results"]}
    return write_run(rankings, f"{report['run']['check']}-{report['run']['id']}")


def _trec_qrels(source: Source, builder: SuiteBuilder) -> None:
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip() or _is_comment(line):
            continue
        fields = line.strip().split("\t") if line.strip().count("\t") == _QREL - 1 else line.split()
        if len(fields) != _QREL:
            builder.add_problem(source.name, number, "is not a line of qrels: topic, 0, document, grade")
            continue
        grade = builder.read_grade(fields[3], source.name, number)
        if grade is not None:
            builder.add_judgment(fields[0].strip(), source.name, number, grade, id=fields[2].strip() or None)


def _plain_topics(source: Source, builder: SuiteBuilder) -> None:
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip() or _is_comment(line):
            continue
        topic, tab, query = line.rstrip("\r\n").partition("\t")
        if not tab or not topic.strip() or not query.strip():
            message = "is neither a topic (id, tab, text), nor a line of qrels (topic, 0, document, grade)"
            builder.add_problem(source.name, number, message)
            continue
        builder.add_canary(topic.strip(), query.strip(), source.name, number)


def _tagged_topics(source: Source, builder: SuiteBuilder) -> None:
    """Read topics between tags, which SGML need not close: a text ends where the next tag begins."""
    for begun, block in _blocks(source.lines()):
        plain = _without_cdata(block)
        number, title = _NUMBER.search(plain), _TITLE.search(plain) or _BODY.match(plain)
        name = next((one for one in number.groups() if one), None) if number else None
        query = " ".join(_decoded(title[1].split("<")[0]).split()) if title else ""
        if name is None:
            message = "a topic without a number: it has no <num>, no <number>, and no attribute number or id"
            builder.add_problem(source.name, begun, message)
        elif not query:
            message = f"topic '{one_line(name)}' has no <title> and no <query>, or an empty one"
            builder.add_problem(source.name, begun, message)
        else:
            builder.add_canary(_decoded(name), query, source.name, begun)


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) of each `<top>` or `<topic ...>` element, cut to the length a title may have."""
    begun, block = 0, ""
    for number, line in enumerate(lines, start=1):
        for part in _TOPIC_BEGINS.split(line):  # there may be several in a line
            if _TOPIC_BEGINS.match(part):
                if begun:
                    yield begun, block
                begun, block = number, ""
            if len(block) < _LONGEST_TOPIC:
                block += part[:_LONGEST_TOPIC]
    if begun:
        yield begun, block


def _without_cdata(block: str) -> str:
    """Return the text with its CDATA sections written as entities."""
    before, *sections = block.split("<![CDATA[")
    parts = [before]
    for section in sections:
        inner, _, after = section.partition("]]>")
        parts += [html.escape(inner), after]
    return "".join(parts)


def _decoded(text: str) -> str:
    """Return the text without entities; an ampersand that begins none stays, as SGML topics write it."""
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)


def _is_comment(line: str) -> bool:
    stripped = line.strip()
    if not stripped.startswith("#") or _qrel_fields(line) is not None:
        return False
    return "\t" not in stripped or len(stripped.split("\t")[0]) == 1


def _qrel_fields(line: str) -> list[str] | None:
    """Return the fields of a line of qrels, separated by tabs where there are three; None where it is none."""
    stripped = line.strip()
    fields = stripped.split("\t") if stripped.count("\t") == _QREL - 1 else stripped.split()
    return fields if len(fields) == _QREL and _number(fields[3]) is not None else None


def _number(text: str) -> float | None:
    try:
        value = parse_number(text)
    except ValueError:
        return None
    return value if value - value == 0 else None


def _run_problem(fields: Sequence[str]) -> str | None:
    """Return which field of a line of a run is wrong; None where all are right."""
    form = "a line of a run has six: topic, Q0, document, rank, score, name"
    if len(fields) == _RUN - 1 and _number(fields[4]) is not None:
        return f"has 5 fields; {form}. The name of the run at the end is missing"
    if len(fields) == _MS_MARCO:
        return f"has 3 fields, as runs of MS MARCO (topic, document, rank), which hold no scores; {form}"
    if len(fields) != _RUN:
        hint = ". Topics, documents and names have no spaces" if len(fields) > _RUN else ""
        return f"has {len(fields)} fields; {form}{hint}"
    if _number(fields[4]) is None:
        comma = "; write a point for the comma" if re.fullmatch(r"-?[0-9]+,[0-9]+", fields[4]) else ""
        return f"the score '{one_line(fields[4])}' (field 5) is not a finite number{comma}"
    return None
