"""Rows of units: to which arm each was exposed, its value, and running totals by the time of exposure.

Units and events are 64 bits of keyed hashes. Whoever writes holds the experiment's row, so that a unit is counted once.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks, insert_new
from app.base.db.row_tables import STAGED_ROWS, numbers
from app.experiments.tables import experiment_counts, experiment_epochs, experiment_units


class UnitRow(NamedTuple):
    """A unit of an epoch."""

    epoch_id: int
    unit: int
    arm: int
    exposed_at: int
    event: int | None
    """None = no outcome came, as `value`."""
    value: int | None


class CountRow(NamedTuple):
    """Units that were exposed to an arm in a span of time, by its begin, and the successes among them."""

    bucket: int
    arm: int
    units: int
    successes: int


def find_units(connection: Connection, epoch_ids: Collection[int], wanted: Sequence[int]) -> list[UnitRow]:
    """Return these units in these epochs."""
    table = experiment_units
    found: list[UnitRow] = []
    for block in blocks(sorted({(unit,) for unit in wanted}), STAGED_ROWS):
        asked = numbers(connection, "asked", ["unit"], block)
        # Not a join: SQLite would go through the units of the epoch, and for each through all that are asked for.
        mine = (table.c.epoch_id.in_(epoch_ids), table.c.unit.in_(sa.select(asked.c.unit)))
        found += [
            UnitRow(row.epoch_id, row.unit, row.arm, row.exposed_at, row.event, row.value)
            for row in connection.execute(sa.select(table).where(*mine))
        ]
    return found


def insert_units(connection: Connection, rows: Sequence[tuple[int, int, int, int]]) -> None:
    """Insert (epoch id, unit, arm, exposed at) of units that are not there."""
    for block in blocks(sorted(rows), STAGED_ROWS):
        insert_new(connection, experiment_units, ("epoch_id", "unit", "arm", "exposed_at"), block)


def save_values(connection: Connection, rows: Sequence[tuple[int, int, int, int]]) -> None:
    """Store (epoch id, unit, event, value) of units that have no value."""
    table = experiment_units
    for block in blocks(sorted(rows), STAGED_ROWS):
        came = numbers(connection, "came", ["epoch_id", "unit", "event", "value"], block)
        mine = sa.and_(table.c.epoch_id == came.c.epoch_id, table.c.unit == came.c.unit)
        connection.execute(sa.update(table).where(mine).values(event=came.c.event, value=came.c.value))


def add_counts(connection: Connection, epoch_id: int, rows: Sequence[CountRow]) -> None:
    """Add to the running totals of an epoch."""
    table = experiment_counts
    for block in blocks(sorted(rows), STAGED_ROWS):
        empty = [(epoch_id, row.bucket, row.arm, 0, 0) for row in block]
        insert_new(connection, table, ("epoch_id", "bucket", "arm", "units", "successes"), empty)
        added = numbers(connection, "added", ["bucket", "arm", "units", "successes"], [tuple(row) for row in block])
        mine = (table.c.epoch_id == epoch_id, table.c.bucket == added.c.bucket, table.c.arm == added.c.arm)
        grown = {
            "units": table.c.units + added.c.units,
            "successes": table.c.successes + added.c.successes,
        }
        connection.execute(sa.update(table).where(*mine).values(grown))


def read_counts(connection: Connection, epoch_id: int) -> list[CountRow]:
    """Return the running totals of an epoch in the order of time: a row for each arm and span, not for each unit."""
    table = experiment_counts
    statement = (
        sa.select(table.c.bucket, table.c.arm, table.c.units, table.c.successes)
        .where(table.c.epoch_id == epoch_id)
        .order_by(table.c.bucket, table.c.arm)
    )
    return [CountRow(*row) for row in connection.execute(statement)]


def units_of(connection: Connection, epoch_ids: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """Return up to so many (epoch id, unit) of these epochs."""
    return _some_units(connection, experiment_units.c.epoch_id.in_(epoch_ids), limit)


def old_units(connection: Connection, limit: int, *, horizon: int) -> list[tuple[int, int]]:
    """Find (epoch id, unit) of units whose epoch ended before `horizon`."""
    ended = sa.select(experiment_epochs.c.id).where(experiment_epochs.c.ended_at < horizon)
    return _some_units(connection, experiment_units.c.epoch_id.in_(ended), limit)


def drop_units(connection: Connection, old: Sequence[tuple[int, int]]) -> int:
    """Delete these units; the totals stay."""
    table = experiment_units
    gone = numbers(connection, "gone", ["epoch_id", "unit"], old)
    mine = sa.tuple_(table.c.epoch_id, table.c.unit).in_(sa.select(gone.c.epoch_id, gone.c.unit))
    return connection.execute(sa.delete(table).where(mine)).rowcount


def _some_units(connection: Connection, where: sa.ColumnElement[bool], limit: int) -> list[tuple[int, int]]:
    table = experiment_units
    statement = sa.select(table.c.epoch_id, table.c.unit).where(where).limit(limit)
    return [(row.epoch_id, row.unit) for row in connection.execute(statement)]
