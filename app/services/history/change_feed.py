"""Following what happens: one cheap look at the store for all who follow, and what to tell each of them.

`poll_changes` reads, the rest is pure. A poll misses what began and ended between two polls, such as two runs of one
check: events only say where to look, the history has them all.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.domain.errors import NotFoundError
from app.domain.model import RunStatus
from app.domain.runs.views import RescoringView
from app.formats.history import shapes
from app.services.runs.plans import asked_in
from app.services.score_details import rescoring_shape
from app.store.engine import Connection, Store
from app.store.history import change_feed
from app.store.history.change_feed import FollowedRun, OpenAlert
from app.store.runs import rescoring

_UNDER_WAY = (RunStatus.QUEUED, RunStatus.RUNNING)


class Kind(StrEnum):
    """What can be followed."""

    NEWS = "news"
    """Which runs ended, and which alerts changed."""
    RUN = "run"
    RESCORING = "rescoring"


@dataclass(frozen=True, slots=True)
class Topic:
    """What somebody follows; news have no id."""

    kind: Kind
    id: int = 0


NEWS = Topic(Kind.NEWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing to tell: its name, and its data in the API's shape."""

    name: str
    data: Mapping[str, Any]
    last: bool = False
    """Nothing comes after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSnapshot:
    """What a look saw of what was asked about; None and missing = it was not, or there is no such thing."""

    newest: Mapping[str, int] | None = None
    """The newest ended run of every check, by slug."""
    alerts: Mapping[int, OpenAlert] | None = None
    runs: Mapping[int, FollowedRun] = field(default_factory=dict)
    shards: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Failed probes by run and shard, of runs under way."""
    rescorings: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


def find(store: Store, kind: Kind, opaque: str = "") -> tuple[Topic, ChangeSnapshot]:
    """Find what somebody wants to follow by its id, and how it stands. Raises NotFoundError."""
    if kind is Kind.NEWS:
        return NEWS, poll_changes(store, {NEWS})
    word = "run" if kind is Kind.RUN else "re-scoring"
    topic = Topic(kind, shapes.id_number(opaque, word))
    snapshot = poll_changes(store, {topic})
    if not (snapshot.runs or snapshot.rescorings):
        raise NotFoundError(f"there is no {word} '{opaque[:40]}'")
    return topic, snapshot


def poll_changes(store: Store, topics: Collection[Topic], before: ChangeSnapshot | None = None) -> ChangeSnapshot:
    """Look at what these topics are about; `before` spares reading again what cannot have changed."""
    before = before or ChangeSnapshot()
    with store.read() as connection:
        wanted = {
            topic.id: change_feed.followed_run(connection, topic.id) for topic in topics if topic.kind is Kind.RUN
        }
        runs = {run_id: run for run_id, run in wanted.items() if run is not None}
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
        )


def ended(store: Store, topics: Collection[Topic]) -> set[Topic]:
    """Find those of these runs and re-scorings that have ended, or are not there any more; one column of each."""
    runs = {topic.id for topic in topics if topic.kind is Kind.RUN}
    rescorings = {topic.id for topic in topics if topic.kind is Kind.RESCORING}
    with store.read() as connection:
        under_way = {Topic(Kind.RUN, one) for one in change_feed.runs_under_way(connection, runs)}
        under_way |= {Topic(Kind.RESCORING, one) for one in rescoring.under_way(connection, rescorings)}
    return {topic for topic in topics if topic.kind is not Kind.NEWS} - under_way


def events(topic: Topic, before: ChangeSnapshot | None, now: ChangeSnapshot) -> list[Event]:
    """Say what is to be told of a topic; who has seen nothing `before` is told how things stand."""
    if topic.kind is Kind.NEWS:
        return [] if before is None else [*_ended(before, now), *_changed(before, now)]
    told = _of_run if topic.kind is Kind.RUN else _of_rescoring
    event = told(now, topic.id)
    return [] if before is not None and told(before, topic.id) == event else [event]


def _ended(before: ChangeSnapshot, now: ChangeSnapshot) -> Iterator[Event]:
    if before.newest is None or now.newest is None:
        return
    for slug, run_id in now.newest.items():
        if before.newest.get(slug) != run_id:
            yield Event(name="run_ended", data={"check": slug, "run": str(run_id)})


def _changed(before: ChangeSnapshot, now: ChangeSnapshot) -> Iterator[Event]:
    if before.alerts is None or now.alerts is None:
        return
    for alert_id in sorted(before.alerts.keys() | now.alerts.keys()):
        was, is_now = before.alerts.get(alert_id), now.alerts.get(alert_id)
        alert = is_now or was
        if was != is_now and alert is not None:  # one of them it is
            yield Event(name="alert_changed", data={"check": alert.check, "alert": str(alert_id)})


def _of_run(snapshot: ChangeSnapshot, run_id: int) -> Event:
    run = snapshot.runs.get(run_id)
    if run is None:  # it was there: retention has passed over it
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


def _of_rescoring(snapshot: ChangeSnapshot, rescoring_id: int) -> Event:
    found = snapshot.rescorings.get(rescoring_id)
    if found is None:
        return Event(name="ended", data={"rescoring": str(rescoring_id), "status": None}, last=True)
    if found["finished_at"] is not None:
        data = {name: found[name] for name in ("check", "status", "measures_version")}
        return Event(name="ended", data={"rescoring": str(rescoring_id), **data}, last=True)
    progress = found["progress"]
    data = {"done": progress["runs_done"], "total": progress["runs_total"], "status": found["status"]}
    return Event(name="progress", data=data)


def _shards(connection: Connection, run_id: int, known: Mapping[int, int]) -> dict[int, int]:
    return {**known, **change_feed.new_shards(connection, run_id, known)}


def _rescorings(connection: Connection, topics: Collection[Topic]) -> Iterator[tuple[int, RescoringView]]:
    for topic in topics:
        found = rescoring.find(connection, topic.id) if topic.kind is Kind.RESCORING else None
        if found is not None:
            yield topic.id, rescoring_shape(found, *rescoring.progress(connection, found))
