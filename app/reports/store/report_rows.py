"""Rows of reports on a schedule: one for each check and instant, whoever of several replicas looks at the clock."""

import json
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_one
from app.base.jobs.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.catalog.tables import definitions
from app.hooks.domain.notices import ReportContent
from app.hooks.tables import reports


class CheckVersion(NamedTuple):
    """A check in force."""

    id: int
    version_id: int
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """A report, without what it says."""

    id: int
    check_id: int
    due_at: int
    state: str
    """`due`, `sent` or `skipped`."""
    run_id: int | None


def list_checks(connection: Connection) -> list[CheckVersion]:
    """List the checks in force, a short row each."""
    statement = sa.select(definitions.c.id, definitions.c.version_id, definitions.c.updated_at)
    rows = connection.execute(statement.where(definitions.c.kind == "check", definitions.c.archived_at.is_(None)))
    return [CheckVersion(*row) for row in rows]


def newest_instant(connection: Connection, check_id: int, *, before: int) -> int | None:
    """Return the newest instant up to `before` of which a check has a report; None = it has none."""
    statement = sa.select(sa.func.max(reports.c.due_at)).where(
        reports.c.check_id == check_id, reports.c.due_at <= before
    )
    instant: int | None = connection.execute(statement).scalar_one()
    return instant


def queue_report(connection: Connection, check_id: int, due_at: int, *, now: int) -> bool:
    """Have the report of an instant written; False where somebody already has.

    The unique row arbitrates between replicas that see the same instant.
    """
    report_id = insert_one(connection, reports, check_id=check_id, due_at=due_at, state="due", created_at=now)
    if report_id is None:
        return False
    defer(connection, [NewJob(JobKind.REPORT, report_id)])
    return True


def find_report(connection: Connection, report_id: int) -> ReportRow | None:
    """Find a report by its id."""
    row = connection.execute(_REPORT.where(reports.c.id == report_id)).one_or_none()
    return (
        None
        if row is None
        else ReportRow(id=row.id, check_id=row.check_id, due_at=row.due_at, state=row.state, run_id=row.run_id)
    )


def previous_run(connection: Connection, report: ReportRow) -> int | None:
    """Return the run that the last sent report of the same check was about; None = there was none."""
    earlier = sa.and_(
        reports.c.check_id == report.check_id, reports.c.due_at < report.due_at, reports.c.state == "sent"
    )
    statement = sa.select(reports.c.run_id).where(earlier).order_by(reports.c.due_at.desc()).limit(1)
    run_id: int | None = connection.execute(statement).scalar_one_or_none()
    return run_id


def finish_report(connection: Connection, report_id: int, *, run_id: int, content: ReportContent) -> bool:
    """Store what a report says, as sent; False where somebody already has, who has put it into the outbox too."""
    packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode())
    return _end(connection, report_id, state="sent", run_id=run_id, content=packed)


def skip_report(connection: Connection, report_id: int, reason: str) -> bool:
    """End a report that is not sent; False where it has ended already."""
    return _end(connection, report_id, state="skipped", reason=reason)


def read_content(connection: Connection, report_id: int) -> ReportContent:
    """Return what a sent report says."""
    packed = connection.execute(sa.select(reports.c.content).where(reports.c.id == report_id)).scalar_one()
    content: ReportContent = json.loads(zlib.decompress(packed))
    return content


def _end(connection: Connection, report_id: int, **values: Any) -> bool:
    mine = sa.and_(reports.c.id == report_id, reports.c.state == "due")
    return connection.execute(sa.update(reports).where(mine).values(**values)).rowcount == 1


_REPORT = sa.select(reports.c.id, reports.c.check_id, reports.c.due_at, reports.c.state, reports.c.run_id)
