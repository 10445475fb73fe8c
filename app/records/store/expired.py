"""Rows that are too old, and rows that nothing refers to: found, and deleted in small batches.

`old_*` and `unused_*` look, along an index or in a bounded slice, for transactions that only read; `drop_*` deletes a
small batch of what they found by id, less what has been taken up again meanwhile.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy import Connection

from app.alerts.tables import alerts, incidents, transitions
from app.answers.tables import answer_texts, answers, run_answers, staged_answers
from app.base.db.engine import hold_content
from app.base.values import Value
from app.catalog.tables import definitions
from app.detection.tables import baselines, detections, detectors
from app.diagnosis.tables import run_causes
from app.hooks.tables import attempts, deliveries
from app.index_facts.tables import index_facts
from app.records.store.ranking_rows import RankingBody
from app.records.store.series import HOUR
from app.records.tables import (
    chunks,
    idempotency_keys,
    latest,
    marks,
    rankings,
    rescored_rollups,
    rescored_runs,
    rescorings,
    rollups,
    run_notes,
    run_probes,
    runs,
    scores,
    shards,
    states,
    vectors,
)
from app.retrievers.store import embedder_findings, embedders, run_embedders

HOURLY: Final = (rollups, rescored_rollups)
Ids = npt.NDArray[np.int64]
_PAGE = 10_000
_ALL = 2**31  # rankings: there are never so many newer than a look


def old_runs(connection: Connection, limit: int, *, horizon: int) -> list[int]:
    """Find runs that ended before `horizon`, but never the newest of a check."""
    old = sa.and_(
        runs.c.check_id.in_(sa.select(latest.c.check_id)),
        runs.c.finished_at < horizon,
        runs.c.id.not_in(sa.select(latest.c.run_id)),
    )
    return _ids(connection, sa.select(runs.c.id).where(old), limit)


def drop_runs(connection: Connection, old: Sequence[int]) -> int:
    """Delete runs with their dependent rows."""
    for table in _OF_RUNS:
        connection.execute(sa.delete(table).where(table.c.run_id.in_(old)))
    return connection.execute(sa.delete(runs).where(runs.c.id.in_(old))).rowcount


_OF_RUNS = (
    index_facts,
    rescored_runs,
    run_answers,
    staged_answers,
    run_probes,
    run_notes,
    run_causes,
    run_embedders,
    detections,
    marks,
    shards,
    idempotency_keys,
)


def old_states(connection: Connection, limit: int) -> list[int]:
    """Find states that ended before the oldest run their check still has."""
    oldest = sa.select(sa.func.min(runs.c.id)).where(runs.c.check_id == latest.c.check_id).scalar_subquery()
    ids: list[int] = []
    for check_id, run_id in connection.execute(sa.select(latest.c.check_id, oldest)).all():
        ended = sa.select(states.c.id).where(states.c.check_id == check_id, states.c.last_run < run_id)
        ids += _ids(connection, ended, limit - len(ids))
        if len(ids) == limit:
            break
    return ids


def newest_ranking(connection: Connection) -> int:
    """Return the id of the newest ranking, below which none is uncommitted. For a writing transaction."""
    hold_content(connection, alone=True)
    return highest_ranking(connection)


def highest_ranking(connection: Connection) -> int:
    """Return the highest id of a ranking; 0 = there are none."""
    return int(connection.execute(sa.select(sa.func.coalesce(sa.func.max(rankings.c.id), 0))).scalar_one())


def unused_rankings(connection: Connection, after: int, until: int) -> list[int]:
    """Find rankings with an id above `after` and up to `until` that no state and no answer refers to."""
    of_states = sa.exists().where(states.c.ranking_id == rankings.c.id)
    of_answers = sa.exists().where(answers.c.ranking_id == rankings.c.id)
    unused = sa.select(rankings.c.id).where(rankings.c.id > after, rankings.c.id <= until, ~of_states, ~of_answers)
    return list(connection.execute(unused.order_by(rankings.c.id)).scalars())


def drop_rankings(connection: Connection, candidates: Sequence[int]) -> int:
    """Delete rankings with their scores, less those that are referred to or a run in progress has staged."""
    hold_content(connection, alone=True)  # before reading: rows staged without the lock might not be visible yet
    used = _staged(connection)
    for table in (states, answers):
        referred = sa.select(table.c.ranking_id).where(table.c.ranking_id.in_(candidates))
        used |= set(connection.execute(referred).scalars())
    old = [ranking for ranking in candidates if ranking not in used]
    connection.execute(sa.delete(scores).where(scores.c.ranking_id.in_(old)))
    return connection.execute(sa.delete(rankings).where(rankings.c.id.in_(old))).rowcount


def all_chunks(connection: Connection) -> Ids:
    """Return the ids of all retrieved texts, ascending; as numbers of Python they would take ten times the memory."""
    pages = [np.zeros(0, np.int64)]
    after: int | None = 0
    while after is not None:
        statement = sa.select(chunks.c.id).where(chunks.c.id > after).order_by(chunks.c.id).limit(_PAGE)
        page = connection.execute(statement).scalars().all()
        pages.append(np.array(page, np.int64))
        after = page[-1] if page else None
    return np.concatenate(pages)


def chunks_of_rankings(connection: Connection, after: int, limit: int) -> tuple[set[int], int | None]:
    """Return the texts of up to `limit` rankings with an id above `after`, and the last id (None = no more)."""
    statement = sa.select(rankings.c.id, rankings.c.body).where(rankings.c.id > after)
    rows = connection.execute(statement.order_by(rankings.c.id).limit(limit)).all()
    used: set[int] = set()
    for row in rows:
        used.update(msgspec.msgpack.decode(row.body, type=RankingBody).chunks)
    return used, rows[-1].id if rows else None


def drop_chunks(connection: Connection, candidates: Sequence[int], *, since: int) -> int:
    """Delete these retrieved texts, less those that a ranking newer than `since` has taken up again."""
    hold_content(connection, alone=True)
    used, _ = chunks_of_rankings(connection, since, _ALL)
    old = [chunk for chunk in candidates if chunk not in used]
    return connection.execute(sa.delete(chunks).where(chunks.c.id.in_(old))).rowcount


class Orphans(Value):
    """Rows of a table that are deleted once nothing uses them."""

    table: sa.Table
    used: sa.ColumnElement[bool]
    is_content: bool = True
    """Whether a run in progress may take one up again."""

    def find(self, connection: Connection) -> list[int]:
        """Return the ids of unused rows."""
        return list(connection.execute(sa.select(self.table.c.id).where(~self.used)).scalars())

    def drop(self, connection: Connection, candidates: Sequence[int]) -> int:
        """Delete these rows, less those that have been taken up again."""
        if self.is_content:
            hold_content(connection, alone=True)
        return connection.execute(sa.delete(self.table).where(self.table.c.id.in_(candidates), ~self.used)).rowcount


VECTORS: Final = Orphans(table=vectors, used=sa.exists().where(scores.c.vector_id == vectors.c.id))
FINDINGS: Final = Orphans(
    table=embedder_findings,
    used=sa.or_(*[sa.exists().where(one.c.finding_id == embedder_findings.c.id) for one in (run_embedders, embedders)]),
)
"""Findings on embedders in runs that are gone."""
ANSWER_TEXTS: Final = Orphans(table=answer_texts, used=sa.exists().where(answers.c.text_id == answer_texts.c.id))
_NEWEST = sa.select(sa.func.max(baselines.c.id)).correlate(None).scalar_subquery()
BASELINES: Final = Orphans(
    table=baselines,
    # SQLite gives the highest id anew, and ids are keys of caches.
    used=sa.or_(sa.exists().where(detectors.c.baseline_id == baselines.c.id), baselines.c.id == _NEWEST),
    is_content=False,
)
"""Baselines no detector works with any more: they are large, and what they say can be learned again."""


def old_hours(connection: Connection, limit: int, *, table: sa.Table, horizon: int) -> list[tuple[int, ...]]:
    """Return the keys of hourly figures before `horizon` in a table of rollups."""
    owner = table.primary_key.columns[0]
    owners = sa.select(definitions.c.id if table is rollups else rescorings.c.id)
    old = sa.select(*table.primary_key.columns).where(
        owner.in_(owners), table.c.seconds.in_((HOUR, -HOUR)), table.c.bucket < horizon
    )
    return [tuple(row) for row in connection.execute(old.limit(limit))]


def drop_hours(connection: Connection, old: Sequence[tuple[int, ...]], *, table: sa.Table) -> int:
    """Delete figures by their keys."""
    for key in old:
        same = [column == value for column, value in zip(table.primary_key.columns, key, strict=True)]
        connection.execute(sa.delete(table).where(*same))
    return len(old)


def old_tests(connection: Connection, limit: int, *, horizon: int) -> list[int]:
    """Find test deliveries older than `horizon`; those of alerts go with their alerts."""
    ended = sa.and_(deliveries.c.alert_id.is_(None), deliveries.c.state != "pending")
    return _ids(connection, sa.select(deliveries.c.id).where(ended, deliveries.c.created_at < horizon), limit)


def drop_tests(connection: Connection, old: Sequence[int]) -> int:
    """Delete deliveries with their attempts."""
    connection.execute(sa.delete(attempts).where(attempts.c.delivery_id.in_(old)))
    return connection.execute(sa.delete(deliveries).where(deliveries.c.id.in_(old))).rowcount


def drop_incidents(connection: Connection, old: Sequence[int]) -> int:
    """Delete incidents with their alerts, transitions, deliveries and attempts."""
    delivery_ids = sa.select(deliveries.c.id).where(deliveries.c.incident_id.in_(old))
    connection.execute(sa.delete(attempts).where(attempts.c.delivery_id.in_(delivery_ids)))
    connection.execute(sa.delete(deliveries).where(deliveries.c.incident_id.in_(old)))
    _drop_alerts(connection, sa.select(alerts.c.id).where(alerts.c.incident_id.in_(old)))
    return connection.execute(sa.delete(incidents).where(incidents.c.id.in_(old))).rowcount


def old_alerts(connection: Connection, limit: int, *, horizon: int) -> list[int]:
    """Find alerts that resolved before `horizon` and entered no incident; the others go with theirs."""
    alone = sa.and_(alerts.c.incident_id.is_(None), alerts.c.state == "resolved", alerts.c.resolved_at < horizon)
    return _ids(connection, sa.select(alerts.c.id).where(alone), limit)


def drop_alerts(connection: Connection, old: Sequence[int]) -> int:
    """Delete alerts with their transitions, and the deliveries of theirs that were cancelled."""
    _drop_alerts(connection, sa.select(alerts.c.id).where(alerts.c.id.in_(old)))
    return len(old)


def _drop_alerts(connection: Connection, of: sa.Select[Any]) -> None:
    old = list(connection.execute(of).scalars())
    cancelled = sa.select(deliveries.c.id).where(deliveries.c.alert_id.in_(old))
    connection.execute(sa.delete(attempts).where(attempts.c.delivery_id.in_(cancelled)))
    connection.execute(sa.delete(deliveries).where(deliveries.c.alert_id.in_(old)))
    connection.execute(sa.delete(transitions).where(transitions.c.alert_id.in_(old)))
    connection.execute(sa.delete(alerts).where(alerts.c.id.in_(old)))


class _Staged(msgspec.Struct, array_like=True, frozen=True):
    """What `ShardBody` begins with: the rest of a shard is not decoded."""

    first: int
    latencies: msgspec.Raw
    rankings: list[int | None]


def _staged(connection: Connection) -> set[int]:
    bodies = connection.execute(sa.select(shards.c.body)).scalars()
    decoded = [msgspec.msgpack.decode(body, type=_Staged) for body in bodies]
    return {ranking for shard in decoded for ranking in shard.rankings if ranking is not None}


def _ids(connection: Connection, statement: sa.Select[Any], limit: int) -> list[int]:
    return list(connection.execute(statement.limit(limit)).scalars().all())
