"""Forgetting rows: by age, and what nothing refers to any more. Each function is one small batch."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.engine import hold_content
from app.store.queue import ShardBody
from app.store.recording import HOUR, RankingBody
from app.store.tables import (
    alerts,
    attempts,
    baselines,
    chunks,
    deliveries,
    detections,
    detectors,
    embedder_findings,
    embedders,
    idempotency_keys,
    incidents,
    latest,
    marks,
    rankings,
    rescored_rollups,
    rescored_runs,
    rollups,
    run_causes,
    run_embedders,
    run_probes,
    runs,
    scores,
    shards,
    states,
    transitions,
    vectors,
)


def prune_runs(connection: Connection, horizon: int, batch: int) -> int:
    """Delete runs that ended before `horizon`, but never the newest of a check."""
    old: list[int] = []
    for check_id, newest in connection.execute(sa.select(latest.c.check_id, latest.c.run_id)).all():
        ended = sa.and_(runs.c.check_id == check_id, runs.c.finished_at < horizon, runs.c.id != newest)
        old += _ids(connection, sa.select(runs.c.id).where(ended), batch - len(old))
        if len(old) == batch:
            break
    for table in (rescored_runs, run_probes, run_causes, run_embedders, detections, marks, shards, idempotency_keys):
        connection.execute(sa.delete(table).where(table.c.run_id.in_(old)))
    connection.execute(sa.delete(runs).where(runs.c.id.in_(old)))
    return len(old)


def prune_states(connection: Connection, batch: int) -> int:
    """Delete states that ended before the oldest run their check still has."""
    oldest = connection.execute(sa.select(runs.c.check_id, sa.func.min(runs.c.id)).group_by(runs.c.check_id)).all()
    old: list[int] = []
    for check_id, run_id in oldest:
        ended = sa.select(states.c.id).where(states.c.check_id == check_id, states.c.last_run < run_id)
        old += _ids(connection, ended, batch - len(old))
        if len(old) == batch:
            break
    connection.execute(sa.delete(states).where(states.c.id.in_(old)))
    return len(old)


def prune_rankings(connection: Connection, batch: int) -> int:
    """Delete rankings, with their scores, that no state refers to and no run in progress has staged."""
    hold_content(connection, alone=True)  # before looking: what is staged without the lock could not be seen yet
    staged = _staged(connection)
    used = sa.exists().where(states.c.ranking_id == rankings.c.id)
    unused = _ids(connection, sa.select(rankings.c.id).where(~used), batch + len(staged))
    old = [ranking for ranking in unused if ranking not in staged][:batch]
    connection.execute(sa.delete(scores).where(scores.c.ranking_id.in_(old)))
    connection.execute(sa.delete(rankings).where(rankings.c.id.in_(old)))
    return len(old)


def newest_ranking(connection: Connection) -> int:
    """Give the id of the newest ranking; none with a lower id is still on its way."""
    hold_content(connection, alone=True)
    return int(connection.execute(sa.select(sa.func.coalesce(sa.func.max(rankings.c.id), 0))).scalar_one())


def unused_chunks(connection: Connection) -> list[int]:
    """Find the retrieved texts that no ranking holds any more; a long look, for a reading transaction."""
    used = _chunks_of(connection, sa.true())
    return [chunk for chunk in connection.execute(sa.select(chunks.c.id)).scalars() if chunk not in used]


def prune_chunks(connection: Connection, candidates: Sequence[int], *, since: int) -> int:
    """Delete these retrieved texts, less those that a ranking newer than `since` has taken up again."""
    hold_content(connection, alone=True)
    used = _chunks_of(connection, rankings.c.id > since)
    old = [chunk for chunk in candidates if chunk not in used]
    connection.execute(sa.delete(chunks).where(chunks.c.id.in_(old)))
    return len(old)


def unused_vectors(connection: Connection) -> list[int]:
    """Find the vectors that nothing scored any more; a long look, for a reading transaction."""
    used = set(connection.execute(sa.select(scores.c.vector_id).distinct()).scalars())
    return [vector for vector in connection.execute(sa.select(vectors.c.id)).scalars() if vector not in used]


def prune_vectors(connection: Connection, candidates: Sequence[int]) -> int:
    """Delete these vectors, less those that have been taken up again."""
    hold_content(connection, alone=True)
    again = sa.select(scores.c.vector_id).where(scores.c.vector_id.in_(list(candidates)))
    used = set(connection.execute(again).scalars())
    old = [vector for vector in candidates if vector not in used]
    connection.execute(sa.delete(vectors).where(vectors.c.id.in_(old)))
    return len(old)


def prune_findings(connection: Connection, batch: int) -> int:
    """Delete what was found of embedders in runs that are gone."""
    hold_content(connection, alone=True)
    referring = (run_embedders, embedders)
    used = sa.or_(*[sa.exists().where(table.c.finding_id == embedder_findings.c.id) for table in referring])
    old = _ids(connection, sa.select(embedder_findings.c.id).where(~used), batch)
    connection.execute(sa.delete(embedder_findings).where(embedder_findings.c.id.in_(old)))
    return len(old)


def prune_baselines(connection: Connection, batch: int) -> int:
    """Delete baselines no detector works with any more: they are large, and what they say can be learned again."""
    used = sa.exists().where(detectors.c.baseline_id == baselines.c.id)
    old = _ids(connection, sa.select(baselines.c.id).where(~used), batch)
    connection.execute(sa.delete(baselines).where(baselines.c.id.in_(old)))
    return len(old)


def prune_hours(connection: Connection, horizon: int) -> int:
    """Delete the hourly figures before `horizon`; the daily ones stay."""
    return sum(
        connection.execute(sa.delete(table).where(table.c.seconds == HOUR, table.c.bucket < horizon)).rowcount
        for table in (rollups, rescored_rollups)
    )


def prune_tests(connection: Connection, horizon: int, batch: int) -> int:
    """Delete test deliveries older than `horizon`, with their attempts; those of alerts go with their alerts."""
    ended = sa.and_(deliveries.c.alert_id.is_(None), deliveries.c.state != "pending")
    old = _ids(connection, sa.select(deliveries.c.id).where(ended, deliveries.c.created_at < horizon), batch)
    connection.execute(sa.delete(attempts).where(attempts.c.delivery_id.in_(old)))
    connection.execute(sa.delete(deliveries).where(deliveries.c.id.in_(old)))
    return len(old)


def prune_alerts(connection: Connection, horizon: int, batch: int) -> int:
    """Delete what resolved before `horizon`: incidents with their alerts, transitions, deliveries and attempts.

    An alert that entered no incident goes by itself; the others with their incident, whose deliveries are about them.
    """
    over = sa.select(incidents.c.id).where(incidents.c.resolved_at < horizon)
    ended = _ids(connection, over, batch)
    told = sa.select(deliveries.c.id).where(deliveries.c.incident_id.in_(ended))
    connection.execute(sa.delete(attempts).where(attempts.c.delivery_id.in_(told)))
    connection.execute(sa.delete(deliveries).where(deliveries.c.incident_id.in_(ended)))
    alone = sa.and_(alerts.c.incident_id.is_(None), alerts.c.state == "resolved", alerts.c.resolved_at < horizon)
    old = [
        *connection.execute(sa.select(alerts.c.id).where(alerts.c.incident_id.in_(ended))).scalars(),
        *_ids(connection, sa.select(alerts.c.id).where(alone), batch),
    ]
    cancelled = sa.select(deliveries.c.id).where(deliveries.c.alert_id.in_(old))
    connection.execute(sa.delete(attempts).where(attempts.c.delivery_id.in_(cancelled)))
    connection.execute(sa.delete(deliveries).where(deliveries.c.alert_id.in_(old)))
    connection.execute(sa.delete(transitions).where(transitions.c.alert_id.in_(old)))
    connection.execute(sa.delete(alerts).where(alerts.c.id.in_(old)))
    connection.execute(sa.delete(incidents).where(incidents.c.id.in_(ended)))
    return len(old)


def _staged(connection: Connection) -> set[int]:
    bodies = connection.execute(sa.select(shards.c.body)).scalars()
    decoded = [msgspec.msgpack.decode(body, type=ShardBody) for body in bodies]
    return {ranking for shard in decoded for ranking in shard.rankings if ranking is not None}


def _chunks_of(connection: Connection, which: sa.ColumnElement[bool]) -> set[int]:
    used: set[int] = set()
    for body in connection.execute(sa.select(rankings.c.body).where(which)).scalars():
        used.update(msgspec.msgpack.decode(body, type=RankingBody).chunks)
    return used


def _ids(connection: Connection, statement: sa.Select[Any], batch: int) -> list[int]:
    return list(connection.execute(statement.limit(batch)).scalars().all())
