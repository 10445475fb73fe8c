"""Rows of items that are two answers to one query side by side, of which people say which is better."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.store.tasks import NewItem, TaskRow, ids_by_token, insert_items, list_tasks
from app.annotation.tables import pair_items, task_items
from app.base.db.engine import insert_new


@dataclass(frozen=True, slots=True, kw_only=True)
class PairItem:
    """What annotators see, and which side is the candidate's."""

    query: str
    left: Sequence[str]
    right: Sequence[str]
    candidate_right: bool


def save_pair_items(connection: Connection, task_id: int, pairs: Mapping[str, PairItem], items: list[NewItem]) -> None:
    """Insert items with their pairs, which are by token."""
    insert_items(connection, task_id, items)
    ids = ids_by_token(connection, task_id)
    rows = [
        (ids[token], one.query, json.dumps(list(one.left)), json.dumps(list(one.right)), int(one.candidate_right))
        for token, one in pairs.items()
    ]
    columns = ("item_id", "query", "left_texts", "right_texts", "candidate_right")
    insert_new(connection, pair_items, columns, rows)


def read_pair_items(connection: Connection, task_id: int, *, item_id: int | None = None) -> Mapping[int, PairItem]:
    """Return the pairs of a task, or one of them, by item."""
    statement = (
        sa.select(pair_items)
        .join(task_items, task_items.c.id == pair_items.c.item_id)
        .where(task_items.c.task_id == task_id)
    )
    if item_id is not None:
        statement = statement.where(pair_items.c.item_id == item_id)
    return {
        row.item_id: PairItem(
            query=row.query,
            left=json.loads(row.left_texts),
            right=json.loads(row.right_texts),
            candidate_right=bool(row.candidate_right),
        )
        for row in connection.execute(statement)
    }


def list_pair_tasks(connection: Connection, shadow: str, *, since: int) -> list[TaskRow]:
    """List the tasks of pairs of a shadow that were created since, and are not archived, the newest first."""
    found = [task for task in list_tasks(connection) if task.of_pairs and task.body["pairs"]["shadow"] == shadow]
    return sorted((task for task in found if task.created_at >= since), key=lambda task: -task.id)


def forget_texts(connection: Connection, task_id: int) -> None:
    """Delete the queries and texts of the pairs of a task; which side is the candidate's stays."""
    mine = sa.select(task_items.c.id).where(task_items.c.task_id == task_id)
    values = {"query": "", "left_texts": "[]", "right_texts": "[]"}
    connection.execute(sa.update(pair_items).where(pair_items.c.item_id.in_(mine)).values(values))
