"""LlamaIndex: `EmbeddingQAFinetuneDataset`, which its retriever evaluation saves as JSON.

https://docs.llamaindex.ai/en/stable/examples/evaluation/retrieval/retriever_eval/.
"""

import json
from collections.abc import Sequence
from typing import Any

from app.base.documents.fields import one_line
from app.base.documents.texts import Source
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.exchange.suite_builder import SuiteBuilder, SuiteFiles, graded_names, losses


def read(sources: Sequence[Source], builder: SuiteBuilder) -> None:
    """Read queries, the ids that are relevant to them, and the texts of these."""
    for source in sources:
        try:
            whole: Any = builder.parse_json(source)
        except ValueError as error:
            builder.add_problem(source.name, 1, str(error))
            continue
        whole = whole if isinstance(whole, dict) else {}
        queries, relevant = whole.get("queries"), whole.get("relevant_docs")
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
        corpus = whole.get("corpus")
        texts = corpus.items() if isinstance(corpus, dict) else ()
        builder.add_texts({name: text for name, text in texts if isinstance(text, str) and text.strip()})


def write(suite: SuiteDocument) -> SuiteFiles:
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
