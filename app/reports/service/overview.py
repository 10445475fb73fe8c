"""The overview: checks that match a filter, sorted by severity, a page at a time; and the events of the change feed.

The overview reads one row of every check, and more only for those on the page. Nothing here writes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from app.alerts.domain.state import AlertState, no_data_due
from app.annotation import store as tasks
from app.annotation.store import PoolCounts, TaskRow
from app.annotation.views import TaskState
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.errors import NotFoundError
from app.base.schedules import next_due
from app.base.values import Category, RunStatus, Verdict
from app.base.views import id_number
from app.catalog import store as catalog
from app.catalog.service.references import schedule_of
from app.catalog.store import Definition
from app.records.service.figures import rescoring_shape
from app.records.service.plans import asked_in
from app.records.store import rescoring, series
from app.records.store.series import Newest, Part, RecentRun
from app.reports import store as report_rows
from app.reports.service.check_details import SPARK_RUNS, CheckHead, ended_run, next_run, open_alerts, schedule_text
from app.reports.store import FollowedRun, OpenAlert
from app.runs.service.due_checks import silence
from app.scoring.runs import RescoringView

PAGE: Final = 50
"""Number of checks on a page."""
NO_RUN: Final = "none"
"""Verdict shown for a check without an ended run."""
OFF: Final = "off"
"""Verdict shown for a disabled check."""
VERDICTS: Final = (Verdict.HEALTHY, Verdict.DEGRADED, Verdict.UNKNOWN, NO_RUN, OFF)
_MANY: Final = 6
_DEAD_FOR: Final = timedelta(days=3)
"""How long dead letters are shown."""
_ORDER: Final = (Verdict.DEGRADED, Verdict.UNKNOWN, NO_RUN, Verdict.HEALTHY, OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFilter:
    """Filter of checks; empty = any."""

    text: str = ""
    """Part of the name of the check, its suite or its retriever."""
    suite: str = ""
    retriever: str = ""
    category: str = ""
    """A category of the newest run."""
    tag: str = ""
    verdict: str = ""
    failing: bool = False
    """Enabled, and not healthy, overdue, or with a firing alert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSummary(CheckHead):
    """A check in one line of the overview."""

    slices: Mapping[str, Part]
    """Results of the newest run for the filter's `category` and `tag`."""
    recent: Sequence[RecentRun] = ()
    """Up to `SPARK_RUNS` ended runs with their coverage, oldest first."""

    @property
    def verdict(self) -> str:
        """Verdict of the newest run, else `NO_RUN` or `OFF`."""
        if not self.enabled:
            return OFF
        return (self.newest.verdict if self.newest else None) or NO_RUN

    @property
    def open_alerts(self) -> int:
        """Number of open alerts."""
        return sum(count for state, count in self.alerts.items() if not state.startswith(AlertState.PENDING))

    @property
    def recovering(self) -> bool:
        """Whether an enabled check is not failing, and has alerts that are still open."""
        return self.enabled and not self.failing and self.recovery is not None

    @property
    def failing(self) -> bool:
        """Whether an enabled check is degraded, unknown, overdue or has a firing alert."""
        if not self.enabled:
            return False
        firing = any(state.startswith("firing") for state in self.alerts)
        return self.verdict in {Verdict.DEGRADED, Verdict.UNKNOWN} or self.overdue or firing


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A page of checks, with counts and the values of filters."""

    lines: Sequence[CheckSummary]
    matching: int
    """Number of checks that match the filter, on all pages."""
    total: int
    """Number of all checks."""
    page: int
    pages: int
    verdicts: Mapping[str, int]
    """Number of checks by verdict that match the rest of the filter."""
    suites: Sequence[str]
    retrievers: Sequence[str]
    categories: Sequence[str]
    tags: Sequence[str]
    overdue: int
    """Number of all checks that are overdue."""
    dead: Mapping[str, int]
    """Dead letters of the last days by hook."""
    failing: int
    """Number of all checks that are failing."""
    recovering: int
    """Number of all checks that are healthy again, with alerts that are still open."""
    unmeasured: int
    """Number of those whose newest run is unknown."""
    unrun: int
    """Number of all enabled checks that have not ended a run."""
    active: int
    """Number of all checks that are enabled."""

    @property
    def is_small(self) -> bool:
        """Whether there are too few checks for filters to be useful."""
        return self.total < _MANY


def list_checks(store: Store, check_filter: CheckFilter, now: datetime, *, page: int = 1) -> Overview:
    """Return a page of the checks that match a filter; a page beyond the last is the last."""
    with store.read() as connection:
        checks = {check.slug: check for check in catalog.list_definitions(connection, "check")}
        newest = series.newest_runs(connection)
        everything = _summaries(connection, list(checks.values()), newest, check_filter, now)
        matching_other = [summary for summary in everything if _matches(summary, check_filter)]
        matching = [summary for summary in matching_other if check_filter.verdict in {"", summary.verdict}]
        pages = max(1, -(-len(matching) // PAGE))
        page = min(max(page, 1), pages)
        shown = sorted(matching, key=_urgency)[(page - 1) * PAGE : page * PAGE]
        ids = [checks[summary.slug].id for summary in shown]
        recent = series.recent_runs(connection, ids, "coverage", limit=SPARK_RUNS)
        dead = series.dead_letters(connection, to_us(now - _DEAD_FOR))
    parts = [one.slices for check in checks.values() if (one := newest.get(check.id)) is not None]
    measured_categories = {name for part in parts for name in part.categories}
    return Overview(
        lines=[
            replace(
                summary,
                recent=recent[checks[summary.slug].id],
                next_run=next_run(checks[summary.slug], now) if summary.enabled else None,
            )
            for summary in shown
        ],
        matching=len(matching),
        total=len(checks),
        page=page,
        pages=pages,
        verdicts=Counter(summary.verdict for summary in matching_other),
        suites=sorted({summary.suite for summary in everything}),
        retrievers=sorted({summary.retriever for summary in everything}),
        categories=[str(category) for category in Category if category in measured_categories],
        tags=sorted({name for part in parts for name in part.tags}),
        overdue=sum(summary.overdue for summary in everything),
        dead=dead,
        failing=sum(summary.failing for summary in everything),
        recovering=sum(summary.recovering for summary in everything),
        unmeasured=sum(summary.verdict == Verdict.UNKNOWN for summary in everything),
        unrun=sum(summary.verdict == NO_RUN for summary in everything),
        active=sum(summary.enabled for summary in everything),
    )


def _summaries(
    connection: Connection,
    checks: Sequence[Definition],
    newest: Mapping[int, Newest],
    check_filter: CheckFilter,
    now: datetime,
) -> list[CheckSummary]:
    unresolved, active = open_alerts(connection), series.under_way(connection, to_us(now))
    return [
        CheckSummary(
            slug=check.slug,
            suite=check.body["suite"],
            retriever=check.body["retriever"],
            schedule=schedule_text(check.body["schedule"]),
            enabled=bool(check.body["enabled"]),
            newest=ended_run(ended.run) if (ended := newest.get(check.id)) is not None else None,
            slices=_slices(ended, check_filter),
            active=active.get(check.id),
            overdue=_is_overdue(connection, check, ended, now),
            alerts=unresolved.get(check.id, {}),
        )
        for check in checks
    ]


def _slices(newest: Newest | None, check_filter: CheckFilter) -> dict[str, Part]:
    if newest is None:
        return {}
    measured_categories = (
        ("category", check_filter.category, newest.slices.categories),
        ("tag", check_filter.tag, newest.slices.tags),
    )
    return {kind: parts[name] for kind, name, parts in measured_categories if name in parts}


def _is_overdue(connection: Connection, check: Definition, newest: Newest | None, now: datetime) -> bool:
    if not check.body["enabled"]:
        return False
    last = None
    if newest is not None:
        if newest.run.finished_at is None or newest.run.status == RunStatus.FAILED:
            return silence(connection, check, now) is not None  # needs the last completed run from the history
        last = from_us(newest.run.finished_at)
    schedule, updated = schedule_of(check.body), from_us(check.updated_at)
    if last is not None and now < next_due(schedule, max(last, updated)):
        return False  # a shortcut: most checks need only one of two instants
    return no_data_due(schedule, last, now, updated) is not None


def _matches(summary: CheckSummary, check_filter: CheckFilter) -> bool:
    names = f"{summary.slug}\n{summary.suite}\n{summary.retriever}"
    return (
        check_filter.text.strip().lower() in names
        and check_filter.suite in {"", summary.suite}
        and check_filter.retriever in {"", summary.retriever}
        and (not check_filter.category or "category" in summary.slices)
        and (not check_filter.tag or "tag" in summary.slices)
        and (summary.failing or not check_filter.failing)
    )


def _urgency(summary: CheckSummary) -> tuple[bool, bool, int, bool, str]:
    off = summary.verdict == OFF
    return off, not summary.failing, _ORDER.index(summary.verdict), not summary.overdue, summary.slug


_UNDER_WAY = (RunStatus.QUEUED, RunStatus.RUNNING)


class Kind(StrEnum):
    """Kind of a topic."""

    NEWS = "news"
    """Ended runs and changed alerts of all checks."""
    RUN = "run"
    RESCORING = "rescoring"
    TASK = "task"
    """The pool of an annotation task, by its slug."""


@dataclass(frozen=True, slots=True)
class Topic:
    """What a subscriber follows; `NEWS` has no id."""

    kind: Kind
    id: int = 0


NEWS = Topic(Kind.NEWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A server-sent event: its name, and its data in the API's shape."""

    name: str
    data: Mapping[str, object]
    last: bool = False
    """Whether the stream ends after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSnapshot:
    """Result of a poll; None and missing = not polled, or it does not exist."""

    newest: Mapping[str, int] | None = None
    """The newest ended run of every check, by slug."""
    alerts: Mapping[int, OpenAlert] | None = None
    runs: Mapping[int, FollowedRun] = field(default_factory=dict)
    shards: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Failed probes by run and shard, of active runs."""
    rescorings: Mapping[int, RescoringView] = field(default_factory=dict)
    tasks: Mapping[int, tuple[TaskRow, PoolCounts]] = field(default_factory=dict)


def find_topic(store: Store, kind: Kind, opaque: str = "") -> tuple[Topic, ChangeSnapshot]:
    """Return the topic of an id with its present state. Raises NotFoundError."""
    if kind is Kind.NEWS:
        return NEWS, poll_changes(store, {NEWS})
    if kind is Kind.TASK:
        with store.read() as connection:
            task = tasks.find_task(connection, opaque)
        if task is None:
            raise NotFoundError(f"there is no task '{opaque[:64]}'")
        topic = Topic(kind, task.id)
        return topic, poll_changes(store, {topic})
    word = "run" if kind is Kind.RUN else "re-scoring"
    topic = Topic(kind, id_number(opaque, word))
    snapshot = poll_changes(store, {topic})
    if not (snapshot.runs or snapshot.rescorings):
        raise NotFoundError(f"there is no {word} '{opaque[:40]}'")
    return topic, snapshot


def poll_changes(store: Store, topics: Collection[Topic], before: ChangeSnapshot | None = None) -> ChangeSnapshot:
    """Return the present state of topics; what cannot have changed is taken from `before`."""
    before = before or ChangeSnapshot()
    with store.read() as connection:
        found_runs = {
            topic.id: report_rows.followed_run(connection, topic.id) for topic in topics if topic.kind is Kind.RUN
        }
        runs = {run_id: run for run_id, run in found_runs.items() if run is not None}
        return ChangeSnapshot(
            newest=report_rows.newest_runs(connection) if NEWS in topics else None,
            alerts=report_rows.open_alerts(connection) if NEWS in topics else None,
            runs=runs,
            shards={
                run_id: {**known, **report_rows.new_shards(connection, run_id, known)}
                for run_id, run in runs.items()
                if run.status in _UNDER_WAY
                for known in [before.shards.get(run_id, {})]
            },
            rescorings=dict(_rescorings(connection, topics)),
            tasks=dict(_tasks(connection, topics)),
        )


def ended_topics(store: Store, topics: Collection[Topic]) -> set[Topic]:
    """Return the topics whose run or re-scoring has ended or was deleted."""
    runs = {topic.id for topic in topics if topic.kind is Kind.RUN}
    rescorings = {topic.id for topic in topics if topic.kind is Kind.RESCORING}
    with store.read() as connection:
        under_way = {Topic(Kind.RUN, one) for one in report_rows.runs_under_way(connection, runs)}
        under_way |= {Topic(Kind.RESCORING, one) for one in rescoring.under_way(connection, rescorings)}
    return {topic for topic in topics if topic.kind is not Kind.NEWS} - under_way


def events(topic: Topic, before: ChangeSnapshot | None, now: ChangeSnapshot) -> list[Event]:
    """Return the events of a topic between two polls; without `before`, its present state."""
    if topic.kind is Kind.NEWS:
        return [] if before is None else [*_ended_run_events(before, now), *_changed_alert_events(before, now)]
    make_event = _EVENTS[topic.kind]
    event = make_event(now, topic.id)
    return [] if before is not None and make_event(before, topic.id) == event else [event]


def _ended_run_events(before: ChangeSnapshot, now: ChangeSnapshot) -> Iterator[Event]:
    if before.newest is None or now.newest is None:
        return
    for slug, run_id in now.newest.items():
        if before.newest.get(slug) != run_id:
            yield Event(name="run_ended", data={"check": slug, "run": str(run_id)})


def _changed_alert_events(before: ChangeSnapshot, now: ChangeSnapshot) -> Iterator[Event]:
    if before.alerts is None or now.alerts is None:
        return
    for alert_id in sorted(before.alerts.keys() | now.alerts.keys()):
        was, is_now = before.alerts.get(alert_id), now.alerts.get(alert_id)
        alert = is_now or was
        if was != is_now and alert is not None:
            yield Event(name="alert_changed", data={"check": alert.check, "alert": str(alert_id)})


def _run_event(snapshot: ChangeSnapshot, run_id: int) -> Event:
    run = snapshot.runs.get(run_id)
    if run is None:  # deleted by retention
        return Event(name="ended", data={"run": str(run_id), "status": None, "verdict": None}, last=True)
    if run.status not in _UNDER_WAY:
        data = {"run": str(run_id), "check": run.check, "status": run.status, "verdict": run.verdict}
        return Event(name="ended", data={**data, "total": run.asked, "failed": run.failed}, last=True)
    staged = snapshot.shards.get(run_id, {})
    progress = {
        "done": asked_in(staged, run.asked),
        "total": run.asked,
        "failed": sum(staged.values()),
        "status": run.status,
    }
    return Event(name="progress", data=progress)


def _rescoring_event(snapshot: ChangeSnapshot, rescoring_id: int) -> Event:
    found = snapshot.rescorings.get(rescoring_id)
    if found is None:
        return Event(name="ended", data={"rescoring": str(rescoring_id), "status": None}, last=True)
    if found["finished_at"] is not None:
        ended = {name: found[name] for name in ("check", "status", "measures_version")}
        return Event(name="ended", data={"rescoring": str(rescoring_id), **ended}, last=True)
    progress = found["progress"]
    data = {"done": progress["runs_done"], "total": progress["runs_total"], "status": found["status"]}
    return Event(name="progress", data=data)


def _task_event(snapshot: ChangeSnapshot, task_id: int) -> Event:
    found = snapshot.tasks.get(task_id)
    if found is None:
        return Event(name="ended", data={"task": None, "status": None}, last=True)
    task, counts = found
    sums = {"total": counts.canaries, "failed": counts.failed, "status": task.state}
    if task.state is TaskState.POOLED:
        return Event(name="ended", data={"task": task.slug, "items": counts.items, **sums}, last=True)
    return Event(name="progress", data={"done": counts.pooled, **sums})


_EVENTS: Final[Mapping[Kind, Callable[[ChangeSnapshot, int], Event]]] = {
    Kind.RUN: _run_event,
    Kind.RESCORING: _rescoring_event,
    Kind.TASK: _task_event,
}


def _rescorings(connection: Connection, topics: Collection[Topic]) -> Iterator[tuple[int, RescoringView]]:
    for topic in topics:
        found = rescoring.find(connection, topic.id) if topic.kind is Kind.RESCORING else None
        if found is not None:
            yield topic.id, rescoring_shape(found, *rescoring.progress(connection, found))


def _tasks(connection: Connection, topics: Collection[Topic]) -> Iterator[tuple[int, tuple[TaskRow, PoolCounts]]]:
    for topic in topics:
        found = tasks.read_task(connection, topic.id) if topic.kind is Kind.TASK else None
        if found is not None and found.archived_at is None:
            yield topic.id, (found, tasks.count_pool(connection, topic.id))
