"""Rows of pooled recall: what tasks estimate, and which of them speaks for a suite and a retriever."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.domain.recall import RecallEstimate, is_pooled_recall_self_judged
from app.annotation.store.judgment_rows import who_brought_up
from app.annotation.tables import adjudications, annotations, pooled_recalls, task_canaries, task_items, tasks
from app.base.db.engine import insert_new, row_value
from app.catalog.domain import TAKEN_AS_RIGHT
from app.catalog.tables import canary_versions, definition_versions, definitions


class RecallRow(RecallEstimate):
    """The same as stored, with its task and suite."""

    task_id: int
    task: str
    suite: str
    at: int
    self_judged: bool
    """Whether what the task judged was brought up by this retriever alone, and nothing was drawn from a corpus."""
    edited_since: bool
    """Whether the retriever in force was defined after the task asked it."""
    pool_requested_at: int | None
    """When the task asked it."""


def replace_recalls(connection: Connection, task_id: int, estimates: Sequence[RecallEstimate], at: int) -> None:
    """Store the pooled recall of a task in the place of what was computed before."""
    connection.execute(sa.delete(pooled_recalls).where(pooled_recalls.c.task_id == task_id))
    values = [[getattr(one, name) for name in RecallEstimate.__struct_fields__] for one in estimates]
    columns = ("task_id", *RecallEstimate.__struct_fields__, "at")
    insert_new(connection, pooled_recalls, columns, [(task_id, *row, at) for row in values])


def list_recalls(
    connection: Connection, *, suite: str | None = None, retriever: str | None = None, in_force: bool = False
) -> list[RecallRow]:
    """Return pooled recall of each suite and retriever by the newest task that estimates it, the deepest k first.

    A task whose estimate is self-judged speaks only where no other does. Only where recall is known; `in_force`: only
    of retrievers that are not archived.
    """
    asked = definitions.alias()
    of_task = (tasks.c.slug.label("task"), tasks.c.body, tasks.c.pool_requested_at, tasks.c.pooled_at)
    columns = [*of_task, definitions.c.slug.label("suite")]
    statement = (
        sa.select(pooled_recalls, *columns, definition_versions.c.created_at.label("defined_at"))
        .join(tasks, tasks.c.id == pooled_recalls.c.task_id)
        .join(definitions, definitions.c.id == tasks.c.suite_id)
        .outerjoin(asked, sa.and_(asked.c.kind == "retriever", asked.c.slug == pooled_recalls.c.retriever))
        .outerjoin(definition_versions, definition_versions.c.id == asked.c.version_id)
        .where(tasks.c.archived_at.is_(None), definitions.c.archived_at.is_(None), pooled_recalls.c.value.is_not(None))
        .order_by(definitions.c.slug, pooled_recalls.c.retriever, tasks.c.id.desc(), pooled_recalls.c.k.desc())
    )
    for column, wanted in ((definitions.c.slug, suite), (pooled_recalls.c.retriever, retriever)):
        statement = statement if wanted is None else statement.where(column == wanted)
    if in_force:
        statement = statement.where(asked.c.id.is_not(None), asked.c.archived_at.is_(None))
    rows = [
        row_value(
            RecallRow,
            row,
            # An older release that stored no `assumes` took every grade as right.
            assumes=row.assumes or TAKEN_AS_RIGHT,
            self_judged=_is_self_judged(connection, row),
            edited_since=None not in (row.defined_at, row.pool_requested_at) and row.defined_at > row.pool_requested_at,
        )
        for row in connection.execute(statement)
    ]
    ordered = sorted(rows, key=lambda row: row.self_judged)
    best = {(row.suite, row.retriever): row.task for row in reversed(ordered)}
    return [row for row in rows if best[row.suite, row.retriever] == row.task]


def _is_self_judged(connection: Connection, row: Any) -> bool:
    """Whether what a task judged was brought up by the retriever of an estimate alone, under whatever names."""
    task = json.loads(row.body)
    found = who_brought_up(connection, row.task_id, task.get("retrievers") or (), row.pool_requested_at, row.pooled_at)
    has_rest = any(stratum.get("rest") for stratum in task.get("strata") or ())
    return row.retriever in found and is_pooled_recall_self_judged(set(found.values()), has_rest=has_rest)


def graded_queries(connection: Connection, task_id: int) -> dict[int, str]:
    """Return the queries of a task, by canary, of which each chunk was graded, skipped or decided by people."""
    of_item = task_items.c.id
    said = sa.exists().where(annotations.c.item_id == of_item, annotations.c.withdrawn_at.is_(None))
    decided = sa.exists().where(adjudications.c.item_id == of_item, adjudications.c.withdrawn_at.is_(None))
    open_ = sa.select(task_items.c.canary_id).where(
        task_items.c.task_id == task_id,
        task_items.c.known_grade.is_(None),
        ~said.where(annotations.c.by_judge == 0),
        ~decided,
    )
    still_open = set(connection.execute(open_).scalars())
    pooled = sa.select(task_canaries.c.canary_id, canary_versions.c.body).join(
        canary_versions, canary_versions.c.id == task_canaries.c.canary_version_id
    )
    rows = connection.execute(pooled.where(task_canaries.c.task_id == task_id, task_canaries.c.sizes.is_not(None)))
    return {row.canary_id: str(json.loads(row.body)["query"]) for row in rows if row.canary_id not in still_open}
