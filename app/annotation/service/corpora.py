"""Corpora, from which random negatives are drawn: texts added in parts, listed, deleted."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from app.annotation.documents.corpus_lines import read_corpus
from app.annotation.domain.pooling import text_key
from app.annotation.domain.views import CorpusView
from app.annotation.store import corpora as rows
from app.annotation.store.corpora import CorpusRow, CorpusText
from app.base.db.engine import Store, to_us
from app.base.errors import NotFoundError
from app.catalog.exchange import Source
from app.records import documents as shapes

_BLOCK: Final = 2_000
"""Texts that are written, or deleted, in one transaction."""


def add_texts(
    store: Store,
    name: str,
    sources: Sequence[Source],
    *,
    now: datetime,
    added: Callable[[int], None] = lambda _: None,
) -> CorpusView:
    """Add texts to a corpus, which is created where there is none; a text that it has is passed over.

    All lines are read before the first is stored: a wrong one takes none. In several transactions, with a block of
    texts in memory at a time: sent again after an error, nothing is there twice. Raises InvalidInputError.
    """
    for _ in read_corpus(sources):
        pass
    with store.write() as connection:
        corpus_id = rows.open_corpus(connection, name, to_us(now))
    texts = read_corpus(sources)
    while block := [
        CorpusText(key=text_key(text, chunk=chunk), chunk=chunk, text=text) for chunk, text in islice(texts, _BLOCK)
    ]:
        with store.write() as connection:
            rows.add_texts(connection, corpus_id, block)
        added(len(block))
    return load_corpus(store, name)


def load_corpus(store: Store, name: str) -> CorpusView:
    """Return a corpus. Raises NotFoundError."""
    with store.read() as connection:
        found = rows.find_corpus(connection, name)
    if found is None:
        raise NotFoundError(f"there is no corpus '{name}'")
    return _view(found)


def list_corpora(store: Store) -> list[CorpusView]:
    """List the corpora by name."""
    with store.read() as connection:
        return [_view(row) for row in rows.list_corpora(connection)]


def delete_corpus(store: Store, name: str) -> None:
    """Delete a corpus; items that tasks drew from it keep their texts. Raises NotFoundError."""
    with store.read() as connection:
        found = rows.find_corpus(connection, name)
    if found is None:
        raise NotFoundError(f"there is no corpus '{name}'")
    while True:
        with store.write() as connection:
            if rows.drop_texts(connection, found.id, _BLOCK) < _BLOCK:
                rows.drop_corpus(connection, found.id)
                return


def _view(row: CorpusRow) -> CorpusView:
    return {"name": row.name, "texts": row.texts, "updated_at": shapes.time_text(row.updated_at)}
