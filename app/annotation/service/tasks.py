"""Tasks: created, changed until their pool is asked for, listed, archived."""

from collections.abc import Iterable
from datetime import datetime

from app.annotation.documents.task_documents import TaskDocument
from app.annotation.domain.views import DrawnAnswersView, StratumView, TaskDetail, TaskView
from app.annotation.store import corpora, pair_items
from app.annotation.store import tasks as rows
from app.annotation.store.tasks import ItemRow, PoolCounts, TaskRow
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.catalog.store import definitions
from app.experiments.store import shadows
from app.records import documents as shapes


def put_task(
    store: Store, document: TaskDocument, *, by: str, now: datetime, only_new: bool = False
) -> tuple[TaskDetail, bool]:
    """Create a task, or change one whose pool nobody has asked for; and whether it is new.

    Raises InvalidInputError where it names what does not exist, and ConflictError once the pool is asked for; with
    `only_new` wherever there is one.
    """
    with store.write() as connection:
        suite_id = _require_references(connection, document)
        body = document.data()
        if document.pairs is None:
            del body["pairs"]  # an older release reads this too, and knows no pairs
        created = rows.insert_task(connection, slug=document.slug, suite_id=suite_id, body=body, at=to_us(now), by=by)
        if only_new and not created:
            raise ConflictError(f"there is a task '{document.slug}' already")
        task = find_task(connection, document.slug)
        same = created or document_of(task) == document
        if not same and not rows.change_task(connection, task.id, suite_id=suite_id, body=body):
            raise ConflictError(
                f"the pool of task '{document.slug}' was asked for, so it cannot be changed; create another task"
            )
        return _detail(connection, find_task(connection, document.slug)), created


def load_task(store: Store, slug: str) -> TaskDetail:
    """Return a task. Raises NotFoundError."""
    with store.read() as connection:
        return _detail(connection, find_task(connection, slug))


def list_tasks(store: Store, *, after: str = "", limit: int) -> list[TaskView]:
    """List tasks by slug, those behind `after`."""
    with store.read() as connection:
        return [
            view_task(task, rows.count_pool(connection, task.id))
            for task in rows.list_tasks(connection, after=after, limit=limit)
        ]


def archive_task(store: Store, slug: str, *, now: datetime) -> None:
    """Archive a task; what annotators said stays, queries of users in its pairs do not. Raises NotFoundError."""
    with store.write() as connection:
        task = find_task(connection, slug)
        rows.archive_task(connection, task.id, to_us(now))
        if task.of_pairs:
            pair_items.forget_texts(connection, task.id)


def find_task(connection: Connection, slug: str) -> TaskRow:
    """Return a task in force. Raises NotFoundError, also for an archived one."""
    task = rows.find_task(connection, slug)
    if task is None:
        raise NotFoundError(f"there is no task '{slug}'")
    return task


def items_by_chunk(items: Iterable[ItemRow]) -> dict[tuple[int | None, str], list[ItemRow]]:
    """Return items by canary and chunk id; several where retrievers use one id for different texts."""
    found: dict[tuple[int | None, str], list[ItemRow]] = {}
    for item in items:
        for chunk in {chunk for _, chunk in item.chunks}:
            found.setdefault((item.canary_id, chunk), []).append(item)
    return found


def document_of(task: TaskRow) -> TaskDocument:
    """Return the document of a task."""
    return TaskDocument.model_validate(task.body)


def view_task(task: TaskRow, counts: PoolCounts) -> TaskView:
    """Return a task as JSON on the wire."""
    document = document_of(task)
    strata: list[StratumView] = [{"to": one.to, "sample": one.sample, "rest": one.rest} for one in document.strata]
    return {
        "slug": task.slug,
        "suite": task.suite,
        "keys": list(document.keys),
        "retrievers": list(document.retrievers),
        "answers": _view_answers(document),
        "pairs": None if document.pairs is None else {"shadow": document.pairs.shadow, "count": document.pairs.count},
        "pool": document.pool,
        "strata": strata,
        "corpus": document.corpus,
        "scale": document.scale,
        "overlap": document.overlap,
        "seed": document.seed,
        "created_at": shapes.time_text(task.created_at),
        "created_by": task.created_by,
        "state": task.state,
        "canaries": counts.canaries,
        "pooled": counts.pooled,
        "failed": counts.failed,
        "items": counts.items,
    }


def _view_answers(document: TaskDocument) -> DrawnAnswersView | None:
    answers = document.answers
    if answers is None:
        return None
    return {
        "judge": answers.judge,
        "question": str(answers.question),
        "count": answers.count,
        "window_hours": answers.window_hours,
    }


def _detail(connection: Connection, task: TaskRow) -> TaskDetail:
    canaries = rows.list_task_canaries(connection, task.id)
    return {
        **view_task(task, rows.count_pool(connection, task.id)),
        "failures": [
            {"canary": one.key, "reason": one.failure}
            for one in canaries
            if one.sizes is None and one.failure is not None
        ],
    }


def _require_references(connection: Connection, document: TaskDocument) -> int:
    """Return the id of the suite. Raises InvalidInputError for every name of a task that does not exist."""
    problems = []
    suite = definitions.find_definition(connection, "suite", document.suite)
    if suite is None or suite.archived_at is not None:
        problems.append(Problem(path="suite", message=f"there is no suite '{document.suite}'"))
    for place, slug in enumerate(document.retrievers):
        retriever = definitions.find_definition(connection, "retriever", slug)
        if retriever is None or retriever.archived_at is not None:
            problems.append(Problem(path=f"retrievers[{place}]", message=f"there is no retriever '{slug}'"))
    judge = None if document.answers is None else document.answers.judge
    row = None if judge is None else definitions.find_definition(connection, "judge", judge)
    if judge is not None and (row is None or row.archived_at is not None):
        problems.append(Problem(path="answers.judge", message=f"there is no judge '{judge}'"))
    pairs = document.pairs
    if pairs is not None and shadows.find_shadow(connection, pairs.shadow) is None:
        reason = f"there is no shadow '{pairs.shadow}' that keeps pairs; define it by PUT /v1/shadows/{pairs.shadow}"
        problems.append(Problem(path="pairs.shadow", message=reason))
    if document.corpus is not None and corpora.find_corpus(connection, document.corpus) is None:
        problems.append(Problem(path="corpus", message=f"there is no corpus '{document.corpus}'"))
    if problems or suite is None:
        raise InvalidInputError(problems)
    return suite.id
