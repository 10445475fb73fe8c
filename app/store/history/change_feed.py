"""What a process looks at every second for those who follow: a row per check, per open alert, per run under way."""

from collections.abc import Collection
from dataclasses import dataclass

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.engine import blocks, sql_literal
from app.store.runs.shards import ShardBody
from app.store.tables import alerts, definitions, latest, runs, shards, suite_versions

_MEMBER_BYTES = 16  # a canary id and a version id, see suites.freeze_suite


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRun:
    """How far a run is."""

    id: int
    check: str
    status: str
    verdict: str | None
    asked: int | None
    """How many canaries it asks; None before it started."""
    failed: int | None
    """How many probes failed; None until it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAlert:
    """An alert that is not resolved; two of them differ where something changed."""

    id: int
    check: str
    state: str
    severity: str
    acknowledged_at: int | None


def newest_runs(connection: Connection) -> dict[str, int]:
    """Give the newest ended run of every check, by slug."""
    statement = sa.select(definitions.c.slug, latest.c.run_id).join(latest, latest.c.check_id == definitions.c.id)
    return {row.slug: row.run_id for row in connection.execute(statement)}


def open_alerts(connection: Connection) -> dict[int, OpenAlert]:
    """Give the alerts that are not resolved, by id."""
    columns = (alerts.c.id, definitions.c.slug.label("check"), alerts.c.state, alerts.c.severity)
    statement = (
        sa.select(*columns, alerts.c.acknowledged_at)
        .join(definitions, definitions.c.id == alerts.c.check_id)
        .where(alerts.c.state != sql_literal("resolved"))
    )
    return {row.id: OpenAlert(**row._mapping) for row in connection.execute(statement)}  # noqa: SLF001 - public despite its name


def followed_run(connection: Connection, run_id: int) -> FollowedRun | None:
    """Read how far a run is; None where there is none."""
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
    """Give those of these runs that are queued or running."""
    active = runs.c.status.in_((sql_literal("queued"), sql_literal("running")))  # ix_runs_active
    found: set[int] = set()
    for block in blocks(sorted(run_ids)):
        found.update(connection.execute(sa.select(runs.c.id).where(runs.c.id.in_(block), active)).scalars())
    return found


def new_shards(connection: Connection, run_id: int, counts: Collection[int]) -> dict[int, int]:
    """Count the failed probes of the shards a run has staged that are not known yet, by number; none ever changes."""
    mine = sa.and_(shards.c.run_id == run_id, shards.c.number.not_in(counts))
    rows = connection.execute(sa.select(shards.c.number, shards.c.body).where(mine))
    return {row.number: len(msgspec.msgpack.decode(row.body, type=ShardBody).failures) for row in rows}
