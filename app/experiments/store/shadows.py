"""Rows of shadows: sums over pairs by the hour, and the documents of those that somebody defined."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new, insert_one
from app.experiments.tables import shadow_hours, shadows


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
    body: Mapping[str, Any]
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
    statement = sa.select(shadows).where(shadows.c.slug == slug)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    return None if row is None else _defined(row)


def read_shadow(connection: Connection, shadow_id: int, *, lock: bool = False) -> DefinedShadow | None:
    """Return a shadow by its id; with `lock` nobody else changes it meanwhile."""
    statement = sa.select(shadows).where(shadows.c.id == shadow_id)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    return None if row is None else _defined(row)


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


def _defined(row: Any) -> DefinedShadow:
    values = {name: getattr(row, name) for name in DefinedShadow.__dataclass_fields__ if name != "body"}
    return DefinedShadow(body=json.loads(row.body), **values)


def _row(row: Any) -> ShadowRow:
    kinds = {
        name: shadow_hours.c[name].type.python_type for name in _SUMS
    }  # PostgreSQL adds whole numbers up as decimals
    sums = ShadowSums(**{name: kind(getattr(row, name)) for name, kind in kinds.items()})
    return ShadowRow(slug=row.slug, first=row.first, last=row.last, sums=sums)
