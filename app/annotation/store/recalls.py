"""Rows of pooled recall: what the annotations of a task say of its retrievers, replaced whenever they change."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.store.tasks import TaskRow
from app.annotation.tables import pooled_recalls, tasks
from app.base.db.engine import insert_new
from app.base.jobs.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.catalog.tables import definitions

_PAUSE: Final = 30_000_000
"""Microseconds: grades come every few seconds, and are counted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallEstimate:
    """Pooled recall of a retriever at a depth; None = unknown."""

    retriever: str
    k: int
    queries: int
    found: int
    relevant: float | None
    value: float | None
    low: float | None
    high: float | None
    frame: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRow(RecallEstimate):
    """The same as stored, with its task and suite."""

    task: str
    suite: str
    at: int


def defer_results(connection: Connection, task: TaskRow, now: int) -> None:
    """Have computed soon, once for all annotations until then, what those of a task say of retrievers or a judge.

    What they say of pairs is counted when it is read.
    """
    if task.of_pairs:
        return
    kind = JobKind.CALIBRATION if task.of_answers else JobKind.RECALL
    defer(connection, [NewJob(kind, task.id, run_at=now + _PAUSE)])


def replace_recalls(connection: Connection, task_id: int, estimates: Sequence[RecallEstimate], at: int) -> None:
    """Store the pooled recall of a task in the place of what was computed before."""
    connection.execute(sa.delete(pooled_recalls).where(pooled_recalls.c.task_id == task_id))
    values = [[getattr(one, name) for name in RecallEstimate.__dataclass_fields__] for one in estimates]
    columns = ("task_id", *RecallEstimate.__dataclass_fields__, "at")
    insert_new(connection, pooled_recalls, columns, [(task_id, *row, at) for row in values])


def list_recalls(
    connection: Connection,
    *,
    suite: str | None = None,
    retriever: str | None = None,
    known: bool = True,
    in_force: bool = False,
) -> list[RecallRow]:
    """Return pooled recall of the newest task for each suite and retriever, the deepest k first.

    `known`: only where it is known; `in_force`: only of retrievers that are not archived.
    """
    statement = (
        sa.select(pooled_recalls, tasks.c.slug.label("task"), definitions.c.slug.label("suite"))
        .join(tasks, tasks.c.id == pooled_recalls.c.task_id)
        .join(definitions, definitions.c.id == tasks.c.suite_id)
        .where(tasks.c.archived_at.is_(None), definitions.c.archived_at.is_(None))
        .order_by(definitions.c.slug, pooled_recalls.c.retriever, tasks.c.id.desc(), pooled_recalls.c.k.desc())
    )
    if suite is not None:
        statement = statement.where(definitions.c.slug == suite)
    if retriever is not None:
        statement = statement.where(pooled_recalls.c.retriever == retriever)
    if known:
        statement = statement.where(pooled_recalls.c.value.is_not(None))
    if in_force:
        named = definitions.alias()
        statement = statement.where(
            sa.exists().where(
                named.c.kind == "retriever",
                named.c.slug == pooled_recalls.c.retriever,
                named.c.archived_at.is_(None),
            )
        )
    newest: dict[tuple[str, str], str] = {}
    rows = [_row(row) for row in connection.execute(statement)]
    return [row for row in rows if newest.setdefault((row.suite, row.retriever), row.task) == row.task]


def _row(row: Any) -> RecallRow:
    return RecallRow(**{name: getattr(row, name) for name in RecallRow.__dataclass_fields__})
