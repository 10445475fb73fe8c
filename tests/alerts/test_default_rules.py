"""A check without rules: compared with its own past, guarded until that is known, and never held to our number."""

import json
from collections.abc import Iterable

import pytest

from app.alerts.pages import limits
from app.alerts.service import transitions
from app.base.db.engine import Store
from app.base.values import Verdict
from app.detection.service import baselines
from app.runs.service.finalising import EndedRun
from tests.support.fakes import answered, hits
from tests.support.present import present
from tests.support.world import CHECK, World, canary, page

KEYS = tuple(f"q{number:03}" for number in range(40))
CHRONIC = KEYS[:10]
"""A quarter that never finds anything: coverage is .75 while all is as always."""


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world with a check that has no rules."""
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in KEYS], rules=[]))
    return world


def carry_out(world: World, count: int, missing: Iterable[str] = CHRONIC) -> list[EndedRun]:
    """Carry out runs in which these canaries find nothing."""
    world.probe.answers = {key: answered(hits("noise", "more-noise")) for key in missing}
    return [world.run() for _ in range(count)]


def test_a_retriever_that_always_misses_a_quarter_is_healthy_and_a_loss_is_noticed_within_four_runs(
    world: World,
) -> None:
    runs = carry_out(world, 21)
    assert {run.verdict for run in runs} == {"healthy"}
    assert world.alerts() == []
    assert baselines.show(world.store, CHECK).learned is not None
    fell = {"q020", "q021", "q022"}
    carry_out(world, 4, [*CHRONIC, *fell])
    (alert,) = world.alerts()
    assert (alert["rule"], alert["severity"], alert["state"]) == ("regression", "critical", "firing")
    culprits = present(baselines.show(world.store, CHECK).detector).culprits["named"]
    assert {one["key"] for one in culprits} == fell


def test_a_healthy_run_that_the_gate_would_fail_says_so_until_a_baseline_stands(world: World) -> None:
    first, *_, last = carry_out(world, 21)
    said = (
        "no baseline yet: coverage 0.750 is compared with the first run's only; `coalmine check`, which has no "
        "history, requires 0.9"
    )
    assert (first.verdict, world.shown(first)["reasons"]) == (Verdict.HEALTHY, [said])
    assert (last.verdict, world.shown(last)["reasons"]) == (Verdict.HEALTHY, [])


def test_before_a_baseline_stands_half_of_the_first_coverage_gone_is_critical_in_two_of_three_runs(
    world: World,
) -> None:
    carry_out(world, 2)
    assert present(baselines.show(world.store, CHECK).warm_up).summary == "no baseline yet: 2 of 20 identical runs"
    (first,) = carry_out(world, 1, KEYS[:26])
    assert world.shown(first)["verdict"] == "degraded"
    assert [alert["state"] for alert in world.alerts()] == ["pending"]
    carry_out(world, 1)
    carry_out(world, 1, KEYS[:26])
    (alert,) = world.alerts()
    assert (alert["rule"], alert["kind"], alert["severity"], alert["state"]) == ("guard", "guard", "critical", "firing")
    assert alert["reason"].startswith("coverage 0.350 is below half of the first run's 0.750 (run ")
    assert limits(alert["evidence"], "guard") == (
        "A run is bad when its coverage is 0 or below half (critical), or below 80 % (warning), of the first run's "
        "or the accepted one's."
    )
    world.deliver_all()
    (message,) = [message for _, message in world.send.sent]
    assert json.loads(message.body)["data"]["summary"].startswith(
        "watch: coverage 0.350, below 0.375; bad at times since 12:03 UTC (run "
    )
    carry_out(world, 2)
    assert [alert["state"] for alert in world.alerts()] == ["resolved"]


def test_a_coverage_of_nothing_from_the_very_first_run_is_critical_and_never_becomes_the_baseline(world: World) -> None:
    carry_out(world, 1, KEYS)
    assert [alert["state"] for alert in world.alerts()] == ["pending"]
    carry_out(world, 22, KEYS)
    (alert,) = world.alerts()
    assert (alert["rule"], alert["state"]) == ("guard", "firing")
    assert baselines.show(world.store, CHECK).learned is None
    carry_out(world, 2)
    assert [alert["state"] for alert in world.alerts()] == ["resolved"]


def test_a_retriever_that_finds_nothing_from_the_first_run_on_is_not_said_to_be_above_a_bound(world: World) -> None:
    carry_out(world, 2, KEYS)
    (alert,) = world.alerts()
    assert (alert["rule"], alert["state"], alert["evidence"]["window"][-1]["threshold"]) == ("guard", "firing", None)
    world.deliver_all()
    ((_, message),) = world.send.sent
    summary = json.loads(message.body)["data"]["summary"]
    assert summary == f"{CHECK}: coverage 0.000 since 12:01 UTC (run {alert['since_run']})"


def test_a_coverage_just_above_four_fifths_of_the_first_is_no_matter_of_the_guard(world: World) -> None:
    carry_out(world, 1)
    runs = carry_out(world, 3, KEYS[:16])
    assert {run.verdict for run in runs} == {"healthy"}
    assert world.alerts() == []


def test_a_third_lost_after_four_runs_is_a_warning_and_is_never_learned_as_normal(world: World) -> None:
    carry_out(world, 4, ())
    carry_out(world, 25, KEYS[:20])
    (alert,) = world.alerts()
    assert (alert["rule"], alert["severity"], alert["state"]) == ("guard", "warning", "firing")
    assert baselines.show(world.store, CHECK).learned is None
    carry_out(world, 2, ())
    assert [alert["state"] for alert in world.alerts()] == ["resolved"]


def test_accepting_the_present_resolves_the_guard_and_compares_with_the_run_after_it(world: World) -> None:
    carry_out(world, 1)
    carry_out(world, 2, KEYS[:30])
    assert [alert["state"] for alert in world.alerts()] == ["firing"]
    transitions.accept_baseline(world.store, CHECK, by="ann", note=None, now=world.clock.advance(1))
    (alert,) = world.alerts()
    assert alert["state"] == "resolved"
    runs = carry_out(world, 3, KEYS[:30])
    assert {run.verdict for run in runs} == {"healthy"}
    assert len(world.alerts()) == 1


def test_editing_a_canary_does_not_hide_that_the_first_run_was_better(world: World) -> None:
    carry_out(world, 1)
    carry_out(world, 2, KEYS[:30])
    edited = [canary(key, **({"tags": ["edited"]} if key == KEYS[-1] else {})) for key in KEYS]
    world.apply(page(edited, rules=[]))
    carry_out(world, 3, KEYS[:30])
    assert [(alert["rule"], alert["state"]) for alert in world.alerts()] == [("guard", "firing")]
    assert baselines.show(world.store, CHECK).learned is None


def test_another_suite_is_not_held_to_the_coverage_of_the_first(world: World) -> None:
    carry_out(world, 1, ())
    others = [canary(f"new{number}") for number in range(60)]
    world.apply(page([*(canary(key) for key in KEYS), *others], rules=[]))
    runs = carry_out(world, 3, [*KEYS, *(one["key"] for one in others[:20])])
    assert {run.verdict for run in runs} == {"healthy"}
    assert world.alerts() == []
