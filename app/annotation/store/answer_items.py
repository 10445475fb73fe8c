"""Rows of items that are generated answers: what annotators see beside the answer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.store.tasks import NewItem, ids_by_token, insert_items
from app.annotation.tables import answer_items, task_canaries, task_items
from app.base.db.engine import insert_new


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerItem:
    """What an annotator sees beside an answer."""

    query: str
    expected: str | None
    contexts: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnAnswer:
    """An answer that was drawn, as an item with what is seen beside it."""

    item: NewItem
    canary_version_id: int
    beside: AnswerItem


def save_answers(connection: Connection, task_id: int, drawn: Sequence[DrawnAnswer]) -> dict[str, int]:
    """Insert the answers that were drawn for a task; returns the ids of its items by token."""
    versions = {one.item.canary_id: one.canary_version_id for one in drawn}
    columns = ("task_id", "canary_id", "canary_version_id", "sizes")
    canaries = [(task_id, canary_id, version_id, "[]") for canary_id, version_id in sorted(versions.items())]
    insert_new(connection, task_canaries, columns, canaries)
    insert_items(connection, task_id, [one.item for one in drawn])
    ids = ids_by_token(connection, task_id)
    rows = [
        (ids[one.item.token], one.beside.query, one.beside.expected, json.dumps(list(one.beside.contexts)))
        for one in drawn
    ]
    insert_new(connection, answer_items, ("item_id", "query", "expected", "contexts"), rows)
    return ids


def read_answer_items(connection: Connection, task_id: int, *, item_id: int | None = None) -> Mapping[int, AnswerItem]:
    """Return what is seen beside the answers of a task, or beside one of them, by item."""
    statement = (
        sa.select(answer_items)
        .join(task_items, task_items.c.id == answer_items.c.item_id)
        .where(task_items.c.task_id == task_id)
    )
    if item_id is not None:
        statement = statement.where(answer_items.c.item_id == item_id)
    return {
        row.item_id: AnswerItem(query=row.query, expected=row.expected, contexts=json.loads(row.contexts))
        for row in connection.execute(statement)
    }
