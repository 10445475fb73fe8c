"""Rows of annotation: tasks with their canaries and items, corpora, annotations, answers and pairs.

No annotation is deleted: one that was withdrawn or replaced stays as history.
"""

import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.documents import TaskDocument
from app.annotation.domain.pools import PoolItem
from app.annotation.tables import (
    adjudications,
    annotations,
    answer_items,
    corpora,
    corpus_texts,
    held_items,
    pair_items,
    task_canaries,
    task_items,
    tasks,
)
from app.annotation.views import AskedView, TaskState, TurnView
from app.base.db.engine import blocks, insert_new, insert_one, row_value
from app.base.db.rows import row_table
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import Value
from app.catalog.store import bodies_of, list_canary_heads, read_body
from app.catalog.tables import canaries, canary_versions, definitions


class TaskRow(Value):
    """A task."""

    id: int
    slug: str
    suite_id: int
    suite: str
    document: TaskDocument
    created_at: int
    created_by: str
    pool_requested_at: int | None
    pooled_at: int | None
    archived_at: int | None
    planting: str | None = None
    """Why fewer texts were planted than asked for, "" = all were; None = none were yet."""

    @property
    def of_answers(self) -> bool:
        """Whether people label generated answers, not chunks."""
        return self.document.answers is not None

    @property
    def of_pairs(self) -> bool:
        """Whether people compare two answers side by side."""
        return self.document.pairs is not None

    @property
    def state(self) -> TaskState:
        """How far its pool is."""
        if self.pool_requested_at is None:
            return TaskState.CREATED
        return TaskState.POOLING if self.pooled_at is None else TaskState.POOLED


def asked_of(body: Mapping[str, Any]) -> AskedView:
    """Return as whom and within which conversation a canary of this body asks."""
    turns = [TurnView(role=one["role"], content=one["content"]) for one in body.get("history") or ()]
    return {"vars": dict(body.get("vars") or {}), "history": turns}


class TaskCanary(Value):
    """A canary of a task, as it was when the pool was asked for."""

    canary_id: int
    key: str
    body: Mapping[str, Any]
    sizes: tuple[int, ...] | None
    """Size of each stratum; None = it is not pooled yet."""
    failure: str | None
    shared_ids: frozenset[str] = frozenset()
    """Chunk ids that stand for different texts among all that was ranked, drawn or not."""


class NewItem(PoolItem):
    """An item to be inserted."""

    canary_id: int | None
    """None = a pair of a shadow, whose query is no canary's."""
    token: str
    overlap: bool


class ItemRow(NewItem):
    """An item of a task."""

    id: int
    task_id: int
    graded_again: bool
    """Whether it is for every annotator since one person alone called it relevant: a chosen one, and not drawn."""


class PoolCounts(Value):
    """Number of canaries of a task by how far their pools are, and of items."""

    canaries: int
    pooled: int
    failed: int
    items: int
    """Planted ones too."""
    planted: int


def insert_task(connection: Connection, *, slug: str, suite_id: int, body: Mapping[str, Any], at: int, by: str) -> bool:
    """Insert a task; False where one has the slug."""
    made = insert_one(
        connection, tasks, slug=slug, suite_id=suite_id, body=json.dumps(body), created_at=at, created_by=by
    )
    return made is not None


def change_task(connection: Connection, task_id: int, *, suite_id: int, body: Mapping[str, Any]) -> bool:
    """Replace the document of a task whose pool nobody has asked for; False where somebody has."""
    free = sa.and_(tasks.c.id == task_id, tasks.c.pool_requested_at.is_(None))
    changed = sa.update(tasks).where(free).values(suite_id=suite_id, body=json.dumps(body))
    return connection.execute(changed).rowcount == 1


def find_task(connection: Connection, slug: str) -> TaskRow | None:
    """Return the task of this slug that is not archived."""
    live = sa.and_(tasks.c.slug == slug, tasks.c.archived_at.is_(None))
    row = connection.execute(_TASKS.where(live)).one_or_none()
    return None if row is None else _task(row)


def read_task(connection: Connection, task_id: int, *, lock: bool = False) -> TaskRow | None:
    """Return a task by its id; with `lock` nobody else changes it meanwhile."""
    statement = _TASKS.where(tasks.c.id == task_id)
    row = connection.execute(statement.with_for_update(of=tasks) if lock else statement).one_or_none()
    return None if row is None else _task(row)


def list_tasks(connection: Connection, *, after: str = "", limit: int | None = None) -> list[TaskRow]:
    """List the tasks that are not archived by slug, those behind `after`."""
    live = sa.and_(tasks.c.archived_at.is_(None), tasks.c.slug > after)
    return [_task(row) for row in connection.execute(_TASKS.where(live).order_by(tasks.c.slug).limit(limit))]


def frozen_tasks(connection: Connection, suite_id: int) -> list[int]:
    """List the ids of the tasks of a suite whose canaries are frozen, archived ones too."""
    frozen = sa.and_(tasks.c.suite_id == suite_id, tasks.c.pool_requested_at.is_not(None))
    return list(connection.execute(sa.select(tasks.c.id).where(frozen).order_by(tasks.c.id)).scalars())


def task_queries(connection: Connection, task_id: int) -> list[str]:
    """List the queries of the frozen canaries of a task."""
    frozen = (
        sa.select(canary_versions.c.body)
        .join(task_canaries, task_canaries.c.canary_version_id == canary_versions.c.id)
        .where(task_canaries.c.task_id == task_id)
    )
    return [str(json.loads(body)["query"]) for body in connection.execute(frozen).scalars()]


def documents_of(connection: Connection, slugs: Collection[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the documents of tasks by slug, archived ones too: a slug may have been used again."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    if slugs:
        for row in connection.execute(sa.select(tasks.c.slug, tasks.c.body).where(tasks.c.slug.in_(sorted(slugs)))):
            found.setdefault(row.slug, []).append(json.loads(row.body))
    return found


def archive_task(connection: Connection, task_id: int, at: int) -> None:
    """Archive a task; its annotations stay."""
    connection.execute(sa.delete(held_items).where(held_items.c.task_id == task_id))
    connection.execute(sa.update(tasks).where(tasks.c.id == task_id).values(archived_at=at))


# --- the pool --------------------------------------------------------------------------------------------------


def freeze_canaries(connection: Connection, task: TaskRow, at: int, *, keys: Collection[str] = ()) -> int:
    """Freeze the canaries of a task, those of its suite in force or these; the number of them that the task now has."""
    connection.execute(
        sa.update(tasks)
        .where(tasks.c.id == task.id)
        .values(pool_requested_at=sa.func.coalesce(tasks.c.pool_requested_at, at))
    )
    if task.pool_requested_at is None:
        rows = list_canary_heads(connection, task.suite_id, keys=keys or None)
        columns = ("task_id", "canary_id", "canary_version_id")
        insert_new(connection, task_canaries, columns, [(task.id, row.id, row.version_id) for row in rows])
    return count_pool(connection, task.id).canaries


def pending_canaries(connection: Connection, task_id: int, *, attempts: int, limit: int | None) -> list[TaskCanary]:
    """Return canaries without a pool that were tried fewer than so many times, the least often tried first."""
    waiting = sa.and_(
        task_canaries.c.task_id == task_id, task_canaries.c.sizes.is_(None), task_canaries.c.attempts < attempts
    )
    statement = _CANARIES.where(waiting).order_by(task_canaries.c.attempts, task_canaries.c.canary_id).limit(limit)
    return _task_canaries(connection, statement)


def list_task_canaries(connection: Connection, task_id: int, *, failed: bool = False) -> list[TaskCanary]:
    """Return all canaries of a task, or those that could not be pooled."""
    mine = [task_canaries.c.task_id == task_id]
    if failed:
        mine += [task_canaries.c.sizes.is_(None), task_canaries.c.failure.is_not(None)]
    return _task_canaries(connection, _CANARIES.where(*mine).order_by(task_canaries.c.canary_id))


def find_task_canary(connection: Connection, task_id: int, canary_id: int) -> TaskCanary | None:
    """Return a canary of a task."""
    mine = sa.and_(task_canaries.c.task_id == task_id, task_canaries.c.canary_id == canary_id)
    return next(iter(_task_canaries(connection, _CANARIES.where(mine))), None)


def save_pool(
    connection: Connection,
    task_id: int,
    canary_id: int,
    *,
    sizes: Sequence[int],
    items: Sequence[NewItem],
    shared_ids: Sequence[str] = (),
) -> bool:
    """Freeze the items, stratum sizes and shared ids of a canary; False where somebody did meanwhile."""
    free = sa.and_(
        task_canaries.c.task_id == task_id, task_canaries.c.canary_id == canary_id, task_canaries.c.sizes.is_(None)
    )
    values = {"sizes": json.dumps(list(sizes)), "failure": None, "shared_ids": json.dumps(list(shared_ids))}
    if connection.execute(sa.update(task_canaries).where(free).values(**values)).rowcount != 1:
        return False
    insert_items(connection, task_id, items)
    return True


def insert_items(connection: Connection, task_id: int, items: Sequence[NewItem]) -> None:
    """Insert items of a task."""
    plain = ("canary_id", "token", "key", "text", "document", "stratum", "known_grade")
    rows = [
        (
            task_id,
            *(getattr(item, name) for name in plain),
            json.dumps(dict(item.ranks)),
            json.dumps([list(one) for one in item.chunks]),
            int(item.overlap),
        )
        for item in items
    ]
    insert_new(connection, task_items, ("task_id", *plain, "ranks", "chunks", "overlap"), rows)


def ids_by_token(connection: Connection, task_id: int) -> dict[str, int]:
    """Return the ids of the items of a task by their tokens."""
    statement = sa.select(task_items.c.token, task_items.c.id).where(task_items.c.task_id == task_id)
    return {row.token: row.id for row in connection.execute(statement)}


def note_failure(connection: Connection, task_id: int, canary_id: int, failure: str, *, attempts: int = 1) -> None:
    """Store why a canary could not be pooled, and that it took so many attempts to know."""
    mine = sa.and_(task_canaries.c.task_id == task_id, task_canaries.c.canary_id == canary_id)
    tried = task_canaries.c.attempts + attempts
    connection.execute(sa.update(task_canaries).where(mine).values(failure=failure, attempts=tried))


def forgive_failures(connection: Connection, task_id: int) -> None:
    """Let canaries that could not be pooled be tried again."""
    mine = sa.and_(task_canaries.c.task_id == task_id, task_canaries.c.sizes.is_(None))
    connection.execute(sa.update(task_canaries).where(mine).values(attempts=0))


def finish_pool(connection: Connection, task_id: int, at: int) -> bool:
    """Store that all canaries of a task are pooled; False where some are not, or it was stored before."""
    left = sa.exists().where(task_canaries.c.task_id == task_id, task_canaries.c.sizes.is_(None))
    mine = sa.and_(tasks.c.id == task_id, tasks.c.pooled_at.is_(None), ~left)
    return connection.execute(sa.update(tasks).where(mine).values(pooled_at=at)).rowcount == 1


def count_pool(connection: Connection, task_id: int) -> PoolCounts:
    """Count canaries and items of a task."""
    failed = sa.case((task_canaries.c.sizes.is_(None) & task_canaries.c.failure.is_not(None), 1))
    numbers: dict[str, Any] = {"canaries": 1, "pooled": task_canaries.c.sizes, "failed": failed}
    labelled = (sa.func.count(one).label(name) for name, one in numbers.items())
    counts = connection.execute(sa.select(*labelled).where(task_canaries.c.task_id == task_id)).one()
    of_all = sa.select(sa.func.count().label("all"), sa.func.count(task_items.c.known_grade).label("planted"))
    items = connection.execute(of_all.where(task_items.c.task_id == task_id)).one()
    return row_value(PoolCounts, counts, items=items.all, planted=items.planted)


def plant(connection: Connection, task_id: int, items: Sequence[NewItem], *, reason: str) -> None:
    """Insert the planted items of a task, with why they are fewer than asked for; nothing where it was done before."""
    free = sa.and_(tasks.c.id == task_id, tasks.c.planting.is_(None))
    if connection.execute(sa.update(tasks).where(free).values(planting=reason)).rowcount == 1:
        insert_items(connection, task_id, items)


def request_draw(connection: Connection, task_id: int, at: int) -> None:
    """Store that answers are to be drawn for a task; one that has items keeps them."""
    has_items = sa.exists().where(task_items.c.task_id == task_id)
    values = {
        "pool_requested_at": sa.func.coalesce(tasks.c.pool_requested_at, at),
        "pooled_at": sa.case((has_items, tasks.c.pooled_at)),
    }
    connection.execute(sa.update(tasks).where(tasks.c.id == task_id).values(**values))


# --- items -----------------------------------------------------------------------------------------------------


def find_item(connection: Connection, task_id: int, token: str) -> ItemRow | None:
    """Return an item by its token."""
    mine = sa.and_(task_items.c.task_id == task_id, task_items.c.token == token)
    row = connection.execute(sa.select(task_items).where(mine)).one_or_none()
    return None if row is None else _item(row)


def list_items(connection: Connection, task_id: int, *, ids: Collection[int] = ()) -> list[ItemRow]:
    """Return the items of a task by canary, or these."""
    statement = sa.select(task_items).where(task_items.c.task_id == task_id)
    if ids:
        wanted = row_table(connection, "wanted", {"id": sa.BigInteger()}, [(one,) for one in ids])
        statement = statement.where(task_items.c.id.in_(sa.select(wanted.c.id)))
    return [_item(row) for row in connection.execute(statement.order_by(task_items.c.canary_id, task_items.c.id))]


_TASKS = sa.select(tasks, definitions.c.slug.label("suite")).join(definitions, definitions.c.id == tasks.c.suite_id)
_CANARIES = (
    sa.select(task_canaries, canaries.c.key, canary_versions.c.body)
    .join(canaries, canaries.c.id == task_canaries.c.canary_id)
    .join(canary_versions, canary_versions.c.id == task_canaries.c.canary_version_id)
)


def _task(row: Any) -> TaskRow:
    return row_value(TaskRow, row, document=TaskDocument.model_validate(json.loads(row.body)))


def _task_canaries(connection: Connection, statement: sa.Select[Any]) -> list[TaskCanary]:
    return [
        row_value(
            TaskCanary,
            row,
            body=read_body("canary", row.body),
            sizes=None if row.sizes is None else tuple(json.loads(row.sizes)),
            shared_ids=frozenset(json.loads(row.shared_ids or "[]")),
        )
        for row in connection.execute(statement)
    ]


def _item(row: Any) -> ItemRow:
    chunks = [(one[0], one[1]) for one in json.loads(row.chunks)]
    flags = {"overlap": bool(row.overlap), "graded_again": bool(row.graded_again)}
    return row_value(ItemRow, row, ranks=json.loads(row.ranks), chunks=chunks, **flags)


class CorpusRow(Value):
    """A corpus with its number of distinct texts."""

    id: int
    name: str
    texts: int
    updated_at: int


class CorpusText(Value):
    """A text of a corpus: its identity, its id there, and the text."""

    key: str
    chunk: str
    text: str


def open_corpus(connection: Connection, name: str, at: int) -> int:
    """Return the id of a corpus, which is created where there is none."""
    insert_one(connection, corpora, name=name, created_at=at, updated_at=at)
    connection.execute(sa.update(corpora).where(corpora.c.name == name).values(updated_at=at))
    return int(connection.execute(sa.select(corpora.c.id).where(corpora.c.name == name)).scalar_one())


def add_texts(connection: Connection, corpus_id: int, texts: Sequence[CorpusText]) -> None:
    """Insert texts; one that the corpus has is passed over."""
    rows = [(corpus_id, one.key, one.chunk, one.text) for one in texts]
    insert_new(connection, corpus_texts, ("corpus_id", "key", "chunk", "text"), rows)


def find_corpus(connection: Connection, name: str) -> CorpusRow | None:
    """Return a corpus by its name."""
    return next((one for one in list_corpora(connection) if one.name == name), None)


def list_corpora(connection: Connection) -> list[CorpusRow]:
    """Return all corpora by name."""
    counted = (
        sa.select(corpora, sa.func.count(corpus_texts.c.id).label("texts"))
        .join(corpus_texts, corpus_texts.c.corpus_id == corpora.c.id, isouter=True)
        .group_by(corpora.c.id)
        .order_by(corpora.c.name)
    )
    return [row_value(CorpusRow, row) for row in connection.execute(counted)]


def corpus_keys(connection: Connection, corpus_id: int) -> list[tuple[str, str, int]]:
    """Return identity, id in the corpus and row id of all texts of a corpus in order."""
    columns = (corpus_texts.c.key, corpus_texts.c.chunk, corpus_texts.c.id)
    statement = sa.select(*columns).where(corpus_texts.c.corpus_id == corpus_id).order_by(corpus_texts.c.id)
    return [(row.key, row.chunk, row.id) for row in connection.execute(statement)]


def read_texts(connection: Connection, ids: Sequence[int]) -> dict[int, CorpusText]:
    """Return these texts by row id."""
    found: dict[int, CorpusText] = {}
    for block in blocks(ids):
        for row in connection.execute(sa.select(corpus_texts).where(corpus_texts.c.id.in_(block))):
            found[row.id] = row_value(CorpusText, row)
    return found


def drop_corpus(connection: Connection, corpus_id: int, *, texts: int) -> bool:
    """Delete up to so many texts of a corpus, and it too where there were fewer; whether it is gone."""
    some = sa.select(corpus_texts.c.id).where(corpus_texts.c.corpus_id == corpus_id).limit(texts)
    is_last = connection.execute(sa.delete(corpus_texts).where(corpus_texts.c.id.in_(some))).rowcount < texts
    if is_last:
        connection.execute(sa.delete(corpora).where(corpora.c.id == corpus_id))
    return is_last


_PAUSE: Final = 30_000_000
"""Microseconds: grades come every few seconds, and are counted together."""


def defer_results(connection: Connection, task: TaskRow, now: int) -> None:
    """Have computed soon, once for all annotations until then, what those of a task say of retrievers or a judge.

    What they say of pairs is counted when it is read.
    """
    if task.of_pairs:
        return
    kind = JobKind.CALIBRATION if task.of_answers else JobKind.RECALL
    defer(connection, [NewJob(kind, task.id, run_at=now + _PAUSE)])


_IN_FORCE = annotations.c.withdrawn_at.is_(None)
_DECIDED = adjudications.c.withdrawn_at.is_(None)
_BY_PERSON = sa.and_(_IN_FORCE, annotations.c.grade.is_not(None), annotations.c.by_judge == 0)


class AnnotationRow(Value):
    """What an annotator said of an item; `grade` None = skipped."""

    id: int
    item_id: int
    annotator: str
    by_judge: bool
    grade: int | None
    seconds: float | None
    at: int


class AnnotatorProgress(Value):
    """What one annotator has done of a task, and could do."""

    graded: int
    skipped: int
    left: int
    with_others: int
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


def have_graded_again(connection: Connection, item_ids: Sequence[int]) -> None:
    """Have items graded by every annotator, also where one has graded them."""
    chosen = task_items.c.id.in_(item_ids)
    connection.execute(sa.update(task_items).where(chosen).values(overlap=1, graded_again=1))


def list_annotations(connection: Connection, task_id: int) -> list[AnnotationRow]:
    """Return the annotations of a task that are in force, in the order they came."""
    mine = sa.and_(annotations.c.task_id == task_id, _IN_FORCE)
    rows = connection.execute(sa.select(annotations).where(mine).order_by(annotations.c.id))
    return [row_value(AnnotationRow, row, by_judge=bool(row.by_judge)) for row in rows]


def version_of_grades(connection: Connection, task_id: int) -> Hashable:
    """Return what differs whenever the pool of a task, or what people said of it, has changed."""
    said = [
        sa.select(sa.func.max(one.c.id), sa.func.count(one.c.withdrawn_at)).where(one.c.task_id == task_id)
        for one in (annotations, adjudications)
    ]
    overlap = sa.select(sa.func.sum(task_items.c.overlap)).where(task_items.c.task_id == task_id)
    return task_id, count_pool(connection, task_id), *(tuple(connection.execute(one).one()) for one in (*said, overlap))


def graded_items(connection: Connection) -> dict[int, int]:
    """Count the items that people have graded, by task."""
    counted = sa.select(annotations.c.task_id, sa.func.count(annotations.c.item_id.distinct()))
    return dict(connection.execute(counted.where(_BY_PERSON).group_by(annotations.c.task_id)).all())


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
    return connection.execute(sa.select(task_items.c.canary_id).where(task_items.c.id == newest)).scalar_one_or_none()


def open_canaries(connection: Connection, task_id: int, annotator: str, *, now: int) -> list[int | None]:
    """Return the canaries with items that an annotator could be handed; None for pairs, which are of none."""
    free = _free(task_id, annotator, now)
    return list(connection.execute(sa.select(task_items.c.canary_id).where(free).distinct()).scalars())


def open_items(connection: Connection, task_id: int, annotator: str, canary_id: int | None, now: int) -> dict[str, int]:
    """Return the ids of the items of a canary that an annotator could be handed, or the pairs, by token."""
    mine = sa.and_(_free(task_id, annotator, now), task_items.c.canary_id.is_not_distinct_from(canary_id))
    return dict(connection.execute(sa.select(task_items.c.token, task_items.c.id).where(mine)).all())


def held_by(connection: Connection, task_id: int, annotator: str, *, now: int) -> list[int]:
    """Return the items in an annotator's hand that it could still be handed; nobody is handed any until the commit."""
    # Two replicas at once: the second waits, and sees what the first has handed out.
    connection.execute(sa.select(tasks.c.id).where(tasks.c.id == task_id).with_for_update(key_share=True))
    mine = sa.select(held_items.c.item_id).where(held_items.c.task_id == task_id, held_items.c.annotator == annotator)
    ids = list(connection.execute(mine.order_by(held_items.c.place)).scalars())
    free = sa.select(task_items.c.id).where(task_items.c.id.in_(ids), _free(task_id, annotator, now))
    return sorted(connection.execute(free).scalars(), key=ids.index)


def hold_items(connection: Connection, task_id: int, annotator: str, item_ids: Sequence[int], *, until: int) -> None:
    """Have these items, in their order, in an annotator's hand in the place of what was there."""
    mine = sa.and_(held_items.c.task_id == task_id, held_items.c.annotator == annotator)
    connection.execute(sa.delete(held_items).where(mine))
    rows = [(task_id, annotator, place, item_id, until) for place, item_id in enumerate(item_ids)]
    insert_new(connection, held_items, ("task_id", "annotator", "place", "item_id", "until"), rows)


def annotator_progress(
    connection: Connection, task_id: int, annotator: str, *, newest: int, now: int
) -> AnnotatorProgress:
    """Count what an annotator has done, with the seconds of its newest annotations."""
    mine = sa.and_(annotations.c.task_id == task_id, annotations.c.annotator == annotator, _IN_FORCE)
    said = sa.select(sa.func.count().label("all"), sa.func.count(annotations.c.grade).label("graded"))
    counts = connection.execute(said.where(mine)).one()
    over = sa.or_(annotations.c.annotator == annotator, sa.and_(task_items.c.overlap == 0, _BY_PERSON))
    closed = sa.select(sa.func.count(annotations.c.item_id.distinct())).join(task_items).where(_IN_FORCE, over)
    held = sa.select(sa.func.count()).where(_open(task_id, annotator), ~_unheld(annotator, now))
    whole = sa.select(sa.func.count()).where(task_items.c.task_id == task_id)
    numbers = (whole, closed.where(annotations.c.task_id == task_id), held)
    items, less, others = (connection.execute(one).scalar_one() for one in numbers)
    timed = sa.select(annotations.c.seconds).where(mine, annotations.c.seconds.is_not(None))
    seconds = connection.execute(timed.order_by(annotations.c.id.desc()).limit(newest)).scalars()
    done = {"graded": counts.graded, "skipped": counts.all - counts.graded}
    return AnnotatorProgress(**done, left=items - less, with_others=others, seconds=tuple(seconds))


def _open(task_id: int, annotator: str) -> sa.ColumnElement[bool]:
    """Items an annotator could grade: not annotated by it, and for every annotator or graded by nobody yet."""
    of_item = sa.and_(annotations.c.item_id == task_items.c.id, _IN_FORCE)
    by_me = sa.exists().where(of_item, annotations.c.annotator == annotator)
    graded = sa.exists().where(of_item, _BY_PERSON)
    return sa.and_(task_items.c.task_id == task_id, ~by_me, sa.or_(task_items.c.overlap == 1, ~graded))


def _free(task_id: int, annotator: str, now: int) -> sa.ColumnElement[bool]:
    """Items an annotator could be handed: open, and for every annotator or in nobody else's hand."""
    return sa.and_(_open(task_id, annotator), _unheld(annotator, now))


def _unheld(annotator: str, now: int) -> sa.ColumnElement[bool]:
    others = sa.select(held_items.c.item_id).where(held_items.c.annotator != annotator, held_items.c.until > now)
    return sa.or_(task_items.c.overlap == 1, task_items.c.id.not_in(others))


class AnswerItem(Value):
    """What an annotator sees beside an answer."""

    query: str
    expected: str | None
    contexts: Sequence[str]
    asked: AskedView | None = None
    """By the version of the canary; None = not read from there, or an older release has drawn the answer."""


class DrawnAnswer(Value):
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
    canary_of = bodies_of(connection, {one.canary_version_id for one in drawn})
    rows = [
        (
            ids[one.item.token],
            one.beside.query,
            one.beside.expected,
            json.dumps(list(one.beside.contexts)),
            json.dumps(asked_of(canary_of[one.canary_version_id])),
        )
        for one in drawn
    ]
    insert_new(connection, answer_items, ("item_id", "query", "expected", "contexts", "asked"), rows)
    return ids


def read_answer_items(connection: Connection, task_id: int, *, item_id: int | None = None) -> Mapping[int, AnswerItem]:
    """Return what is seen beside the answers of a task, or beside one of them, by item."""
    return {
        row.item_id: row_value(
            AnswerItem,
            row,
            contexts=json.loads(row.contexts),
            asked=None if row.asked is None else json.loads(row.asked),
        )
        for row in _beside_items(connection, answer_items, task_id, item_id)
    }


class PairItem(Value):
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
    insert_new(connection, pair_items, ("item_id", "query", "left_texts", "right_texts", "candidate_right"), rows)


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


def forget_texts(connection: Connection, task_id: int) -> None:
    """Delete the queries and texts of the pairs of a task; which side is the candidate's stays."""
    mine = sa.select(task_items.c.id).where(task_items.c.task_id == task_id)
    emptied = sa.update(pair_items).values(query="", left_texts="[]", right_texts="[]")
    connection.execute(emptied.where(pair_items.c.item_id.in_(mine)))
