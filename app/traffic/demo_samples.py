"""Samples for the demo: traffic of its users and a task that two annotators have finished, each put in once.

Only the shipped suite and retriever get them. What somebody deleted or archived since does not come back.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from app.annotation import store as rows
from app.annotation.documents import TaskDocument
from app.annotation.service import tasks
from app.annotation.views import TaskState
from app.base.db.engine import Store
from app.base.documents.texts import Source
from app.base.errors import ConflictError, NotFoundError
from app.catalog import store as catalog
from app.traffic import service as traffic
from app.traffic.documents import read_traffic
from app.traffic.store import find_reach

SUITE: Final = "dataforge"
RETRIEVER: Final = "docs-search"
TASK: Final = "demo"
_KEYS: Final = ("oauth2-setup", "data-retention", "api-rate-limit", "trial-length")
_BY: Final = "demo"


def begin(store: Store, sources: Sequence[Source], *, now: datetime) -> bool:
    """Put traffic and the task in, and ask for reach and pool; whether the task is left to be finished.

    Nothing happens without the shipped suite and retriever, nor where there ever was a task of this slug.
    """
    with store.read() as connection:
        known = rows.documents_of(connection, [TASK])
        task = rows.find_task(connection, TASK)
        suite = catalog.find_definition(connection, "suite", SUITE)
        retriever = catalog.find_definition(connection, "retriever", RETRIEVER)
        keys = set() if suite is None else {row.key for row in catalog.list_canaries(connection, suite.id)}
    if known:
        return task is not None and task.created_by == _BY
    if suite is None or retriever is None or retriever.archived_at is not None or not keys.issuperset(_KEYS):
        return False
    document = TaskDocument(
        slug=TASK, suite=SUITE, retrievers=(RETRIEVER,), keys=_KEYS, pool=5, strata=(), overlap=1.0, seed=0
    )
    if not traffic.load_traffic(store, SUITE):
        traffic.add_traffic(store, SUITE, RETRIEVER, read_traffic(sources, now=now), now=now)
    with store.read() as connection:
        is_asked = find_reach(connection, suite.id, RETRIEVER) is not None
    if not is_asked:
        traffic.request_reach(store, SUITE, RETRIEVER, grouping=None, now=now)
    tasks.put_task(store, document, by=_BY, now=now, only_new=True)
    tasks.request_pool(store, TASK, now=now)
    return True


def finish(store: Store, sources: Sequence[Source], *, now: datetime) -> bool:
    """Add what the annotators said once the pool is there; False = it is not there yet."""
    try:
        with store.read() as connection:
            task = tasks.find_task(connection, TASK)
            is_annotated = bool(rows.list_annotations(connection, task.id))
        if task.state is not TaskState.POOLED:
            if task.pool_requested_at is None:
                tasks.request_pool(store, TASK, now=now)
            return False
        if not is_annotated:
            tasks.import_annotations(store, TASK, sources, now=now)
    except (NotFoundError, ConflictError):  # somebody archived it meanwhile
        return True
    return True


def seed(
    store: Store,
    *,
    traffic_file: Source,
    annotations_file: Source,
    clock: Callable[[], datetime],
    wait: Callable[[], bool],
    wake: Callable[[], None],
) -> None:
    """Put the samples in, and wait for the pool by `wait`, which returns False once it should be given up."""
    if not begin(store, [traffic_file], now=clock()):
        return
    wake()
    while not finish(store, [annotations_file], now=clock()) and wait():
        pass
