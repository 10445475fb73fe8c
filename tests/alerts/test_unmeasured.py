"""What was not measured is never healthy without a word: verdicts, reasons and alerts by failed probes."""

from typing import Any

import pytest

from app.alerts.service.explanations import explain_rules
from app.base.db.engine import Store
from app.base.values import Outcome, Verdict, replace
from tests.support.fakes import answered, failed, hits
from tests.support.pages_service import Site
from tests.support.world import CHECK, World, canary, page

KEYS = [f"q{number:02}" for number in range(20)]


@pytest.fixture
def world(sqlite_store: Store) -> World:
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in KEYS]))
    return world


def _fail(world: World, *keys: str, status: int = 500) -> None:
    world.probe.answers.clear()
    world.probe.otherwise = lambda ask: answered(hits(f"doc-{ask.query}"))
    for key in keys:
        world.probe.answers[key] = replace(failed(Outcome.REFUSED, http_status=status), address="search.test")


def test_a_run_of_which_half_of_the_probes_failed_is_degraded_and_opens_a_warning(world: World) -> None:
    _fail(world, *KEYS[:10])
    run = world.shown(world.run())
    assert (run["verdict"], run["coverage"]) == ("degraded", 1.0)
    assert run["reasons"] == [
        "10 of 20 probes failed, more than 10 % of them: retriever at search.test answers HTTP 500 (warning)"
    ]
    world.run()
    (alert,) = world.alerts()
    assert (alert["rule"], alert["severity"], alert["state"]) == ("probe_errors", "warning", "firing")


def test_one_failed_probe_is_a_reason_that_informs_and_degrades_nothing(world: World) -> None:
    _fail(world, KEYS[0])
    run = world.run()
    assert run.verdict is Verdict.HEALTHY
    assert world.shown(run)["reasons"] == ["retriever at search.test answers HTTP 500 (1 of 20 probes)"]


def test_every_kind_of_failure_of_a_run_is_among_its_reasons(world: World) -> None:
    _fail(world, *KEYS[:3])
    world.probe.answers[KEYS[3]] = replace(failed(Outcome.TIMEOUT), address="search.test")
    first, second = world.shown(world.run())["reasons"]
    assert first.startswith("4 of 20 probes failed, more than 10 % of them: retriever at search.test answers HTTP 500")
    assert second == "retriever at search.test does not answer in time (1 of 20 probes)"


def test_a_run_names_the_canaries_it_did_not_measure_by_what_failed(world: World) -> None:
    first, second, third = KEYS[:3]
    _fail(world, first, second)
    world.probe.answers[third] = replace(failed(Outcome.REFUSED, http_status=503), address="search.test")
    run = world.run()
    newest = world.shown(run)["unmeasured"]
    assert [(one["error"], one["count"], one["canaries"]) for one in newest] == [
        ("retriever at search.test answers HTTP 500", 2, [first, second]),
        ("retriever at search.test answers HTTP 503", 1, [third]),
    ]
    world.run()
    assert world.shown(run)["unmeasured"] == newest  # of an older run it is found from its probes


def test_a_canary_unmeasured_in_three_runs_in_a_row_opens_a_warning_that_names_it(world: World) -> None:
    for _ in range(2):
        _fail(world, KEYS[7])
        assert world.run().verdict is Verdict.HEALTHY
    assert world.alerts() == []
    run = world.run()
    assert run.verdict is Verdict.DEGRADED
    (alert,) = world.alerts()
    assert (alert["severity"], alert["state"]) == ("warning", "firing")
    assert alert["reason"].startswith(
        "canary q07 was not measured in 3 runs in a row: retriever at search.test answers HTTP 500 (warning)"
    )
    _fail(world)
    world.run()
    world.run()
    assert [one["state"] for one in world.alerts()] == ["resolved"]


def test_other_canaries_unmeasured_in_each_run_open_nothing(world: World) -> None:
    for key in KEYS[:4]:
        _fail(world, key)
        world.run()
    assert world.alerts() == []


def test_the_alert_of_a_rule_ends_when_its_canaries_are_retired(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    once = {
        "kind": "threshold",
        "measure": "coverage",
        "category": "procedural",
        "critical": {"below": 0.9},
        "open": {"bad": 1, "of": 1},
        "close": 1,
    }
    gone = canary("gone", category="procedural")
    world.apply(page([canary("kept"), gone], rules=[once]))
    _fail(world)
    world.probe.answers["gone"] = answered(hits("other"))
    world.run()
    assert [one["state"] for one in world.alerts()] == ["firing"]
    world.apply(page([canary("kept")], rules=[once]))
    world.run()
    (alert,) = world.alerts()
    assert alert["state"] == "resolved"
    assert alert["transitions"][-1]["reason"] == ("canaries_retired: its canaries are no longer in the suite.")


ONCE = {"open": {"bad": 1, "of": 1}, "close": 1}


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}, **ONCE},
        {"kind": "threshold", "measure": "MRR", "critical": {"below": 0.9}, **ONCE},
        {"kind": "threshold", "measure": "coverage", "category": "procedural", "critical": {"below": 0.9}, **ONCE},
    ],
)
def test_the_alert_of_a_rule_ends_when_no_canary_has_what_it_watches(rule: dict[str, Any], sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    without = {"key": "silent", "query": "silent", "category": "procedural", "expect_empty": True}
    world.probe.answers["silent"] = answered(hits())
    world.apply(page([canary("gone", category="procedural"), without], rules=[rule]))
    world.probe.answers["gone"] = answered(hits("other"))
    world.run()
    assert [one["state"] for one in world.alerts()] == ["firing"]
    world.apply(page([without], rules=[rule]))
    world.run()
    (alert,) = world.alerts()
    assert (alert["state"], alert["transitions"][-1]["reason"]) == (
        "resolved",
        "canaries_retired: its canaries are no longer in the suite.",
    )


def test_an_alert_of_a_measure_that_every_canary_has_goes_on(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    rule = {"kind": "threshold", "measure": "degraded_share", "critical": {"above": 0.2}, **ONCE}
    silent = [{"key": key, "query": key, "expect_empty": True} for key in ("one", "two")]
    world.apply(page([canary("gone"), *silent], rules=[rule]))
    _fail(world)  # every canary gets an answer, which two must not
    world.run()
    world.apply(page(silent, rules=[rule]))
    world.run()
    assert [one["state"] for one in world.alerts()] == ["firing"]


def test_alerts_about_canaries_end_when_the_check_has_another_suite(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    coverage = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}, **ONCE}
    slow = {"kind": "latency", "critical": {"above": "10ms"}, **ONCE}
    rules = [coverage, slow]
    world.apply(page([canary("q1"), canary("q2")], rules=rules))
    world.probe.answers["q1"] = answered(hits("other"))
    world.run()
    assert [one["state"] for one in world.alerts()] == ["firing", "firing"]
    world.apply(page([canary("q1"), canary("q2")], suite="second", rules=rules))
    world.run()
    first, latency = world.alerts()
    assert (first["state"], first["transitions"][-1]["reason"]) == (
        "resolved",
        "suite_changed: the check has another suite since.",
    )
    assert latency["state"] == "firing", "requests are as slow whatever is asked"
    world.run()
    assert [one["state"] for one in world.alerts() if one["kind"] == "threshold"] == ["resolved", "firing"]


def test_an_alert_does_not_end_while_its_degraded_canary_is_not_measured(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    rule = {"kind": "threshold", "measure": "coverage", "critical": {"below": 1.0}, "open": {"bad": 1, "of": 1}}
    world.apply(page([canary(key) for key in KEYS], rules=[{**rule, "close": 1}]))
    _fail(world)
    world.probe.answers["q03"] = answered(hits("other"))
    world.run()
    _fail(world, "q03")
    world.run()
    (alert,) = world.alerts()
    assert alert["state"] == "recovering"
    assert alert["reason"].endswith("not resolved: q03, degraded when it opened, not measured in this run.")
    (told,) = [
        one for one in explain_rules(sqlite_store, CHECK, now=world.clock())["rules"] if one["kind"] == "threshold"
    ]
    assert (told["state"], told["good_runs_to_close"], told["unmeasured"]) == ("recovering", 1, ["q03"])
    assert "It does not resolve before q03 is measured again" in str(told["to_close"])
    shown = Site(world=world, probe=world.probe).page(f"/checks/{CHECK}").text
    assert "resolves after 1 more good run, but not before q03 is measured." in shown
    _fail(world)
    world.run()
    assert [one["state"] for one in world.alerts()] == ["resolved"]
