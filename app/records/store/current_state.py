"""The present state for metrics: waiting runs, retrying and dead deliveries, canary scores.

Each is a look along an index; nothing here scans history.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks, sql_literal
from app.catalog.store import suites
from app.catalog.tables import canaries
from app.hooks.store import outbox
from app.hooks.tables import deliveries
from app.records.run_tables import runs
from app.records.store import queue, results
from app.records.store.results import RunRow
from app.records.tables import states

RETRYING_AFTER = 3
"""Number of attempts from which a delivery counts as retrying."""


def waiting_runs(connection: Connection, now: int) -> tuple[int, int | None]:
    """Return the number of due runs that could start, and since when the oldest is due.

    A run whose check is at another one waits for that, not for a worker: it does not count. Nor does the time before a
    run was queued: its scheduled instant may be older than the check.
    """
    ahead = runs.c.not_before > now  # queued by a clock that was ahead
    since = sa.case((sa.or_(ahead, runs.c.not_before < runs.c.created_at), runs.c.created_at), else_=runs.c.not_before)
    statement = sa.select(sa.func.count(), sa.func.min(since)).where(queue.startable(now))
    waiting, oldest = connection.execute(statement).one()
    return waiting, oldest


def retrying_deliveries(connection: Connection) -> dict[int, int]:
    """Return the number of pending deliveries with `RETRYING_AFTER` attempts or more but for test messages, by hook."""
    pending = deliveries.c.state == sql_literal("pending")
    return _count(connection, pending, deliveries.c.attempts >= RETRYING_AFTER, deliveries.c.type != outbox.TEST)


def dead_deliveries(connection: Connection) -> dict[int, int]:
    """Return the number of dead letters by hook."""
    return _count(connection, deliveries.c.state == sql_literal("dead"))


def _count(connection: Connection, *conditions: sa.ColumnElement[bool]) -> dict[int, int]:
    statement = sa.select(deliveries.c.hook_id, sa.func.count()).where(*conditions).group_by(deliveries.c.hook_id)
    return dict(connection.execute(statement).all())


def top_scores(connection: Connection, run: RunRow, most: int) -> tuple[dict[str, float | None], int]:
    """Return the relevance of the first `most` canaries of a run's suite by key, and the number of the others.

    Whoever could not be asked is not in it; None = it found nothing, or relevance could not be measured.
    """
    if most == 0 or run.suite_version_id is None or not run.aggregates:
        return {}, 0
    members = [canary for canary, _ in suites.members_of(connection, run.suite_version_id)]
    capped, failed = members[:most], results.probes_of(connection, run.id)[1]
    found = _states_at(connection, run, capped)
    unscored = set(results.unscored_at(connection, run.id))
    scores = {
        key: None if position in unscored else score
        for position, canary in enumerate(capped)
        if canary in found and position not in failed
        for key, score in [found[canary]]
    }
    return scores, len(members) - len(capped)


def _states_at(connection: Connection, run: RunRow, members: Sequence[int]) -> dict[int, tuple[str, float | None]]:
    found: dict[int, tuple[str, float | None]] = {}
    for block in blocks(members):
        statement = (
            sa.select(states.c.canary_id, canaries.c.key, states.c.top_score)
            .join(canaries, canaries.c.id == states.c.canary_id)
            .where(
                states.c.check_id == run.check_id,
                states.c.canary_id.in_(block),
                states.c.first_run <= run.id,
                sa.or_(states.c.last_run.is_(None), states.c.last_run >= run.id),
            )
        )
        found.update((canary, (key, score)) for canary, key, score in connection.execute(statement))
    return found
