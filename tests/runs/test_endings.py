"""Requests that wait for a run: they share one look at the store, and hear at once of what ended in their process."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.records.tables import rescorings, runs
from app.runs.service.change_feed import Endings, Kind, Topic
from tests.support import event_loops
from tests.support.fakes import FakeClock
from tests.support.world import World, canary, page, statements

NEVER = 1e6
"""Seconds between looks that nobody hinted at: more than any test takes."""


@pytest.fixture
def world(store: Store) -> World:
    world = World(store=store, clock=FakeClock(now=datetime.now(UTC)))
    world.apply(page([canary("ant")]))
    world.run()
    return world


def test_twenty_waiters_are_served_by_the_looks_of_one(world: World) -> None:
    run = world.wish()
    topics = [Topic(Kind.RUN, run)] * 20

    async def play(endings: Endings, looks: Callable[[], int]) -> None:
        waiting = [asyncio.create_task(endings.wait(topic, NEVER)) for topic in topics]
        await _first(looks)
        _end(world, run)
        before = looks()
        endings.notify()
        await asyncio.gather(*waiting)
        assert looks() - before <= 2, "one that was under way already, and the one that saw it"

    _play(world, play)


@pytest.mark.both
def test_only_what_ended_is_told_and_what_is_gone_counts_as_ended(world: World) -> None:
    run = world.wish()

    async def play(endings: Endings, _looks: Callable[[], int]) -> None:
        other = asyncio.create_task(endings.wait(Topic(Kind.RUN, run), NEVER))
        await endings.wait(Topic(Kind.RUN, 1), NEVER)
        await endings.wait(Topic(Kind.RUN, 999), NEVER)
        assert not other.done()
        _end(world, run)
        endings.notify()
        await other

    _play(world, play)


def test_what_another_replica_ended_is_seen_without_a_hint(world: World) -> None:
    run = world.wish()

    async def play(endings: Endings, looks: Callable[[], int]) -> None:
        waiting = asyncio.create_task(endings.wait(Topic(Kind.RUN, run), NEVER))
        await _first(looks)
        _end(world, run)
        await waiting

    _play(world, play, poll_seconds=0.01)


@pytest.mark.both
def test_a_rescoring_is_waited_for_as_a_run_is(world: World) -> None:
    with world.store.write() as connection:
        check, suite = connection.execute(sa.select(runs.c.check_id, runs.c.suite_version_id)).one()
        values = {"check_id": check, "suite_version_id": suite, "measures_version": "1", "created_at": 1}
        connection.execute(sa.insert(rescorings).values(id=7, **values))

    async def play(endings: Endings, looks: Callable[[], int]) -> None:
        waiting = asyncio.create_task(endings.wait(Topic(Kind.RESCORING, 7), NEVER))
        await _first(looks)
        assert not waiting.done()
        with world.store.write() as connection:
            connection.execute(sa.update(rescorings).values(finished_at=2))
        endings.notify()
        await waiting

    _play(world, play)


def test_nobody_looks_once_nobody_waits_and_a_hint_then_is_harmless(world: World) -> None:
    run = world.wish()

    async def play(endings: Endings, looks: Callable[[], int]) -> None:
        await endings.wait(Topic(Kind.RUN, run), 0.0)
        before = looks()
        endings.notify()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)
        assert looks() - before <= 1, "one may have been under way"

    _play(world, play)


async def _first(looks: Callable[[], int]) -> None:
    while not looks():  # noqa: ASYNC110 - a thread takes it, and tells nobody
        await asyncio.sleep(0)


def _end(world: World, run: int) -> None:
    with world.store.write() as connection:
        connection.execute(sa.update(runs).where(runs.c.id == run).values(status="finished"))


def _play(
    world: World,
    play: Callable[[Endings, Callable[[], int]], Coroutine[Any, Any, None]],
    *,
    poll_seconds: float = NEVER,
) -> None:
    """Let a scene play in an event loop; it is told how many looks were taken at runs and re-scorings so far."""
    asked: list[str] = []

    def looks() -> int:
        return len([one for one in asked if one.startswith("SELECT")])

    with statements(world.store, asked.append):
        event_loops.run(play(Endings(world.store, poll_seconds=poll_seconds), looks))
