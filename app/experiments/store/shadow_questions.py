"""Rows of queries that the candidate of a shadow is still to be asked; deleted in the transaction of their answers."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new
from app.experiments.domain.shadow import Hits, ShadowHit
from app.experiments.store.shadows import ShadowSums, add_sums
from app.experiments.tables import shadow_questions, shadows


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuestion:
    """A query with what users got for it, and how long that took."""

    query: str
    hits: Hits
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(NewQuestion):
    """A query that waits."""

    id: int


def add_questions(connection: Connection, shadow_id: int, questions: Sequence[NewQuestion], at: int) -> None:
    """Add queries to those that wait."""
    rows = [
        (shadow_id, one.query, json.dumps([[hit.id, hit.text] for hit in one.hits]), one.seconds, at)
        for one in questions
    ]
    insert_new(connection, shadow_questions, ("shadow_id", "query", "hits", "seconds", "received_at"), rows)


def count_questions(connection: Connection, shadow_id: int) -> int:
    """Count the queries of a shadow that wait."""
    mine = shadow_questions.c.shadow_id == shadow_id
    return connection.execute(sa.select(sa.func.count()).select_from(shadow_questions).where(mine)).scalar_one()


def next_questions(connection: Connection, shadow_id: int, limit: int) -> list[Question]:
    """Return the queries of a shadow that have waited longest."""
    table = shadow_questions
    statement = sa.select(table).where(table.c.shadow_id == shadow_id).order_by(table.c.id).limit(limit)
    return [
        Question(
            id=row.id,
            query=row.query,
            hits=[ShadowHit(id=one[0], text=one[1]) for one in json.loads(row.hits)],
            seconds=row.seconds,
        )
        for row in connection.execute(statement)
    ]


def take_questions(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Delete queries and return those that were there: an answer counts only where its query still waited."""
    taken = sa.delete(shadow_questions).where(shadow_questions.c.id.in_(ids)).returning(shadow_questions.c.id)
    return set(connection.execute(taken).scalars())


def forget_questions(connection: Connection, shadow_id: int) -> None:
    """Delete the queries of a shadow."""
    connection.execute(sa.delete(shadow_questions).where(shadow_questions.c.shadow_id == shadow_id))


def old_questions(connection: Connection, limit: int, *, horizon: int) -> list[tuple[int, str]]:
    """Find queries that came before `horizon`, with the slugs of their shadows."""
    statement = (
        sa.select(shadow_questions.c.id, shadows.c.slug)
        .join(shadows, shadows.c.id == shadow_questions.c.shadow_id)
        .where(shadow_questions.c.received_at < horizon)
        .limit(limit)
    )
    return [(row.id, row.slug) for row in connection.execute(statement)]


def drop_questions(connection: Connection, old: Sequence[tuple[int, str]], *, hour: int) -> int:
    """Delete queries that were not asked in time, and count them as dropped in an hour of their shadows."""
    taken = take_questions(connection, [one for one, _ in old])
    for slug, dropped in Counter(slug for one, slug in old if one in taken).items():
        add_sums(connection, slug, hour, ShadowSums(dropped=dropped))
    return len(taken)
