"""Numbers over time, read back: of single runs, hours or days; those of the day, or those of a re-scoring."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection, Table

from app.store.engine import bytes_at
from app.store.history import layout_names
from app.store.recording import HOUR
from app.store.tables import marks, rescored_rollups, rescored_runs, rollups, runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a series: the mean, least and greatest value of the runs it covers."""

    at: int
    mean: float
    min: float
    max: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
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


def runs_reach_back(connection: Connection, source: Source, start: int) -> bool:
    """Whether the runs that are still there go back to `start`, or as far as anything is known of the check."""
    oldest = source.select(runs.c.finished_at).order_by(runs.c.finished_at).limit(1)
    begun: int | None = connection.execute(oldest).scalar_one_or_none()
    if begun is None or begun <= start:
        return True
    buckets = source.buckets
    hours = sa.and_(source.bucketed, buckets.c.seconds == HOUR)
    older = sa.select(buckets.c.bucket).where(hours, buckets.c.bucket.between(start, begun - HOUR * 1_000_000))
    return connection.execute(older.limit(1)).first() is None


def series_of_runs(connection: Connection, source: Source, name: str, start: int, end: int) -> list[Point]:
    """Read one aggregate of every run of a period, in order of time; runs that did not measure it are left out."""
    numbers = source.numbers
    period = sa.and_(runs.c.finished_at.between(start, end), numbers.c.aggregates.is_not(None))
    points: list[Point] = []
    for layout, position in _positions(connection, source.select(numbers.c.layout_id).where(period).distinct(), name):
        value = bytes_at(connection, numbers.c.aggregates, 8 * position, 8)
        statement = source.select(runs.c.finished_at, value).where(period, numbers.c.layout_id == layout)
        rows = connection.execute(statement).all()
        values = np.frombuffer(b"".join(bytes(raw) for _, raw in rows))
        points += [
            Point(at=at, mean=mean, min=mean, max=mean, runs=1)
            for (at, _), mean in zip(rows, values.tolist(), strict=True)
            if mean == mean  # noqa: PLR0124 - NaN: not measured in that run
        ]
    return sorted(points, key=lambda point: point.at)


def series_of_rollups(
    connection: Connection, source: Source, name: str, start: int, end: int, *, seconds: int
) -> list[Point]:
    """Read one aggregate of a period by hour or by day, in order of time."""
    points: dict[int, Point] = {}
    buckets = source.buckets
    place = sa.and_(source.bucketed, buckets.c.seconds == seconds, buckets.c.bucket.between(start, end))
    for layout, position in _positions(connection, sa.select(buckets.c.layout_id).where(place).distinct(), name):
        statement = sa.select(buckets.c.bucket, buckets.c.body).where(place, buckets.c.layout_id == layout)
        for bucket, body in connection.execute(statement):
            total, count, least, most = np.frombuffer(body).reshape(4, -1)[:, position].tolist()
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


def _positions(connection: Connection, which: sa.Select[int], name: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for layout in connection.execute(which).scalars().all():
        names = layout_names(connection, layout)
        if name in names:
            found.append((layout, names.index(name)))
    return found


def _joined(a: Point, b: Point) -> Point:
    count = a.runs + b.runs
    mean = (a.mean * a.runs + b.mean * b.runs) / count
    return Point(at=a.at, mean=mean, min=min(a.min, b.min), max=max(a.max, b.max), runs=count)
