"""Annotating: the next item of an annotator, what it says of it, and taking the last back.

Items are told without rank, score, retriever or stratum: who knows where a chunk came from grades it by that.
"""

from datetime import datetime

from app.annotation.domain.answer_questions import LABEL_QUESTIONS
from app.annotation.domain.queue import PACE_OF, next_of, pace
from app.annotation.domain.views import AnswerContext, ItemView, NextItem, PairContext, ProgressView
from app.annotation.service.tasks import document_of, find_task
from app.annotation.store import annotations, answer_items, pair_items
from app.annotation.store import tasks as rows
from app.annotation.store.answer_items import AnswerItem
from app.annotation.store.recalls import defer_results
from app.annotation.store.tasks import ItemRow, TaskRow
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem


def next_item(store: Store, slug: str, *, annotator: str) -> NextItem:
    """Return the next item for an annotator and the one after it, and how far the task is. Raises NotFoundError."""
    with store.read() as connection:
        return _next(connection, find_task(connection, slug), annotator)


def annotate(
    store: Store,
    slug: str,
    token: str,
    *,
    annotator: str,
    grade: int | None,
    seconds: float | None = None,
    now: datetime,
) -> NextItem:
    """Store what an annotator says of an item, None = it skips it, and return the next one.

    What it said before stays as history. Raises NotFoundError, and InvalidInputError for a grade beyond the scale.
    """
    with store.write() as connection:
        task = find_task(connection, slug)
        item = require_item(connection, task, token)
        require_grade(task, grade)
        annotations.save_annotation(
            connection,
            task_id=task.id,
            item_id=item.id,
            annotator=annotator,
            grade=grade,
            seconds=seconds,
            at=to_us(now),
        )
        defer_results(connection, task, to_us(now))
    return next_item(store, slug, annotator=annotator)


def undo(store: Store, slug: str, *, annotator: str, now: datetime) -> NextItem:
    """Withdraw the last annotation of an annotator and return its item to be graded again.

    Raises ConflictError where there is none.
    """
    with store.write() as connection:
        task = find_task(connection, slug)
        item_id = annotations.withdraw_last(connection, task_id=task.id, annotator=annotator, at=to_us(now))
        defer_results(connection, task, to_us(now))
        if item_id is None:
            raise ConflictError(f"{annotator} has no annotation in task '{slug}' that could be taken back")
    with store.read() as connection:
        found = _next(connection, task, annotator)
        [item] = rows.list_items(connection, task.id, ids=[item_id])
        return {**found, "item": _view(connection, task, item), "following": None}


def load_item(store: Store, slug: str, token: str, *, annotator: str) -> ItemView:
    """Return an item as an annotator sees it, with what it said of it. Raises NotFoundError."""
    with store.read() as connection:
        task = find_task(connection, slug)
        item = require_item(connection, task, token)
        return _view(connection, task, item, annotations.find_grade(connection, item.id, annotator))


def require_item(connection: Connection, task: TaskRow, token: str) -> ItemRow:
    """Return an item of a task. Raises NotFoundError."""
    item = rows.find_item(connection, task.id, token)
    if item is None:
        raise NotFoundError(f"task '{task.slug}' has no item '{token[:40]}'")
    return item


def require_grade(task: TaskRow, grade: int | None) -> None:
    """Raise InvalidInputError for a grade beyond the scale of a task."""
    highest = document_of(task).highest_grade
    if grade is not None and grade > highest:
        raise InvalidInputError([Problem(path="grade", message=f"must be at most {highest}, the scale of the task")])


def _next(connection: Connection, task: TaskRow, annotator: str) -> NextItem:
    chosen: list[ItemView] = []
    seed = document_of(task).seed
    last = annotations.last_canary(connection, task.id, annotator)
    open_items = [] if last is None else annotations.open_items(connection, task.id, annotator, canary_id=last)
    left = {one.token: one for one in open_items}
    canaries: set[int | None] | None = None
    while len(chosen) < 2:  # noqa: PLR2004 - the next and the one to prefetch
        if not left:
            if canaries is None:
                canaries = set(annotations.open_canaries(connection, task.id, annotator))
                canaries -= set() if last is None else {last}
            if not canaries:
                break
            canary_id = next_of(canaries, seed=seed, annotator=annotator)
            canaries.discard(canary_id)
            found = annotations.open_items(connection, task.id, annotator, canary_id=canary_id)
            left = {one.token: one for one in found}
            continue
        token = next_of(left, seed=seed, annotator=annotator)
        assert token is not None  # noqa: S101 - there is one left
        [item] = rows.list_items(connection, task.id, ids=[left.pop(token).id])
        chosen.append(_view(connection, task, item))
    return {
        "item": chosen[0] if chosen else None,
        "following": chosen[1] if len(chosen) > 1 else None,
        "progress": _progress(connection, task, annotator),
    }


def _view(connection: Connection, task: TaskRow, item: ItemRow, grade: int | None = None) -> ItemView:
    if item.canary_id is None:
        pair = pair_items.read_pair_items(connection, item.task_id, item_id=item.id)[item.id]
        sides: PairContext = {"left": list(pair.left), "right": list(pair.right)}
        return {"id": item.token, "query": pair.query, "text": "", "grade": grade, "answer": None, "pair": sides}
    canary = rows.find_task_canary(connection, item.task_id, item.canary_id)
    assert canary is not None  # noqa: S101 - an item is of a canary of its task
    beside = answer_items.read_answer_items(connection, item.task_id, item_id=item.id).get(item.id)
    return {
        "id": item.token,
        "query": str(canary.body["query"]) if beside is None else beside.query,
        "text": item.text,
        "grade": grade,
        "answer": None if beside is None else _answer_context(task, beside),
        "pair": None,
    }


def _answer_context(task: TaskRow, beside: AnswerItem) -> AnswerContext:
    answers = document_of(task).answers
    assert answers is not None  # noqa: S101 - its items are answers
    question = LABEL_QUESTIONS[answers.question]
    return {
        "question": question.text,
        "expected_answer": beside.expected if question.expected else None,
        "contexts": list(beside.contexts) if question.contexts else [],
    }


def _progress(connection: Connection, task: TaskRow, annotator: str) -> ProgressView:
    found = annotations.annotator_progress(connection, task.id, annotator, newest=PACE_OF)
    each = pace(found.seconds)
    return {
        "annotator": annotator,
        "graded": found.graded,
        "skipped": found.skipped,
        "left": found.left,
        "seconds_left": None if each is None else round(each * found.left, 1),
    }
