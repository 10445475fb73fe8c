"""Tasks: created, changed until their pool is asked for, listed, archived."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import Final

from app.annotation.documents import TaskDocument, read_corpus
from app.annotation.domain.agreement import is_overlap
from app.annotation.domain.pooling import (
    CanaryPool,
    Corpus,
    PoolItem,
    add_rest,
    canary_random,
    merge_rankings,
    pool_canary,
    text_key,
)
from app.annotation.domain.views import CorpusView, TaskDetail, TaskView
from app.annotation.store import annotations, tasks
from app.annotation.store.tasks import CorpusText, ItemRow, NewItem, PoolCounts, TaskCanary, TaskRow
from app.base.db.engine import Connection, Store, to_us
from app.base.documents.texts import Source
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem, require_found
from app.base.jobs.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import Answer, Outcome, Ranking
from app.base.vault import Vault
from app.catalog.store import definitions
from app.experiments.store import shadows
from app.records.documents import view_of
from app.retrievers.domain.probe_failures import CircuitBreaker, ask_in_turn, outcome_text
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery, Retriever, Scorer, ScorerKind
from app.retrievers.service.trials import stored_retriever


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
        created = tasks.insert_task(connection, slug=document.slug, suite_id=suite_id, body=body, at=to_us(now), by=by)
        if only_new and not created:
            raise ConflictError(f"there is a task '{document.slug}' already")
        task = find_task(connection, document.slug)
        same = created or task.document == document
        if not same and not tasks.change_task(connection, task.id, suite_id=suite_id, body=body):
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
            view_task(task, tasks.count_pool(connection, task.id))
            for task in tasks.list_tasks(connection, after=after, limit=limit)
        ]


def archive_task(store: Store, slug: str, *, now: datetime) -> None:
    """Archive a task; what annotators said stays, queries of users in its pairs do not. Raises NotFoundError."""
    with store.write() as connection:
        task = find_task(connection, slug)
        tasks.archive_task(connection, task.id, to_us(now))
        if task.of_pairs:
            annotations.forget_texts(connection, task.id)


def find_task(connection: Connection, slug: str) -> TaskRow:
    """Return a task in force. Raises NotFoundError, also for an archived one."""
    return require_found(tasks.find_task(connection, slug), f"task '{slug}'")


def items_by_chunk(items: Iterable[ItemRow]) -> dict[tuple[int | None, str], list[ItemRow]]:
    """Return items by canary and chunk id; several where retrievers use one id for different texts."""
    found: dict[tuple[int | None, str], list[ItemRow]] = {}
    for item in items:
        for chunk in {chunk for _, chunk in item.chunks}:
            found.setdefault((item.canary_id, chunk), []).append(item)
    return found


def view_task(task: TaskRow, counts: PoolCounts) -> TaskView:
    """Return a task as JSON on the wire."""
    return view_of(TaskView, task, counts, task.document)


def _detail(connection: Connection, task: TaskRow) -> TaskDetail:
    canaries = tasks.list_task_canaries(connection, task.id)
    return {
        **view_task(task, tasks.count_pool(connection, task.id)),
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
    if document.corpus is not None and tasks.find_corpus(connection, document.corpus) is None:
        problems.append(Problem(path="corpus", message=f"there is no corpus '{document.corpus}'"))
    if problems or suite is None:
        raise InvalidInputError(problems)
    return suite.id


BLOCK: Final = 20
"""Canaries asked and written at a time."""
MOST_ATTEMPTS: Final = 3
"""How often a canary is tried before somebody has to ask for the pool again."""


def request_pool(store: Store, slug: str, *, now: datetime) -> None:
    """Freeze the canaries of a task and have its pool made; asked again, those that failed are tried once more.

    Answers and pairs are drawn. Raises NotFoundError, and ConflictError where the suite has no canaries.
    """
    with store.write() as connection:
        task = find_task(connection, slug)
        answers = task.document.answers
        if answers is not None or task.of_pairs:
            tasks.request_draw(connection, task.id, to_us(now))
            # A judge has one job at a time, by which its budget is counted.
            lock = None if answers is None else f"judge:{answers.judge}"
            defer(connection, [NewJob(JobKind.DRAWING, task.id, lock=lock)])
        elif not tasks.freeze_canaries(connection, task, to_us(now), keys=task.document.keys):
            raise ConflictError(f"suite '{task.suite}' has no canaries")
        elif task.pooled_at is None:
            tasks.forgive_failures(connection, task.id)
            defer(connection, [NewJob(JobKind.POOL, task.id)])


def make_pool(
    store: Store,
    vault: Vault,
    probe: Probe,
    task_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Ask the retrievers of a task for all canaries that have no pool; False where it was let go of, stopping.

    A canary that a retriever does not answer is tried `MOST_ATTEMPTS` times. The retrievers' own limits hold.
    """
    with store.read() as connection:
        task = tasks.read_task(connection, task_id)
        if task is None or task.archived_at is not None:
            return True
        document = task.document
        corpus = None if document.corpus is None else tasks.find_corpus(connection, document.corpus)
        texts = [] if corpus is None else tasks.corpus_keys(connection, corpus.id)
    try:
        retrievers = [stored_retriever(store, vault, one, {}).to_domain() for one in document.retrievers]
    except (NotFoundError, InvalidInputError) as error:
        _fail(store, task_id, str(error))
        return True
    frame = _Frame(
        task=task,
        document=document,
        retrievers=tuple(map(_without_external_scorer, retrievers)),
        corpus=Corpus.of(key for key, _, _ in texts),
        text_ids=[row_id for _, _, row_id in texts],
        keys_by_chunk={chunk: key for key, chunk, _ in texts},
    )
    while not stopping():
        with store.read() as connection:
            canaries = tasks.pending_canaries(connection, task_id, attempts=MOST_ATTEMPTS, limit=BLOCK)
        if not canaries:
            with store.write() as connection:
                tasks.finish_pool(connection, task_id, to_us(clock()))
            return True
        try:
            _pool_block(store, probe, frame, canaries, stopping)
        except InvalidInputError as error:  # a retriever that cannot be asked as it is defined
            _fail(store, task_id, str(error))
            return True
    return False


def _fail(store: Store, task_id: int, reason: str) -> None:
    """Store why no canary without a pool gets one, until somebody asks for it again."""
    with store.write() as connection:
        for canary in tasks.pending_canaries(connection, task_id, attempts=MOST_ATTEMPTS, limit=None):
            tasks.note_failure(connection, task_id, canary.canary_id, reason, attempts=MOST_ATTEMPTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What the pools of all canaries of a task have in common."""

    task: TaskRow
    document: TaskDocument
    retrievers: tuple[Retriever, ...]
    corpus: Corpus
    text_ids: Sequence[int]
    """Row ids of the texts of the corpus, by their places."""
    keys_by_chunk: Mapping[str, str]
    """Identities of the texts of the corpus by their ids there."""


def _pool_block(
    store: Store, probe: Probe, frame: _Frame, canaries: Sequence[TaskCanary], stopping: Callable[[], bool]
) -> None:
    """Ask for some canaries and write what is to be graded; nothing is written where stopping cut the asking short."""
    answers = [_ask(probe, retriever, frame, canaries, stopping) for retriever in frame.retrievers]
    if stopping():
        return
    pools: dict[int, CanaryPool] = {}
    failures: dict[int, str] = {}
    for place, canary in enumerate(canaries):
        rankings: dict[str, Ranking] = {}
        for retriever, column in zip(frame.retrievers, answers, strict=True):
            answer = column[place]
            failure = _failure(answer)
            if failure is not None:
                failures[canary.canary_id] = f"{retriever.slug}: {failure}"
            elif answer is not None and answer.ranking is not None:
                rankings[retriever.slug] = answer.ranking
        if canary.canary_id not in failures:
            pools[canary.canary_id] = _draw(store, frame, canary, rankings)
    with store.write() as connection:
        for canary_id, pool in pools.items():
            tasks.save_pool(
                connection,
                frame.task.id,
                canary_id,
                sizes=pool.sizes,
                items=[
                    new_item(frame.task.id, frame.document, item, canary_id=canary_id, name=f"{canary_id}:{item.key}")
                    for item in pool.items
                ],
                shared_ids=pool.shared_ids,
            )
        for canary_id, failure in failures.items():
            tasks.note_failure(connection, frame.task.id, canary_id, failure)


def _ask(
    probe: Probe, retriever: Retriever, frame: _Frame, canaries: Sequence[TaskCanary], stopping: Callable[[], bool]
) -> list[Answer | None]:
    """Return the answers of a retriever in the order of the canaries; None = it was not asked."""
    context = ProbeContext(retriever=retriever, k=frame.document.plan.depth, run_id=f"task-{frame.task.slug}")
    queries = [
        ProbeQuery(position=place, query=str(canary.body["query"]), key=canary.key)
        for place, canary in enumerate(canaries)
    ]
    breaker = CircuitBreaker(limit=retriever.breaker)
    answers, _ = ask_in_turn(probe, context, queries, breaker, stopping=stopping)
    return [answers.get(place) for place in range(len(canaries))]


def _failure(answer: Answer | None) -> str | None:
    """Return why an answer cannot be pooled; None = it can."""
    if answer is None:
        return "not asked, because queries before it failed"
    if answer.outcome is not Outcome.OK or answer.ranking is None:
        return answer.detail or outcome_text(answer.outcome, answer.http_status)
    if answer.ranking and not any(answer.ranking.texts):
        return "its hits have no text that people could read: map `text` in its response"
    return None


def _draw(store: Store, frame: _Frame, canary: TaskCanary, rankings: dict[str, Ranking]) -> CanaryPool:
    """Draw what is graded of a canary, with random negatives where the task has a corpus."""
    plan = frame.document.plan
    random = canary_random(frame.document.seed, canary.key)
    pool = pool_canary(rankings, plan, random)
    if not plan.rest:
        return pool
    ranked = merge_rankings(rankings, plan.bounds)
    known = {item.key for item in ranked}
    # A retriever may return a text of the corpus with its title, or cut: the same id is the same text.
    known |= {frame.keys_by_chunk[one] for item in ranked for _, one in item.chunks if one in frame.keys_by_chunk}
    places, size = frame.corpus.draw(plan.rest, known=known, random=random)
    with store.read() as connection:
        texts = tasks.read_texts(connection, [frame.text_ids[place] for place in places])
    drawn = [
        PoolItem(key=one.key, text=one.text, stratum=len(pool.sizes), chunks=(("", one.chunk),))
        for one in texts.values()
    ]
    return add_rest(pool, drawn, size)


def new_item(task_id: int, document: TaskDocument, item: PoolItem, *, canary_id: int | None, name: str) -> NewItem:
    """Return an item of a task, by what names it there; its token tells annotators nothing of where it came from."""
    identity = f"{task_id}:{name}"
    return NewItem(
        canary_id=canary_id,
        token=sha256(f"{document.seed}:{identity}".encode()).hexdigest()[:20],
        overlap=is_overlap(identity, share=document.overlap, seed=document.seed),
        **{one.name: getattr(item, one.name) for one in fields(PoolItem)},
    )


def _without_external_scorer(retriever: Retriever) -> Retriever:
    """Return the retriever without an embedder or reranker that scores its hits: ranks alone are needed."""
    return replace(retriever, scorer=Scorer(kind=ScorerKind.JUDGED))


_BLOCK: Final = 2_000
"""Texts that are written, or deleted, in one transaction."""


def add_texts(
    store: Store,
    name: str,
    sources: Sequence[Source],
    *,
    now: datetime,
    added: Callable[[int], None] = lambda _: None,
) -> CorpusView:
    """Add texts to a corpus, which is created where there is none; a text that it has is passed over.

    All lines are read before the first is stored: a wrong one takes none. In several transactions, with a block of
    texts in memory at a time: sent again after an error, nothing is there twice. Raises InvalidInputError.
    """
    for _ in read_corpus(sources):
        pass
    with store.write() as connection:
        corpus_id = tasks.open_corpus(connection, name, to_us(now))
    texts = read_corpus(sources)
    while block := [
        CorpusText(key=text_key(text, chunk=chunk), chunk=chunk, text=text) for chunk, text in islice(texts, _BLOCK)
    ]:
        with store.write() as connection:
            tasks.add_texts(connection, corpus_id, block)
        added(len(block))
    return load_corpus(store, name)


def load_corpus(store: Store, name: str) -> CorpusView:
    """Return a corpus. Raises NotFoundError."""
    with store.read() as connection:
        return view_of(CorpusView, require_found(tasks.find_corpus(connection, name), f"corpus '{name}'"))


def list_corpora(store: Store) -> list[CorpusView]:
    """List the corpora by name."""
    with store.read() as connection:
        return [view_of(CorpusView, row) for row in tasks.list_corpora(connection)]


def delete_corpus(store: Store, name: str) -> None:
    """Delete a corpus; items that tasks drew from it keep their texts. Raises NotFoundError."""
    with store.read() as connection:
        found = require_found(tasks.find_corpus(connection, name), f"corpus '{name}'")
    while True:
        with store.write() as connection:
            if tasks.drop_texts(connection, found.id, _BLOCK) < _BLOCK:
                tasks.drop_corpus(connection, found.id)
                return
