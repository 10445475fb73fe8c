"""Corpora as JSON lines, BEIR's `corpus.jsonl`: `{"_id": ..., "title": ..., "text": ...}`; `id`, `doc_id` do too."""

from collections.abc import Sequence
from typing import Final

from app.domain.errors import InvalidInputError
from app.formats.catalog.exchange.beir import records, text_of
from app.formats.catalog.exchange.suite_builder import Source, SuiteBuilder

LONGEST: Final = 20_000
"""Most characters of a text; longer ones are cut."""


def read_corpus(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """Return (id, text) of every line with a text, else with a title. Raises InvalidInputError."""
    builder = SuiteBuilder()
    found: list[tuple[str, str]] = []
    for source in sources:
        for number, record in records(source, builder):
            name = text_of(record, "_id", "id", "doc_id")
            if name is None:
                builder.add_problem(source.name, number, "has no _id")
                continue
            body = text_of(record, "text", "title")  # retrievers seldom put the title into the text of a chunk
            if body is not None:
                found.append((name, body[:LONGEST]))
    if builder.problems:
        raise InvalidInputError(builder.problems)
    return found
