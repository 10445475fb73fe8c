"""Finds checks by slug and runs by id for all areas, and reads schedules of checks."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.base.db.engine import Connection, from_us, to_us
from app.base.errors import NotFoundError
from app.catalog.domain.schedules import Schedule, credible_until, parse_schedule
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.records import documents as shapes
from app.records.store import results
from app.records.store.results import RunRow


def find_check(connection: Connection, slug: str) -> Definition:
    """Return a check, also an archived one. Raises NotFoundError."""
    check = definitions.find_definition(connection, "check", slug)
    if check is None:
        raise NotFoundError(f"there is no check '{slug}'")
    return check


def find_run(connection: Connection, run_id: str) -> RunRow:
    """Return a run by its opaque id. Raises NotFoundError."""
    run = results.find_run(connection, shapes.id_number(run_id, "run"))
    if run is None:
        raise NotFoundError(f"there is no run '{run_id[:40]}'")
    return run


def last_completed(connection: Connection, check: definitions.Definition, now: datetime) -> datetime | None:
    """Return when a run of the check last completed, ignoring implausible times; None = never."""
    until = credible_until(schedule_of(check.body), now)
    completed = results.last_completed(connection, check.id, before=to_us(until))
    return from_us(completed) if completed is not None else None


def schedule_of(body: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a stored check."""
    schedule = body["schedule"]
    if schedule.get("every") is not None:
        return parse_schedule(every=schedule["every"])
    return parse_schedule(cron=schedule["cron"], timezone=schedule["timezone"])
