"""JSON of question and context, lines or an array: the datasets of Ragas, LangSmith, Langfuse and DeepEval.

Expected chunks are texts; ids in a list of the same length belong to the texts at their places.
https://docs.ragas.io/en/stable/concepts/components/eval_dataset/ and https://docs.langchain.com/langsmith.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from json import JSONDecoder
from typing import Any

from app.base.documents.texts import Source
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.exchange.beir import records, text_of
from app.catalog.exchange.csv import list_of
from app.catalog.exchange.suite_builder import SuiteBuilder, SuiteFiles, losses

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


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
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


def write(suite: SuiteDocument) -> SuiteFiles:
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
