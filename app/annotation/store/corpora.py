"""Rows of corpora: the distinct texts of an index, from which random negatives are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.tables import corpora, corpus_texts
from app.base.db.engine import blocks, insert_new, insert_one


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusRow:
    """A corpus with its number of distinct texts."""

    id: int
    name: str
    texts: int
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusText:
    """A text of a corpus: its identity, its id there, and the text."""

    key: str
    chunk: str
    text: str


def open_corpus(connection: Connection, name: str, at: int) -> int:
    """Return the id of a corpus, which is created where there is none."""
    insert_one(connection, corpora, name=name, created_at=at, updated_at=at)
    connection.execute(sa.update(corpora).where(corpora.c.name == name).values(updated_at=at))
    return int(connection.execute(sa.select(corpora.c.id).where(corpora.c.name == name)).scalar_one())


def add_texts(connection: Connection, corpus_id: int, texts: Sequence[CorpusText]) -> None:
    """Insert texts; one that the corpus has is passed over."""
    rows = [(corpus_id, one.key, one.chunk, one.text) for one in texts]
    insert_new(connection, corpus_texts, ("corpus_id", "key", "chunk", "text"), rows)


def find_corpus(connection: Connection, name: str) -> CorpusRow | None:
    """Return a corpus by its name."""
    return next((one for one in list_corpora(connection) if one.name == name), None)


def list_corpora(connection: Connection) -> list[CorpusRow]:
    """Return all corpora by name."""
    counted = (
        sa.select(corpora, sa.func.count(corpus_texts.c.id).label("texts"))
        .join(corpus_texts, corpus_texts.c.corpus_id == corpora.c.id, isouter=True)
        .group_by(corpora.c.id)
        .order_by(corpora.c.name)
    )
    return [
        CorpusRow(id=row.id, name=row.name, texts=row.texts, updated_at=row.updated_at)
        for row in connection.execute(counted)
    ]


def corpus_keys(connection: Connection, corpus_id: int) -> list[tuple[str, str, int]]:
    """Return identity, id in the corpus and row id of all texts of a corpus in order."""
    columns = (corpus_texts.c.key, corpus_texts.c.chunk, corpus_texts.c.id)
    statement = sa.select(*columns).where(corpus_texts.c.corpus_id == corpus_id).order_by(corpus_texts.c.id)
    return [(row.key, row.chunk, row.id) for row in connection.execute(statement)]


def read_texts(connection: Connection, ids: Sequence[int]) -> dict[int, CorpusText]:
    """Return these texts by row id."""
    found: dict[int, CorpusText] = {}
    for block in blocks(ids):
        for row in connection.execute(sa.select(corpus_texts).where(corpus_texts.c.id.in_(block))):
            found[row.id] = CorpusText(key=row.key, chunk=row.chunk, text=row.text)
    return found


def drop_texts(connection: Connection, corpus_id: int, limit: int) -> int:
    """Delete up to so many texts of a corpus; how many there were."""
    some = sa.select(corpus_texts.c.id).where(corpus_texts.c.corpus_id == corpus_id).limit(limit)
    return connection.execute(sa.delete(corpus_texts).where(corpus_texts.c.id.in_(some))).rowcount


def drop_corpus(connection: Connection, corpus_id: int) -> None:
    """Delete a corpus without texts."""
    connection.execute(sa.delete(corpora).where(corpora.c.id == corpus_id))
