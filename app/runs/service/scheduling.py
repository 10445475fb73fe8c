"""Runs queued by hand, the schedule of a check, and its silence; runs are queued by the clock in `due_checks`."""

import json
from collections.abc import Collection
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from app.alerts.domain.alert_state import Overdue, no_data_due
from app.alerts.service import transitions
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.errors import ConflictError, NotFoundError
from app.base.values import Trigger
from app.catalog.service.lookup import last_completed, schedule_of
from app.catalog.store import definitions
from app.records.store import queue

CATCH_UP: Final = timedelta(minutes=2)
"""How long after its start a worker leaves silence alone."""


def run_now(
    store: Store,
    slug: str,
    *,
    trigger: Trigger,
    index_version: str | None,
    idempotency_key: str | None,
    now: datetime,
) -> tuple[int, bool]:
    """Queue a run at once, or join the one that waits: never the active one, it may have seen the old index.

    A disabled check is run too, for people may try it before they enable it; nothing of it is alerted.
    Returns the run's id and whether the request is new; a repeated Idempotency-Key gives the run of the first time.
    Raises NotFoundError, and ConflictError where the key came with another request before.
    """
    request = sha256(json.dumps([slug, trigger, index_version]).encode()).hexdigest()
    with store.write() as connection:
        check = definitions.find_definition(connection, "check", slug)
        if check is None or check.archived_at is not None:
            raise NotFoundError(f"there is no check '{slug}'")
        if idempotency_key is not None:
            known = queue.remembered_request(connection, check.id, idempotency_key)
            if known is not None and known.request_hash != request:
                raise ConflictError("this Idempotency-Key was used with another request")
            if known is not None:
                return int(known.run_id), False
        anew = not check.body["enabled"]  # what was queued before it was disabled would not be carried out
        run_id = queue.enqueue_asked(
            connection, check.id, trigger=trigger, index_version=index_version, now=to_us(now), anew=anew
        )
        if idempotency_key is not None:
            queue.remember_request(
                connection, check.id, idempotency_key, request_hash=request, run_id=run_id, now=to_us(now)
            )
        return run_id, True


def watch_for_silence(store: Store, check_id: int, *, started_at: datetime, now: datetime) -> bool:
    """Open the `no_data` alert of a check that has completed nothing for too long; True where it was opened.

    Decided from rows; a worker that started after `now - CATCH_UP`, or whose clock was set since, skips the check. So
    does one that has not begun a run of the check that is due: that is Coalmine's own backlog, and told as such.
    """
    if now - started_at < CATCH_UP:
        return False
    with store.read() as connection:
        check = definitions.definition_by_id(connection, check_id)
        if silence(connection, check, now) is None or not transitions.may_open_no_data(connection, check):
            return False
        if queue.waits_for_worker(connection, check_id, to_us(now)):
            return False
    with store.write() as connection:
        definitions.lock_definition(connection, check_id)  # a run may be completing; and see it all anew
        overdue = silence(connection, definitions.definition_by_id(connection, check_id), now)
        return overdue is not None and transitions.open_no_data(connection, check_id, overdue, now=now)


def without_backlog(store: Store, check_ids: Collection[int], now: datetime) -> list[int]:
    """Leave out the checks with a run that is due and that no worker has begun, see `watch_for_silence`.

    One query for all: where Coalmine is behind, most checks are overdue, and asking for each makes it later still.
    """
    if not check_ids:
        return []
    with store.read() as connection:
        waiting = queue.waiting_checks(connection, to_us(now))
    return [check_id for check_id in check_ids if check_id not in waiting]


def silence(connection: Connection, check: definitions.Definition, now: datetime) -> Overdue | None:
    """Say since when a check has completed nothing, where that is too long."""
    schedule = schedule_of(check.body)
    return no_data_due(schedule, last_completed(connection, check, now), now, from_us(check.updated_at))
