"""Pooled recall of the retrievers of a task, computed from its annotations and kept for pages, reports and metrics."""

from collections import defaultdict
from datetime import datetime
from typing import Final

from app.annotation.documents.task_documents import TaskDocument
from app.annotation.domain.pooled_recall import QueryGrades, SampledStratum, estimate_recall, recall_frame
from app.annotation.domain.views import RecallView
from app.annotation.service.results import TaskGrades, read_grades
from app.annotation.service.tasks import document_of, find_task
from app.annotation.store import recalls
from app.annotation.store import tasks as rows
from app.annotation.store.recalls import RecallEstimate
from app.annotation.store.tasks import ItemRow, TaskCanary
from app.base.db.engine import Store, to_us
from app.base.errors import ConflictError
from app.catalog.documents.canary_documents import CanaryDocument
from app.records.service.pooled_recall_views import view_recall

DEPTHS: Final = (1, 3, 5, 10, 20)
"""Depths at which it is computed, as far as the pool goes; the pool's own is added."""


def load_recall(store: Store, slug: str) -> RecallView:
    """Return the pooled recall of the retrievers of a task as its annotations are now.

    Raises NotFoundError, and ConflictError for a task of answers.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        if task.of_answers or task.of_pairs:
            raise ConflictError(f"task '{slug}' is not of chunks, so it has no recall")
        found = read_grades(connection, task)
        canaries = rows.list_task_canaries(connection, task.id)
    document = document_of(task)
    decided = _decided_queries(found, canaries)
    estimates = _estimate(document, found, decided)
    return {
        "queries": len(decided),
        "undecided": sum(_expects(one) for one in canaries) - len(decided),
        "estimates": [view_recall(one, task=slug) for one in estimates],
    }


def compute_recall(store: Store, task_id: int, *, now: datetime) -> None:
    """Compute the pooled recall of a task anew and store it; nothing happens where the task is gone."""
    with store.read() as connection:
        task = rows.read_task(connection, task_id)
        if task is None or task.archived_at is not None:
            return
        found = read_grades(connection, task)
        canaries = rows.list_task_canaries(connection, task.id)
    estimates = _estimate(document_of(task), found, _decided_queries(found, canaries))
    with store.write() as connection:
        recalls.replace_recalls(connection, task_id, estimates, to_us(now))


def _expects(canary: TaskCanary) -> bool:
    """Whether a canary is pooled and expects that something is found."""
    document = CanaryDocument.model_validate(canary.body)
    return canary.sizes is not None and not document.to_domain().negative and not document.expect_empty


def _decided_queries(found: TaskGrades, canaries: list[TaskCanary]) -> list[tuple[TaskCanary, list[ItemRow]]]:
    """Return the canaries whose items all have a grade or were skipped, with their items.

    Annotators take queries in random order, so those that are done are a random sample of all.
    """
    items: dict[int | None, list[ItemRow]] = defaultdict(list)
    for item in found.items:
        items[item.canary_id].append(item)
    return [
        (canary, items[canary.canary_id])
        for canary in canaries
        if _expects(canary) and all(_is_decided(item, found) for item in items[canary.canary_id])
    ]


def _is_decided(item: ItemRow, found: TaskGrades) -> bool:
    if found.consensus(item.id).grade is not None:
        return True
    return bool(found.said[item.id]) and not found.grades.get(item.id)


def _estimate(
    document: TaskDocument, found: TaskGrades, decided: list[tuple[TaskCanary, list[ItemRow]]]
) -> list[RecallEstimate]:
    plan = document.plan
    corpus = document.corpus if plan.rest else None
    frame = recall_frame(document.retrievers, plan.depth, corpus, sampled=bool(plan.strata))
    depths = sorted({*(k for k in DEPTHS if k < plan.pool), plan.pool})
    estimates = []
    for retriever in document.retrievers:
        for k in depths:
            grades = [_query_grades(canary, items, found, retriever, k) for canary, items in decided]
            one = estimate_recall(grades, seed=document.seed)
            estimates.append(
                RecallEstimate(
                    retriever=retriever,
                    k=k,
                    queries=one.queries,
                    found=one.found,
                    relevant=one.relevant,
                    value=one.value,
                    low=one.low,
                    high=one.high,
                    frame=frame,
                )
            )
    return estimates


def _query_grades(canary: TaskCanary, items: list[ItemRow], found: TaskGrades, retriever: str, k: int) -> QueryGrades:
    sizes = canary.sizes or ()
    grades = {item.id: found.consensus(item.id).grade for item in items}
    relevant = {item_id for item_id, grade in grades.items() if grade is not None and grade >= 1}
    pool = [item for item in items if item.stratum == 0 and item.id in relevant]
    strata = []
    for number, size in enumerate(sizes[1:], 1):
        mine = [item for item in items if item.stratum == number and grades[item.id] is not None]
        hits = sum(item.id in relevant for item in mine)
        strata.append(SampledStratum(size=size, graded=len(mine), relevant=hits))
    return QueryGrades(
        pool_relevant=len(pool),
        found=sum(item.ranks.get(retriever, k + 1) <= k for item in pool),
        strata=tuple(strata),
    )
