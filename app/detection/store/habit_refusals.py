"""Rows of habits that people called not normal: the record, which stays."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new
from app.detection.tables import habit_refusals


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRow:
    """A habit that was called not normal; it holds for the runs after `after_run`."""

    habit: str
    after_run: int
    at: int
    by: str
    note: str | None


_COLUMNS = tuple(RefusalRow.__dataclass_fields__)


def list_refusals(connection: Connection, check_id: int) -> list[RefusalRow]:
    """Read the refused habits of a check, oldest first."""
    mine = sa.select(*(habit_refusals.c[name] for name in _COLUMNS)).where(habit_refusals.c.check_id == check_id)
    rows = connection.execute(mine.order_by(habit_refusals.c.id))
    return [RefusalRow(**row._mapping) for row in rows]  # noqa: SLF001 - the public name of it


def refuse(connection: Connection, check_id: int, row: RefusalRow) -> None:
    """Write down that a habit is not normal; no change where it was refused before."""
    values = (check_id, row.habit, row.after_run, row.at, row.by, row.note)
    insert_new(connection, habit_refusals, ("check_id", *_COLUMNS), [values])
