"""What work there is for a worker, by the rows: what another replica queued, or what became due by the clock."""

from datetime import datetime, timedelta
from typing import NamedTuple

from app.store.delivery import claims, resend
from app.store.engine import Store, to_us
from app.store.runs import queue, rescoring


class Work(NamedTuple):
    """What can be claimed now, and when the next run may begin."""

    runs: bool
    deliveries: bool
    rescorings: bool
    next_run_in: timedelta | None
    """None = no further run is queued."""


def find_work(store: Store, *, now: datetime, reclaim: bool = True) -> Work:
    """Say what can be claimed now; a read, so that idle workers write nothing.

    `reclaim`: also a run whose worker let its lease run out.
    """
    moment = to_us(now)
    with store.read() as connection:
        following = queue.next_start(connection, moment)
        return Work(
            runs=queue.has_claimable_run(connection, moment, reclaim=reclaim),
            deliveries=claims.has_claimable_delivery(connection, moment)
            or resend.has_claimable_resend(connection, moment),
            rescorings=rescoring.waiting(connection, now=moment) is not None,
            next_run_in=timedelta(microseconds=following - moment) if following is not None else None,
        )
