"""Data of charts: a measure over time, every canary in every run, and the states of a canary. Nothing here writes."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from operator import itemgetter
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.alerts.service import explanations
from app.answers.store.answer_rows import list_corrected
from app.base.db.engine import Connection, Store, to_us
from app.base.documents.fields import one_line
from app.base.errors import InvalidInputError, NotFoundError, Problem
from app.base.texts import listed
from app.base.values import CORRECTED, Canary, CorrectedInterval, RuleKind, Severity, Value, Verdict, judged_name
from app.base.views import numbers, rounded, rounded_or_none, time_text, view_of
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.domain import PooledNote, pooled_at, recall_label
from app.catalog.service.references import find_check, schedule_of
from app.catalog.service.versions import load_suite
from app.records.domain import Cell, Gap, GapReason, RunCells, Span, find_gaps, heat_map_cells
from app.records.service import run_views
from app.records.service.past_runs import find_rescoring
from app.records.store import ranking_rows, run_rows, state_rows
from app.records.store import series as series_rows
from app.reports.store import alerts_in_period
from app.reports.views import (
    CanaryHistory,
    HeatMap,
    HeatMapColumn,
    HeatMapGroup,
    HeatMapRow,
    IndexMark,
    LatencyPoint,
    LatencySeries,
    MeasureSeries,
    SeriesAlert,
    SeriesGap,
    SeriesPoint,
)
from app.scoring.evaluation import unpack_reasons
from app.scoring.measures import mean_name, parse_measure

MAX_POINTS = 2_000
_HOUR, _DAY = 3_600, 86_400
_MICRO = 1_000_000
Whole = NDArray[np.int64]
_ALERTS = 200
_MOST_GAPS = 50


def series(
    store: Store,
    slug: str,
    *,
    measure: str,
    category: str | None,
    start: int,
    end: int,
    points: int,
    version: str | None = None,
) -> MeasureSeries:
    """Return a measure of a check over time in at most `points` points: single runs, hours or days.

    With a measures `version`, of the runs re-scored as it. `usual` and `lines` are today's normal range and bounds,
    `marks` changes of the index version, `edits` those of the suite; runs re-scored as a version know no edits.
    """
    measure = _stored_name(measure)
    name = f"{category}/{measure}" if category else measure
    with store.read() as connection:
        check = find_check(connection, slug)
        rescoring = find_rescoring(connection, check.id, version)
        source = series_rows.Source(check_id=check.id, rescoring_id=None if rescoring is None else rescoring.id)
        stored_series = _load_series(connection, source, name, start, end, points)
        empty = find_gaps(
            [
                Span(start=one.at, end=one.at + stored_series.seconds * _MICRO)
                for one in stored_series.points
                if not one.unknown
            ],
            sorted(
                [*stored_series.silent, *[(one.at, one.first_run or 0) for one in stored_series.points if one.unknown]]
            ),
            schedule_of(check.body),
            start=start,
            end=end,
        )
        reasons = _reasons(connection, source, empty, stored_series)
        known = explanations.usual_range(connection, source, name)
        points_shown = thin_points(stored_series.points, points, empty)
        beside = _load_corrected(connection, check.id, measure, points_shown, end) if version is None else {}
        marks = series_rows.list_marks(connection, check.id, start, end)
        edits = [] if rescoring else series_rows.list_suite_edits(connection, check.body["suite"], start, end)
        alerts = [
            view_of(SeriesAlert, row, id=str(row.id), rule=row.rule_key)
            for row in alerts_in_period(connection, check.id, start, end, limit=_ALERTS)
        ]
    if not stored_series.points:
        _require_stored(store, check.id, name, category)
    self_judged, pooled = _beside_recall(store, slug, measure, version)
    return {
        "check": slug,
        "measure": measure,
        "category": category,
        "measures_version": None if rescoring is None else rescoring.name,
        "self_judged": self_judged,
        "pooled_recall": pooled,
        "from": time_text(start),
        "to": time_text(end),
        "seconds": stored_series.seconds or None,
        "points": [_point(point, beside.get(point.at)) for point in points_shown],
        "marks": [IndexMark(at=time_text(at), index_version=version) for at, version in marks],
        "edits": [time_text(at) for at in edits],
        "gaps": [_gap(gap, why, single=not stored_series.seconds) for gap, why in zip(empty, reasons, strict=True)],
        "usual": known,
        "lines": explanations.bound_lines(check, measure, category, known),
        "alerts": alerts,
    }


def _beside_recall(store: Store, slug: str, measure: str, version: str | None) -> tuple[bool | None, list[PooledNote]]:
    """Return whether recall is self-judged by the newest run, which only then is read, and the pooled recall at its k.

    None = there is no newest run. As pages say it of the same check.
    """
    if not recall_label(measure, self_judged=True):
        return False, []
    try:
        run = run_views.health(store, slug, version=version)
    except NotFoundError:
        return None, []
    return run["self_judged"], pooled_at(measure, run["pooled_recall"])


class _StoredSeries(Value):
    """Stored points of a period."""

    points: list[series_rows.Point]
    silent: list[tuple[int, int]]
    """Single runs that measured nothing, as (time, id)."""
    seconds: int
    """Time covered by a point; 0 = a single run."""


def _load_series(
    connection: Connection, source: series_rows.Source, name: str, start: int, end: int, points: int
) -> _StoredSeries:
    hours = (end - start) / (_HOUR * _MICRO)
    most = MAX_POINTS if hours < points else points  # where hours are too coarse, single runs are joined
    few = series_rows.count_runs(connection, source, start, end, at_most=most) <= most
    if few and start >= series_rows.kept_since(connection, source):
        single, silent = series_rows.series_of_runs(connection, source, name, start, end)
        return _StoredSeries(points=single, silent=silent, seconds=0)
    seconds = _HOUR if hours <= MAX_POINTS else _DAY
    summed = series_rows.series_of_rollups(connection, source, name, start, end, seconds=seconds)
    return _StoredSeries(points=summed, silent=[], seconds=seconds)


def _reasons(
    connection: Connection, source: series_rows.Source, empty: Sequence[Gap], stored_series: _StoredSeries
) -> Sequence[GapReason | None]:
    """Return the reason of each gap; None = not known any more.

    Hourly sums do not distinguish runs that measured nothing from no runs; the runs do, as long as they are stored.
    """
    if not stored_series.seconds or not empty:
        return [gap.why for gap in empty]
    stored_measures = series_rows.kept_since(connection, source)
    recent_gaps = [gap for gap in empty[:_MOST_GAPS] if gap.start >= stored_measures]
    with_runs = series_rows.spans_with_runs(connection, source.check_id, [(gap.start, gap.end) for gap in recent_gaps])
    known = {
        gap.start: GapReason.NOT_MEASURED if place in with_runs else GapReason.NO_RUNS
        for place, gap in enumerate(recent_gaps)
    }
    return [known.get(gap.start) for gap in empty]


def _gap(gap: Gap, why: GapReason | None, *, single: bool) -> SeriesGap:
    return {
        "from": time_text(gap.start),
        "to": time_text(gap.end),
        "why": why,
        "runs": len(gap.runs) if single else None,
        "first_run": str(gap.runs[0]) if gap.runs else None,
        "last_run": str(gap.runs[-1]) if gap.runs else None,
    }


def _load_corrected(
    connection: Connection, check_id: int, measure: str, points: Sequence[series_rows.Point], end: int
) -> dict[int, CorrectedInterval]:
    """Return what stands beside the points of a corrected rate, by their times; of several runs the means.

    Their intervals lean on the same labels, so the mean of their ends is no narrower than the interval of their mean.
    """
    if measure not in CORRECTED or not points:
        return {}
    starts = [point.at for point in points]
    runs: dict[int, list[CorrectedInterval]] = {}
    for at, rate in list_corrected(connection, check_id, judged_name(measure) or "", starts[0], end):
        runs.setdefault(starts[bisect_right(starts, at) - 1], []).append(rate)
    return {start: _beside(rates) for start, rates in runs.items()}


def _beside(rates: Sequence[CorrectedInterval]) -> CorrectedInterval:
    beside = CorrectedInterval(
        low=_mean(one["low"] for one in rates),
        high=_mean(one["high"] for one in rates),
        judge_rate=_mean(one["judge_rate"] for one in rates),
        answers=sum(one["answers"] for one in rates),
    )
    if unrated := sum(one.get("unrated", 0) for one in rates):
        beside["unrated"] = unrated
    if any(one.get("edited_since") for one in rates):
        beside["edited_since"] = True
    if others := sorted({one["labelled_of"] for one in rates if "labelled_of" in one}):
        beside["labelled_of"] = listed(others)
    elif edited := sorted({one["labelled_before_edit_of"] for one in rates if "labelled_before_edit_of" in one}):
        beside["labelled_before_edit_of"] = listed(edited)
    return beside


def _mean(values: Iterable[float]) -> float:
    return rounded(fmean(values))


def _point(point: series_rows.Point, beside: CorrectedInterval | None) -> SeriesPoint:
    return SeriesPoint(
        at=time_text(point.at),
        mean=rounded_or_none(point.mean),
        min=rounded_or_none(point.min),
        max=rounded_or_none(point.max),
        runs=point.runs,
        first_run=None if point.first_run is None else str(point.first_run),
        last_run=None if point.last_run is None else str(point.last_run),
        unknown=point.unknown,
        corrected=beside,
    )


def stored_measures(store: Store, slug: str) -> dict[str, list[str]]:
    """Return the measures that the newest run of a check stored, by category ("" = all canaries)."""
    with store.read() as connection:
        check = find_check(connection, slug)
        newest = run_rows.newest_ended(connection, check.id)
    stored_measures: dict[str, list[str]] = {}
    for name in newest.aggregates if newest is not None else ():
        category, _, measure = name.rpartition("/")
        stored_measures.setdefault(category, []).append(measure)
    return stored_measures


def _stored_name(measure: str) -> str:
    """Return the name under which a measure's mean is stored; aliases are accepted."""
    if "/" in measure:  # how a category's numbers are named inside
        raise InvalidInputError(
            [Problem(path="measure", message="must be a measure alone; a category goes into 'category'")]
        )
    try:
        return mean_name(parse_measure(measure))
    except ValueError:
        return measure


class CalendarDay(Value):
    """A day of a check, UTC, with its place in a calendar whose columns are weeks that begin on Monday."""

    day: date
    week: int
    weekday: int
    runs: int
    low: float
    high: float
    severity: Severity | None
    """Of the worst alert that was open on it, among the newest 200 of the year; None = there was none."""


class Calendar(Value):
    """The days of a check's year that had runs."""

    measure: str
    days: Sequence[CalendarDay]
    months: Sequence[tuple[int, str]]
    """Week and name of each month."""


def calendar(store: Store, slug: str, *, now: datetime) -> Calendar | None:
    """Return the days of the year until now in which a measure was measured; None = there are none.

    The measure is coverage or, where no canary has one, the relevance of first hits.
    """
    first = now.date() - timedelta(days=_YEAR_DAYS - 1)
    first -= timedelta(days=first.weekday())
    start = datetime.combine(first, time(), UTC)
    measured = stored_measures(store, slug).get("", [])
    measure = next((one for one in ("coverage", "health_score") if one in measured), None)
    if measure is None:
        return None
    found = series(
        store, slug, measure=measure, category=None, start=to_us(start), end=to_us(now), points=_YEAR_DAYS + 7
    )
    days: dict[date, list[SeriesPoint]] = {}
    for point in found["points"]:
        if point.mean is not None:
            days.setdefault(datetime.fromisoformat(point.at).astimezone(UTC).date(), []).append(point)
    if not days:
        return None
    severities = _alerts_by_day(found["alerts"], first, now)
    return Calendar(
        measure=measure,
        days=[
            CalendarDay(
                day=day,
                week=(day - first).days // 7,
                weekday=day.weekday(),
                runs=sum(one.runs for one in points),
                low=min(one.min for one in points if one.min is not None),
                high=max(one.max for one in points if one.max is not None),
                severity=severities.get(day),
            )
            for day, points in days.items()
        ],
        months=[
            (week, f"{monday:%b}")
            for week in range((now.date() - first).days // 7 + 1)
            if (monday := first + timedelta(days=7 * week)).day <= _WEEK_DAYS
        ],
    )


_YEAR_DAYS, _WEEK_DAYS = 365, 7


def _alerts_by_day(alerts: Iterable[SeriesAlert], first: date, now: datetime) -> dict[date, Severity]:
    worst: dict[date, Severity] = {}
    for alert in alerts:
        ended = now if alert.resolved_at is None else datetime.fromisoformat(alert.resolved_at)
        day = max(datetime.fromisoformat(alert.opened_at).astimezone(UTC).date(), first)
        while day <= ended.astimezone(UTC).date():
            if worst.get(day) is not Severity.CRITICAL:
                worst[day] = alert.severity
            day += timedelta(days=1)
    return worst


def latency_series(store: Store, slug: str, *, start: int, end: int, points: int) -> LatencySeries:
    """Return the percentiles of the latency of a check over time in at most `points` points, and bounds of its rules.

    Runs alone have them, so of very many only the newest are read, from `since` on.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        rows = series_rows.latencies_of_runs(connection, check.id, start, end, limit=_MOST_TIMED_RUNS)
    size = max(1, -(-len(rows) // points))
    parts = [rows[place : place + size] for place in range(0, len(rows), size)]
    return {
        "check": slug,
        "from": time_text(start),
        "to": time_text(end),
        "since": time_text(rows[0].at if len(rows) == _MOST_TIMED_RUNS else start),
        "points": [_latency_point(part) for part in parts],
        "lines": [
            {"rule": rule.key, "percentile": str(rule.percentile), "severity": severity, "value": bound.above}
            for rule in check.read(CheckDocument).rules_in_force
            if rule.kind is RuleKind.LATENCY
            for severity, bound in ((Severity.WARNING, rule.warning), (Severity.CRITICAL, rule.critical))
            if bound is not None and bound.above is not None
        ],
    }


_MOST_TIMED_RUNS = 5_000


def _latency_point(part: Sequence[series_rows.RunLatencies]) -> LatencyPoint:
    known = [one for one in part if one.p50 is not None]
    return {
        "at": time_text(part[0].at),
        "p50": _mean(one.p50 for one in known if one.p50 is not None) if known else None,
        "p95": _mean(one.p95 for one in known if one.p95 is not None) if known else None,
        "max": rounded_or_none(max((one.max for one in known if one.max is not None), default=None)),
        "runs": len(part),
        "first_run": str(part[0].run_id),
        "last_run": str(part[-1].run_id),
    }


def heat_map(
    store: Store,
    slug: str,
    *,
    start: int | None,
    end: int,
    columns: int,
    by: Literal["category", "tag"] = "category",
    version: str | None = None,
) -> HeatMap:
    """Return every canary of a check in every run of a period, in at most `columns` columns.

    Without a start, in the newest `columns` runs. The canaries are those of the newest run, in several groups where
    they have several tags.
    """
    most = columns if start is None else _MOST_MAPPED_RUNS
    with store.read() as connection:
        check = find_check(connection, slug)
        rescoring = find_rescoring(connection, check.id, version)
        source = series_rows.Source(check_id=check.id, rescoring_id=None if rescoring is None else rescoring.id)
        found = series_rows.cells_of_runs(connection, source, start, end, limit=most + 1)
        runs = found[-most:]
        members = load_suite(connection, runs[-1].suite_version_id).members if runs else []
        versions = {run.suite_version_id for run in runs}
        asked = {one: np.array(catalog.frozen_version(connection, one).members)[:, 0] for one in versions}
        marks = series_rows.list_marks(connection, check.id, runs[0].at, end) if runs else []
    ids = np.array([member.canary_id for member in members])
    parts = _parts(runs, columns)
    rows_of = {one: _rows_of(canaries, ids) for one, canaries in asked.items()}
    cells = heat_map_cells(parts, rows_of, rows=len(members))
    groups, left_out = _grouped([member.canary for member in members], cells, by)
    earlier = np.setdiff1d(np.concatenate([ids, *asked.values()]), ids)
    return {
        "check": slug,
        "measures_version": None if rescoring is None else rescoring.name,
        "grouped_by": by,
        "columns": [_column(part) for part in parts],
        "marks": [
            {"column": bisect_left(parts, at, key=lambda part: part[-1].at), "at": time_text(at), "index_version": name}
            for at, name in marks
        ],
        "groups": groups,
        "left_out_rows": left_out,
        "left_out_canaries": len(earlier),
        "is_cut": start is not None and len(found) > most,
    }


def heat_map_until(store: Store, slug: str, end: int, *, version: str | None = None) -> HeatMap | None:
    """Return the heat map of the newest runs up to a moment, as it fits on paper and in a mail; None = of one."""
    found = heat_map(store, slug, start=None, end=end, columns=_SHEET_COLUMNS, version=version)
    return found if len(found["columns"]) > 1 else None


def heat_map_of_incident(store: Store, slug: str, opened_at: datetime, end: int) -> HeatMap | None:
    """Return the same cut to the groups in which canaries were not healthy since an incident opened; None = in none."""
    found = heat_map_until(store, slug, end)
    if found is None:
        return None
    before = sum(datetime.fromisoformat(column["at"]) <= opened_at for column in found["columns"])
    first = max(before - 1, 0)  # the run that opened it began before
    is_hit = {Cell.SOMETIMES, Cell.DEGRADED, Cell.UNMEASURED}
    groups = [one for one in found["groups"] if any(is_hit & set(row["cells"][first:]) for row in one["canaries"])]
    return {**found, "groups": groups} if groups else None


_SHEET_COLUMNS = 40
_MOST_MAPPED_RUNS = 10_000
"""A year of runs every hour."""
_MAPPED_QUERY = 100
_MOST_ROWS = 2_000
_MOST_GROUPS = 60


def _parts(runs: Sequence[RunCells], columns: int) -> list[Sequence[RunCells]]:
    """Return the runs in as many parts as there are columns, each as long as the others or one longer."""
    number = min(columns, len(runs))
    return [runs[place * len(runs) // number : (place + 1) * len(runs) // number] for place in range(number)]


def _rows_of(canaries: Whole, ids: Whole) -> NDArray[np.intp]:
    """Return the place of each of these canaries among `ids`; -1 = it is not there."""
    order = np.argsort(ids)
    place = order[np.minimum(np.searchsorted(ids, canaries, sorter=order), len(ids) - 1)]
    return np.where(ids[place] == canaries, place, -1)


def _column(part: Sequence[RunCells]) -> HeatMapColumn:
    return {
        "at": time_text(part[0].at),
        "runs": len(part),
        "first_run": str(part[0].run_id),
        "last_run": str(part[-1].run_id),
    }


def _grouped(
    canaries: Sequence[Canary], cells: Sequence[str], by: Literal["category", "tag"]
) -> tuple[list[HeatMapGroup], int]:
    """Return the groups by name, and how many rows are left out of them: those of the canaries degraded least."""
    rows: list[tuple[int, str, str, Canary, str]] = []
    for canary, row in zip(canaries, cells, strict=True):
        good = -(2 * row.count(Cell.DEGRADED) + row.count(Cell.SOMETIMES))
        names = [canary.category] if by == "category" else canary.labels or [""]
        rows += [(good, canary.key, str(name), canary, row) for name in names]
    groups: dict[str, list[HeatMapRow]] = {}
    for _, key, name, canary, row in sorted(rows, key=itemgetter(0, 1))[:_MOST_ROWS]:
        if name in groups or len(groups) < _MOST_GROUPS:
            query = " ".join(canary.query.split())[:_MAPPED_QUERY]
            groups.setdefault(name, []).append({"key": key, "query": query, "cells": row})
    left_out = len(rows) - sum(map(len, groups.values()))
    return [{"name": name, "canaries": some} for name, some in sorted(groups.items())], left_out


def canary_history(store: Store, slug: str, key: str, *, limit: int = 200) -> CanaryHistory:
    """Return the states of a canary in a check, newest first."""
    with store.read() as connection:
        check = find_check(connection, slug)
        suite = catalog.find_definition(connection, "suite", check.body["suite"])
        canary_id = catalog.find_canary_id(connection, suite.id, key) if suite else None
        if canary_id is None:
            raise NotFoundError(f"check '{slug}' has no canary '{key}'")
        states = state_rows.timeline(connection, check.id, canary_id, limit=limit)
        ends = [state.last_run for state in states if state.last_run is not None]
        times = run_rows.run_times(connection, [*(state.first_run for state in states), *ends])
        rankings = ranking_rows.load_rankings(connection, [state.ranking_id for state in states])
        names = {layout: ranking_rows.layout_names(connection, layout) for layout in {s.layout_id for s in states}}
    return CanaryHistory(
        check=slug,
        key=key,
        items=[
            {
                "verdict": Verdict.DEGRADED if state.reasons else Verdict.HEALTHY,
                "reasons": list(unpack_reasons(state.reasons)),
                "first_run": str(state.first_run),
                "from": time_text(times.get(state.first_run)),
                "last_run": str(state.last_run) if state.last_run is not None else None,
                "until": time_text(times.get(state.last_run)) if state.last_run is not None else None,
                "top_score": rounded_or_none(state.top_score),
                "measures": numbers(run_rows.named_aggregates(names[state.layout_id], state.vector)),
                "ranking": list(rankings[state.ranking_id].ids),
            }
            for state in states
        ],
    )


def _require_stored(store: Store, check_id: int, name: str, category: str | None) -> None:
    """Raise InvalidInputError, listing the stored measures, if the newest run stored none of this name."""
    with store.read() as connection:
        row = run_rows.newest_ended(connection, check_id)
    if row is None or not row.aggregates or name in row.aggregates:
        return
    prefix = f"{category}/" if category else ""
    stored_measures = [
        one.removeprefix(prefix) for one in row.aggregates if one.startswith(prefix) and ("/" in one) == bool(prefix)
    ]
    message = (
        f"there are: {', '.join(stored_measures)}"
        if stored_measures
        else f"its suite has no canary of the category {category}"
    )
    message = f"'{one_line(name.removeprefix(prefix))}' is not kept for this check; {message}"
    raise InvalidInputError([Problem(path="measure", message=message)])


def thin_points(
    stored_series: Sequence[series_rows.Point], points: int, empty: Sequence[Gap] = ()
) -> list[series_rows.Point]:
    """Return at most `points` points, neighbours joined; across a gap only if there are more gaps than points.

    Unknown runs are left out where any points are joined.
    """
    if len(stored_series) <= points:
        return list(stored_series)
    known = [point for point in stored_series if not point.unknown] or list(stored_series)
    parts = _split_at(known, [gap.start for gap in empty])
    if len(parts) > points:
        parts = [known]
    size = -(-len(known) // points)
    while sum(-(-len(part) // size) for part in parts) > points:
        size += 1
    return [_join_points(part[start : start + size]) for part in parts for start in range(0, len(part), size)]


def _split_at(stored_series: Sequence[series_rows.Point], starts: Sequence[int]) -> list[Sequence[series_rows.Point]]:
    """Return the points split where gaps begin."""
    parts: list[Sequence[series_rows.Point]] = []
    begin = 0
    for place in sorted({bisect_right([point.at for point in stored_series], start) for start in starts}):
        parts.append(stored_series[begin:place])
        begin = place
    return [part for part in (*parts, stored_series[begin:]) if part]


def _join_points(block: Sequence[series_rows.Point]) -> series_rows.Point:
    count = sum(point.runs for point in block)
    return series_rows.Point(
        at=block[0].at,
        mean=sum(point.mean * point.runs for point in block) / count,
        min=min(point.min for point in block),
        max=max(point.max for point in block),
        runs=count,
        first_run=block[0].first_run,
        last_run=block[-1].last_run,
        unknown=block[0].unknown and len(block) == 1,
    )
