"""Corpora as JSON lines, BEIR's `corpus.jsonl`: `{"_id": ..., "title": ..., "text": ...}`; `id`, `doc_id` do too."""

from collections.abc import Iterator, Sequence
from typing import Final

from app.base.errors import InvalidInputError
from app.catalog.exchange.beir import records, text_of
from app.catalog.exchange.suite_builder import Source, SuiteBuilder

LONGEST: Final = 20_000
"""Most characters of a text; longer ones are cut."""


def read_corpus(sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of every line with a text, else with a title.

    Raises InvalidInputError, at its end or after 100 problems, with file, line and reason of every wrong line.
    """
    builder = SuiteBuilder()
    for source in sources:
        for number, record in records(source, builder):
            name = text_of(record, "_id", "id", "doc_id")
            if name is None:
                builder.add_problem(source.name, number, "has no _id")
            elif not builder.problems:
                body = text_of(record, "text", "title")  # retrievers seldom put the title into the text of a chunk
                if body is not None:
                    yield name, body[:LONGEST]
    if builder.problems:
        raise InvalidInputError(builder.problems)
