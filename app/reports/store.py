"""Scheduled reports, table and rows; checks with their newest run and detection; and the alerts in a period.

The snapshot of metrics keeps the numbers of a check until its `NumbersVersion` changes: here are that version and the
rows they are made of. The alerts in a period are those that a chart marks.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Index,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from app.alerts.tables import alerts
from app.answers.tables import run_answers
from app.base.db.engine import blocks, from_us, insert_one, row_value, upsert
from app.base.db.rows import Id, id_column, metadata
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import Value
from app.catalog import store as catalog
from app.catalog.store import Definition
from app.catalog.tables import definitions, public_links
from app.detection import store as detector_rows
from app.detection.store import DetectionRow
from app.detection.tables import detectors
from app.hooks.domain import NoticeData
from app.hooks.tables import attempts, deliveries
from app.records.domain import RunDetails
from app.records.store import run_rows
from app.records.store.run_rows import RunRow
from app.records.tables import latest

# Reports on a schedule: which are due, and what they say.
reports = Table(
    "reports",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("due_at", BigInteger, nullable=False),  # the instant of its schedule
    Column("state", Text, nullable=False),  # due, sent or skipped
    Column("run_id", Id),  # the run it is about
    Column("content", LargeBinary),  # compressed JSON, of which bodies are made
    Column("reason", Text),  # why it was skipped
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("check_id", "due_at"),  # N replicas look at the clock, one inserts
    Index("ix_reports_created", "created_at"),
)


class CheckVersion(NamedTuple):
    """A check in force."""

    id: int
    version_id: int
    updated_at: int


class ReportRow(Value):
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
    return None if row is None else row_value(ReportRow, row)


def previous_run(connection: Connection, report: ReportRow) -> int | None:
    """Return the run that the last sent report of the same check was about; None = there was none."""
    earlier = sa.and_(
        reports.c.check_id == report.check_id, reports.c.due_at < report.due_at, reports.c.state == "sent"
    )
    statement = sa.select(reports.c.run_id).where(earlier).order_by(reports.c.due_at.desc()).limit(1)
    run_id: int | None = connection.execute(statement).scalar_one_or_none()
    return run_id


def finish_report(connection: Connection, report_id: int, *, run_id: int, content: NoticeData) -> bool:
    """Store what a report says, as sent; False where somebody already has, who has put it into the outbox too."""
    packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode())
    return _end(connection, report_id, state="sent", run_id=run_id, content=packed)


def skip_report(connection: Connection, report_id: int, reason: str) -> bool:
    """End a report that is not sent; False where it has ended already."""
    return _end(connection, report_id, state="skipped", reason=reason)


def read_content(connection: Connection, report_id: int) -> NoticeData:
    """Return what a sent report says."""
    packed = connection.execute(sa.select(reports.c.content).where(reports.c.id == report_id)).scalar_one()
    content: NoticeData = json.loads(zlib.decompress(packed))
    return content


def old_reports(connection: Connection, limit: int, *, horizon: int) -> list[int]:
    """Find reports older than `horizon` of which nothing is to be sent any more."""
    waiting = sa.exists().where(deliveries.c.report_id == reports.c.id, deliveries.c.state == "pending")
    old = sa.select(reports.c.id).where(reports.c.created_at < horizon, ~waiting)
    return list(connection.execute(old.limit(limit)).scalars())


def drop_reports(connection: Connection, old: Sequence[int]) -> int:
    """Delete reports with their deliveries and attempts."""
    delivery_ids = sa.select(deliveries.c.id).where(deliveries.c.report_id.in_(old))
    connection.execute(sa.delete(attempts).where(attempts.c.delivery_id.in_(delivery_ids)))
    connection.execute(sa.delete(deliveries).where(deliveries.c.report_id.in_(old)))
    return connection.execute(sa.delete(reports).where(reports.c.id.in_(old))).rowcount


def _end(connection: Connection, report_id: int, **values: Any) -> bool:
    mine = sa.and_(reports.c.id == report_id, reports.c.state == "due")
    return connection.execute(sa.update(reports).where(mine).values(**values)).rowcount == 1


_REPORT = sa.select(reports.c.id, reports.c.check_id, reports.c.due_at, reports.c.state, reports.c.run_id)
BLOCK = 200
"""Number of checks read by one statement."""


class NumbersVersion(NamedTuple):
    """Version of a check's numbers: they change only if it does."""

    version_id: int
    run_id: int | None
    """The newest ended run."""
    detected_run_id: int | None
    """The last run of the detector."""
    answers_at: int | None
    """When the generated answers of the newest run were rated, which adds their measures; None = they were not."""


class CheckRows(NamedTuple):
    """The rows of a check."""

    check: Definition
    run: RunRow | None
    """The newest ended run."""
    body: RunDetails
    """Its stored details."""
    detection: DetectionRow | None
    """The detector's result for its last run."""


def check_versions(connection: Connection, check_ids: Sequence[int] | None = None) -> dict[int, NumbersVersion]:
    """Return the versions of all checks in force by slug, or of those among these few hundred, by check id."""
    statement = (
        sa.select(
            definitions.c.id,
            definitions.c.version_id,
            latest.c.run_id,
            detectors.c.run_id,
            run_answers.c.finished_at,
        )
        .outerjoin(latest, latest.c.check_id == definitions.c.id)
        .outerjoin(detectors, detectors.c.check_id == definitions.c.id)
        .outerjoin(run_answers, run_answers.c.run_id == latest.c.run_id)
        .where(definitions.c.kind == "check", definitions.c.archived_at.is_(None))
        .order_by(definitions.c.slug)
    )
    if check_ids is not None:
        statement = statement.where(definitions.c.id.in_(list(check_ids)))
    return {check_id: NumbersVersion(*version) for check_id, *version in connection.execute(statement).all()}


def read_checks(connection: Connection, versions: Mapping[int, NumbersVersion]) -> Iterator[CheckRows]:
    """Yield the rows of checks; a few statements for every `BLOCK` of them."""
    for block in blocks(list(versions), BLOCK):
        runs = run_rows.find_runs(connection, [run for one in block if (run := versions[one].run_id) is not None])
        bodies = run_rows.latest_bodies(connection, block)
        detections = detector_rows.newest_detections(connection, block)
        for check in catalog.definitions_by_id(connection, block):
            run_id, body = bodies.get(check.id, (0, {}))
            yield CheckRows(check, runs.get(run_id), body, detections.get(check.id))


def alerts_in_period(connection: Connection, check_id: int, start: int, end: int, *, limit: int) -> list[sa.Row[Any]]:
    """Return the newest alerts that were open in a period, oldest first."""
    open_then = sa.and_(
        alerts.c.check_id == check_id,
        alerts.c.opened_at <= end,
        sa.or_(alerts.c.resolved_at.is_(None), alerts.c.resolved_at >= start),
    )
    columns = (alerts.c.id, alerts.c.rule_key, alerts.c.severity, alerts.c.opened_at, alerts.c.resolved_at)
    newest = sa.select(*columns).where(open_then).order_by(alerts.c.id.desc()).limit(limit)
    return [*reversed(connection.execute(newest).all())]


class PublicLinkRow(NamedTuple):
    """The public link of a check, without its secret."""

    check: str
    created_by: str
    created_at: datetime


def save_public_link(connection: Connection, check_id: int, digest: bytes, *, by: str, now: int) -> None:
    """Store the public link of a check in the place of the one it had."""
    upsert(connection, public_links, ("check_id",), check_id=check_id, digest=digest, created_by=by, created_at=now)


def find_public_link(
    connection: Connection, *, slug: str | None = None, digest: bytes | None = None
) -> PublicLinkRow | None:
    """Return the public link of a check in force, by its slug or by the hash of its token."""
    which = definitions.c.slug == slug if digest is None else public_links.c.digest == digest
    statement = (
        sa.select(definitions.c.slug, public_links.c.created_by, public_links.c.created_at)
        .join(definitions, definitions.c.id == public_links.c.check_id)
        .where(which, definitions.c.kind == "check", definitions.c.archived_at.is_(None))
    )
    row = connection.execute(statement).one_or_none()
    return None if row is None else PublicLinkRow(row.slug, row.created_by, from_us(row.created_at))


def delete_public_link(connection: Connection, check_id: int) -> bool:
    """Delete the public link of a check; return whether there was one."""
    return connection.execute(sa.delete(public_links).where(public_links.c.check_id == check_id)).rowcount > 0
