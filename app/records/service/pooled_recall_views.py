"""Pooled recall as pages, reports and metrics show it: of the newest task for a suite and a retriever."""

from app.annotation.store import recalls
from app.annotation.store.recalls import RecallEstimate
from app.base.db.engine import Connection, Store
from app.records import documents as shapes
from app.records.domain.run_views import PooledRecallView


def load_suite_recalls(store: Store, suite: str) -> list[PooledRecallView]:
    """Return the pooled recall of the retrievers of a suite, the deepest k first."""
    with store.read() as connection:
        return [view_recall(row, task=row.task) for row in recalls.list_recalls(connection, suite=suite)]


def load_recalls(connection: Connection, suite: str, retriever: str) -> list[PooledRecallView]:
    """Return the pooled recall of a retriever over a suite, the deepest k first."""
    rows = recalls.list_recalls(connection, suite=suite, retriever=retriever)
    return [view_recall(row, task=row.task) for row in rows]


def view_recall(one: RecallEstimate, *, task: str) -> PooledRecallView:
    """Return an estimate as JSON on the wire."""
    return {
        "retriever": one.retriever,
        "k": one.k,
        "value": shapes.number(one.value),
        "low": shapes.number(one.low),
        "high": shapes.number(one.high),
        "found": one.found,
        "relevant": shapes.number(one.relevant),
        "queries": one.queries,
        "frame": one.frame,
        "task": task,
    }
