"""Rules of every kind over real runs: what opens and closes alerts, and what a run's verdict says of it."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError
from app.base.values import Answer, Outcome
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service import references, suites
from app.definitions.service import definitions
from app.records.service import run_views
from app.runs.service import rescoring
from tests.support.fakes import answered, failed, hits
from tests.support.world import CHECK, RETRIEVER, World, canary, page

KEYS = tuple(f"c{number:02}" for number in range(20))
LATENCY = {"kind": "latency", "percentile": "max", "warning": {"above": "800ms"}, "critical": {"above": 2}}
NAMED = {"kind": "canary", "canary": "c03", "severity": "warning", "open": {"bad": 1, "of": 1}, "close": 1}
DROP = {"kind": "drop", "measure": "coverage", "critical": {"by": 0.2}, "open": {"bad": 1, "of": 1}, "close": 1}


def _define(world: World, *rules: Mapping[str, Any], keys: Iterable[str] = KEYS, **check: Any) -> None:
    world.apply(page([canary(key) for key in keys], rules=list(rules), **check))


def _lose(world: World, *keys: str) -> None:
    world.probe.answers = {key: answered(hits("noise")) for key in keys}


def _verdict(world: World, run: Any) -> tuple[str, list[str]]:
    shown = world.shown(run)
    return shown["verdict"], shown["reasons"]


def test_a_slow_retriever_opens_an_alert_and_a_quick_one_closes_it(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    _define(world, LATENCY)
    world.run()
    world.probe.answers = {"c05": answered(hits("doc-c05"), seconds=1.0)}
    ended = [world.run(), world.run()]
    reason = "longest latency 1 s is above 800 ms (warning)"
    assert [_verdict(world, run) for run in ended] == [("degraded", [reason])] * 2
    [alert] = world.alerts()
    assert (alert["rule"], alert["kind"], alert["severity"], alert["state"]) == (
        "latency-max",
        "latency",
        "warning",
        "firing",
    )
    world.probe.answers = {"c05": answered(hits("doc-c05"), seconds=3.0)}
    world.run()
    world.run()
    assert world.alerts()[0]["severity"] == "critical"
    world.probe.answers = {}
    assert _verdict(world, world.run()) == ("healthy", [])
    world.run()
    assert world.alerts()[0]["state"] == "resolved"


def test_the_latency_of_a_probe_that_failed_is_no_latency(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    _define(world, {**LATENCY, "warning": {"above": "300ms"}})
    world.probe.otherwise = lambda ask: answered(hits(f"doc-{ask.query}"), seconds=0.2)
    world.probe.answers = {"c05": Answer(outcome=Outcome.TIMEOUT, latency_seconds=30.0)}
    assert _verdict(world, world.run()) == ("healthy", ["retriever does not answer in time (1 of 20 probes)"])


def test_a_named_canary_opens_its_alert_and_no_other_does(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    _define(world, NAMED)
    _lose(world, "c04", "c05")
    assert _verdict(world, world.run()) == ("healthy", [])
    _lose(world, "c03")
    assert _verdict(world, world.run()) == ("degraded", ["canary 'c03' is degraded: missing (warning)"])
    [alert] = world.alerts()
    assert (alert["rule"], alert["severity"], alert["state"]) == ("canary-c03", "warning", "firing")
    world.probe.answers = {"c03": failed(Outcome.TIMEOUT)}
    assert _verdict(world, world.run()) == ("healthy", ["retriever does not answer in time (1 of 20 probes)"])
    assert world.alerts()[0]["state"] == "firing", "a canary that was not measured has not recovered"
    world.probe.answers = {}
    world.run()
    assert world.alerts()[0]["state"] == "resolved"


def test_a_named_canary_is_followed_through_changes_of_its_suite(store: Store) -> None:
    world = World(store=store)
    _define(world, {**NAMED, "open": {"bad": 2, "of": 2}})
    _lose(world, "c03")
    world.run()
    assert [alert["state"] for alert in world.alerts()] == ["pending"]
    _define(world, {**NAMED, "open": {"bad": 2, "of": 2}}, keys=("a-new-one", *KEYS[1:]))
    world.run()
    assert [alert["state"] for alert in world.alerts()] == ["firing"]


def test_a_rule_about_a_canary_its_suite_does_not_have_is_refused(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    with pytest.raises(InvalidInputError) as caught:
        _define(world, {**NAMED, "canary": "c3"})
    [problem] = caught.value.problems
    assert problem.path == "rules"
    assert problem.message.startswith("rule 'canary-c3' is about 'c3', but suite 'suite' has no such canary; did you")
    _define(world, NAMED)
    with pytest.raises(InvalidInputError, match="no such canary"):
        _define(world, NAMED, keys=KEYS[:3])


def test_a_canary_that_a_rule_of_the_api_is_about_cannot_be_taken_away(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    suite = parse_document(SuiteDocument, {"slug": "api", "canaries": [canary("c03"), canary("c04")]})
    suites.put_suite(sqlite_store, suite, now=world.clock())
    world.apply({"retrievers": [RETRIEVER]})
    fields = {"slug": "by-api", "suite": "api", "retriever": "search", "schedule": {"every": "5m"}}

    def put(name: str) -> None:
        document = parse_document(CheckDocument, {**fields, "rules": [{**NAMED, "canary": name}]})
        definitions.put(sqlite_store, world.vault, document, now=world.clock())

    with pytest.raises(InvalidInputError, match="no such canary"):
        put("c05")
    put("c03")
    with pytest.raises(ConflictError, match="canary 'api/c03' is named by rule 'canary-c03' of check 'by-api'"):
        suites.archive_canary(sqlite_store, "api", "c03", now=world.clock())
    with pytest.raises(ConflictError, match="change that first"):
        suites.put_suite(
            sqlite_store, parse_document(SuiteDocument, {"slug": "api", "canaries": [canary("c04")]}), now=world.clock()
        )
    suites.archive_canary(sqlite_store, "api", "c04", now=world.clock())
    assert [row.key for row in references.load_canaries(sqlite_store, "api", limit=9)] == ["c03"]


@pytest.mark.both
def test_a_drop_says_nothing_before_there_is_a_baseline_and_opens_after(store: Store) -> None:
    world = World(store=store)
    _define(world, DROP)
    _lose(world, *KEYS[:6])
    world.run()
    assert world.alerts() == []
    world.probe.answers = {}
    for _ in range(20):
        world.run()
    _lose(world, *KEYS[:6])
    verdict, reasons = _verdict(world, world.run())
    assert verdict == "degraded"
    assert reasons[0].startswith("coverage 0.700 against 1.000 in the baseline, -0.300 (95 % between -")
    assert reasons[0].endswith("over 20 canaries: a drop of at least 0.2 (critical)")
    [alert] = [one for one in world.alerts() if one["kind"] == "drop"]
    assert (alert["state"], alert["rule"]) == ("firing", "drop-coverage")
    assert alert["transitions"][0]["reason"].startswith(reasons[0]), "verdict and alert tell the same numbers"
    world.probe.answers = {}
    world.run()
    assert [one["state"] for one in world.alerts() if one["kind"] == "drop"] == ["resolved"]


def test_a_regression_degrades_its_runs_until_it_is_over(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    _define(world, {"kind": "regression", "close": 2})
    for _ in range(21):
        assert _verdict(world, world.run()) == ("healthy", [])
    _lose(world, *KEYS[:6])
    ended = [world.run() for _ in range(4)]
    assert _verdict(world, ended[-1])[0] == "degraded"
    [alert] = world.alerts()
    assert (alert["rule"], alert["kind"], alert["severity"], alert["state"]) == (
        "regression",
        "regression",
        "critical",
        "firing",
    )
    world.probe.answers = {}
    assert _verdict(world, world.run()) == ("healthy", []), "the run is good, though the alarm stands"
    assert world.alerts()[0]["state"] == "recovering"
    _lose(world, *KEYS[:6])
    world.run()
    assert world.alerts()[0]["state"] == "firing"
    world.probe.answers = {}
    world.run()
    assert world.alerts()[0]["state"] == "recovering"
    world.run()
    assert world.alerts()[0]["state"] == "resolved"


@pytest.mark.both
def test_a_re_scored_run_keeps_what_is_known_of_it_and_says_what_is_not(store: Store) -> None:
    world = World(store=store)
    _define(world, NAMED, LATENCY, {"kind": "regression"})
    _lose(world, "c03")
    world.run()
    world.probe.answers = {"c05": answered(hits("doc-c05"), seconds=3.0)}
    world.run()
    asked = rescoring.ask(store, CHECK, since=None, now=world.clock())
    rescoring.claim(store, owner="w", now=world.clock(), only=asked)
    assert rescoring.carry_on(store, asked, owner="w", clock=world.clock, stopping=lambda: False)
    version = rescoring.show(store, asked)["measures_version"]
    silent_rules = "rule 'regression' says nothing: it compares with earlier runs, and no detector evaluated this one"
    lost, late = (run_views.run(store, str(run), version=version) for run in (1, 2))
    assert (lost["verdict"], lost["reasons"]) == (
        "degraded",
        ["canary 'c03' is degraded: missing (warning)", silent_rules],
    )
    assert (late["verdict"], late["reasons"]) == (
        "degraded",
        ["longest latency 3 s is above 2 s (critical)", silent_rules],
    )


def test_a_rule_added_in_the_middle_of_a_fault_says_since_the_run_it_began_in(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    low = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}, "open": {"bad": 2, "of": 3}}
    _define(world, NAMED)
    world.run()
    _lose(world, *KEYS[4:14])
    began, *_ = [world.run() for _ in range(12)]
    _define(world, NAMED, low)
    world.run()
    [alert] = world.alerts()
    assert alert["since_run"] == str(began.id)


def test_a_rule_younger_than_every_run_it_can_read_says_since_the_first_of_them(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    _define(world, LATENCY)
    _lose(world, "c03")
    first, *_ = [world.run() for _ in range(3)]
    _define(world, LATENCY, NAMED)
    world.run()
    assert [alert["since_run"] for alert in world.alerts()] == [str(first.id)]
