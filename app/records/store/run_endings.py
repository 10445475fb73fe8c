"""What happened, written: states only on change, one vector a run, numbers folded into hours and days, rankings.

All of it is called inside the transaction of the service that records. Open states and recent rankings, with which a
run is compared, are read here; `run_rows` and `state_rows` read everything else back.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection, Table

from app.base.db.engine import blocks, insert_new, upsert, upsert_many
from app.base.db.rows import numbers
from app.records.domain import RunDetails
from app.records.store.encodings import (
    pack_latencies,
    pack_numbers,
    packed_positions,
    unpack_numbers,
    unpack_vector,
    with_vector,
)
from app.records.tables import (
    latest,
    marks,
    rollups,
    run_probes,
    runs,
    states,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewState:
    """What begins to hold for a canary with this run."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    layout_id: int
    reasons: int
    top_score: float | None


def change_states(
    connection: Connection, check_id: int, run_id: int, *, closed: Sequence[int], opened: Sequence[NewState]
) -> None:
    """Close states with the run before this one and open those that begin with it."""
    if closed:
        newest = sa.select(latest.c.run_id).where(latest.c.check_id == check_id)
        last_run = connection.execute(newest).scalar_one_or_none() or run_id - 1
        ending = numbers(connection, "ending", ["id"], [(state_id,) for state_id in closed])
        held = sa.and_(states.c.id.in_(sa.select(ending.c.id)), states.c.last_run.is_(None))
        connection.execute(sa.update(states).where(held).values(last_run=last_run))
    rows = [(check_id, run_id, *_NEW_FIELDS(state)) for state in opened]
    insert_new(connection, states, ("check_id", "first_run", *NewState.__dataclass_fields__), rows)


_NEW_FIELDS = attrgetter(*NewState.__dataclass_fields__)


def finish_run(connection: Connection, run_id: int, owner: str, **outcome: Any) -> bool:
    """Write what a run amounted to; False where another worker has finished it meanwhile."""
    values = {**outcome, "claimed_by": None}
    return connection.execute(_FINISH, {"run": run_id, "owner": owner, **values}).rowcount == 1


_FINISH = sa.update(runs).where(
    runs.c.id == sa.bindparam("run"), runs.c.status == "running", runs.c.claimed_by == sa.bindparam("owner")
)
"""With the columns that the values name."""


def fill_aggregates(connection: Connection, run_id: int, names: Sequence[str], values: Mapping[str, float]) -> None:
    """Write numbers of an ended run that were not known when it ended; `names` are those of its vector."""
    aggregates, figures = connection.execute(
        sa.select(runs.c.aggregates, runs.c.figures).where(runs.c.id == run_id)
    ).one()
    stored = unpack_vector(aggregates, figures)
    if stored is None:
        return
    vector = np.frombuffer(stored).copy()
    for place, name in enumerate(names):
        if name in values:
            vector[place] = values[name]
    filled = vector.tobytes()
    packed = {"aggregates": filled} if figures is None else {"figures": with_vector(figures, filled)}
    connection.execute(sa.update(runs).where(runs.c.id == run_id).values(packed))


def save_probes(
    connection: Connection,
    run_id: int,
    latencies: NDArray[np.float16],
    failures: Mapping[int, Any],
    unscored: Sequence[int] = (),
    *,
    exact: bool = False,
) -> None:
    """Store how the probes of a run ended, by position in its suite version; latencies within 1 % unless `exact`."""
    packed = msgspec.msgpack.encode(failures) if failures else None
    paces = None if exact else pack_latencies(latencies)
    columns = ("run_id", "latencies", "failures", "unscored", "paces")
    row = (run_id, b"" if paces else latencies.tobytes(), packed, packed_positions(unscored), paces)
    insert_new(connection, run_probes, columns, [row])


def save_latest(connection: Connection, check_id: int, run_id: int, body: RunDetails) -> None:
    """Keep the newest ended run of a check in full."""
    upsert(connection, latest, ["check_id"], check_id=check_id, run_id=run_id, body=json.dumps(body))


def mark_index_version(connection: Connection, check_id: int, run_id: int, at: int, index_version: str) -> None:
    """Mark the run where the retriever began to report another index version."""
    previous = connection.execute(
        sa.select(marks.c.index_version)
        .where(marks.c.check_id == check_id, marks.c.run_id < run_id)
        .order_by(marks.c.at.desc())
        .limit(1)
    ).scalar_one_or_none()
    if previous != index_version:
        columns = ("run_id", "check_id", "at", "index_version")
        insert_new(connection, marks, columns, [(run_id, check_id, at, index_version)])


HOUR, DAY = 3_600, 86_400
"""Rows of these seconds are from before they were packed; the others have them below zero."""


def add_to_rollups(connection: Connection, check_id: int, layout: int, at: int, vector: NDArray[np.float64]) -> None:
    """Fold a run's vector into its hour and its day: sum, count, min and max of each number that was measured."""
    fold(connection, rollups, {"check_id": check_id, "layout_id": layout}, [(at, vector)])


def fill_rollups(connection: Connection, check_id: int, layout: int, at: int, vector: NDArray[np.float64]) -> None:
    """Add numbers of a run that came after it ended, NaN for all others, to the hour and day that count it already."""
    whose = {"check_id": check_id, "layout_id": layout}
    places = [(seconds, at - at % (seconds * 1_000_000)) for seconds in (HOUR, DAY)]
    statement, buckets = _rollups_at(rollups, tuple(whose)), [bucket for _, bucket in places]
    stored: dict[tuple[int, int], Any] = {}
    for kinds in ((HOUR, DAY), (-HOUR, -DAY)):  # of an hour that has both kinds, either will do
        rows = connection.execute(statement, {**whose, "kinds": kinds, "buckets": buckets})
        stored |= {(abs(row.seconds), row.bucket): row for row in rows}
    folded = [
        (*whose.values(), row.seconds, row.bucket, row.runs, _folded(row, [vector], row.seconds)[1])
        for place in places
        if (row := stored.get(place)) is not None
    ]
    keys = (*whose, "seconds", "bucket")
    upsert_many(connection, rollups, keys, (*keys, "runs", "body"), folded)


def fold(
    connection: Connection, table: Table, whose: Mapping[str, int], vectors: Sequence[tuple[int, NDArray[np.float64]]]
) -> None:
    """Fold vectors of one layout, with the time of each, into their hours and days; `whose` names the series.

    Where an hour or day has a row that is not packed, it gets another beside it: the previous release reads the former.
    """
    buckets: dict[tuple[int, int], list[NDArray[np.float64]]] = {}
    for at, vector in vectors:
        for seconds in (HOUR, DAY):
            buckets.setdefault((-seconds, at - at % (seconds * 1_000_000)), []).append(vector)
    before: dict[tuple[int, int], Any] = {}
    for block in blocks(sorted({bucket for _, bucket in buckets})):
        rows = connection.execute(_rollups_at(table, tuple(whose)), {**whose, "kinds": (-HOUR, -DAY), "buckets": block})
        before.update(((row.seconds, row.bucket), row) for row in rows)
    folded = [
        (*whose.values(), *place, *_folded(before.get(place), members, place[0])) for place, members in buckets.items()
    ]
    keys = (*whose, "seconds", "bucket")
    upsert_many(connection, table, keys, (*keys, "runs", "body"), folded)


@cache
def _rollups_at(table: Table, whose: tuple[str, ...]) -> sa.Select[Any]:
    here = [table.c[name] == sa.bindparam(name) for name in whose]
    both = table.c.seconds.in_(sa.bindparam("kinds", expanding=True))  # as the key has it, before the bucket
    of_buckets = table.c.bucket.in_(sa.bindparam("buckets", expanding=True))
    return sa.select(table.c.seconds, table.c.bucket, table.c.runs, table.c.body).where(*here, both, of_buckets)


def unpack_bucket(seconds: int, body: bytes) -> NDArray[np.float64]:
    """Give the sum, count, min and max of each number of an hour or day."""
    return np.frombuffer(unpack_numbers(body) if seconds < 0 else body).reshape(4, -1)


def _pack_bucket(seconds: int, figures: NDArray[np.float64]) -> bytes:
    return pack_numbers(figures.tobytes()) if seconds < 0 else figures.tobytes()


def _folded(before: Any, members: Sequence[NDArray[np.float64]], seconds: int) -> tuple[int, bytes]:
    """Return how many runs a bucket holds with these, and their numbers."""
    rows = np.stack(members)
    measured = ~np.isnan(rows)
    now = np.stack(
        [
            np.where(measured, rows, 0.0).sum(axis=0),
            measured.sum(axis=0).astype(np.float64),
            np.where(measured, rows, np.inf).min(axis=0),
            np.where(measured, rows, -np.inf).max(axis=0),
        ]
    )
    if before is None:
        return len(rows), _pack_bucket(seconds, now)
    then = unpack_bucket(seconds, before.body)
    body = np.vstack([then[:2] + now[:2], np.minimum(then[2:3], now[2:3]), np.maximum(then[3:], now[3:])])
    return before.runs + len(rows), _pack_bucket(seconds, body)
