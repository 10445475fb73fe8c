"""Change feed for event streams: one cheap poll of the store for all subscribers, and the events of each topic.

`poll_changes` reads, the rest is pure. A poll misses what began and ended between two polls, such as two runs of one
check; the history has them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from app.annotation.domain.views import TaskState
from app.annotation.store import tasks
from app.annotation.store.tasks import PoolCounts, TaskRow
from app.base.db.engine import Connection, Store
from app.base.errors import NotFoundError
from app.base.values import RunStatus
from app.records import documents as shapes
from app.records.service.score_details import rescoring_shape
from app.records.store import rescoring
from app.reports.store import change_feed
from app.reports.store.change_feed import FollowedRun, OpenAlert
from app.runs.service.plans import asked_in
from app.scoring.views import RescoringView

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
    topic = Topic(kind, shapes.id_number(opaque, word))
    snapshot = poll_changes(store, {topic})
    if not (snapshot.runs or snapshot.rescorings):
        raise NotFoundError(f"there is no {word} '{opaque[:40]}'")
    return topic, snapshot


def poll_changes(store: Store, topics: Collection[Topic], before: ChangeSnapshot | None = None) -> ChangeSnapshot:
    """Return the present state of topics; what cannot have changed is taken from `before`."""
    before = before or ChangeSnapshot()
    with store.read() as connection:
        found_runs = {
            topic.id: change_feed.followed_run(connection, topic.id) for topic in topics if topic.kind is Kind.RUN
        }
        runs = {run_id: run for run_id, run in found_runs.items() if run is not None}
        return ChangeSnapshot(
            newest=change_feed.newest_runs(connection) if NEWS in topics else None,
            alerts=change_feed.open_alerts(connection) if NEWS in topics else None,
            runs=runs,
            shards={
                run_id: _shards(connection, run_id, before.shards.get(run_id, {}))
                for run_id, run in runs.items()
                if run.status in _UNDER_WAY
            },
            rescorings=dict(_rescorings(connection, topics)),
            tasks=dict(_tasks(connection, topics)),
        )


def ended_topics(store: Store, topics: Collection[Topic]) -> set[Topic]:
    """Return the topics whose run or re-scoring has ended or was deleted."""
    runs = {topic.id for topic in topics if topic.kind is Kind.RUN}
    rescorings = {topic.id for topic in topics if topic.kind is Kind.RESCORING}
    with store.read() as connection:
        under_way = {Topic(Kind.RUN, one) for one in change_feed.runs_under_way(connection, runs)}
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


def _shards(connection: Connection, run_id: int, known: Mapping[int, int]) -> dict[int, int]:
    return {**known, **change_feed.new_shards(connection, run_id, known)}


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
