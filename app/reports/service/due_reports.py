"""Reports that are due by the schedules of checks: queued once for each instant, however many replicas look.

Schedules are read once per version of a check. Where nothing is due, nothing is written.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from app.base.db.engine import Connection, Store, blocks, from_us, to_us
from app.catalog.domain.schedules import EPOCH, Schedule, credible_until, last_due, next_due, parse_schedule
from app.catalog.store import definitions
from app.reports.store import report_rows
from app.reports.store.report_rows import CheckVersion

logger = logging.getLogger("coalmine.worker")

_LOOK_EVERY: Final = timedelta(minutes=1)
"""So long a new schedule may go unnoticed; no instant of it is lost by that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Next:
    """When a version of a check has its next report."""

    version_id: int
    at: datetime


class DueReports:
    """Queues the reports that are due. One thread at a time."""

    def __init__(self, store: Store) -> None:
        """Begin with no schedule read."""
        self._store = store
        self._schedules: dict[int, Schedule | None] = {}
        """By version of a check; None = it has no reports, is disabled, or cannot be read."""
        self._next: dict[int, _Next] = {}
        """By check."""
        self._looked_at: datetime | None = None

    def queue_due(self, now: datetime, *, anew: bool = False) -> int:
        """Queue the report of the newest instant of every check that is due; returns how many this process queued.

        After a pause that is one report a check, whatever was missed, and none of an instant before the check was
        changed last. `anew`: what was remembered of the next instants is of a clock that has been set since.
        """
        if anew:
            self._next.clear()
        elif not self._is_time(now):
            return 0
        self._looked_at = now
        with self._store.read() as connection:
            rows = report_rows.list_checks(connection)
            self._learn(connection, [row.version_id for row in rows])
            wanted = [row for row in rows if self._schedules[row.version_id] and self._may_be_due(row, now)]
            due = [(row.id, at) for row in wanted if (at := self._find_due(connection, row, now)) is not None]
        self._schedules = {row.version_id: self._schedules[row.version_id] for row in rows}
        self._next = {row.id: self._next[row.id] for row in rows if row.id in self._next}
        if not due:
            return 0
        with self._store.write() as connection:
            return sum(
                report_rows.queue_report(connection, check_id, to_us(at), now=to_us(now)) for check_id, at in due
            )

    def _is_time(self, now: datetime) -> bool:
        """Whether a report may be due, or it is so long since the checks were listed that there may be new ones."""
        listed = self._looked_at is not None and self._looked_at <= now < self._looked_at + _LOOK_EVERY
        return not listed or any(known.at <= now for known in self._next.values())

    def _may_be_due(self, row: CheckVersion, now: datetime) -> bool:
        known = self._next.get(row.id)
        return known is None or known.version_id != row.version_id or known.at <= now

    def _find_due(self, connection: Connection, row: CheckVersion, now: datetime) -> datetime | None:
        """Return the newest instant of a check that is due and has no report; and remember the one after now."""
        schedule = self._schedules[row.version_id]
        assert schedule is not None  # noqa: S101 - those without are left out
        self._next[row.id] = _Next(version_id=row.version_id, at=next_due(schedule, now))
        until = to_us(credible_until(schedule, now))  # a later one was written by a clock that was ahead
        newest = report_rows.newest_instant(connection, row.id, before=until)
        changed_at = min(from_us(row.updated_at), now)
        return last_due(schedule, now, max(changed_at, EPOCH if newest is None else from_us(newest)))

    def _learn(self, connection: Connection, version_ids: Sequence[int]) -> None:
        """Read the schedules of versions that are not known yet."""
        unknown = sorted(set(version_ids) - self._schedules.keys())
        for block in blocks(unknown):
            bodies = definitions.version_bodies(connection, block)
            self._schedules |= {version_id: _schedule_of(version_id, body) for version_id, body in bodies.items()}


def _schedule_of(version_id: int, body: Mapping[str, Any]) -> Schedule | None:
    report = body.get("report")
    if not report or not body.get("enabled", True):
        return None
    try:
        return parse_schedule(cron=report["cron"], timezone=report["timezone"])
    except Exception:
        logger.exception("bug", extra={"version": version_id})  # of this check: the others go on
        return None
