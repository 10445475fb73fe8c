"""Progress of a task's pool as events, by the feed that serves all event streams."""

import pytest

from app.annotation.service import tasks
from app.base.db.engine import Store
from app.base.errors import NotFoundError
from app.runs.service.change_feed import Event, Kind, events, find_topic, poll_changes
from tests.support.annotation_tasks import Desk

pytestmark = pytest.mark.databases


def present_state(desk: Desk) -> Event:
    """Give what a stream that is opened now begins with."""
    topic, snapshot = find_topic(desk.store, Kind.TASK, "truth")
    (event,) = events(topic, None, snapshot)
    return event


def test_a_pool_is_followed_until_all_its_canaries_are_pooled(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "BLOCK", 1)
    desk = Desk.of(store)
    assert present_state(desk) == Event(name="progress", data={"done": 0, "total": 0, "failed": 0, "status": "created"})
    topic, before = find_topic(store, Kind.TASK, "truth")
    stops = iter([False] * 5)  # within the second canary
    desk.make_pool(stopping=lambda: next(stops, True))
    half = poll_changes(store, {topic}, before)
    (event,) = events(topic, before, half)
    assert event == Event(name="progress", data={"done": 1, "total": 4, "failed": 0, "status": "pooling"})
    assert events(topic, half, poll_changes(store, {topic}, half)) == [], "nothing changed"
    desk.work()
    (last,) = events(topic, half, poll_changes(store, {topic}, half))
    ended = {"task": "truth", "items": len(desk.items()), "total": 4, "failed": 0, "status": "pooled"}
    assert last == Event(name="ended", data=ended, last=True)
    assert present_state(desk) == last, "who comes late is told how it ended"


def test_the_stream_of_a_task_that_is_archived_meanwhile_ends(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    topic, before = find_topic(sqlite_store, Kind.TASK, "truth")
    tasks.archive_task(sqlite_store, "truth", now=desk.world.clock())
    (last,) = events(topic, before, poll_changes(sqlite_store, {topic}, before))
    assert last == Event(name="ended", data={"task": None, "status": None}, last=True)
    with pytest.raises(NotFoundError, match="there is no task 'truth'"):
        find_topic(sqlite_store, Kind.TASK, "truth")
