"""The change feed: who follows what, and the events of runs, re-scorings, pools of tasks and all checks.

`Streams` serves those who follow, `Endings` the requests that wait for something to end. Both read the store once a
second for all of them together; `poll_changes` reads, `events` compares two polls. Nothing here writes.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from app.annotation.store import task_rows as tasks
from app.annotation.store.task_rows import PoolCounts, TaskRow
from app.annotation.views import TaskState
from app.base.db.engine import Connection, Store
from app.base.errors import BusyError, NotFoundError, StoreUnavailableError
from app.base.values import RunStatus, Value, field
from app.base.views import id_number
from app.records.service.plans import asked_in
from app.records.service.run_views import rescoring_shape
from app.records.store import rescorings
from app.records.views import RescoringView
from app.runs import store as runs_store
from app.runs.store import FollowedRun, OpenAlert

logger = logging.getLogger("coalmine.streams")

MOST: Final = 100
"""Most open streams of a process."""
MOST_OF_A_KEY: Final = 20
"""Most of them with one key; the open service on loopback has no keys and no such limit."""
LONGEST_SECONDS: Final = 600.0
"""Longest duration of a stream; on reconnection the key is checked again."""
_POLL_SECONDS: Final = 1.0
_UNREAD: Final = 2_000
"""Most events that wait for a slow listener before it is disconnected."""
_UNDER_WAY = (RunStatus.QUEUED, RunStatus.RUNNING)


class Kind(StrEnum):
    """Kind of a topic."""

    NEWS = "news"
    """Ended runs and changed alerts of all checks."""
    RUN = "run"
    RESCORING = "rescoring"
    TASK = "task"
    """The pool of an annotation task, by its slug."""


class Topic(Value, kw_only=False):
    """What a subscriber follows; `NEWS` has no id."""

    kind: Kind
    id: int = 0


NEWS = Topic(Kind.NEWS)


class Event(Value):
    """A server-sent event: its name, and its data in the API's shape."""

    name: str
    data: Mapping[str, object]
    last: bool = False
    """Whether the stream ends after it."""


class ChangeSnapshot(Value):
    """Result of a poll; None and missing = not polled, or it does not exist."""

    newest: Mapping[str, int] | None = None
    """The newest ended run of every check, by slug."""
    alerts: Mapping[int, OpenAlert] | None = None
    runs: Mapping[int, FollowedRun] = field(default_factory=dict)
    shards: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Failed probes by run and shard, of active runs."""
    rescorings: Mapping[int, RescoringView] = field(default_factory=dict)
    tasks: Mapping[int, tuple[TaskRow, PoolCounts]] = field(default_factory=dict)


@dataclass(eq=False, slots=True, kw_only=True)
class Listener:
    """A subscriber of a topic."""

    topic: Topic
    key: str | None
    """The prefix of its key."""
    inlet: MemoryObjectSendStream[Event]
    outlet: MemoryObjectReceiveStream[Event]
    longest_seconds: float
    previous: ChangeSnapshot | None = None

    async def events(self, seconds: float) -> AsyncIterator[Event]:
        """Yield events; ends with the last one, after `seconds`, or when the process ends."""
        until = anyio.current_time() + min(seconds, self.longest_seconds)
        while True:
            event: Event | None = None
            try:
                with anyio.move_on_after(until - anyio.current_time()):
                    event = await self.outlet.receive()
            except anyio.EndOfStream:
                return
            if event is None:
                return
            yield event
            if event.last:
                return


class Streams:
    """The event streams of this process."""

    def __init__(
        self,
        store: Store,
        *,
        most: int = MOST,
        most_of_a_key: int = MOST_OF_A_KEY,
        poll_seconds: float = _POLL_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._store, self._most, self._most_of_a_key = store, most, most_of_a_key
        self._poll_seconds, self._longest_seconds = poll_seconds, longest_seconds
        self._listeners: set[Listener] = set()
        self._polling: asyncio.Task[None] | None = None
        self._ending = False
        # A thread of its own, so that streams go on while all route threads are busy.
        self._thread = CapacityLimiter(1)

    @asynccontextmanager
    async def listen(self, kind: Kind, opaque: str = "", *, key: str | None = None) -> AsyncIterator[Listener]:
        """Open a stream of all checks, or of the run or re-scoring with this id, for the duration of the block.

        Raises BusyError where a limit is reached or the process is ending, NotFoundError, and StoreUnavailableError.
        """
        self._require_room(key)
        found = await anyio.to_thread.run_sync(find_topic, self._store, kind, opaque, limiter=self._thread)
        self._require_room(key)  # others may have come meanwhile
        inlet, outlet = anyio.create_memory_object_stream[Event](_UNREAD)
        topic, now = found
        longest = self._longest_seconds
        listener = Listener(topic=topic, key=key, inlet=inlet, outlet=outlet, longest_seconds=longest)
        _send_events(listener, now)
        self._listeners.add(listener)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll_forever(), name="coalmine-streams")
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            inlet.close()
            outlet.close()
            if not self._listeners:
                self._polling.cancel()
                self._polling = None

    def end(self) -> None:
        """End every stream and refuse new ones: a server waits for open ones before it stops."""
        self._ending = True
        for listener in self._listeners:
            listener.inlet.close()

    def _require_room(self, key: str | None) -> None:
        if self._ending:
            raise BusyError("the service is stopping")
        if len(self._listeners) >= self._most:
            raise BusyError(f"this process has {self._most} open event streams, which is its limit")
        of_key = sum(listener.key == key for listener in self._listeners) if key is not None else 0
        if of_key >= self._most_of_a_key:
            raise BusyError(f"this key has {of_key} open event streams, which is the limit of this process")

    async def _poll_forever(self) -> None:
        before = ChangeSnapshot()
        while True:
            try:
                before = await self._poll(before)
            except StoreUnavailableError as error:
                logger.warning("store_unavailable", extra={"detail": str(error)})
            except Exception:
                logger.exception("bug")  # the next poll tries again
            await anyio.sleep(self._poll_seconds)

    async def _poll(self, before: ChangeSnapshot) -> ChangeSnapshot:
        topics = {listener.topic for listener in self._listeners}
        now = await anyio.to_thread.run_sync(poll_changes, self._store, topics, before, limiter=self._thread)
        for listener in self._listeners:
            if listener.topic in topics:  # one added during the poll is served by the next
                _send_events(listener, now)
        return now


def _send_events(listener: Listener, now: ChangeSnapshot) -> None:
    try:
        for event in events(listener.topic, listener.previous, now):
            listener.inlet.send_nowait(event)
    except (anyio.WouldBlock, anyio.ClosedResourceError):
        listener.inlet.close()
    listener.previous = now


class Endings:
    """The requests of this process that wait for something to end."""

    def __init__(self, store: Store, *, poll_seconds: float = _POLL_SECONDS) -> None:
        self._store, self._poll_seconds = store, poll_seconds
        self._waiting: defaultdict[Topic, set[asyncio.Event]] = defaultdict(set)
        self._polling: asyncio.Task[None] | None = None
        self._hint: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # A thread of its own, so that waiting requests are answered while all route threads are busy.
        self._thread = CapacityLimiter(1)

    async def wait(self, topic: Topic, seconds: float) -> None:
        """Return once the topic has ended or does not exist, and after `seconds` at the latest."""
        ended = asyncio.Event()
        self._waiting[topic].add(ended)
        if self._polling is None or self._polling.done():
            self._loop, self._hint = asyncio.get_running_loop(), asyncio.Event()
            self._polling = asyncio.create_task(self._poll_forever(self._hint), name="coalmine-endings")
        elif self._hint is not None:
            self._hint.set()
        try:
            with anyio.move_on_after(seconds):
                await ended.wait()
        finally:
            self._waiting[topic].discard(ended)
            if not self._waiting[topic]:
                del self._waiting[topic]
            if not self._waiting:
                self._polling.cancel()
                self._polling = None

    def notify(self) -> None:
        """Poll now, since something has ended in this process. Thread-safe."""
        if self._waiting and self._loop is not None and self._hint is not None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(self._hint.set)

    async def _poll_forever(self, hint: asyncio.Event) -> None:
        while True:
            hint.clear()
            try:
                await self._wake_ended()
            except StoreUnavailableError as error:
                logger.warning("store_unavailable", extra={"detail": str(error)})
            except Exception:
                logger.exception("bug")  # the next look tries again
            with anyio.move_on_after(self._poll_seconds):
                await hint.wait()

    async def _wake_ended(self) -> None:
        ended = await anyio.to_thread.run_sync(ended_topics, self._store, set(self._waiting), limiter=self._thread)
        for topic in ended & self._waiting.keys():
            for waiter in self._waiting[topic]:
                waiter.set()


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
            topic.id: runs_store.followed_run(connection, topic.id) for topic in topics if topic.kind is Kind.RUN
        }
        runs = {run_id: run for run_id, run in found_runs.items() if run is not None}
        return ChangeSnapshot(
            newest=runs_store.newest_runs(connection) if NEWS in topics else None,
            alerts=runs_store.open_alerts(connection) if NEWS in topics else None,
            runs=runs,
            shards={
                run_id: {**known, **runs_store.new_shards(connection, run_id, known)}
                for run_id, run in runs.items()
                if run.status in _UNDER_WAY
                for known in [before.shards.get(run_id, {})]
            },
            rescorings=dict(_rescorings(connection, topics)),
            tasks=dict(_tasks(connection, topics)),
        )


def ended_topics(store: Store, topics: Collection[Topic]) -> set[Topic]:
    """Return the topics whose run or re-scoring has ended or was deleted."""
    run_ids = {topic.id for topic in topics if topic.kind is Kind.RUN}
    rescoring_ids = {topic.id for topic in topics if topic.kind is Kind.RESCORING}
    with store.read() as connection:
        under_way = {Topic(Kind.RUN, one) for one in runs_store.runs_under_way(connection, run_ids)}
        under_way |= {Topic(Kind.RESCORING, one) for one in rescorings.under_way(connection, rescoring_ids)}
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
        found = rescorings.find(connection, topic.id) if topic.kind is Kind.RESCORING else None
        if found is not None:
            yield topic.id, rescoring_shape(found, *rescorings.progress(connection, found))


def _tasks(connection: Connection, topics: Collection[Topic]) -> Iterator[tuple[int, tuple[TaskRow, PoolCounts]]]:
    for topic in topics:
        found = tasks.read_task(connection, topic.id) if topic.kind is Kind.TASK else None
        if found is not None and found.archived_at is None:
            yield topic.id, (found, tasks.count_pool(connection, topic.id))
