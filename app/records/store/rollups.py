"""Hourly and daily figures of runs, which feed long charts."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection, Table

from app.base.db.engine import blocks, upsert_many
from app.base.db.packed import pack_numbers, unpack_numbers
from app.records.tables import rollups

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
