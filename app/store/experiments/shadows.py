"""Rows of shadows: sums over pairs by the hour."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.engine import insert_new
from app.store.tables import shadow_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSums:
    """Sums over some pairs of a shadow."""

    pairs: int
    failed: int
    rbo: float
    jaccard: float
    a_empty: int
    b_empty: int
    timed: int
    a_seconds: float
    b_seconds: float


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


def list_shadows(
    connection: Connection, *, slug: str | None = None, after: str = "", limit: int | None = None
) -> list[ShadowRow]:
    """List shadows by slug with the sums over all hours, those behind `after`; one alone where its slug is given."""
    chosen = shadow_hours.c.slug > after if slug is None else shadow_hours.c.slug == slug
    hour = shadow_hours.c.hour
    totals = [sa.func.sum(shadow_hours.c[name]).label(name) for name in _SUMS]
    statement = (
        sa.select(shadow_hours.c.slug, sa.func.min(hour).label("first"), sa.func.max(hour).label("last"), *totals)
        .where(chosen)
        .group_by(shadow_hours.c.slug)
        .order_by(shadow_hours.c.slug)
        .limit(limit)
    )
    return [_row(row) for row in connection.execute(statement)]


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
    """Delete the hours of a shadow; False where there were none."""
    return connection.execute(sa.delete(shadow_hours).where(shadow_hours.c.slug == slug)).rowcount > 0


def old_hours(connection: Connection, limit: int, *, horizon: int) -> list[tuple[str, int]]:
    """Find (slug, hour) of hours before `horizon`."""
    statement = sa.select(shadow_hours.c.slug, shadow_hours.c.hour).where(shadow_hours.c.hour < horizon).limit(limit)
    return [(row.slug, row.hour) for row in connection.execute(statement)]


def drop_hours(connection: Connection, old: Sequence[tuple[str, int]]) -> int:
    """Delete these hours."""
    mine = sa.tuple_(shadow_hours.c.slug, shadow_hours.c.hour).in_(old)
    return connection.execute(sa.delete(shadow_hours).where(mine)).rowcount


def _row(row: Any) -> ShadowRow:
    kinds = {
        name: shadow_hours.c[name].type.python_type for name in _SUMS
    }  # PostgreSQL adds whole numbers up as decimals
    sums = ShadowSums(**{name: kind(getattr(row, name)) for name, kind in kinds.items()})
    return ShadowRow(slug=row.slug, first=row.first, last=row.last, sums=sums)
