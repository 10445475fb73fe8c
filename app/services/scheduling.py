"""When runs are queued: by the clock, by hand, and never two of one check at once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from app.domain.alerting import Overdue, no_data_due
from app.domain.errors import ConflictError, NotFoundError
from app.domain.model import Trigger
from app.domain.schedules import EPOCH, Schedule, credible_until, last_due, parse_schedule, spread
from app.services import alerting
from app.store import alerts, catalog, history, queue
from app.store.engine import Connection, Store, from_us, to_us

CATCH_UP: Final = timedelta(minutes=2)
"""How long after its start a worker leaves silence alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledCheck:
    """A check the clock drives."""

    id: int
    slug: str
    version_id: int
    schedule: Schedule
    changed_at: datetime


def scheduled_checks(store: Store) -> list[ScheduledCheck]:
    """List the checks in force and enabled."""
    with store.read() as connection:
        return [_scheduled(row) for row in catalog.list_definitions(connection, "check") if row.body["enabled"]]


def tick(store: Store, check_id: int, now: datetime) -> datetime | None:
    """Queue the run of the newest instant that has none: a tick, and after a pause the catch-up, once.

    Returns the instant, or None where nothing is due, another replica was faster, or a run waits already.
    """
    with store.read() as connection:
        check = _scheduled(catalog.definition_by_id(connection, check_id))
        newest = queue.newest_instant(connection, check_id, before=to_us(credible_until(check.schedule, now)))
    due = last_due(check.schedule, now, from_us(newest) if newest is not None else EPOCH)
    if due is None:
        return None
    not_before = due + spread(check.slug, check.schedule) if newest is not None else due
    with store.write() as connection:
        run_id = queue.enqueue_scheduled(
            connection, check_id, scheduled_for=to_us(due), not_before=to_us(not_before), now=to_us(now)
        )
    return due if run_id is not None else None


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
        check = catalog.find_definition(connection, "check", slug)
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
        if silence(connection, catalog.definition_by_id(connection, check_id), now) is None:
            return False
        if queue.waits_for_worker(connection, check_id, to_us(now)):
            return False
    with store.write() as connection:
        alerts.hold_check(connection, check_id)  # a run may have completed since, or be about to; and see it all anew
        overdue = silence(connection, catalog.definition_by_id(connection, check_id), now)
        return overdue is not None and alerting.open_no_data(connection, check_id, overdue, now=now)


def silence(connection: Connection, check: catalog.Definition, now: datetime) -> Overdue | None:
    """Say since when a check has completed nothing, where that is too long."""
    schedule = schedule_of(check.body)
    return no_data_due(schedule, last_completed(connection, check, now), now, from_us(check.updated_at))


def last_completed(connection: Connection, check: catalog.Definition, now: datetime) -> datetime | None:
    """Return when a run of the check last completed, as far as that is credible; None = never."""
    until = credible_until(schedule_of(check.body), now)
    completed = history.last_completed(connection, check.id, before=to_us(until))
    return from_us(completed) if completed is not None else None


def schedule_of(body: Mapping[str, Any]) -> Schedule:
    """Read the schedule a stored check has."""
    wanted = body["schedule"]
    if wanted.get("every") is not None:
        return parse_schedule(every=wanted["every"])
    return parse_schedule(cron=wanted["cron"], timezone=wanted["timezone"])


def _scheduled(row: catalog.Definition) -> ScheduledCheck:
    return ScheduledCheck(
        id=row.id,
        slug=row.slug,
        version_id=row.version_id,
        schedule=schedule_of(row.body),
        changed_at=from_us(row.updated_at),
    )
