"""Rows of shadows: sums over pairs by the hour, and the documents of those that somebody defined."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new, insert_one, row_value
from app.experiments.documents import ShadowDocument
from app.experiments.domain.promotion import Hits, ShadowHit
from app.experiments.tables import shadow_hours, shadow_pairs, shadow_parts, shadow_questions, shadows


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSums:
    """Sums over some pairs of a shadow."""

    pairs: int = 0
    failed: int = 0
    rbo: float = 0.0
    jaccard: float = 0.0
    a_empty: int = 0
    b_empty: int = 0
    timed: int = 0
    a_seconds: float = 0.0
    b_seconds: float = 0.0
    dropped: int = 0
    """Queries that were to be asked, and were not in time: no pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedShadow:
    """A shadow that somebody defined."""

    id: int
    slug: str
    document: ShadowDocument
    created_at: int
    created_by: str
    ask_after: int | None
    """Its candidate is left alone until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRow:
    """The sums of an hour, or of all hours from the first to the last."""

    slug: str
    first: int
    last: int
    sums: ShadowSums


_SUMS = tuple(ShadowSums.__dataclass_fields__)


def add_sums(connection: Connection, slug: str, hour: int, sums: ShadowSums) -> None:
    """Add to the sums of an hour."""
    insert_new(connection, shadow_hours, ("slug", "hour", *_SUMS), [(slug, hour, *([0] * len(_SUMS)))])
    mine = sa.and_(shadow_hours.c.slug == slug, shadow_hours.c.hour == hour)
    grown = {name: shadow_hours.c[name] + getattr(sums, name) for name in _SUMS}
    connection.execute(sa.update(shadow_hours).where(mine).values(grown))


def find_shadow(connection: Connection, slug: str, *, lock: bool = False) -> DefinedShadow | None:
    """Return a shadow that somebody defined; with `lock` nobody else changes it meanwhile."""
    return _find(connection, shadows.c.slug == slug, lock=lock)


def read_shadow(connection: Connection, shadow_id: int, *, lock: bool = False) -> DefinedShadow | None:
    """Return a shadow by its id; with `lock` nobody else changes it meanwhile."""
    return _find(connection, shadows.c.id == shadow_id, lock=lock)


def insert_shadow(connection: Connection, slug: str, body: Mapping[str, Any], *, at: int, by: str) -> int | None:
    """Insert a shadow and return its id; None where one has the slug."""
    return insert_one(connection, shadows, slug=slug, body=json.dumps(body), created_at=at, created_by=by)


def change_shadow(connection: Connection, shadow_id: int, body: Mapping[str, Any]) -> None:
    """Replace the document of a shadow."""
    connection.execute(sa.update(shadows).where(shadows.c.id == shadow_id).values(body=json.dumps(body)))


def leave_alone(connection: Connection, shadow_id: int, until: int) -> None:
    """Have the candidate of a shadow not asked until then."""
    connection.execute(sa.update(shadows).where(shadows.c.id == shadow_id).values(ask_after=until))


def list_slugs(connection: Connection, *, after: str = "", limit: int) -> list[str]:
    """List shadows by slug, those that somebody defined and those that only have pairs, behind `after`."""
    defined = sa.select(shadows.c.slug).where(shadows.c.slug > after)
    heard_of = sa.select(shadow_hours.c.slug).where(shadow_hours.c.slug > after)
    both = sa.union(defined, heard_of).subquery()
    return list(connection.execute(sa.select(both.c.slug).order_by(both.c.slug).limit(limit)).scalars())


def sum_hours(connection: Connection, slugs: Sequence[str]) -> dict[str, ShadowRow]:
    """Return the sums over all hours of shadows that have any."""
    hour = shadow_hours.c.hour
    totals = [sa.func.sum(shadow_hours.c[name]).label(name) for name in _SUMS]
    statement = (
        sa.select(shadow_hours.c.slug, sa.func.min(hour).label("first"), sa.func.max(hour).label("last"), *totals)
        .where(shadow_hours.c.slug.in_(slugs))
        .group_by(shadow_hours.c.slug)
    )
    return {row.slug: _row(row) for row in connection.execute(statement)}


def newest_hours(connection: Connection, slug: str, limit: int) -> list[ShadowRow]:
    """Return the newest hours of a shadow in the order of time."""
    hour = shadow_hours.c.hour
    statement = (
        sa.select(shadow_hours, hour.label("first"), hour.label("last"))
        .where(shadow_hours.c.slug == slug)
        .order_by(hour.desc())
        .limit(limit)
    )
    return [_row(row) for row in connection.execute(statement)][::-1]


def delete_shadow(connection: Connection, slug: str) -> bool:
    """Delete a shadow that nothing refers to any more, with its hours; False where there was none."""
    deleted = [
        connection.execute(sa.delete(table).where(table.c.slug == slug)).rowcount for table in (shadow_hours, shadows)
    ]
    return any(deleted)


def old_hours(connection: Connection, limit: int, *, horizon: int) -> list[tuple[str, int]]:
    """Find (slug, hour) of hours before `horizon`."""
    statement = sa.select(shadow_hours.c.slug, shadow_hours.c.hour).where(shadow_hours.c.hour < horizon).limit(limit)
    return [(row.slug, row.hour) for row in connection.execute(statement)]


def drop_hours(connection: Connection, old: Sequence[tuple[str, int]]) -> int:
    """Delete these hours."""
    mine = sa.tuple_(shadow_hours.c.slug, shadow_hours.c.hour).in_(old)
    return connection.execute(sa.delete(shadow_hours).where(mine)).rowcount


def _find(connection: Connection, where: sa.ColumnElement[bool], *, lock: bool) -> DefinedShadow | None:
    statement = sa.select(shadows).where(where)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    return (
        None
        if row is None
        else row_value(DefinedShadow, row, document=ShadowDocument.model_validate(json.loads(row.body)))
    )


def _row(row: Any) -> ShadowRow:
    kinds = {
        name: shadow_hours.c[name].type.python_type for name in _SUMS
    }  # PostgreSQL adds whole numbers up as decimals
    sums = ShadowSums(**{name: kind(getattr(row, name)) for name, kind in kinds.items()})
    return ShadowRow(slug=row.slug, first=row.first, last=row.last, sums=sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPair:
    """A query with the texts that users got and those of the candidate, and how alike the rankings are."""

    query: str
    a: Sequence[str]
    b: Sequence[str]
    rbo: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow(NewPair):
    """A pair that is kept."""

    id: int
    at: int


def keep_pairs(connection: Connection, shadow_id: int, pairs: Sequence[NewPair], *, most: int, at: int) -> None:
    """Add pairs, the first one of each query, and delete all but the `most` different ones."""
    rows = [
        (
            shadow_id,
            sha256(one.query.encode()).hexdigest(),
            one.query,
            json.dumps(list(one.a)),
            json.dumps(list(one.b)),
            one.rbo,
            at,
        )
        for one in sorted(pairs, key=lambda one: one.rbo)[:most]
    ]
    insert_new(connection, shadow_pairs, ("shadow_id", "digest", "query", "a", "b", "rbo", "at"), rows)
    mine = shadow_pairs.c.shadow_id == shadow_id
    kept = sa.select(shadow_pairs.c.id).where(mine).order_by(shadow_pairs.c.rbo, shadow_pairs.c.id).limit(most)
    connection.execute(sa.delete(shadow_pairs).where(mine, shadow_pairs.c.id.not_in(kept)))


def list_pairs(connection: Connection, shadow_id: int, limit: int | None = None) -> list[PairRow]:
    """Return the pairs of a shadow, the most different first."""
    order = (shadow_pairs.c.rbo, shadow_pairs.c.id)
    statement = sa.select(shadow_pairs).where(shadow_pairs.c.shadow_id == shadow_id).order_by(*order).limit(limit)
    return [row_value(PairRow, row, a=json.loads(row.a), b=json.loads(row.b)) for row in connection.execute(statement)]


def count_pairs(connection: Connection, shadow_id: int) -> int:
    """Count the pairs of a shadow."""
    mine = shadow_pairs.c.shadow_id == shadow_id
    return connection.execute(sa.select(sa.func.count()).select_from(shadow_pairs).where(mine)).scalar_one()


def forget_pairs(connection: Connection, shadow_id: int) -> None:
    """Delete the pairs of a shadow."""
    connection.execute(sa.delete(shadow_pairs).where(shadow_pairs.c.shadow_id == shadow_id))


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
        row_value(Question, row, hits=[ShadowHit(id=one[0], text=one[1]) for one in json.loads(row.hits)])
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


def forget_parts(connection: Connection, slug: str) -> None:
    """Delete the requests of a shadow: what was deleted may be sent again."""
    connection.execute(sa.delete(shadow_parts).where(shadow_parts.c.slug == slug))
