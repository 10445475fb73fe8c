"""Pools of tasks: the retrievers are asked canary by canary, and what is to be graded is drawn and frozen.

A few canaries at a time, each block in a transaction of its own: whoever goes on after a crash does so where it stands,
and answers of a thousand canaries are never in memory together. What is drawn depends on the task's seed alone.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Final

from app.annotation.documents.task_documents import TaskDocument
from app.annotation.domain.consensus import is_overlap
from app.annotation.domain.pooling import (
    CanaryPool,
    Corpus,
    PoolItem,
    add_rest,
    canary_random,
    merge_rankings,
    pool_canary,
)
from app.annotation.service.tasks import document_of, find_task
from app.annotation.store import corpora
from app.annotation.store import tasks as rows
from app.annotation.store.tasks import NewItem, PoolCounts, TaskCanary, TaskRow
from app.base.db.engine import Store, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError
from app.base.jobs.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import Answer, Outcome, Ranking
from app.catalog.service.vault import Vault
from app.retrievers.domain.circuit_breaker import CircuitBreaker
from app.retrievers.domain.probe_failures import outcome_text
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery, Retriever, Scorer, ScorerKind
from app.retrievers.service.trials import stored_retriever

BLOCK: Final = 20
"""Canaries asked and written at a time."""
MOST_ATTEMPTS: Final = 3
"""How often a canary is tried before somebody has to ask for the pool again."""


def request_pool(store: Store, slug: str, *, now: datetime) -> PoolCounts:
    """Freeze the canaries of a task and have its pool made; asked again, those that failed are tried once more.

    Answers and pairs are drawn. Raises NotFoundError, and ConflictError where the suite has no canaries.
    """
    with store.write() as connection:
        task = find_task(connection, slug)
        answers = document_of(task).answers
        if answers is not None:
            rows.request_draw(connection, task.id, to_us(now))
            # A judge has one job at a time, by which its budget is counted.
            defer(connection, [NewJob(JobKind.DRAWING, task.id, lock=f"judge:{answers.judge}")])
            return rows.count_pool(connection, task.id)
        if task.of_pairs:
            rows.request_draw(connection, task.id, to_us(now))
            defer(connection, [NewJob(JobKind.DRAWING, task.id)])
            return rows.count_pool(connection, task.id)
        if not rows.freeze_canaries(connection, task, to_us(now), keys=document_of(task).keys):
            raise ConflictError(f"suite '{task.suite}' has no canaries")
        if task.pooled_at is None:
            rows.forgive_failures(connection, task.id)
            defer(connection, [NewJob(JobKind.POOL, task.id)])
        return rows.count_pool(connection, task.id)


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
        task = rows.read_task(connection, task_id)
        if task is None or task.archived_at is not None:
            return True
        document = document_of(task)
        corpus = None if document.corpus is None else corpora.find_corpus(connection, document.corpus)
        texts = [] if corpus is None else corpora.corpus_keys(connection, corpus.id)
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
            canaries = rows.pending_canaries(connection, task_id, attempts=MOST_ATTEMPTS, limit=BLOCK)
        if not canaries:
            with store.write() as connection:
                rows.finish_pool(connection, task_id, to_us(clock()))
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
        for canary in rows.pending_canaries(connection, task_id, attempts=MOST_ATTEMPTS, limit=None):
            rows.note_failure(connection, task_id, canary.canary_id, reason, attempts=MOST_ATTEMPTS)


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
            rows.save_pool(
                connection,
                frame.task.id,
                canary_id,
                sizes=pool.sizes,
                items=[_new_item(frame, canary_id, item) for item in pool.items],
                shared_ids=pool.shared_ids,
            )
        for canary_id, failure in failures.items():
            rows.note_failure(connection, frame.task.id, canary_id, failure)


def _ask(
    probe: Probe, retriever: Retriever, frame: _Frame, canaries: Sequence[TaskCanary], stopping: Callable[[], bool]
) -> list[Answer | None]:
    """Return the answers of a retriever in the order of the canaries; None = it was not asked."""
    context = ProbeContext(retriever=retriever, k=frame.document.plan.depth, run_id=f"task-{frame.task.slug}")
    queries = [
        ProbeQuery(position=place, query=str(canary.body["query"]), key=canary.key)
        for place, canary in enumerate(canaries)
    ]
    answers: list[Answer | None] = [None] * len(canaries)
    breaker = CircuitBreaker(limit=retriever.breaker)
    with closing(probe(context, queries)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        for batch in batches:
            for position, answer in batch:
                answers[position] = answer
            breaker = breaker.after(answer for _, answer in batch)
            if stopping() or breaker.is_open:
                break
    return answers


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
        texts = corpora.read_texts(connection, [frame.text_ids[place] for place in places])
    drawn = [
        PoolItem(
            key=one.key,
            text=one.text,
            document=None,
            stratum=len(pool.sizes),
            ranks={},
            chunks=(("", one.chunk),),
        )
        for one in texts.values()
    ]
    return add_rest(pool, drawn, size)


def _new_item(frame: _Frame, canary_id: int, item: PoolItem) -> NewItem:
    identity = f"{frame.task.id}:{canary_id}:{item.key}"
    return NewItem(
        canary_id=canary_id,
        token=sha256(f"{frame.document.seed}:{identity}".encode()).hexdigest()[:20],
        key=item.key,
        text=item.text,
        document=item.document,
        stratum=item.stratum,
        ranks=item.ranks,
        chunks=item.chunks,
        overlap=is_overlap(identity, share=frame.document.overlap, seed=frame.document.seed),
    )


def _without_external_scorer(retriever: Retriever) -> Retriever:
    """Return the retriever without an embedder or reranker that scores its hits: ranks alone are needed."""
    return replace(retriever, scorer=Scorer(kind=ScorerKind.JUDGED))
