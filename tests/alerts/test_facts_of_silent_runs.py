"""Rules that say nothing of some runs whose verdict is known: the runs they did measure decide, however far back."""

import json

import pytest
import sqlalchemy as sa

from app.alerts.service import transitions
from app.base.db.engine import Store
from app.base.values import Answer, Outcome
from app.catalog.service.references import find_check
from app.detection.service import baselines
from app.records.tables import run_probes, runs
from tests.conftest import Databases
from tests.support.fakes import answered, hits
from tests.support.watched import KEYS, carry_out, define, learned_world
from tests.support.world import CHECK, World, canary, page, statements

CANARY = {"kind": "canary", "canary": "ant"}
DROP = {"kind": "drop", "measure": "coverage", "critical": {"by": 0.2}}
TIMEOUT = Answer(outcome=Outcome.TIMEOUT, latency_seconds=1.0)
STEPS: dict[str, dict[str, Answer]] = {"bad": {"ant": answered(hits("noise"))}, "silent": {"ant": TIMEOUT}, "good": {}}


@pytest.fixture
def world(sqlite_store: Store) -> World:
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in ("ant", "bee", "cat", "dog")], rules=[CANARY]))
    return world


def states(world: World, *steps: str) -> list[str | None]:
    """Carry out such runs; gives where the newest alert of the rule is after each."""
    found: list[str | None] = []
    for step in steps:
        world.probe.answers = dict(STEPS[step])
        world.run()
        alerts = [one for one in world.alerts() if one["rule"] == "canary-ant"]
        found.append(alerts[-1]["state"] if alerts else None)
    return found


def test_two_bad_measured_runs_open_however_many_silent_ones_lie_between(world: World) -> None:
    assert states(world, "bad", *["silent"] * 5, "bad") == [*["pending"] * 6, "firing"]


def test_good_measured_runs_close_however_many_silent_ones_lie_between(world: World) -> None:
    states(world, "bad", "bad")
    assert states(world, "good", *["silent"] * 5, "good") == [*["recovering"] * 6, "resolved"]


def test_a_good_measured_run_between_counts_as_one_of_the_last_three(world: World) -> None:
    told = states(world, "bad", "silent", "good", "silent", "good", "silent", "silent", "bad")
    assert told[-1] == "pending"  # one bad of the last three measured


def test_a_rule_that_never_measured_makes_nobody_read_older_runs(world: World) -> None:
    def read() -> list[str]:
        asked: list[str] = []
        with statements(world.store, asked.append):
            states(world, "silent")
        return [one for one in asked if "FROM runs" in one]

    states(world, *["silent"] * 3)
    few = len(read())
    states(world, *["silent"] * 20)
    assert len(read()) == few


def test_canaries_at_two_hundred_runs_are_read_by_as_few_statements_as_at_ten(world: World) -> None:
    """A rule with an alert, silent for long, reads back to the runs it measured while the run that ended is written."""
    states(world, "bad", "bad", "silent")
    _repeat_newest(world, 7)
    read, few = _gathered(world)
    assert len(read.runs) == len(read.run_facts) == 10
    _repeat_newest(world, 200)
    read, many = _gathered(world)
    assert len(read.runs) == len(read.run_facts) == 200
    steps = 3  # to 48 runs, to 192 and to 200, after as many as ten took
    assert len(many) - len(few) <= steps * 7
    assert {tuple(one.canaries.values()) for one in read.run_facts.values()} == {(None,)}


def _gathered(world: World) -> tuple[transitions.CheckFacts, list[str]]:
    """Read what the rule of the ant looks at, and the statements that took."""
    asked: list[str] = []
    with world.store.read() as connection, statements(world.store, asked.append):
        check = find_check(connection, CHECK)
        rules = transitions._rules(check)
        found = transitions.load_facts(connection, check.id, rules, unresolved={rule.key for rule in rules})
    return found, asked


def _repeat_newest(world: World, times: int) -> None:
    """Write the newest run so many times more, as runs that said the same."""
    with world.store.write() as connection:
        newest = connection.execute(sa.select(runs).order_by(runs.c.id.desc()).limit(1)).one()._asdict()
        probes = connection.execute(sa.select(run_probes).where(run_probes.c.run_id == newest["id"])).one()._asdict()
        ids = range(newest["id"] + 1, newest["id"] + 1 + times)
        moved = ("id", "scheduled_for", "finished_at")
        more = [{**newest, **{name: newest[name] + one - newest["id"] for name in moved}} for one in ids]
        connection.execute(sa.insert(runs), more)
        connection.execute(sa.insert(run_probes), [{**probes, "run_id": one} for one in ids])


def test_bad_runs_from_before_a_chosen_baseline_open_no_drop(databases: Databases) -> None:
    url, clock = learned_world(databases, "sqlite")
    store = Store(url)
    try:
        world = World(store=store, clock=clock)
        define(world, rules=[DROP])
        healthy = carry_out(world, 1)[0].id
        carry_out(world, 1, KEYS[:8])
        baselines.pin(store, CHECK, str(healthy), by="ada", note=None, now=clock.advance(1))
        told = []
        for _ in range(2):
            carry_out(world, 1, KEYS[:8])
            told.append(world.alerts()[-1]["state"])
        assert told == ["pending", "firing"]
        world.deliver_all()
        data = json.loads(world.send.sent[-1][1].body)["data"]
        assert (data["value"], data["baseline"]) == (pytest.approx(0.6), 1.0)
    finally:
        store.close()
