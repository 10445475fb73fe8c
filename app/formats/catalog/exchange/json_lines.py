"""JSON lines of question and context, the datasets of Ragas and LangSmith: expected chunks are texts.

https://docs.ragas.io/en/stable/concepts/components/eval_dataset/ and https://docs.langchain.com/langsmith.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from app.formats.catalog.documents import SuiteDocument
from app.formats.catalog.exchange.beir import records, text_of
from app.formats.catalog.exchange.losses import losses
from app.formats.catalog.exchange.suite_builder import Source, SuiteBuilder, SuiteFiles

_QUESTIONS = ("user_input", "question", "query", "input", "prompt", "text")
_IDS = ("id", "example_id", "key", "_id", "qid")
_CONTEXTS = ("reference_contexts", "expected_contexts", "ground_truth_contexts", "reference_context")
_CONTEXT_IDS = ("reference_context_ids", "expected_ids", "relevant_ids", "document_ids", "source_ids")
_RETRIEVED = f"retrieved contexts were left out; expected chunks are read from {', '.join(_CONTEXTS[:2])}"


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read one example a line, without recorded answers and retrieved contexts."""
    for source in sources:
        for number, record in records(source, builder):
            flat = _flattened(record)
            question = text_of(flat, *_QUESTIONS)
            if question is None:
                names = ", ".join(_QUESTIONS[:4])
                builder.add_problem(source.name, number, f"has no question; looked for {names}")
                continue
            own = text_of(flat, *_IDS)
            identity = own or question
            category = text_of(flat, "category")
            builder.add_canary(
                identity,
                question,
                source.name,
                number,
                named=own is not None,
                **({"category": category} if category else {}),
            )
            for text in _listed(flat, _CONTEXTS):
                builder.add_judgment(identity, source.name, number, 1, text=text)
            for name in _listed(flat, _CONTEXT_IDS):
                builder.add_judgment(identity, source.name, number, 1, id=name)
            if any(name in flat for name in ("retrieved_contexts", "contexts")):
                builder.add_note(_RETRIEVED, f"{source.name}:{number}")


def write(suite: SuiteDocument) -> SuiteFiles:
    """Write `SUITE.jsonl` in the shape of Ragas' single-turn samples, with ids beside the texts."""
    lines = []
    notes: list[str] = []
    for canary in suite.canaries or ():
        relevant = [chunk for chunk in canary.expected_chunks if chunk.grade]
        notes += ["known irrelevant chunks"] if len(relevant) < len(canary.expected_chunks) else []
        notes += ["which text belongs to which id"] if any(chunk.text and chunk.id for chunk in relevant) else []
        sample: dict[str, object] = {"id": canary.key, "user_input": canary.query}
        texts = [chunk.text for chunk in relevant if chunk.text is not None]
        names = [name for chunk in relevant if (name := chunk.id or chunk.document) is not None]
        sample |= {"reference_contexts": texts} if texts else {}
        sample |= {"reference_context_ids": names} if names else {}
        lines.append(json.dumps(sample, ensure_ascii=False) + "\n")
    lost = losses(suite, fields=(), extra=notes, one_identity=True, grades=False)
    return SuiteFiles(files={f"{suite.slug}.jsonl": "".join(lines)}, notes=lost)


def _flattened(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with LangSmith's `inputs` and `outputs` (or `reference_outputs`) merged into its top level."""
    nested = [record.get(name) for name in ("inputs", "outputs", "reference_outputs", "metadata")]
    merged: dict[str, Any] = {}
    for one in reversed(nested):
        merged |= one if isinstance(one, dict) else {}
    return merged | record


def _listed(record: dict[str, Any], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        value = record.get(name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str | int) and str(item).strip():
                yield str(item)
            elif isinstance(item, dict) and (text := text_of(item, "page_content", "text", "content")) is not None:
                yield text
