"""Numbers over time, read back: of single runs, hours or days; those of the day, or those of a re-scoring."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Table

from app.base.db.packed import number_at, vector_columns
from app.detection.tables import detections
from app.hooks.tables import alerts
from app.records.rescoring_tables import rescored_rollups, rescored_runs
from app.records.run_tables import runs
from app.records.store.results import layout_names
from app.records.store.rollups import HOUR, unpack_bucket
from app.records.tables import marks, rollups

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSpan:
    """From when to when an alert was open; None = it still is."""

    id: int
    rule: str
    severity: str
    opened_at: int
    resolved_at: int | None


def list_alerts(connection: Connection, check_id: int, start: int, end: int, *, limit: int) -> list[AlertSpan]:
    """Return the newest alerts that were open in a period, oldest first."""
    open_then = sa.and_(
        alerts.c.check_id == check_id,
        alerts.c.opened_at <= end,
        sa.or_(alerts.c.resolved_at.is_(None), alerts.c.resolved_at >= start),
    )
    columns = (
        alerts.c.id,
        alerts.c.rule_key.label("rule"),
        alerts.c.severity,
        alerts.c.opened_at,
        alerts.c.resolved_at,
    )
    rows = connection.execute(sa.select(*columns).where(open_then).order_by(alerts.c.id.desc()).limit(limit)).all()
    return [AlertSpan(**row._mapping) for row in reversed(rows)]  # noqa: SLF001 - the public name of it


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """What the detector of a check made of one run, without its words."""

    at: int
    run_id: int
    evidence: float | None
    lost: int
    worse: int
    open: bool


def evidence_rows(connection: Connection, check_id: int, start: int, end: int, *, limit: int) -> list[EvidenceRow]:
    """Read what the detector made of the newest runs that ended in a period, at most `limit`, oldest first."""
    ended = sa.and_(runs.c.check_id == check_id, runs.c.finished_at.between(start, end))
    columns = [detections.c[name] for name in ("run_id", "evidence", "lost", "worse", "open")]
    statement = (
        sa.select(runs.c.finished_at.label("at"), *columns)
        .select_from(runs)
        .join(detections, detections.c.run_id == runs.c.id)
        .where(ended)
    )
    rows = connection.execute(statement.order_by(runs.c.finished_at.desc()).limit(limit)).all()
    return [EvidenceRow(**row._mapping) for row in reversed(rows)]  # noqa: SLF001 - as above


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
