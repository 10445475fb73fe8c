"""Whether there is work for a worker, by the rows: what another replica queued, or what became due by the clock."""

from datetime import datetime

from app.store import outbox, queue, refreshes, rescoring
from app.store.engine import Store, to_us


def has_work(store: Store, *, now: datetime, reclaim: bool = True) -> bool:
    """Whether a run, a delivery or a re-scoring can be claimed now; a read, so that idle workers write nothing.

    `reclaim`: also a run whose worker let its lease run out.
    """
    moment = to_us(now)
    with store.read() as connection:
        return (
            queue.has_claimable_run(connection, moment, reclaim=reclaim)
            or outbox.has_claimable_delivery(connection, moment)
            or refreshes.has_claimable_refresh(connection, moment)
            or rescoring.waiting(connection, now=moment) is not None
        )
