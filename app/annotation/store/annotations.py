"""Rows of annotations and adjudications: all that was ever said, of which what was not withdrawn is in force."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.store.tasks import NewItem, TaskRow, ids_by_token, insert_items, list_tasks
from app.annotation.tables import adjudications, annotations, answer_items, pair_items, task_canaries, task_items
from app.base.db.engine import insert_new, insert_one, row_value

_IN_FORCE = annotations.c.withdrawn_at.is_(None)
_DECIDED = adjudications.c.withdrawn_at.is_(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRow:
    """What an annotator said of an item; `grade` None = skipped."""

    id: int
    item_id: int
    annotator: str
    by_judge: bool
    grade: int | None
    seconds: float | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorProgress:
    """What one annotator has done of a task, and could do."""

    graded: int
    skipped: int
    left: int
    seconds: tuple[float, ...]
    """Of the newest annotations."""


def save_annotation(
    connection: Connection,
    *,
    task_id: int,
    item_id: int,
    annotator: str,
    grade: int | None,
    seconds: float | None,
    at: int,
    by_judge: bool = False,
) -> None:
    """Store what an annotator says of an item in the place of what it said before, which stays as history."""
    mine = sa.and_(annotations.c.item_id == item_id, annotations.c.annotator == annotator, _IN_FORCE)
    # Two tabs at once: the second waits for the item and withdraws what the first has just said.
    connection.execute(sa.select(task_items.c.id).where(task_items.c.id == item_id).with_for_update())
    connection.execute(sa.update(annotations).where(mine).values(withdrawn_at=at))
    insert_one(
        connection,
        annotations,
        task_id=task_id,
        item_id=item_id,
        annotator=annotator,
        by_judge=int(by_judge),
        grade=grade,
        seconds=seconds,
        at=at,
    )


def withdraw_last(connection: Connection, *, task_id: int, annotator: str, at: int) -> int | None:
    """Withdraw the newest annotation of an annotator; the id of its item, None where there is none in force."""
    mine = sa.and_(annotations.c.task_id == task_id, annotations.c.annotator == annotator, _IN_FORCE)
    newest = sa.select(sa.func.max(annotations.c.id)).where(mine).scalar_subquery()
    withdrawn = sa.update(annotations).where(annotations.c.id == newest, _IN_FORCE).values(withdrawn_at=at)
    return connection.execute(withdrawn.returning(annotations.c.item_id)).scalar_one_or_none()


def list_annotations(connection: Connection, task_id: int) -> list[AnnotationRow]:
    """Return the annotations of a task that are in force, in the order they came."""
    mine = sa.and_(annotations.c.task_id == task_id, _IN_FORCE)
    rows = connection.execute(sa.select(annotations).where(mine).order_by(annotations.c.id))
    return [row_value(AnnotationRow, row, by_judge=bool(row.by_judge)) for row in rows]


def find_grade(connection: Connection, item_id: int, annotator: str) -> int | None:
    """Return what an annotator says of an item; None = nothing, or it skipped it."""
    mine = sa.and_(annotations.c.item_id == item_id, annotations.c.annotator == annotator, _IN_FORCE)
    return connection.execute(sa.select(annotations.c.grade).where(mine)).scalar_one_or_none()


def is_annotated(connection: Connection, item_id: int) -> bool:
    """Whether anybody has annotated an item."""
    mine = sa.select(annotations.c.id).where(annotations.c.item_id == item_id, _IN_FORCE).limit(1)
    return connection.execute(mine).scalar_one_or_none() is not None


def save_adjudication(connection: Connection, *, task_id: int, item_id: int, grade: int, by: str, at: int) -> None:
    """Store a decision on an item in the place of an earlier one, which stays as history."""
    connection.execute(sa.select(task_items.c.id).where(task_items.c.id == item_id).with_for_update())
    mine = sa.and_(adjudications.c.item_id == item_id, _DECIDED)
    connection.execute(sa.update(adjudications).where(mine).values(withdrawn_at=at))
    insert_one(connection, adjudications, task_id=task_id, item_id=item_id, grade=grade, decided_by=by, at=at)


def list_adjudications(connection: Connection, task_id: int) -> dict[int, int]:
    """Return the decided grades of a task in force, by item."""
    mine = sa.and_(adjudications.c.task_id == task_id, _DECIDED)
    return dict(connection.execute(sa.select(adjudications.c.item_id, adjudications.c.grade).where(mine)).all())


def last_canary(connection: Connection, task_id: int, annotator: str) -> int | None:
    """Return the canary that an annotator was at last; None also for a pair, which is of none."""
    mine = sa.and_(annotations.c.task_id == task_id, annotations.c.annotator == annotator, _IN_FORCE)
    newest = sa.select(annotations.c.item_id).where(mine).order_by(annotations.c.id.desc()).limit(1).scalar_subquery()
    statement = sa.select(task_items.c.canary_id).where(task_items.c.id == newest)
    return connection.execute(statement).scalar_one_or_none()


def open_canaries(connection: Connection, task_id: int, annotator: str) -> list[int | None]:
    """Return the canaries with items that an annotator could grade; None for pairs, which are of none."""
    statement = sa.select(task_items.c.canary_id).where(_open(task_id, annotator)).distinct()
    return list(connection.execute(statement).scalars())


def open_items(connection: Connection, task_id: int, annotator: str, *, canary_id: int | None) -> dict[str, int]:
    """Return the ids of the items of a canary that an annotator could grade, or the pairs, by token."""
    mine = sa.and_(_open(task_id, annotator), task_items.c.canary_id.is_not_distinct_from(canary_id))
    rows = connection.execute(sa.select(task_items.c.token, task_items.c.id).where(mine))
    return {row.token: row.id for row in rows}


def annotator_progress(connection: Connection, task_id: int, annotator: str, *, newest: int) -> AnnotatorProgress:
    """Count what an annotator has done, with the seconds of its newest annotations."""
    mine = sa.and_(annotations.c.task_id == task_id, annotations.c.annotator == annotator, _IN_FORCE)
    counts = connection.execute(
        sa.select(sa.func.count().label("all"), sa.func.count(annotations.c.grade).label("graded")).where(mine)
    ).one()
    left = connection.execute(
        sa.select(sa.func.count()).select_from(task_items).where(_open(task_id, annotator))
    ).scalar_one()
    timed = sa.select(annotations.c.seconds).where(mine, annotations.c.seconds.is_not(None))
    seconds = connection.execute(timed.order_by(annotations.c.id.desc()).limit(newest)).scalars()
    skipped = counts.all - counts.graded
    return AnnotatorProgress(graded=counts.graded, skipped=skipped, left=left, seconds=tuple(seconds))


def _open(task_id: int, annotator: str) -> sa.ColumnElement[bool]:
    """Items an annotator could grade: not annotated by it, and for every annotator or graded by nobody yet."""
    of_item = sa.and_(annotations.c.item_id == task_items.c.id, _IN_FORCE)
    by_me = sa.exists().where(of_item, annotations.c.annotator == annotator)
    graded = sa.exists().where(of_item, annotations.c.grade.is_not(None), annotations.c.by_judge == 0)
    return sa.and_(task_items.c.task_id == task_id, ~by_me, sa.or_(task_items.c.overlap == 1, ~graded))


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
    return {
        row.item_id: row_value(AnswerItem, row, contexts=json.loads(row.contexts))
        for row in _beside_items(connection, answer_items, task_id, item_id)
    }


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
    return {
        row.item_id: row_value(
            PairItem,
            row,
            left=json.loads(row.left_texts),
            right=json.loads(row.right_texts),
            candidate_right=bool(row.candidate_right),
        )
        for row in _beside_items(connection, pair_items, task_id, item_id)
    }


def _beside_items(connection: Connection, table: sa.Table, task_id: int, item_id: int | None) -> sa.CursorResult[Any]:
    """Read the rows of a table that stand beside the items of a task, or beside one of them."""
    mine = [task_items.c.task_id == task_id, *([] if item_id is None else [table.c.item_id == item_id])]
    beside = sa.select(table).join(task_items, task_items.c.id == table.c.item_id)
    return connection.execute(beside.where(*mine))


def list_pair_tasks(connection: Connection, shadow: str, *, since: int) -> list[TaskRow]:
    """List the tasks of pairs of a shadow that were created since, and are not archived, the newest first."""
    found = [task for task in list_tasks(connection) if task.created_at >= since]
    of_shadow = [task for task in found if (pairs := task.document.pairs) is not None and pairs.shadow == shadow]
    return sorted(of_shadow, key=lambda task: -task.id)


def forget_texts(connection: Connection, task_id: int) -> None:
    """Delete the queries and texts of the pairs of a task; which side is the candidate's stays."""
    mine = sa.select(task_items.c.id).where(task_items.c.task_id == task_id)
    values = {"query": "", "left_texts": "[]", "right_texts": "[]"}
    connection.execute(sa.update(pair_items).where(pair_items.c.item_id.in_(mine)).values(values))
