"""Annotating: the next item of an annotator, what it says of it, and taking the last back.

Items are told without rank, score, retriever or stratum: who knows where a chunk came from grades it by that.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from app.annotation.documents import SKIPPED, AnnotationLine, read_annotations, write_annotations
from app.annotation.domain.pooling import LABEL_QUESTIONS, PACE_OF, next_of, pace, text_key
from app.annotation.domain.views import AnswerContext, ItemView, NextItem, PairContext, ProgressView
from app.annotation.service.tasks import find_task, items_by_chunk
from app.annotation.store import annotations
from app.annotation.store import tasks as rows
from app.annotation.store.annotations import AnswerItem
from app.annotation.store.tasks import ItemRow, TaskCanary, TaskRow, defer_results
from app.base.db.engine import Connection, Store, to_us
from app.base.documents.fields import MOST_PROBLEMS, one_line
from app.base.documents.texts import Source
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.records.documents import view_of


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
    highest = task.document.highest_grade
    if grade is not None and grade > highest:
        raise InvalidInputError([Problem(path="grade", message=f"must be at most {highest}, the scale of the task")])


def _next(connection: Connection, task: TaskRow, annotator: str) -> NextItem:
    chosen: list[ItemView] = []
    seed = task.document.seed
    last = annotations.last_canary(connection, task.id, annotator)
    left = {} if last is None else annotations.open_items(connection, task.id, annotator, canary_id=last)
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
            left = annotations.open_items(connection, task.id, annotator, canary_id=canary_id)
            continue
        token = next_of(left, seed=seed, annotator=annotator)
        assert token is not None  # noqa: S101 - there is one left
        [item] = rows.list_items(connection, task.id, ids=[left.pop(token)])
        chosen.append(_view(connection, task, item))
    return {
        "item": chosen[0] if chosen else None,
        "following": chosen[1] if len(chosen) > 1 else None,
        "progress": _progress(connection, task, annotator),
    }


def _view(connection: Connection, task: TaskRow, item: ItemRow, grade: int | None = None) -> ItemView:
    if item.canary_id is None:
        pair = annotations.read_pair_items(connection, item.task_id, item_id=item.id)[item.id]
        sides: PairContext = {"left": list(pair.left), "right": list(pair.right)}
        return {"id": item.token, "query": pair.query, "text": "", "grade": grade, "answer": None, "pair": sides}
    canary = rows.find_task_canary(connection, item.task_id, item.canary_id)
    assert canary is not None  # noqa: S101 - an item is of a canary of its task
    beside = annotations.read_answer_items(connection, item.task_id, item_id=item.id).get(item.id)
    return {
        "id": item.token,
        "query": str(canary.body["query"]) if beside is None else beside.query,
        "text": item.text,
        "grade": grade,
        "answer": None if beside is None else _answer_context(task, beside),
        "pair": None,
    }


def _answer_context(task: TaskRow, beside: AnswerItem) -> AnswerContext:
    answers = task.document.answers
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
    seconds = None if each is None else round(each * found.left, 1)
    return view_of(ProgressView, found, annotator=annotator, seconds_left=seconds)


def export_annotations(store: Store, slug: str, *, by_judge: bool = False) -> str:
    """Return the annotations of people in force as CSV, or those of judges, ordered by canary. Raises NotFoundError."""
    with store.read() as connection:
        task = find_task(connection, slug)
        keys = {one.canary_id: one.key for one in rows.list_task_canaries(connection, task.id)}
        items = {item.id: item for item in rows.list_items(connection, task.id)}
        said = [row for row in annotations.list_annotations(connection, task.id) if row.by_judge is by_judge]
    said.sort(key=lambda row: (items[row.item_id].canary_id or 0, items[row.item_id].token, row.annotator))
    return write_annotations(
        AnnotationLine(
            canary="" if item.canary_id is None else keys[item.canary_id],
            chunk_id=next((chunk for _, chunk in item.chunks), ""),
            document=item.document or "",
            text=item.text,
            annotator=row.annotator,
            grade=row.grade,
        )
        for row in said
        for item in (items[row.item_id],)
    )


def import_annotations(
    store: Store, slug: str, sources: Sequence[Source], *, now: datetime, by_judge: bool = False
) -> int:
    """Store annotations made elsewhere, all or none, in the place of what the same annotators said; how many.

    `by_judge`: machines made them; they decide nothing. Raises InvalidInputError with every line whose canary or chunk
    is not in the task, and NotFoundError; ConflictError where a judge has the name of a person or the other way round,
    and for judges of a task of answers, whose ratings are there.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        listed = rows.list_task_canaries(connection, task.id)
        items = rows.list_items(connection, task.id)
        said = annotations.list_annotations(connection, task.id)
    if task.of_pairs:
        raise ConflictError(f"task '{slug}' is of pairs, which are compared on its page: they have no chunks to name")
    if by_judge and task.of_answers:
        raise ConflictError(f"task '{slug}' is of answers that a judge rated; what it said is known")
    by_text = {(item.canary_id, item.key): item for item in items}
    by_chunk = items_by_chunk(items)
    canaries = {one.key: one for one in listed}
    chosen: list[tuple[ItemRow, AnnotationLine]] = []
    problems: list[Problem] = []
    first: dict[tuple[int, str], AnnotationLine] = {}
    for line in read_annotations(sources, highest=task.document.highest_grade):
        found = _find(line, canaries, by_text, by_chunk)
        before = line if isinstance(found, str) else first.setdefault((found.id, line.annotator), line)
        if isinstance(found, str):
            problems.append(Problem(message=found, file=line.place[0], line=line.place[1]))
        elif before.grade != line.grade:
            grades = f"{_grade_text(before)} in line {before.place[1]}, now {_grade_text(line)}"
            message = f"'{one_line(line.annotator)}' graded this chunk already: {grades}; leave one of them"
            problems.append(Problem(message=message, file=line.place[0], line=line.place[1]))
        else:
            chosen.append((found, line))
    if problems:
        raise InvalidInputError(problems[:MOST_PROBLEMS])
    others = {row.annotator for row in said if row.by_judge is not by_judge}
    mixed = sorted(others & {line.annotator for _, line in chosen})
    if mixed:
        kind, other = ("judge", "person") if by_judge else ("person", "judge")
        raise ConflictError(f"'{one_line(mixed[0])}' has annotated as a {other}; a {kind} needs another name")
    with store.write() as connection:
        for item, line in chosen:
            annotations.save_annotation(
                connection,
                task_id=task.id,
                item_id=item.id,
                annotator=line.annotator,
                grade=line.grade,
                seconds=None,
                at=to_us(now),
                by_judge=by_judge,
            )
        defer_results(connection, task, to_us(now))
    return len(chosen)


def _grade_text(line: AnnotationLine) -> str:
    return SKIPPED if line.grade is None else str(line.grade)


def _find(
    line: AnnotationLine,
    canaries: Mapping[str, TaskCanary],
    by_text: Mapping[tuple[int | None, str], ItemRow],
    by_chunk: Mapping[tuple[int | None, str], Sequence[ItemRow]],
) -> ItemRow | str:
    """Return the item that a line is about, by its text where it has one, else by its id; or why there is none."""
    canary = line.canary[:60]
    about = canaries.get(line.canary)
    if about is None:
        return f"the task has no canary '{canary}'"
    if line.text:
        found = by_text.get((about.canary_id, text_key(line.text, chunk=line.chunk_id)))
        return found or f"canary '{canary}' has no chunk of this text in the task"
    named = by_chunk.get((about.canary_id, line.chunk_id), ())
    if len(named) > 1 or line.chunk_id in about.shared_ids:  # chunks of several retrievers
        return f"chunk id '{one_line(line.chunk_id)}' names several chunks of canary '{canary}'; give the text"
    return named[0] if named else f"canary '{canary}' has no such chunk in the task"
