"""Which checks are due: of each the instant that comes next, found along an index however many checks there are.

A row of `next_runs` is of one version of its check. Where it is missing or of another version it is computed anew, so
that any release can save a check without knowing of it. What the change feed polls every second stands at the end.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.alerts.tables import alerts
from app.base.db.engine import blocks, insert_new, row_value, sql_literal, upsert_many
from app.base.db.rows import numbers
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import Value
from app.catalog.tables import definitions, suite_versions
from app.records.store.open_runs import ShardBody
from app.records.tables import latest, next_runs, runs, shards

BLOCK: Final = 500
"""Checks whose runs are queued by one transaction."""


class CheckRow(NamedTuple):
    """A check in force, as far as the clock is concerned."""

    id: int
    slug: str
    version_id: int
    updated_at: int
    scheduled_version_id: int | None
    """The version whose next instant is known; None = none is."""
    completed_at: int | None
    """When a run of it completed last, by whatever clock."""


class DueCheck(NamedTuple):
    """A check of which a run may have to be queued."""

    id: int
    slug: str
    version_id: int
    newest_instant: int | None
    """Of the run that was queued last, see `records.store.open_runs.newest_instant`."""
    is_queued: bool
    """Whether a run of it is queued: at most one is at a time."""


class NewRun(NamedTuple):
    """A run to be queued."""

    check_id: int
    scheduled_for: int
    not_before: int


def list_checks(connection: Connection) -> list[CheckRow]:
    """List the checks in force, a short row each."""
    completed = runs.c.status.in_([sql_literal("finished"), sql_literal("partial")])  # the order of ix_runs_completed
    newest = sa.select(sa.func.max(runs.c.finished_at)).where(runs.c.check_id == definitions.c.id, completed)
    statement = (
        sa.select(
            definitions.c.id,
            definitions.c.slug,
            definitions.c.version_id,
            definitions.c.updated_at,
            next_runs.c.version_id,
            newest.scalar_subquery(),
        )
        .outerjoin(next_runs, next_runs.c.check_id == definitions.c.id)
        .where(definitions.c.kind == "check", definitions.c.archived_at.is_(None))
    )
    return [CheckRow(*row) for row in connection.execute(statement)]


def due_checks(connection: Connection, *, now: int, hold: bool = False) -> list[DueCheck]:
    """Read up to `BLOCK` checks whose next instant has come, the oldest first.

    A check of which a run is queued waits until that begins. `hold` keeps others from queueing runs of what is read,
    and passes over checks that others hold.
    """
    statement = (
        _DUE.join(next_runs, next_runs.c.check_id == definitions.c.id)
        .where(next_runs.c.next_run_at <= now, ~_QUEUED)
        .order_by(next_runs.c.next_run_at)
        .limit(BLOCK)
    )
    if hold:  # as `open_runs` holds the check; and the loser sees what the winner wrote
        statement = statement.with_for_update(of=[definitions, next_runs], key_share=True, skip_locked=True)
    return [DueCheck(*row) for row in connection.execute(statement)]


def find_checks(connection: Connection, *, check_ids: Collection[int], hold: bool = False) -> list[DueCheck]:
    """Read these checks, up to `BLOCK`, whether they are due or not; `hold` as in `due_checks`."""
    statement = _DUE.where(definitions.c.id.in_(sorted(check_ids))).order_by(definitions.c.id)
    if hold:
        statement = statement.with_for_update(of=definitions, key_share=True, skip_locked=True)
    return [DueCheck(*row) for row in connection.execute(statement)]


def next_instant(connection: Connection, after: int) -> int | None:
    """Return the first instant after `after` at which a check is due; None = there is none."""
    statement = sa.select(sa.func.min(next_runs.c.next_run_at)).where(next_runs.c.next_run_at > after)
    instant: int | None = connection.execute(statement).scalar_one()
    return instant


def taken_instants(connection: Connection, wanted: Sequence[NewRun]) -> set[int]:
    """Give the checks, by id, that have a run of the very instant already."""
    planned = numbers(connection, "asked", ("check_id", "instant"), [run[:2] for run in wanted])
    statement = sa.select(runs.c.check_id).join(
        planned, sa.and_(planned.c.check_id == runs.c.check_id, planned.c.instant == runs.c.scheduled_for)
    )
    return set(connection.execute(statement).scalars())


def queue_runs(connection: Connection, wanted: Sequence[NewRun], *, now: int) -> None:
    """Queue runs of checks that are held and have none queued."""
    if not wanted:
        return
    columns = ("check_id", "scheduled_for", "not_before", "trigger", "status", "created_at")
    insert_new(connection, runs, columns, [(*run, "schedule", "queued", now) for run in wanted])
    planned = numbers(connection, "asked", ("check_id", "instant"), [run[:2] for run in wanted])
    queued = sa.select(runs.c.id, runs.c.not_before).join(
        planned, sa.and_(planned.c.check_id == runs.c.check_id, planned.c.instant == runs.c.scheduled_for)
    )
    rows = connection.execute(queued).all()
    defer(connection, [NewJob(JobKind.RUN, row.id, run_at=row.not_before) for row in rows])


def save_next_runs(connection: Connection, rows: Sequence[tuple[int, int, int | None]]) -> None:
    """Note of checks in one of their versions when they are due next: (check id, version id, instant or None)."""
    upsert_many(connection, next_runs, ["check_id"], ("check_id", "version_id", "next_run_at"), rows)


def archived_checks(connection: Connection) -> list[int]:
    """List the checks that are archived and whose next instant is kept still."""
    statement = sa.select(definitions.c.id).join(next_runs, next_runs.c.check_id == definitions.c.id)
    return list(connection.execute(statement.where(definitions.c.archived_at.is_not(None))).scalars())


def forget_checks(connection: Connection, check_ids: Sequence[int]) -> None:
    """Let when these checks are due next be computed anew."""
    connection.execute(
        sa.delete(next_runs).where(next_runs.c.check_id == sa.bindparam("id")), [{"id": one} for one in check_ids]
    )


_QUEUED = sa.exists().where(runs.c.check_id == definitions.c.id, runs.c.status == sql_literal("queued"))
_NEWEST = (
    sa.select(runs.c.scheduled_for)
    .where(runs.c.check_id == definitions.c.id)
    .order_by(runs.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
_DUE = sa.select(
    definitions.c.id, definitions.c.slug, definitions.c.version_id, _NEWEST, _QUEUED.label("is_queued")
).where(definitions.c.archived_at.is_(None))


_MEMBER_BYTES = 16  # a canary id and a version id, see versions.freeze_suite


class FollowedRun(Value):
    """Progress of a run."""

    id: int
    check: str
    status: str
    verdict: str | None
    asked: int | None
    """Number of its canaries; None before it started."""
    failed: int | None
    """Number of failed probes; None until it ended."""


class OpenAlert(Value):
    """An unresolved alert, comparable with its earlier state."""

    id: int
    check: str
    state: str
    severity: str
    acknowledged_at: int | None


def newest_runs(connection: Connection) -> dict[str, int]:
    """Return the newest ended run of every check, by slug."""
    statement = sa.select(definitions.c.slug, latest.c.run_id).join(latest, latest.c.check_id == definitions.c.id)
    return {row.slug: row.run_id for row in connection.execute(statement)}


def open_alerts(connection: Connection) -> dict[int, OpenAlert]:
    """Return the unresolved alerts by id."""
    columns = (alerts.c.id, definitions.c.slug.label("check"), alerts.c.state, alerts.c.severity)
    statement = (
        sa.select(*columns, alerts.c.acknowledged_at)
        .join(definitions, definitions.c.id == alerts.c.check_id)
        .where(alerts.c.state != sql_literal("resolved"))
    )
    return {row.id: row_value(OpenAlert, row) for row in connection.execute(statement)}


def followed_run(connection: Connection, run_id: int) -> FollowedRun | None:
    """Return the progress of a run; None where there is no such run."""
    statement = (
        sa.select(
            runs.c.id,
            definitions.c.slug.label("check"),
            runs.c.status,
            runs.c.verdict,
            (sa.func.length(suite_versions.c.members) / _MEMBER_BYTES).label("asked"),
            runs.c.failed,
        )
        .join(definitions, definitions.c.id == runs.c.check_id)
        .outerjoin(suite_versions, suite_versions.c.id == runs.c.suite_version_id)
        .where(runs.c.id == run_id)
    )
    row = connection.execute(statement).one_or_none()
    if row is None:
        return None
    return row_value(FollowedRun, row, asked=None if row.asked is None else int(row.asked))


def runs_under_way(connection: Connection, run_ids: Collection[int]) -> set[int]:
    """Return those of these runs that are queued or running."""
    active = runs.c.status.in_((sql_literal("queued"), sql_literal("running")))  # ix_runs_active
    found: set[int] = set()
    for block in blocks(sorted(run_ids)):
        found.update(connection.execute(sa.select(runs.c.id).where(runs.c.id.in_(block), active)).scalars())
    return found


def new_shards(connection: Connection, run_id: int, counts: Collection[int]) -> dict[int, int]:
    """Return the number of failed probes of newly staged shards of a run, by shard; they never change."""
    mine = sa.and_(shards.c.run_id == run_id, shards.c.number.not_in(counts))
    rows = connection.execute(sa.select(shards.c.number, shards.c.body).where(mine))
    return {row.number: len(msgspec.msgpack.decode(row.body, type=ShardBody).failures) for row in rows}
