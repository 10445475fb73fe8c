"""A run that cannot be ended as it should is ended all the same, so that its check is not blocked for ever."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.values import RunStatus, Verdict
from app.catalog.service import references
from app.catalog.tables import definition_versions
from app.records.store.open_runs import ClaimedRun
from app.runs.service import due_checks, execution
from app.runs.service.finalising import EndedRun
from tests.support.fakes import START
from tests.support.world import CHECK, World, canary, page

pytestmark = pytest.mark.both


@pytest.fixture
def world(store: Store) -> World:
    """Give a world whose next run is bad."""
    world = World(store=store)
    world.apply(page([canary("ant"), canary("bee")]))
    world.probe.all_miss()
    return world


@contextmanager
def _alerting_broken(store: Store, *, in_the_database: bool) -> Iterator[None]:
    """Make every look at the alerts of a check raise: the database does, or what it gives cannot be read."""
    breaking, mending = "UPDATE alerts SET evidence = '{'", "UPDATE alerts SET evidence = '{}'"
    if in_the_database:
        breaking, mending = "ALTER TABLE alerts RENAME TO elsewhere", "ALTER TABLE elsewhere RENAME TO alerts"
    _change(store, breaking)
    yield
    _change(store, mending)


def _change(store: Store, statement: str) -> None:
    with store.write() as connection:
        connection.exec_driver_sql(statement)


def _claimed(world: World) -> ClaimedRun:
    world.clock.advance(60)
    world.wish()
    claimed = world.claim()
    assert claimed is not None
    return claimed


def _give_up(world: World, claimed: ClaimedRun) -> EndedRun | None:
    return execution.give_up(world.store, claimed, owner="worker", clock=world.clock)


@pytest.mark.databases
@pytest.mark.parametrize("in_the_database", [True, False])
def test_a_run_whose_alerting_raises_is_given_up_in_the_end(
    world: World, caplog: pytest.LogCaptureFixture, *, in_the_database: bool
) -> None:
    world.run()
    with _alerting_broken(world.store, in_the_database=in_the_database):
        claimed = _claimed(world)
        with pytest.raises(Exception, match=r"alerts|Expecting"):
            world.execute(claimed)
        assert _give_up(world, claimed) is None  # not at once: it may be mended
        world.clock.now += timedelta(minutes=16)
        with caplog.at_level(logging.ERROR, "coalmine"):
            ended = _give_up(world, claimed)
    assert ended is not None
    assert (ended.status, ended.verdict) == (RunStatus.FAILED, Verdict.UNKNOWN)
    assert world.shown(claimed.id)["status"] == "failed"
    assert [(record.getMessage(), record.__dict__["run"]) for record in caplog.records] == [("bug", claimed.id)]
    assert world.run().status is RunStatus.FINISHED  # the check is not blocked


def test_the_silence_that_follows_is_told(world: World) -> None:
    world.run()
    with _alerting_broken(world.store, in_the_database=False):
        claimed = _claimed(world)
        world.clock.now += timedelta(minutes=16)
        assert _give_up(world, claimed) is not None
    check = references.load_definition(world.store, "check", CHECK)
    assert due_checks.watch_for_no_data(world.store, check.id, started_at=START, now=world.clock())


def test_a_run_given_up_while_alerting_works_is_seen_by_the_rules(world: World) -> None:
    for _ in range(2):
        claimed = _claimed(world)
        world.clock.now += timedelta(minutes=16)
        assert _give_up(world, claimed) is not None
    assert [(one["kind"], one["state"]) for one in world.alerts()] == [("probe_errors", "firing")]


def test_a_run_that_breaks_before_its_first_answer_fails_after_a_minute(world: World) -> None:
    def broken(_batch: int) -> None:
        raise RecursionError

    world.probe.before_batch = broken
    claimed = _claimed(world)
    for _ in range(2):
        with pytest.raises(RecursionError):
            world.execute(claimed)
        assert _give_up(world, claimed) is None  # not at once: it may be mended
        world.clock.advance(31)
    ended = _give_up(world, claimed)
    assert ended is not None
    assert (ended.status, ended.verdict) == (RunStatus.FAILED, Verdict.UNKNOWN)
    assert world.shown(claimed.id)["status"] == "failed"


def test_a_run_that_has_answers_is_tried_for_longer(world: World) -> None:
    def broken(batch: int) -> None:
        world.clock.advance(1)
        if batch == 4:
            raise RecursionError

    world.apply(page([canary(f"q{number}") for number in range(150)]))
    world.probe.before_batch = broken
    claimed = _claimed(world)
    with pytest.raises(RecursionError):
        world.execute(claimed)
    assert world.count("shards") == {"shards": 1}
    world.clock.now += timedelta(minutes=14)
    assert _give_up(world, claimed) is None
    world.clock.now += timedelta(minutes=2)
    assert _give_up(world, claimed) is not None


def test_a_run_of_a_retriever_that_is_no_longer_allowed_fails_at_once_and_says_why(world: World) -> None:
    with world.store.write() as connection:
        for row in connection.execute(sa.select(definition_versions)).all():
            body = json.loads(row.body)
            if "response" in body:
                body["response"]["text"] = "a" + ".a" * 400
                same = definition_versions.c.id == row.id
                connection.execute(sa.update(definition_versions).where(same).values(body=json.dumps(body)))
    ended = world.execute(_claimed(world))
    assert ended is not None
    assert (ended.status, ended.verdict) == (RunStatus.FAILED, Verdict.UNKNOWN)
    (reason,) = world.shown(ended)["reasons"]
    assert reason.startswith("the retriever cannot be used as it is defined: response.text: ")
