"""Reports of ended runs: means with intervals, worst canaries, and what changed; loaded, or written on a schedule.

A scheduled report is rendered when it is due, and its deliveries are queued with it.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from app.alerts.service.explanations import nothing_watched
from app.alerts.service.transitions import bad_answers
from app.annotation.service.results import load_recalls
from app.answers.domain.generated import rated_texts, unjudged_text
from app.answers.store.answer_rows import confirmed_of_run, read_run_answers, unjudged_of_run
from app.base.db.engine import Connection, Store, blocks, from_us, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.schedules import EPOCH, Schedule, credible_until, last_due, next_due, parse_schedule
from app.base.texts import unjudged_words
from app.base.values import Outcome, Value, Verdict
from app.base.views import view_of
from app.catalog import store as catalog
from app.catalog.domain import labelled
from app.catalog.service.references import find_run
from app.catalog.service.suites import compose_suite
from app.catalog.service.versions import load_check, load_suite
from app.catalog.store import Definition
from app.comparison.domain.estimates import mean_interval
from app.comparison.domain.outcomes import Change
from app.comparison.service import comparisons
from app.comparison.service.answers import compare_answers
from app.comparison.views import CanaryDifference, ComparedAnswers
from app.hooks import store as outbox
from app.hooks.domain import NoticeData
from app.records.service.run_views import load_blocks
from app.records.store import run_rows
from app.records.views import WORST, ResultView, RunView, worst_first
from app.reports import store as report_rows
from app.reports.rendering import reports
from app.reports.rendering.reports import change_lines, report_html
from app.reports.service.charts import heat_map_until
from app.reports.store import CheckVersion, ReportRow
from app.reports.views import (
    FullReport,
    HeatMap,
    MeanIntervalsView,
    MeanIntervalView,
    ReportChange,
    ReportedCanary,
    ReportedOutcome,
)
from app.scoring.measures import mean_name, parse_measure

_CHANGED: Final = 50
"""Number of degraded canaries, and of healed ones, that are listed."""


Floats = NDArray[np.float64]


class ReportedResults(TypedDict):
    """A run of a check with all results, which can be gone through once."""

    run: RunView
    bad_answers: list[str]
    unjudged_answers: str | None
    unwatched: str | None
    """These as in a report."""
    results: Iterable[ResultView]


def load_report(store: Store, run_id: str, *, version: str | None = None, since: str | None = None) -> FullReport:
    """Return the report of an ended run; `since`: with the change since another run of its check.

    Raises NotFoundError for a run that is not there, ConflictError for one that is active, InvalidInputError for a
    version that is not there and for a `since` of another check.
    """
    summary, result_blocks = load_blocks(store, run_id, version=version)
    key = ("reported", summary["id"], summary["measures_version"])
    reported = store.run_cache.get(key, lambda: _gather(result_blocks))  # results of an ended run do not change
    with store.read() as connection:
        row = find_run(connection, run_id)
        check_version = row.check_version_id
        confirmed = confirmed_of_run(connection, row.id)
        bad = bad_answers(connection, catalog.definition_by_id(connection, row.check_id), row)
        unwatched = nothing_watched(connection, row) or None
        rated = read_run_answers(connection, [row.id]).get(row.id)
        answers = rated if version is None else None
        guide = None if check_version is None else load_check(connection, check_version)[0].guide.body()
        suite = None if row.suite_version_id is None else load_suite(connection, row.suite_version_id)
        pooled = load_recalls(connection, str(summary["suite"]), str(summary["retriever"]))
    return {
        "run": summary,
        "worst": list(reported.worst),
        "guide": guide,
        "intervals": reported.intervals,
        "since": None if since is None else _change(store, since, run_id, version=version),
        "pooled_recall": pooled,
        "composition": None if suite is None else compose_suite(suite),
        "confirmed": sorted(confirmed),
        "corrected": {} if answers is None else answers.get("corrected", {}),
        "rated": rated_texts(answers),
        "bad_answers": bad,
        "unjudged_answers": unjudged_text(rated) or None,
        "unwatched": unwatched,
        "results": list(reported.unhealthy),
    }


class _Reported(Value):
    """What a report says of all results of a run."""

    worst: Sequence[ResultView]
    unhealthy: Sequence[ReportedOutcome]
    intervals: MeanIntervalsView


def _gather(result_blocks: Iterable[Sequence[ResultView]]) -> tuple[_Reported, int]:
    """Return what a report says of results, with its size in memory."""
    worst: list[ResultView] = []
    unhealthy: list[ReportedOutcome] = []
    columns = ScoreColumns()
    for block in result_blocks:
        worst = worst_first([*worst, *block])[:WORST]
        unhealthy += [_outcome(result) for result in block if result["verdict"] != Verdict.HEALTHY]
        columns.add(block)
    intervals: MeanIntervalsView = {
        "run": columns.intervals(),
        "categories": {name: columns.intervals(name) for name in columns.categories},
    }
    return _Reported(worst=worst, unhealthy=unhealthy, intervals=intervals), _REPORTED_BYTES * (1 + len(unhealthy))


_REPORTED_BYTES: Final = 1_500


def load_results(store: Store, run_id: str, *, version: str | None = None, since: str | None = None) -> ReportedResults:
    """Return an ended run with all its results, which are read while they are taken. Raises as `load_report` does."""
    summary, result_blocks = load_blocks(store, run_id, version=version)
    if since is not None:
        _change(store, since, run_id, version=version)
    with store.read() as connection:
        row = find_run(connection, run_id)
        bad = bad_answers(connection, catalog.definition_by_id(connection, row.check_id), row)
        unjudged = unjudged_of_run(connection, row.id) or None
        unwatched = nothing_watched(connection, row) or None
    found: ReportedResults = {
        "run": summary,
        "bad_answers": bad,
        "unjudged_answers": unjudged,
        "unwatched": unwatched,
        "results": chain.from_iterable(result_blocks),
    }
    return found


def _outcome(result: Mapping[str, Any]) -> ReportedOutcome:
    return cast("ReportedOutcome", {name: result[name] for name in ReportedOutcome.__annotations__})


def _change(store: Store, before: str, now: str, *, version: str | None) -> ReportChange:
    compare = partial(comparisons.diff, store, before, now, limit=_CHANGED, version=version)
    diff = compare(changes=(Change.DEGRADED,))
    if diff["before"]["check"] != diff["now"]["check"]:
        message = f"must be a run of check '{diff['now']['check']}'; runs of two checks are compared by /v1/compare"
        raise InvalidInputError([Problem(path="since", message=message)])
    healed = compare(changes=(Change.HEALED,))["items"] if diff["changes"][Change.HEALED] else []
    with store.read() as connection:
        rated, notes = compare_answers(connection, find_run(connection, before).id, find_run(connection, now).id)
    return view_of(
        ReportChange,
        diff,
        differences=[*_changed_answers(rated), *notes, *diff["differences"]],
        degraded=[_changed(one) for one in diff["items"]],
        healed=[_changed(one) for one in healed],
    )


def _changed_answers(rated: Sequence[ComparedAnswers]) -> list[str]:
    """Return what the answers of two runs were worth, as a sentence: the decision is about what was retrieved alone."""
    parts = []
    for one in rated:
        is_corrected = one["a"]["corrected"] is not None and one["b"]["corrected"] is not None
        a, b = ((side["corrected"] if is_corrected else side["judge"]) for side in (one["a"], one["b"]))
        if a is None or b is None:
            continue
        by = "by people's labels" if is_corrected else "by the judge alone"
        has_interval = one["low"] is not None and one["high"] is not None
        within = f" (difference {one['low']:+.3f} to {one['high']:+.3f})" if has_interval else ""
        parts.append(f"{one['measure'].replace('_', ' ')} {by} {a:.3f} before, {b:.3f} now{within}")
    return [f"the decision is about what was retrieved; generated answers: {'; '.join(parts)}"] if parts else []


def _changed(one: CanaryDifference) -> ReportedCanary:
    before, now = one["before"], one["now"]
    return {
        "key": one["key"],
        "query": one["query"],
        "reasons": [] if now is None else now["reasons"],
        "rank_before": None if before is None else before["rank"],
        "rank_now": None if now is None else now["rank"],
    }


READY: Final = "report.ready"
_LATEST: Final = 100
"""Number of the newest runs of a check among which one that was carried out is looked for."""
_DISABLED: Final = "The hook is disabled."


def write_report(store: Store, report_id: int, *, now: datetime) -> bool:
    """Write a report that is due, of the newest ended run, and queue its deliveries; whether there is one to send.

    Of several processes that are at it, one stores its report and queues deliveries.
    """
    with store.read() as connection:
        row = report_rows.find_report(connection, report_id)
        if row is None or row.state != "due":
            return False
        check = catalog.definition_by_id(connection, row.check_id)
        run_id = _newest_run(connection, row.check_id)
        before = report_rows.previous_run(connection, row)
    why = _unsent_reason(check, run_id)
    if why is not None or run_id is None:
        with store.write() as connection:
            report_rows.skip_report(connection, report_id, why or "")
        return False
    report = _load(store, run_id, before)
    content = _content(report, report_html(report, heat_map=heat_map_of(store, report)), has_news=before != run_id)
    with store.write() as connection:
        if not report_rows.finish_report(connection, report_id, run_id=run_id, content=content):
            return False
        _enqueue(connection, row, check, to_us(now))
    return True


def _newest_run(connection: Connection, check_id: int) -> int | None:
    ended = run_rows.ended_runs(connection, check_id, limit=_LATEST)
    return next((run.id for run in reversed(ended) if run.aggregates), None)


def _unsent_reason(check: Definition, run_id: int | None) -> str | None:
    """Return why there is no report to be sent; None = there is one."""
    if check.archived_at is not None:
        return "The check was archived."
    if not check.body.get("report"):
        return "The check has no scheduled report any more."
    return "No run has ended yet." if run_id is None else None


def _load(store: Store, run_id: int, before: int | None) -> FullReport:
    """Return the report of a run, with the change since the run of the last report unless that has been deleted."""
    if before is not None and before != run_id:
        with suppress(NotFoundError, ConflictError):
            return load_report(store, str(run_id), since=str(before))
    return load_report(store, str(run_id))


def heat_map_of(store: Store, report: FullReport, *, version: str | None = None) -> HeatMap | None:
    """Return the heat map of the runs up to that of a report; None = it was the first."""
    ended = to_us(datetime.fromisoformat(report["run"]["finished_at"] or ""))
    return heat_map_until(store, report["run"]["check"], ended, version=version)


def _content(report: FullReport, html: str, *, has_news: bool) -> NoticeData:
    """Return what a report says, of which the bodies for each kind of hook are made."""
    run, guide = report["run"], report["guide"]
    lines = [
        *reports.answer_lines(report),
        *reports.lead_lines(report),
        reports.counts_line(run),
        *change_lines(report),
    ]
    if not has_news:
        lines.insert(0, "no run has ended since the last report")
    measure = None if guide is None else guide["measure"]
    since = report["since"]
    return {
        "summary": _summary(report),
        "lines": lines,
        "markdown": reports.report_markdown(report),
        "html": html,
        "check": run["check"],
        "suite": run["suite"],
        "retriever": run["retriever"],
        "run_id": run["id"],
        "since_run_id": None if since is None else since["before"]["id"],
        "verdict": run["verdict"],
        "health_score": run["health_score"],
        "coverage": run["coverage"],
        "measure": measure,
        "value": None if measure is None else run["measures"].get(measure),
        "self_judged": bool(run["self_judged"]),
        "pooled_recall": run["pooled_recall"],
        "degraded_total": run["canaries"]["degraded"],
    }


def _summary(report: FullReport) -> str:
    """Return the title: `handbook: report, healthy, R@5 0.957`."""
    run, guide = report["run"], report["guide"]
    value = None if guide is None else run["measures"].get(guide["measure"])
    number = ""
    if guide is not None and value is not None:
        name = labelled(guide["measure"], self_judged=run["self_judged"], pooled=run["pooled_recall"])
        number = f", {name} {value:.3f}"
    verdict = str(run["verdict"] or run["status"])
    if report["bad_answers"]:
        verdict = f"{verdict} by what was retrieved, answers bad" if verdict == Verdict.HEALTHY else verdict
    elif report["unjudged_answers"]:
        answers = f"answers {unjudged_words(report['unjudged_answers'])}"
        verdict = f"{verdict} by what was retrieved, {answers}" if verdict == Verdict.HEALTHY else verdict
    elif report["unwatched"]:
        verdict = "nothing measured"
    return f"{run['check']}: report, {verdict}{number}"


def _enqueue(connection: Connection, report: ReportRow, check: Definition, at: int) -> None:
    """Enqueue a delivery of a report to each of its hooks that is in force."""
    for hook in [catalog.find_definition(connection, "hook", slug) for slug in check.body["report"]["hooks"]]:
        if hook is not None and hook.archived_at is None:
            reason = None if hook.disabled_reason is None else _DISABLED
            message = f"msg_report_{report.id}"
            outbox.enqueue_deliveries(
                connection, [hook.id], message=message, type=READY, report_id=report.id, at=at, dead_reason=reason
            )


logger = logging.getLogger("coalmine.worker")

_LOOK_EVERY: Final = timedelta(minutes=1)
"""So long a new schedule may go unnoticed; no instant of it is lost by that."""


class _Next(Value):
    """When a version of a check has its next report."""

    version_id: int
    at: datetime


class DueReports:
    """Queues the reports that are due. One thread at a time."""

    def __init__(self, store: Store) -> None:
        """Begin with no schedule read."""
        self._store = store
        self._schedules: dict[int, Schedule | None] = {}
        """By version of a check; None = it has no reports, is disabled, or cannot be read."""
        self._next: dict[int, _Next] = {}
        """By check."""
        self._looked_at: datetime | None = None

    def queue_due(self, now: datetime, *, anew: bool = False) -> int:
        """Queue the report of the newest instant of every check that is due; returns how many this process queued.

        After a pause that is one report a check, whatever was missed, and none of an instant before the check was
        changed last. `anew`: what was remembered of the next instants is of a clock that has been set since.
        """
        if anew:
            self._next.clear()
        elif not self._is_time(now):
            return 0
        self._looked_at = now
        with self._store.read() as connection:
            rows = report_rows.list_checks(connection)
            self._learn(connection, [row.version_id for row in rows])
            wanted = [row for row in rows if self._schedules[row.version_id] and self._may_be_due(row, now)]
            due = [(row.id, at) for row in wanted if (at := self._find_due(connection, row, now)) is not None]
        self._schedules = {row.version_id: self._schedules[row.version_id] for row in rows}
        self._next = {row.id: self._next[row.id] for row in rows if row.id in self._next}
        if not due:
            return 0
        with self._store.write() as connection:
            return sum(
                report_rows.queue_report(connection, check_id, to_us(at), now=to_us(now)) for check_id, at in due
            )

    def _is_time(self, now: datetime) -> bool:
        """Whether a report may be due, or it is so long since the checks were listed that there may be new ones."""
        listed = self._looked_at is not None and self._looked_at <= now < self._looked_at + _LOOK_EVERY
        return not listed or any(known.at <= now for known in self._next.values())

    def _may_be_due(self, row: CheckVersion, now: datetime) -> bool:
        known = self._next.get(row.id)
        return known is None or known.version_id != row.version_id or known.at <= now

    def _find_due(self, connection: Connection, row: CheckVersion, now: datetime) -> datetime | None:
        """Return the newest instant of a check that is due and has no report; and remember the one after now."""
        schedule = self._schedules[row.version_id]
        assert schedule is not None  # noqa: S101 - those without are left out
        self._next[row.id] = _Next(version_id=row.version_id, at=next_due(schedule, now))
        until = to_us(credible_until(schedule, now))  # a later one was written by a clock that was ahead
        newest = report_rows.newest_instant(connection, row.id, before=until)
        changed_at = min(from_us(row.updated_at), now)
        return last_due(schedule, now, max(changed_at, EPOCH if newest is None else from_us(newest)))

    def _learn(self, connection: Connection, version_ids: Sequence[int]) -> None:
        """Read the schedules of versions that are not known yet."""
        unknown = sorted(set(version_ids) - self._schedules.keys())
        for block in blocks(unknown):
            bodies = catalog.version_bodies(connection, block)
            self._schedules |= {version_id: _schedule_of(version_id, body) for version_id, body in bodies.items()}


def _schedule_of(version_id: int, body: Mapping[str, Any]) -> Schedule | None:
    report = body.get("report")
    if not report or not body.get("enabled", True):
        return None
    try:
        return parse_schedule(cron=report["cron"], timezone=report["timezone"])
    except Exception:
        logger.exception("bug", extra={"version": version_id})  # of this check: the others go on
        return None


class ScoreColumns:
    """The scores of measured canaries that expect something, added block by block, as columns by the names of means."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.categories: dict[str, None] = {}
        """The categories of all canaries, in the order they came."""
        self._names: dict[str, None] = {}
        """The measures, in the order they came."""
        self._blocks: list[tuple[list[str], Floats]] = []
        """Categories and rows of each block: coverage, health score, and the measures that had come by then."""

    def add(self, results: Sequence[ResultView]) -> None:
        """Add the results of some canaries."""
        measured = [one for one in results if one["outcome"] == Outcome.OK and any(_defined(one))]
        self.categories.update(dict.fromkeys(one["category"] for one in results))
        for one in measured:
            self._names.update(dict.fromkeys(one["measures"]))
        rows = [[one["any_match"], one["top_score"], *map(one["measures"].get, self._names)] for one in measured]
        if rows:
            self._blocks.append(([one["category"] for one in measured], np.array(rows, dtype=np.float64)))

    def intervals(self, category: str | None = None) -> dict[str, MeanIntervalView]:
        """Return the 95 % intervals of means over canaries by the names of means, coverage and health score included.

        Bootstrap over the canaries that have the measure, of one category or all. Measures without an interval have no
        entry: those of fewer than ten canaries, and those in which all score the same.
        """
        found: dict[str, MeanIntervalView] = {}
        cache: dict[bytes, tuple[float, float] | None] = {}  # where each expects one chunk, many measures are equal
        for name, column in self._columns(category):
            scores = column[~np.isnan(column)]
            pattern = blake2b(scores.tobytes()).digest()
            if pattern not in cache:
                cache[pattern] = mean_interval(scores)
            interval = cache[pattern]
            if interval is not None:
                low, high = (round(end, _DIGITS) for end in interval)
                found[name] = {"canaries": len(scores), "low": low, "high": high}
        return found

    def _columns(self, category: str | None) -> Iterator[tuple[str, Floats]]:
        rows = [
            block if category is None else block[[one == category for one in categories]]
            for categories, block in self._blocks
        ]
        for place, name in enumerate(self._names, _OWN):
            yield mean_name(parse_measure(name)), _column(rows, place)
        yield "coverage", _column(rows, 0)
        yield "health_score", _column(rows, 1)


_DIGITS: Final = 6


_OWN: Final = 2
"""Columns before those of measures: coverage and health score."""


def _column(rows: Sequence[Floats], place: int) -> Floats:
    """Return a column of blocks of rows, of which the first may be narrower."""
    parts = [block[:, place] if place < block.shape[1] else np.full(len(block), np.nan) for block in rows]
    return np.concatenate(parts) if parts else np.empty(0)


def _defined(result: ResultView) -> list[bool]:
    return [value is not None for value in result["measures"].values()]
