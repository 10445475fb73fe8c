"""Decides whether the recall of a retriever is self-judged, from the sources of judgments and the tasks there are."""

from collections.abc import Sequence

from app.annotation.store import tasks
from app.base.db.engine import Connection
from app.catalog.domain.judgment_sources import are_self_judged, is_own_pool, retriever_source, task_source


def is_self_judged(connection: Connection, sources: Sequence[str] | None, retriever: str, *, depth: int) -> bool:
    """Whether judgments of these sources are all of the first hits of a retriever; None = not all have a source.

    `depth`: how many hits it is asked for. A task counts where it pooled this retriever alone, and nothing deeper; one
    that is not there does not count.
    """
    if not sources:
        return False
    slugs = [one.partition(":")[2] for one in sources if one.startswith("task:")]
    pools = tasks.documents_of(connection, slugs)
    own = {
        task_source(slug)
        for slug, bodies in pools.items()
        if all(is_own_pool(one, retriever, depth=depth) for one in bodies)
    }
    return are_self_judged(sources, {retriever_source(retriever), *own})
