"""Alerts as services write them: opened, escalated and resolved with the run, and told of once."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.values import Outcome, RunStatus
from app.catalog.service import references
from app.runs.service import due_checks
from app.runs.service.finalising import EndedRun
from tests.support.fakes import START, answered, failed, hits
from tests.support.world import CHECK, COVERAGE, World, canary, page

KEYS = tuple(f"q{number}" for number in range(10))


def _begun(store: Store) -> World:
    """Give a world of ten canaries, one of which is a tenth of the coverage."""
    world = World(store=store)
    _define(world)
    return world


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give it on SQLite, for what does not depend on the database."""
    return _begun(sqlite_store)


@pytest.fixture
def anywhere(store: Store) -> World:
    """Give it on each kind of store."""
    return _begun(store)


def _define(world: World, **check: Any) -> None:
    world.apply(page([canary(key) for key in KEYS], **check))


def _run(world: World, missing: int = 0) -> EndedRun:
    """Carry out a run in which the first canaries find nothing."""
    world.probe.answers = {key: answered(hits("noise")) for key in KEYS[:missing]}
    return world.run()


def _states(world: World) -> list[str]:
    return [alert["state"] for alert in world.alerts()]


def _watch(world: World, now: datetime) -> bool:
    check = references.load_definition(world.store, "check", CHECK)
    return due_checks.watch_for_no_data(world.store, check.id, started_at=START - timedelta(hours=1), now=now)


def _types(alert: Mapping[str, Any]) -> list[str]:
    return [change["type"] for change in alert["transitions"]]


def _told(world: World) -> list[tuple[str, str]]:
    return [(item["type"], item["state"]) for item in world.deliveries()]


# --- opening and closing -------------------------------------------------------------------------------------


@pytest.mark.both
def test_an_alert_opens_on_the_second_bad_run_of_three(anywhere: World) -> None:
    _run(anywhere)
    first = _run(anywhere, missing=2)
    assert _states(anywhere) == ["pending"]
    assert anywhere.alerts()[0]["opened_at"] is None
    assert _told(anywhere) == []
    second = _run(anywhere, missing=2)
    alert = anywhere.alerts()[0]
    assert (alert["state"], alert["severity"], alert["kind"]) == ("firing", "warning", "threshold")
    assert alert["since_run"] == str(first.id)
    assert alert["opened_at"] == anywhere.shown(second)["finished_at"]
    change = alert["transitions"][0]
    assert (change["type"], change["run_id"], change["suppressed"]) == ("opened", str(second.id), None)
    assert [seen["value"] for seen in change["evidence"]["window"]] == [1.0, 0.8, 0.8]
    assert change["evidence"]["first_bad_run"] == str(first.id)
    assert change["evidence"]["window"][-1]["run_id"] == str(second.id)
    assert change["evidence"]["window"][-1]["at"] == anywhere.shown(second)["finished_at"]
    assert alert["evidence"]["window"] == change["evidence"]["window"]
    assert [named["key"] for named in change["evidence"]["canaries"]] == ["q0", "q1"]
    assert change["evidence"]["canaries"][0] == {
        "key": "q0",
        "query": "q0",
        "reasons": ["missing"],
        "rank_before": 1,
        "rank_now": None,
        "lower": [{"id": "doc-q0", "document": None, "rank_before": 1, "rank_now": None}],
        "lost": ["doc-q0"],
        "lost_total": 1,
    }
    assert _told(anywhere) == [("alert.opened", "pending")]


def test_one_bad_run_between_good_ones_is_no_alert(world: World) -> None:
    _run(world)
    _run(world, missing=2)
    assert _states(world) == ["pending"]
    _run(world)
    assert _states(world) == []  # what was only pending vanishes
    _run(world)
    assert _told(world) == []
    assert world.count("alerts", "transitions") == {"alerts": 0, "transitions": 0}


def test_an_alert_resolves_after_two_good_runs_in_a_row(world: World) -> None:
    for missing in (0, 2, 2, 2):
        _run(world, missing)
    world.deliver_all()
    _run(world)
    assert _states(world) == ["recovering"]
    _run(world, missing=2)
    assert _states(world) == ["firing"]
    _run(world)
    _run(world)
    alert = world.alerts()[0]
    assert alert["state"] == "resolved"
    assert _types(alert) == ["opened", "resolved"]
    world.deliver_all()
    assert _told(world) == [("alert.opened", "delivered"), ("alert.resolved", "delivered")]
    _run(world)
    assert len(world.alerts()) == 1


def test_a_later_fault_is_a_new_alert_with_the_same_dedupe_key(world: World) -> None:
    for missing in (0, 2, 2, 0, 0, 2, 2):
        _run(world, missing)
    first, second = world.alerts()
    assert (first["state"], second["state"]) == ("resolved", "firing")
    assert first["dedupe_key"] == second["dedupe_key"]
    assert first["id"] != second["id"]


def test_a_worse_severity_is_an_escalation_and_is_told(anywhere: World) -> None:
    for missing in (0, 2, 2, 6, 6, 2):
        _run(anywhere, missing)
    alert = anywhere.alerts()[0]
    assert (alert["severity"], _types(alert)) == ("critical", ["opened", "escalated"])
    assert [change["severity"] for change in alert["transitions"]] == ["warning", "critical"]
    assert [kind for kind, _ in _told(anywhere)] == ["alert.opened", "alert.escalated"]


def test_unknown_runs_neither_open_nor_close_a_threshold(world: World) -> None:
    for missing in (0, 2, 2):
        _run(world, missing)
    world.probe.all_fail()
    world.run()
    coverage = next(alert for alert in world.alerts() if alert["kind"] == "threshold")
    assert (coverage["state"], _types(coverage)) == ("firing", ["opened"])


# --- one fault, one page -------------------------------------------------------------------------------------

NAMES = ("incident_id", "alert_id", "dedupe_key", "check")
TWO_RULES = [
    {**COVERAGE, "key": "mild", "critical": None},
    {"key": "harsh", "kind": "threshold", "measure": "health_score", "critical": {"below": 0.85}},
]


def test_one_fault_makes_one_page(world: World) -> None:
    """Alerts that open by one run are one incident: the gravest speaks, and the last to resolve ends it."""
    _define(world, rules=TWO_RULES)
    world.probe.otherwise = lambda ask: answered(
        hits("noise" if ask.query < "q3" else f"doc-{ask.query}", scores=[0.8])
    )
    world.run()
    world.run()
    alerts = {alert["rule"]: alert for alert in world.alerts()}
    assert {rule: (alert["state"], alert["severity"]) for rule, alert in alerts.items()} == {
        "mild": ("firing", "warning"),
        "harsh": ("firing", "critical"),
    }
    assert alerts["mild"]["transitions"][0]["suppressed"] == "incident_open"
    assert {alert["incident_id"] for alert in alerts.values()} == {alerts["harsh"]["incident_id"]}
    assert [item["alert_id"] for item in world.deliveries()] == [alerts["harsh"]["id"]]
    world.deliver_all()
    # The critical one resolves, the warning still fires: the incident goes on, and nothing is to be told.
    world.probe.otherwise = lambda ask: answered(hits("noise" if ask.query < "q3" else f"doc-{ask.query}"))
    for _ in range(4):
        world.run()
    assert {alert["rule"]: alert["state"] for alert in world.alerts()} == {"mild": "firing", "harsh": "resolved"}
    assert _told(world) == [("alert.opened", "delivered")]
    world.probe.all_answer()
    world.run()
    world.run()
    world.deliver_all()
    assert _told(world) == [("alert.opened", "delivered"), ("alert.resolved", "delivered")]
    opened, resolved = (json.loads(message.body)["data"] for _, message in world.send.sent)
    assert [opened[name] for name in NAMES] == [resolved[name] for name in NAMES]
    assert opened["alert_id"] == alerts["harsh"]["id"]
    assert resolved["severity"] == "critical"
    states = {one["rule"]: (one["severity"], one["state"]) for one in resolved["alerts"]}
    assert states == {"mild": ("warning", "resolved"), "harsh": ("critical", "resolved")}


def test_a_resolve_is_never_sent_for_what_was_never_announced(world: World) -> None:
    _define(world, rules=TWO_RULES)
    world.probe.otherwise = lambda ask: answered(
        hits("noise" if ask.query < "q3" else f"doc-{ask.query}", scores=[0.8])
    )
    world.run()
    world.run()
    world.deliver_all()
    world.probe.all_answer()
    world.run()
    world.run()
    assert {alert["state"] for alert in world.alerts()} == {"resolved"}
    harsh = next(alert["id"] for alert in world.alerts() if alert["rule"] == "harsh")
    assert [(item["alert_id"], item["type"]) for item in world.deliveries()] == [
        (harsh, "alert.opened"),
        (harsh, "alert.resolved"),
    ]


# --- definitions change --------------------------------------------------------------------------------------


def _firing(world: World) -> None:
    for missing in (0, 2, 2):
        _run(world, missing)
    world.deliver_all()


def test_removing_a_rule_resolves_its_alert(anywhere: World) -> None:
    _firing(anywhere)
    _define(anywhere, rules=[{**COVERAGE, "measure": "health_score"}])
    alert = anywhere.alerts()[0]
    assert (alert["state"], _types(alert)) == ("resolved", ["opened", "resolved"])
    assert "rule_removed" in alert["reason"]
    assert _told(anywhere)[-1] == ("alert.resolved", "pending")


def test_editing_a_rule_keeps_its_alert(world: World) -> None:
    _firing(world)
    _define(world, rules=[{**COVERAGE, "warning": {"below": 0.95}, "close": 3}])
    assert _states(world) == ["firing"]


@pytest.mark.parametrize("how", ["archived", "disabled"])
def test_a_check_that_is_no_longer_there_resolves_its_alerts(world: World, how: str) -> None:
    _firing(world)
    if how == "archived":
        other = page([canary(key) for key in KEYS], slug="another")
        world.apply(other)
    else:
        _define(world, enabled=False)
    alert = world.alerts()[0]
    assert (alert["state"], _types(alert)) == ("resolved", ["opened", "resolved"])
    assert f"check_{how}" in alert["reason"]
    assert [item["type"] for item in world.deliveries()] == ["alert.opened", "alert.resolved"]


@pytest.mark.parametrize("how", ["archived", "disabled"])
def test_a_run_that_outlives_its_check_calls_nobody(world: World, how: str) -> None:
    """The check goes while its run is under way, in which it would have alerted."""
    _run(world)
    _run(world, missing=2)
    world.clock.advance(60)
    world.wish()
    claimed = world.claim()
    assert claimed is not None

    def go(_: int) -> None:
        if how == "archived":
            world.apply(page([canary(key) for key in KEYS], slug="another"))
        else:
            _define(world, enabled=False)

    world.probe.before_batch = go
    ended = world.execute(claimed)
    assert ended is not None
    assert ended.verdict == "degraded"
    assert [state for state in _states(world) if state != "resolved"] == []
    assert _told(world) == []


def test_a_run_of_an_archived_check_that_fails_calls_nobody(world: World) -> None:
    world.wish()
    world.apply(page([canary(key) for key in KEYS], slug="another"))
    for _ in range(3):
        claimed = world.claim()
        if claimed is not None:
            world.execute(claimed)
    assert world.alerts() == []


# --- the two rules every check has ---------------------------------------------------------------------------


def test_a_dead_retriever_pages_after_two_of_three_runs(world: World) -> None:
    _define(world, rules=[])
    _run(world)
    world.probe.all_fail(Outcome.UNREACHABLE)
    world.run()
    world.run()
    alert = next(one for one in world.alerts() if one["kind"] == "probe_errors")
    assert (alert["state"], alert["severity"]) == ("firing", "critical")
    assert _told(world) == [("alert.opened", "pending")]
    assert "10 of 10 probes failed" in alert["reason"]
    world.probe.all_answer()
    world.run()
    world.run()
    assert {one["state"] for one in world.alerts()} == {"resolved"}


def test_a_run_that_cannot_be_executed_counts_as_an_error(world: World) -> None:
    world.apply(page(rules=[]))  # the suite is empty now
    assert world.run().status is RunStatus.FAILED
    assert world.run().status is RunStatus.FAILED
    assert [(one["kind"], one["state"]) for one in world.alerts()] == [("probe_errors", "firing")]


def test_silence_opens_no_data_at_a_tick_and_the_next_completed_run_resolves_it(anywhere: World) -> None:
    _run(anywhere)
    done = anywhere.clock()
    assert not _watch(anywhere, done + timedelta(minutes=8))
    assert anywhere.alerts() == []
    late = done + timedelta(minutes=9)  # past the second instant after it
    assert _watch(anywhere, late)
    assert not _watch(anywhere, late)
    alert = anywhere.alerts()[0]
    assert (alert["kind"], alert["state"], alert["severity"]) == ("no_data", "firing", "critical")
    assert _types(alert) == ["opened"]
    assert _told(anywhere) == [("alert.opened", "pending")]
    anywhere.deliver_all()
    anywhere.clock.now = late
    anywhere.probe.all_fail()
    anywhere.run()  # nothing was measured, but it completed: that the probes fail is for probe_errors to say
    assert _types(anywhere.alerts()[0]) == ["opened", "resolved"]


def test_a_failed_run_is_no_data(world: World) -> None:
    _run(world)
    late = world.clock() + timedelta(minutes=11)
    _watch(world, late)
    world.clock.now = late
    world.apply(page())
    assert world.run().status is RunStatus.FAILED
    assert next(one for one in world.alerts() if one["kind"] == "no_data")["state"] == "firing"


def test_a_check_that_does_not_want_no_data_does_not_get_it(world: World) -> None:
    _define(world, rules=[{"kind": "no_data", "enabled": False}])
    assert not _watch(world, START + timedelta(days=1))


# --- together or not at all ----------------------------------------------------------------------------------


def test_an_alert_without_hooks_is_recorded_and_shown(world: World) -> None:
    _define(world, hooks=[])
    for missing in (0, 2, 2):
        _run(world, missing)
    assert _states(world) == ["firing"]
    assert world.deliveries() == []


def test_a_category_has_an_alert_of_its_own(world: World) -> None:
    rule = {**COVERAGE, "category": "procedural"}
    canaries = [canary(key, category="procedural" if key < "q2" else "comparative") for key in KEYS]
    world.apply(page(canaries, rules=[rule]))
    for missing in (0, 1, 1):
        _run(world, missing)
    alert = world.alerts()[0]
    assert (alert["scope"], alert["severity"]) == ("procedural", "warning")
    assert alert["transitions"][0]["evidence"]["window"][-1]["value"] == 0.5


def test_a_single_failing_probe_is_no_reason_to_alert(world: World) -> None:
    world.probe.answers["q0"] = failed(Outcome.TIMEOUT)
    for _ in range(2):
        world.run()
    assert world.alerts() == []


def test_alerts_are_listed_by_check_and_state(anywhere: World) -> None:
    _firing(anywhere)
    assert len(anywhere.alerts(check=CHECK)) == 1
    assert len(anywhere.alerts(state="firing")) == 1
    assert anywhere.alerts(state="resolved") == []
    assert references.load_definition(anywhere.store, "check", CHECK).slug == CHECK
