"""Rows that the change feed polls every second: per check, per unresolved alert, per active run."""

from collections.abc import Collection
from dataclasses import dataclass

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks, sql_literal
from app.catalog.tables import definitions, suite_versions
from app.hooks.tables import alerts
from app.records.run_tables import runs, shards
from app.records.store.shards import ShardBody
from app.records.tables import latest

_MEMBER_BYTES = 16  # a canary id and a version id, see suites.freeze_suite


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRun:
    """Progress of a run."""

    id: int
    check: str
    status: str
    verdict: str | None
    asked: int | None
    """Number of its canaries; None before it started."""
    failed: int | None
    """Number of failed probes; None until it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAlert:
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
    return {row.id: OpenAlert(**row._mapping) for row in connection.execute(statement)}  # noqa: SLF001 - public despite its name


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
    started_by = None if row.asked is None else int(row.asked)
    return FollowedRun(**{**row._mapping, "asked": started_by})  # noqa: SLF001 - as above


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
