"""Suggestions taken up: queries of users become canaries, and a task finds what they should expect."""

from collections.abc import Sequence
from datetime import datetime

from app.annotation.documents.task_documents import TaskDocument
from app.annotation.domain.views import TaskDetail
from app.annotation.service import pooling, tasks
from app.base.db.engine import Store
from app.base.documents.validation_messages import parse_document
from app.base.errors import InvalidInputError, Problem
from app.catalog.documents.documents import SuiteDocument
from app.catalog.service import canary_keys, suite_definitions


def open_task(
    store: Store, suite: str, retriever: str, *, task: str, queries: Sequence[str], by: str, now: datetime
) -> TaskDetail:
    """Add these queries to a suite as canaries that expect nothing yet, and make a task of them with its pool.

    The same query is the same canary. From now on it is a definition, which the retention of traffic does not delete.
    Raises InvalidInputError, NotFoundError, and ConflictError where there is such a task.
    """
    if not queries:
        raise InvalidInputError([Problem(path="queries", message="choose at least one")])
    bodies = canary_keys.assign_suite_keys(store, suite, [{"query": query} for query in dict.fromkeys(queries)])
    documents = parse_document(SuiteDocument, {"slug": suite, "canaries": bodies}).canaries or ()
    document = parse_document(
        TaskDocument,
        {"slug": task, "suite": suite, "retrievers": [retriever], "keys": [one.key for one in documents]},
    )
    tasks.put_task(store, document, by=by, now=now, only_new=True)
    known = {row.key for row in suite_definitions.list_canaries(store, suite)}
    fresh = [one for one in documents if one.key not in known]
    if fresh:
        suite_definitions.put_canaries(store, suite, fresh, now=now)
    pooling.request_pool(store, task, now=now)
    return tasks.load_task(store, task)
