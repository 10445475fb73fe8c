"""Rows of interleavings: their documents, the clicks of units, and running totals of what units prefer."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks, insert_new, insert_one
from app.base.db.row_tables import STAGED_ROWS, numbers
from app.experiments.domain.interleaving import Preferences
from app.experiments.tables import interleaving_clicks, interleavings


@dataclass(frozen=True, slots=True, kw_only=True)
class InterleavingRow:
    """An interleaving in its current epoch."""

    id: int
    slug: str
    body: Mapping[str, Any]
    salt: bytes
    epoch: int
    began_at: int
    created_at: int
    created_by: str
    preferences: Preferences
    ties: int
    decided_at: int | None
    decided: Preferences | None
    """What units preferred at the look that decided."""


class ClickRow(NamedTuple):
    """A click of a unit for one of the rankings."""

    unit: int
    event: int
    credit: int
    """-1 for A, 1 for B."""


def insert_interleaving(
    connection: Connection, slug: str, body: Mapping[str, Any], *, salt: bytes, at: int, by: str
) -> bool:
    """Insert an interleaving; False where one has the slug."""
    values = {"slug": slug, "body": json.dumps(body), "salt": salt, "epoch": 1, "began_at": at, "created_at": at}
    return insert_one(connection, interleavings, **values, created_by=by, a=0, b=0, ties=0) is not None


def find_interleaving(connection: Connection, slug: str, *, lock: bool = False) -> InterleavingRow | None:
    """Return an interleaving; with `lock` nobody else writes to it meanwhile."""
    statement = sa.select(interleavings).where(interleavings.c.slug == slug)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    return None if row is None else _row(row)


def list_interleavings(connection: Connection, *, after: str = "", limit: int) -> list[InterleavingRow]:
    """List interleavings by slug, those behind `after`."""
    chosen = interleavings.c.slug > after
    statement = sa.select(interleavings).where(chosen).order_by(interleavings.c.slug).limit(limit)
    return [_row(row) for row in connection.execute(statement)]


def begin_epoch(connection: Connection, row: InterleavingRow, body: Mapping[str, Any], at: int) -> None:
    """Begin an epoch with what has changed; the clicks of the one before are deleted."""
    delete_clicks(connection, row.id)
    values = {"body": json.dumps(body), "epoch": row.epoch + 1, "began_at": at, "a": 0, "b": 0, "ties": 0}
    undecided = {"decided_at": None, "decided_a": None, "decided_b": None}
    connection.execute(sa.update(interleavings).where(interleavings.c.id == row.id).values({**values, **undecided}))


def save_counts(connection: Connection, interleaving_id: int, found: Preferences, ties: int) -> None:
    """Store how many units prefer which ranking."""
    values = {"a": found.a, "b": found.b, "ties": ties}
    connection.execute(sa.update(interleavings).where(interleavings.c.id == interleaving_id).values(values))


def save_decision(connection: Connection, interleaving_id: int, found: Preferences, at: int) -> None:
    """Store at which look an interleaving ended; the first one stays."""
    undecided = sa.and_(interleavings.c.id == interleaving_id, interleavings.c.decided_at.is_(None))
    values = {"decided_at": at, "decided_a": found.a, "decided_b": found.b}
    connection.execute(sa.update(interleavings).where(undecided).values(values))


def read_credits(connection: Connection, interleaving_id: int, units: Collection[int]) -> dict[int, int]:
    """Return the sum of the credits of these units, of those that clicked."""
    table = interleaving_clicks
    found: dict[int, int] = {}
    for block in blocks(sorted({(unit,) for unit in units}), STAGED_ROWS):
        asked = numbers(connection, "asked", ["unit"], block)
        mine = (table.c.interleaving_id == interleaving_id, table.c.unit.in_(sa.select(asked.c.unit)))
        statement = sa.select(table.c.unit, sa.func.sum(table.c.credit)).where(*mine).group_by(table.c.unit)
        found |= {unit: int(credit) for unit, credit in connection.execute(statement).all()}
    return found


def insert_clicks(connection: Connection, interleaving_id: int, rows: Sequence[ClickRow]) -> None:
    """Insert clicks, passing over those that came before."""
    columns = ("interleaving_id", "unit", "event", "credit")
    for block in blocks(sorted(set(rows)), STAGED_ROWS):
        insert_new(connection, interleaving_clicks, columns, [(interleaving_id, *row) for row in block])


def delete_clicks(connection: Connection, interleaving_id: int) -> None:
    """Delete the clicks of an interleaving."""
    connection.execute(sa.delete(interleaving_clicks).where(interleaving_clicks.c.interleaving_id == interleaving_id))


def delete_interleaving(connection: Connection, interleaving_id: int) -> None:
    """Delete an interleaving without clicks."""
    connection.execute(sa.delete(interleavings).where(interleavings.c.id == interleaving_id))


def _row(row: Any) -> InterleavingRow:
    names = ("id", "slug", "epoch", "began_at", "created_at", "created_by", "ties", "decided_at")
    return InterleavingRow(
        **{name: getattr(row, name) for name in names},
        body=json.loads(row.body),
        salt=bytes(row.salt),
        preferences=Preferences(a=row.a, b=row.b),
        decided=None if row.decided_at is None else Preferences(a=row.decided_a, b=row.decided_b),
    )
