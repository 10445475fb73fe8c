"""Numbers over time, read back: of single runs, hours or days, as of the day or of a re-scoring.

Below: the newest runs of checks, runs that wait, deliveries that are dead or retried, top scores, and the newest probes
of a canary.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Table

from app.alerts.tables import alerts
from app.base.db.engine import blocks, row_value, sql_literal
from app.base.views import view_of
from app.catalog import store as catalog
from app.catalog.tables import canaries, definitions
from app.detection.tables import detections
from app.hooks import store as outbox
from app.hooks.tables import deliveries
from app.records.domain import SeriesAlert
from app.records.store import open_runs, run_rows
from app.records.store.encodings import number_at, unpacked_positions, vector_columns
from app.records.store.open_runs import Failure, due
from app.records.store.ranking_rows import layout_names
from app.records.store.run_endings import HOUR, unpack_bucket
from app.records.store.run_rows import ENDED, RunRow, newest_ended_of_all
from app.records.tables import latest, marks, rescored_rollups, rescored_runs, rollups, run_probes, runs, states

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


def list_alerts(connection: Connection, check_id: int, start: int, end: int, *, limit: int) -> list[SeriesAlert]:
    """Return the newest alerts that were open in a period, oldest first."""
    open_then = sa.and_(
        alerts.c.check_id == check_id,
        alerts.c.opened_at <= end,
        sa.or_(alerts.c.resolved_at.is_(None), alerts.c.resolved_at >= start),
    )
    columns = (alerts.c.id, alerts.c.rule_key, alerts.c.severity, alerts.c.opened_at, alerts.c.resolved_at)
    rows = connection.execute(sa.select(*columns).where(open_then).order_by(alerts.c.id.desc()).limit(limit)).all()
    return [view_of(SeriesAlert, row, id=str(row.id), rule=row.rule_key) for row in reversed(rows)]


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
    return [EvidenceRow(**row._mapping) for row in reversed(rows)]  # noqa: SLF001 - the public name of it


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


RETRYING_AFTER = 3
"""Number of attempts from which a delivery counts as retrying."""


def waiting_runs(connection: Connection, now: int) -> tuple[int, int | None]:
    """Return the number of due runs that could start, and since when the oldest is due.

    A run whose check is at another one waits for that, not for a worker: it does not count. Nor does the time before a
    run was queued: its scheduled instant may be older than the check.
    """
    ahead = runs.c.not_before > now  # queued by a clock that was ahead
    since = sa.case((sa.or_(ahead, runs.c.not_before < runs.c.created_at), runs.c.created_at), else_=runs.c.not_before)
    statement = sa.select(sa.func.count(), sa.func.min(since)).where(open_runs.startable(now))
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
    members = [canary for canary, _ in catalog.frozen_version(connection, run.suite_version_id).members]
    capped, failed = members[:most], run_rows.probes_of(connection, run.id)[1]
    found = _states_at(connection, run, capped)
    unscored = set(run_rows.unscored_at(connection, run.id))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedRun:
    """An ended run with its failed probes."""

    id: int
    finished_at: int
    suite_version_id: int | None
    failures: Mapping[int, Failure] | None
    """By position; None = it ended without sending probes."""


def newest_probes(connection: Connection, check_id: int, *, limit: int) -> list[ProbedRun]:
    """Return the newest ended runs of a check with their failed probes, oldest first."""
    statement = (
        sa.select(runs.c.id, runs.c.finished_at, runs.c.suite_version_id, run_probes.c.run_id, run_probes.c.failures)
        .outerjoin(run_probes, run_probes.c.run_id == runs.c.id)
        .where(runs.c.check_id == check_id, runs.c.status.in_(ENDED))
        .order_by(runs.c.id.desc())
        .limit(limit)
    )
    return [
        row_value(ProbedRun, row, failures=None if row.run_id is None else _failures(row.failures))
        for row in reversed(connection.execute(statement).all())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """Missing measurements of a run, by position of the canary."""

    failures: Mapping[int, Failure]
    unscored: frozenset[int]
    """Positions without a measured relevance; their states have that of an earlier run."""


def unmeasured(connection: Connection, run_ids: Collection[int]) -> dict[int, Unmeasured]:
    """Return the missing measurements of a few hundred runs at most."""
    statement = sa.select(run_probes.c.run_id, run_probes.c.failures, run_probes.c.unscored)
    rows = {row.run_id: row for row in connection.execute(statement.where(run_probes.c.run_id.in_(sorted(run_ids))))}
    nothing = Unmeasured(failures={}, unscored=frozenset())
    return {run_id: _unmeasured(rows[run_id]) if run_id in rows else nothing for run_id in run_ids}


def _unmeasured(row: Any) -> Unmeasured:
    return Unmeasured(failures=_failures(row.failures), unscored=frozenset(unpacked_positions(row.unscored)))


def _failures(packed: bytes | None) -> dict[int, Failure]:
    return msgspec.msgpack.decode(packed, type=dict[int, Failure]) if packed else {}
