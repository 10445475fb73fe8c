"""Numbers over time: of single runs, and folded into hours and days when a run ends; as of the day or of a re-scoring.

With what charts show beside them: marks of index versions, and alerts. What is read of runs alone is in `run_rows`.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection, Table

from app.base.db.engine import blocks, upsert_many
from app.base.values import Value
from app.catalog.tables import definitions, suite_versions
from app.detection.tables import detections
from app.records.domain import RunCells
from app.records.store.encodings import number_at, pack_numbers, stored_summary, unpack_numbers, vector_columns
from app.records.store.ranking_rows import layout_names
from app.records.store.run_rows import unmeasured_at
from app.records.tables import marks, rescored_rollups, rescored_runs, rollups, runs

_UNKNOWN = "unknown"


class Point(Value):
    """One point of a series: the mean, least and greatest value of the runs it covers."""

    at: int
    mean: float
    min: float
    max: float
    runs: int
    first_run: int | None = None
    last_run: int | None = None
    """None for sums by hour or day, which do not know their runs."""
    unknown: bool = False
    """It is a single run that measured too little for a verdict."""


class Source(Value):
    """Whose numbers: those a check's runs had on their day, or those of a re-scoring of them."""

    check_id: int
    rescoring_id: int | None = None

    @property
    def numbers(self) -> Table:
        """Where the aggregates of single runs are."""
        return runs if self.rescoring_id is None else rescored_runs

    @property
    def buckets(self) -> Table:
        """Where their sums by hour and day are."""
        return rollups if self.rescoring_id is None else rescored_rollups

    @property
    def bucketed(self) -> sa.ColumnElement[bool]:
        """Which of these sums are meant."""
        if self.rescoring_id is None:
            return rollups.c.check_id == self.check_id
        return rescored_rollups.c.rescoring_id == self.rescoring_id

    def select(self, *columns: sa.ColumnElement[Any]) -> Any:
        """Select columns of the check's runs that have such numbers."""
        statement = sa.select(*columns).select_from(runs).where(runs.c.check_id == self.check_id)
        if self.rescoring_id is None:
            return statement.where(runs.c.finished_at.is_not(None))
        mine = sa.and_(rescored_runs.c.run_id == runs.c.id, rescored_runs.c.rescoring_id == self.rescoring_id)
        return statement.join(rescored_runs, mine)


def count_runs(connection: Connection, source: Source, start: int, end: int, *, at_most: int) -> int:
    """Count the ended runs of a period, no further than `at_most` + 1."""
    period = source.select(runs.c.id).where(runs.c.finished_at.between(start, end))
    inner = period.limit(at_most + 1).subquery()
    return int(connection.execute(sa.select(sa.func.count()).select_from(inner)).scalar_one())


def kept_since(connection: Connection, source: Source) -> int:
    """Return since when the runs of a check are stored; 0 = since its first."""
    oldest = source.select(runs.c.finished_at).order_by(runs.c.finished_at).limit(1)
    begun: int | None = connection.execute(oldest).scalar_one_or_none()
    if begun is None:
        return 0
    buckets = source.buckets
    newest = sa.select(sa.func.max(buckets.c.bucket))
    older = sa.and_(source.bucketed, buckets.c.bucket <= begun - HOUR * 1_000_000)
    each = [newest.where(older, buckets.c.seconds == kind) for kind in (HOUR, -HOUR)]  # along the key
    forgotten = [bucket for one in each if (bucket := connection.execute(one).scalar_one()) is not None]
    return max(forgotten) + 1 if forgotten else 0


def series_of_runs(
    connection: Connection, source: Source, name: str, start: int, end: int
) -> tuple[list[Point], list[tuple[int, int]]]:
    """Read one aggregate of every run of a period, in order of time; and the runs without it, as (time, run id)."""
    numbers = source.numbers
    period = runs.c.finished_at.between(start, end)
    layouts = source.select(numbers.c.layout_id).where(period, numbers.c.layout_id.is_not(None)).distinct()
    places = dict(_positions(connection, layouts, name))
    columns = (runs.c.id, runs.c.finished_at, runs.c.verdict, numbers.c.layout_id, *vector_columns(numbers))
    statement = source.select(*columns).where(period)
    points: list[Point] = []
    silent: list[tuple[int, int]] = []
    for run, at, verdict, layout, *stored in connection.execute(statement.order_by(runs.c.finished_at, runs.c.id)):
        mean = number_at(places.get(layout), *stored)
        if mean is None:
            silent.append((at, run))
            continue
        unknown = verdict == _UNKNOWN
        points.append(Point(at=at, mean=mean, min=mean, max=mean, runs=1, first_run=run, last_run=run, unknown=unknown))
    return points, silent


def cells_of_runs(connection: Connection, source: Source, start: int | None, end: int, *, limit: int) -> list[RunCells]:
    """Read which canaries the newest `limit` ended runs of a period had as degraded and failed, in order of time.

    `start`: None = from the first one on. Runs that asked nothing are left out; where nothing was measured, all failed.
    """
    numbers = source.numbers
    period = runs.c.finished_at <= end if start is None else runs.c.finished_at.between(start, end)
    columns = (runs.c.id, runs.c.finished_at, runs.c.suite_version_id, numbers.c.total, numbers.c.measured)
    statement = source.select(*columns, numbers.c.failed, numbers.c.degraded_positions)
    statement = statement.where(period, runs.c.suite_version_id.is_not(None), numbers.c.total > 0)
    newest = connection.execute(statement.order_by(runs.c.finished_at.desc(), runs.c.id.desc()).limit(limit)).all()
    missing = unmeasured_at(connection, [row.id for row in newest if row.failed and row.measured])
    return [
        RunCells(
            run_id=row.id,
            at=row.finished_at,
            suite_version_id=row.suite_version_id,
            degraded=np.frombuffer(row.degraded_positions or b"", "<u4"),
            failed=np.array(sorted(missing[row.id][0]) if row.id in missing else range(row.failed or 0), np.uint32),
        )
        for row in reversed(newest)
    ]


class RunLatencies(Value):
    """Percentiles of the latency of a run, in seconds; None = not measured."""

    run_id: int
    at: int
    p50: float | None
    p95: float | None
    max: float | None


def latencies_of_runs(connection: Connection, check_id: int, start: int, end: int, *, limit: int) -> list[RunLatencies]:
    """Read the latencies of the newest `limit` ended runs of a period, in order of time."""
    columns = (runs.c.id, runs.c.finished_at, runs.c.probes, runs.c.figures, runs.c.measured)
    period = sa.and_(runs.c.check_id == check_id, runs.c.finished_at.between(start, end))
    newest = sa.select(*columns).where(period).order_by(runs.c.finished_at.desc(), runs.c.id.desc()).limit(limit)
    found = []
    for row in connection.execute(newest):
        summary = stored_summary(row.probes, row.figures, row.measured)
        took = summary["latency_seconds"] if summary is not None else {"p50": None, "p95": None, "max": None}
        found.append(RunLatencies(run_id=row.id, at=row.finished_at, **took))
    return found[::-1]


def values_learned(
    connection: Connection, source: Source, name: str, *, since: int, until: int, limit: int
) -> list[float]:
    """Read one aggregate of the newest runs baselines may be learned of, from one run to another.

    As far as they are still there and measured it; in no order.
    """
    numbers, values = source.numbers, list[float | None]()
    mine = sa.and_(detections.c.check_id == source.check_id, detections.c.learns)
    learnable = sa.select(detections.c.run_id).where(mine, detections.c.run_id.between(since, until))
    newest = learnable.order_by(detections.c.run_id.desc()).limit(limit).subquery()
    learned = sa.and_(runs.c.id.in_(sa.select(newest.c.run_id)), numbers.c.layout_id.is_not(None))
    for layout, position in _positions(connection, source.select(numbers.c.layout_id).where(learned).distinct(), name):
        mine = sa.and_(learned, numbers.c.layout_id == layout)
        rows = connection.execute(source.select(*vector_columns(numbers)).where(mine))
        values += [number_at(position, *stored) for stored in rows]
    return [value for value in values if value is not None]


def spans_with_runs(connection: Connection, check_id: int, spans: Sequence[tuple[int, int]]) -> set[int]:
    """Say in which of these spans of time, a few hundred at most, a run of a check ended: their places."""
    parts = []
    for place, (start, end) in enumerate(spans):
        inside = sa.and_(runs.c.check_id == check_id, runs.c.finished_at.between(start, end))
        first = sa.select(sa.literal(place).label("place")).select_from(runs).where(inside).limit(1).subquery()
        parts.append(sa.select(first.c.place))  # each looks up one run along ix_runs_check_finished
    return set(connection.execute(sa.union_all(*parts)).scalars()) if parts else set()


def series_of_rollups(
    connection: Connection, source: Source, name: str, start: int, end: int, *, seconds: int
) -> list[Point]:
    """Read one aggregate of a period by hour or by day, in order of time."""
    points: dict[int, Point] = {}
    buckets = source.buckets
    kinds = buckets.c.seconds.in_((seconds, -seconds))
    place = sa.and_(source.bucketed, kinds, buckets.c.bucket.between(start, end))
    for layout, position in _positions(connection, sa.select(buckets.c.layout_id).where(place).distinct(), name):
        columns = (buckets.c.bucket, buckets.c.seconds, buckets.c.body)
        statement = sa.select(*columns).where(place, buckets.c.layout_id == layout)
        for bucket, kind, body in connection.execute(statement):
            total, count, least, most = unpack_bucket(kind, body)[:, position].tolist()
            if not count:
                continue
            point = Point(at=bucket, mean=total / count, min=least, max=most, runs=int(count))
            points[bucket] = _joined(points[bucket], point) if bucket in points else point
    return [points[bucket] for bucket in sorted(points)]


def list_marks(connection: Connection, check_id: int, start: int, end: int) -> list[tuple[int, str]]:
    """Read where the index version changed: (time, index version), oldest first."""
    statement = sa.select(marks.c.at, marks.c.index_version).where(
        marks.c.check_id == check_id, marks.c.at.between(start, end)
    )
    return list(connection.execute(statement.order_by(marks.c.at)).all())


def list_suite_edits(connection: Connection, suite: str, start: int, end: int) -> list[int]:
    """Read the moments from which runs of a suite asked or expected something else, oldest first.

    The newest 200 at most; the suite as it was first asked is none.
    """
    versions = suite_versions.alias()
    of_suite = sa.select(definitions.c.id).where(definitions.c.kind == "suite", definitions.c.slug == suite)
    first = sa.select(sa.func.min(versions.c.revision)).where(versions.c.suite_id == suite_versions.c.suite_id)
    statement = sa.select(suite_versions.c.created_at).where(
        suite_versions.c.suite_id == of_suite.scalar_subquery(),
        suite_versions.c.created_at.between(start, end),
        suite_versions.c.revision > first.scalar_subquery(),
    )
    newest = statement.order_by(suite_versions.c.revision.desc()).limit(_MOST_EDITS)
    return sorted(connection.execute(newest).scalars())


_MOST_EDITS = 200


def _positions(connection: Connection, which: sa.Select[int], name: str) -> list[tuple[int, int]]:
    positions: list[tuple[int, int]] = []
    for layout in connection.execute(which).scalars().all():
        names = layout_names(connection, layout)
        if name in names:
            positions.append((layout, names.index(name)))
    return positions


def _joined(a: Point, b: Point) -> Point:
    count = a.runs + b.runs
    mean = (a.mean * a.runs + b.mean * b.runs) / count
    return Point(at=a.at, mean=mean, min=min(a.min, b.min), max=max(a.max, b.max), runs=count)


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
