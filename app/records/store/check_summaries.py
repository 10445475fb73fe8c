"""Summaries of all checks: newest ended run, active run, and a few earlier values; never the whole history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks, sql_literal
from app.base.db.packed import number_at
from app.catalog.tables import definitions
from app.hooks.tables import deliveries
from app.records.run_tables import runs
from app.records.store.queue import due
from app.records.store.results import ENDED, RunRow, layout_names, newest_ended_of_all
from app.records.tables import latest

_TOGETHER = 50
"""Most selects in one statement; SQLite allows 500."""
_ACTIVE = ("running", "queued")


class Part(msgspec.Struct, frozen=True):
    """Scores of the canaries of one category or tag in a run; None = nothing was measured."""

    canaries: int
    measured: int
    coverage: float | None = None


class Slices(msgspec.Struct, frozen=True):
    """The parts of a run's body that summaries use."""

    categories: dict[str, Part] = {}
    tags: dict[str, Part] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest ended run of a check with its parts."""

    run: RunRow
    slices: Slices


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRun:
    """An ended run of a check's recent ones."""

    id: int
    verdict: str
    """The status where there is no verdict: the run could not start."""
    value: float | None
    """One aggregate of the run; None = not measured."""


def newest_runs(connection: Connection) -> dict[int, Newest]:
    """Return the newest ended run of every check that has one, by check id."""
    bodies = {row.check_id: row for row in connection.execute(sa.select(latest))}
    rows = newest_ended_of_all(connection)
    return {
        run.check_id: Newest(run=run, slices=msgspec.json.decode(bodies[run.check_id].body, type=Slices))
        for run in rows
        if run.check_id in bodies
    }


def under_way(connection: Connection, now: int) -> dict[int, str]:
    """Return the checks with an active run, by check id: `running`, else `queued`.

    A run by schedule is queued before its spread start; until then it is only the next run.
    """
    active = runs.c.status.in_([sql_literal("queued"), sql_literal("running")])  # the order of ix_runs_active
    begun = sa.or_(runs.c.status == sql_literal("running"), *due(now))
    statement = sa.select(runs.c.check_id, runs.c.status).where(active, begun)
    found: dict[int, str] = {}
    for check_id, status in connection.execute(statement):
        found[check_id] = min(status, found.get(check_id, status), key=_ACTIVE.index)
    return found


def recent_runs(
    connection: Connection, check_ids: Sequence[int], name: str, *, limit: int
) -> dict[int, list[RecentRun]]:
    """Return the newest `limit` ended runs of these checks with one aggregate, oldest first, by check id."""
    found: dict[int, list[RecentRun]] = {check_id: [] for check_id in check_ids}
    places: dict[int | None, int | None] = {None: None}  # a run that could not start has no layout
    for block in blocks(check_ids, _TOGETHER):
        for row in connection.execute(_newest_of(len(block), limit), {f"c{n}": one for n, one in enumerate(block)}):
            if row.layout_id not in places:
                places[row.layout_id] = _place(connection, row.layout_id, name)
            value = number_at(places[row.layout_id], row.aggregates, row.figures)
            found[row.check_id].append(RecentRun(id=row.id, verdict=row.verdict or row.status, value=value))
    return {check_id: newest[::-1] for check_id, newest in found.items()}


def dead_letters(connection: Connection, since: int) -> Mapping[str, int]:
    """Return the number of dead letters written since then, by hook."""
    statement = (
        sa.select(definitions.c.slug, sa.func.count())
        .join(deliveries, deliveries.c.hook_id == definitions.c.id)
        .where(deliveries.c.state == sql_literal("dead"), deliveries.c.created_at >= since)
        .group_by(definitions.c.slug)
    )
    return {row.slug: row[1] for row in connection.execute(statement)}


@lru_cache(maxsize=2 * _TOGETHER)
def _newest_of(count: int, limit: int) -> sa.CompoundSelect[Any]:
    # One round trip, each part along ix_runs_check_id; kept, for making it takes longer than running it.
    parts = []
    for number in range(count):
        mine = sa.and_(runs.c.check_id == sa.bindparam(f"c{number}"), runs.c.status.in_(ENDED))
        columns = (
            runs.c.check_id,
            runs.c.id,
            runs.c.verdict,
            runs.c.status,
            runs.c.layout_id,
            runs.c.aggregates,
            runs.c.figures,
        )
        newest = sa.select(*columns).where(mine).order_by(runs.c.id.desc()).limit(limit).subquery()
        parts.append(sa.select(newest))
    return sa.union_all(*parts)


def _place(connection: Connection, layout: int, name: str) -> int | None:
    names = layout_names(connection, layout)
    return names.index(name) if name in names else None
