"""Forgetting rows: by age, and what nothing refers to any more. Each function is one small batch."""

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.engine import hold_content
from app.store.recording import RankingBody
from app.store.tables import (
    alerts,
    attempts,
    chunks,
    deliveries,
    idempotency_keys,
    latest,
    marks,
    rankings,
    run_probes,
    runs,
    scores,
    shards,
    states,
    transitions,
)


def prune_runs(connection: Connection, horizon: int, batch: int) -> int:
    """Delete runs that ended before `horizon`, but never the newest of a check."""
    newest = sa.select(latest.c.run_id)
    old = _ids(connection, sa.select(runs.c.id).where(runs.c.finished_at < horizon, runs.c.id.not_in(newest)), batch)
    for table in (run_probes, marks, shards, idempotency_keys):
        connection.execute(sa.delete(table).where(table.c.run_id.in_(old)))
    connection.execute(sa.delete(runs).where(runs.c.id.in_(old)))
    return len(old)


def prune_states(connection: Connection, batch: int) -> int:
    """Delete states that ended before the oldest run their check still has."""
    oldest = sa.select(sa.func.min(runs.c.id)).where(runs.c.check_id == states.c.check_id).scalar_subquery()
    old = _ids(connection, sa.select(states.c.id).where(states.c.last_run < oldest), batch)
    connection.execute(sa.delete(states).where(states.c.id.in_(old)))
    return len(old)


def prune_rankings(connection: Connection, batch: int) -> int:
    """Delete rankings, with their scores, that no state refers to and no run in progress has staged."""
    if _running(connection):
        return 0
    hold_content(connection, alone=True)
    used = sa.exists().where(states.c.ranking_id == rankings.c.id)
    old = _ids(connection, sa.select(rankings.c.id).where(~used), batch)
    connection.execute(sa.delete(scores).where(scores.c.ranking_id.in_(old)))
    connection.execute(sa.delete(rankings).where(rankings.c.id.in_(old)))
    return len(old)


def prune_chunks(connection: Connection, batch: int) -> int:
    """Delete retrieved texts that no ranking holds any more."""
    hold_content(connection, alone=True)
    used: set[int] = set()
    for body in connection.execute(sa.select(rankings.c.body)).scalars():
        used.update(msgspec.msgpack.decode(body, type=RankingBody).chunks)
    unused = [chunk for chunk in connection.execute(sa.select(chunks.c.id)).scalars() if chunk not in used]
    for start in range(0, len(unused), batch):
        connection.execute(sa.delete(chunks).where(chunks.c.id.in_(unused[start : start + batch])))
    return len(unused)


def prune_alerts(connection: Connection, horizon: int, batch: int) -> int:
    """Delete alerts that resolved before `horizon`, with their transitions, deliveries and attempts."""
    resolved = sa.select(alerts.c.id).where(alerts.c.state == "resolved", alerts.c.resolved_at < horizon)
    old = _ids(connection, resolved, batch)
    told = sa.select(deliveries.c.id).where(deliveries.c.alert_id.in_(old))
    connection.execute(sa.delete(attempts).where(attempts.c.delivery_id.in_(told)))
    connection.execute(sa.delete(deliveries).where(deliveries.c.alert_id.in_(old)))
    connection.execute(sa.delete(transitions).where(transitions.c.alert_id.in_(old)))
    connection.execute(sa.delete(alerts).where(alerts.c.id.in_(old)))
    return len(old)


def _running(connection: Connection) -> bool:
    return connection.execute(sa.select(runs.c.id).where(runs.c.status == "running").limit(1)).first() is not None


def _ids(connection: Connection, statement: sa.Select[Any], batch: int) -> list[int]:
    return list(connection.execute(statement.limit(batch)).scalars().all())
