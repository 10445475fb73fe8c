"""Work that no job is about although somebody should do it now: found by the rows, and deferred.

It was written by a release without jobs or by a clock that was ahead, or it waited for something that ended when nobody
could see it.
"""

from datetime import datetime
from typing import Final

from app.base.db.engine import Store, to_us
from app.base.jobs.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.hooks.store import claims, outbox
from app.records.store import queue, rescoring

RETENTION_SECONDS: Final = 600


def recall_work(store: Store, *, now: datetime) -> bool:
    """Defer what was forgotten; whether there was something. Where there was not, nothing is written."""
    moment = to_us(now)
    with store.read() as connection:
        run_ids = queue.forgotten_runs(connection, moment)
        hook_ids = claims.forgotten_hooks(connection, moment)
        rescoring_ids = rescoring.forgotten(connection, moment)
    if not (run_ids or hook_ids or rescoring_ids):
        return False
    with store.write() as connection:
        queue.defer_forgotten(connection, run_ids)
        for hook_id in sorted(hook_ids):
            outbox.defer_delivery(connection, hook_id)
        for rescoring_id in sorted(rescoring_ids):
            rescoring.defer_rescoring(connection, rescoring_id)
    return True


def defer_retention(store: Store, now: datetime) -> None:
    """Have expired rows deleted from now on, every ten minutes."""
    with store.write() as connection:
        defer(connection, [NewJob(JobKind.RETENTION, 0, run_at=to_us(now) + RETENTION_SECONDS * 1_000_000)])
