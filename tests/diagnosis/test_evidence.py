"""What an alert names first is what reports and pages name first."""

from collections.abc import Callable

import pytest

from app.alerts.service import evidence
from app.alerts.service.evidence import list_changed
from app.base.db.engine import Store
from app.detection import store as detector_rows
from app.detection.domain import Baseline
from app.detection.domain.tracker import unpack_baseline
from app.records.service import run_views
from app.records.views import worst_first
from tests.conftest import Databases
from tests.support.fakes import answered, hits
from tests.support.watched import KEYS, REGRESSION, carry_out, learned_world
from tests.support.world import World, canary, page

StoreMaker = Callable[..., Store]


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world whose retriever brings scores with some answers only."""
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in ("ant", "bee", "cat", "dog")]))
    return world


def test_the_worst_canaries_stand_in_the_order_of_reports(world: World) -> None:
    world.probe.answers = {
        "ant": answered(hits("noise", scores=[None])),  # no top score: not the worst of scores
        "bee": answered(hits("noise", scores=[0.9])),
        "cat": answered(hits("noise", scores=[0.6])),
        "dog": answered(hits("noise", scores=[0.1])),  # of low relevance too
    }
    run = world.run()
    with world.store.read() as connection:
        named = list_changed(connection, run.id, None)["canaries"]
    assert [one["key"] for one in named] == ["dog", "cat", "bee", "ant"]
    reported = worst_first(run_views.results(world.store, str(run.id))[0])
    assert [one["key"] for one in named] == [one["key"] for one in reported]


def test_a_baseline_says_how_many_would_have_fallen_by_chance(databases: Databases, stores: StoreMaker) -> None:
    url, clock = learned_world(databases, "sqlite")
    world = World(store=stores(url), clock=clock)
    bad = carry_out(world, 1, KEYS[:3])[0]
    with world.store.read() as connection:
        why = evidence.load_fleet(connection, bad.id)
    baseline = _baseline_of(world.store, bad.id)
    rates = [float(rate) for rate in baseline.rates[0, 0]]  # lost, right after having passed
    assert why is not None
    assert why.fleet_view["expected_by_chance"] == round(sum(rates), 3)
    assert why.fleet.headline == f"3 of 20: not explained yet; expected at most {sum(rates):.1f} by chance"


def test_of_a_canary_the_baseline_does_not_know_nothing_is_said_of_chance(
    databases: Databases, stores: StoreMaker
) -> None:
    url, clock = learned_world(databases, "sqlite")
    world = World(store=stores(url), clock=clock)
    canaries = [canary(key) for key in KEYS[:-1]]
    world.apply(page([*canaries, canary("new")], rules=[REGRESSION]))
    bad = carry_out(world, 1, KEYS[:3])[0]
    with world.store.read() as connection:
        why = evidence.load_fleet(connection, bad.id)
    assert why is not None
    assert why.fleet_view["expected_by_chance"] is None


def test_without_a_baseline_nothing_is_said_of_chance(world: World) -> None:
    world.run()
    world.probe.all_miss()
    with world.store.read() as connection:
        why = evidence.load_fleet(connection, world.run().id)
    assert why is not None
    assert (why.fleet.fallen, why.fleet_view["expected_by_chance"]) == (4, None)


def test_nothing_fell_on_the_first_run_that_measured_and_an_outage_in_between_makes_nobody_fall(world: World) -> None:
    world.probe.all_fail()
    world.run()
    world.probe.all_answer()
    world.probe.answers |= {key: answered(hits("noise")) for key in ("ant", "bee")}
    first = world.run()
    world.probe.all_fail()
    world.run()
    world.probe.answers = {key: answered(hits("noise")) for key in ("ant", "bee", "cat")}
    world.probe.answers["dog"] = answered(hits("doc-dog"))
    third = world.run()
    with world.store.read() as connection:
        told = [evidence.load_fleet(connection, run.id) for run in (first, third)]
    assert told[0] is not None
    assert told[0].fleet.headline == "2 of 4 canaries degraded in the first run: not explained yet"
    assert told[0].fleet.fallen == 0
    assert told[1] is not None
    assert told[1].fleet.headline == "1 of 4 (cat): not explained yet"


def _baseline_of(store: Store, run_id: int) -> Baseline:
    with store.read() as connection:
        baseline_id = detector_rows.detections_of(connection, [run_id])[run_id].baseline_id
        assert baseline_id is not None
        return unpack_baseline(*detector_rows.body_of_baseline(connection, baseline_id, failures=False))
