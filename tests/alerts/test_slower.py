"""A retriever that becomes much slower than its baseline: told by default, as a warning of the class latency."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from app.alerts.documents import read_rules, rule_in_words, rules_in_force, rules_yaml
from app.alerts.domain.advice import alert_advice
from app.alerts.domain.conditions import (
    SlowerLimits,
    default_slower_rule,
)
from app.alerts.domain.rules import (
    RunFacts,
    condition,
    silent_rules,
)
from app.alerts.domain.summaries import AlertFacts, alert_summary
from app.alerts.service import explanations, transitions
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.base.values import Aggregates, Answer, Outcome, Rule, RuleKind, Severity, replace
from app.catalog.documents.check_documents import CheckDocument
from app.detection.tables import baselines as baseline_rows
from app.detection.tables import detections
from app.records.service import run_views
from app.runs.service import rescoring
from app.runs.service.finalising import EndedRun
from tests.conftest import DIALECTS, Databases
from tests.support.fakes import answered, failed, hits
from tests.support.pages_service import Site, site
from tests.support.watched import KEYS, LEARNED, made_once
from tests.support.world import CHECK, LINKS, World, canary, page

RUN = Aggregates(total=10, measured=10, failed=0, undefined=0, degraded=0, expecting=10, health_score=1.0, coverage=1.0)
RULE = default_slower_rule("slower")


def judge(median: float | None, baseline: float | str | None, rule: Rule = RULE) -> Any:
    facts = RunFacts(latencies={} if median is None else {"p50": median}, baseline_latency=baseline)
    return condition(rule, RUN, unknown=False, facts=facts)


# What is slower


@pytest.mark.parametrize(
    ("median", "baseline", "bad"),
    [
        (1.02, 0.021, True),
        (0.222, 0.021, True),
        (0.221, 0.021, False),  # not more than 200 ms above it
        (0.15, 0.001, False),  # 150 times the baseline, and nobody would notice
        (0.201, 0.001, False),
        (0.202, 0.001, True),
        (1.2, 0.4, False),  # 800 ms above it, and not more than 3 times as much
        (1.201, 0.4, True),
        (0.0, 0.0, False),
    ],
)
def test_a_run_is_bad_above_three_times_the_baseline_and_200_ms_above_it(
    median: float, baseline: float, *, bad: bool
) -> None:
    found = judge(median, baseline)
    assert found.measured
    assert (found.severity is Severity.WARNING, found.good_beyond_margin) == (bad, not bad)
    assert (found.value, found.baseline) == (median, baseline)


def test_a_run_says_what_it_was_compared_with() -> None:
    assert judge(1.02, 0.021).reason == (
        "median latency 1.02 s is above 3 x the baseline's 21 ms and 200 ms above it (warning)"
    )
    assert judge(0.024, 0.021).reason == "median latency 24 ms is not above 221 ms (baseline 21 ms)"
    near = Rule(key="s", kind=RuleKind.SLOWER, margin=0.05)
    assert judge(0.2, 0.021, near).reason == (
        "median latency 200 ms is not above 221 ms (baseline 21 ms), but within the margin of 50 ms"
    )
    assert not judge(0.2, 0.021, near).good_beyond_margin
    assert judge(0.17, 0.021, near).good_beyond_margin


@pytest.mark.parametrize(
    ("median", "baseline", "reason"),
    [
        (1.0, "no baseline yet: 6 of 20 identical runs", "no baseline yet: 6 of 20 identical runs"),
        (None, 0.02, "the median latency was not measured"),
        (1.0, None, "it compares with earlier runs, and no detector evaluated this one"),
    ],
)
def test_without_a_baseline_or_a_latency_nothing_is_judged_and_why_is_said(
    median: float | None, baseline: float | str | None, reason: str
) -> None:
    found = judge(median, baseline)
    assert (found.measured, found.severity, found.reason) == (False, None, reason)
    unknown = condition(RULE, RUN, unknown=True, facts=RunFacts(latencies={"p50": 1.0}, baseline_latency=0.02))
    assert (unknown.measured, unknown.reason) == (False, "the run is unknown")


def test_it_is_named_as_silent_only_where_a_service_would_have_judged() -> None:
    silent = "rule 'slower' says nothing: it compares with earlier runs, and no detector evaluated this one"
    assert silent_rules([RULE], RunFacts(latencies={"p50": 1.0})) == [silent]
    assert silent_rules([RULE], RunFacts(latencies={"p50": 1.0}, baseline_latency="no baseline yet")) == []


# How a rule is written


def check(*rules: Mapping[str, Any]) -> CheckDocument:
    fields = {"slug": "docs", "suite": "docs", "retriever": "r", "schedule": {"every": "5m"}, "rules": rules}
    return parse_document(CheckDocument, fields)


def in_force(*rules: Mapping[str, Any]) -> list[Rule]:
    return [rule for rule in rules_in_force(check(*rules).rules) if rule.kind is RuleKind.SLOWER]


def refused(**rule: Any) -> str:
    with pytest.raises(InvalidInputError) as caught:
        check({"kind": "slower", **rule})
    [problem] = caught.value.problems
    return f"{problem.path}: {problem.message}"


def test_a_written_rule_without_options_is_the_default_one() -> None:
    assert in_force({"kind": "slower"}) == in_force() == [RULE]
    assert rule_in_words(RULE) == (
        "once a baseline stands: the median latency is above 3 x the baseline and 200 ms "
        "above it (warning); opens on 3 bad of 4 measured runs, closes after 2 good runs"
    )


def test_factor_rise_runs_and_margin_can_be_set_and_the_rule_be_disabled() -> None:
    [rule] = in_force(
        {"kind": "slower", "factor": 1.5, "rise": "50ms", "open": {"bad": 2}, "close": 1, "margin": "5ms"}
    )
    assert (rule.factor, rule.rise, rule.open_bad, rule.open_of, rule.close, rule.margin) == (1.5, 0.05, 2, 4, 1, 0.005)
    assert judge(0.081, 0.03, rule).severity is Severity.WARNING
    assert judge(0.079, 0.03, rule).severity is None
    assert in_force({"kind": "slower", "enabled": False}) == []


@pytest.mark.parametrize("opens", [{}, {"bad": 3, "of": 4}, {"bad": 2, "of": 3}, {"bad": 2}, {"bad": 3, "of": 3}])
def test_a_rule_is_the_same_once_written_out_and_read_again(opens: dict[str, int]) -> None:
    whole = check({"kind": "slower", "rise": "300ms", **({"open": opens} if opens else {})})
    [rule] = whole.rules
    assert "open" not in rule.without_defaults() or opens not in ({}, {"bad": 3, "of": 4})
    assert check(*read_rules(rules_yaml([rule]))).rules == (rule,)
    assert check(rule.model_dump(mode="json")).rules == (rule,)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"factor": 0.5}, "rules[0].factor: must be at least 1"),
        ({"rise": 0}, "rules[0].rise: must be between 1ms and 5m"),
        ({"rise": "6m"}, "rules[0].rise: must be between 1ms and 5m"),
        ({"margin": "300ms"}, "rules[0].margin: is so large that the alert could never close"),
        ({"open": {"of": 2}}, "rules[0].open: must not ask for 3 bad runs of 2"),
        ({"warning": {"above": 0.5}}, "rules[0].warning: does not apply to a slower rule"),
        ({"factors": 2}, "rules[0].factors: unknown key 'factors'; did you mean 'factor'?"),
    ],
)
def test_a_rule_that_could_not_work_is_refused_in_words(rule: dict[str, Any], told: str) -> None:
    assert refused(**rule).startswith(told)


# What people read


def facts(**more: Any) -> AlertFacts:
    limits = SlowerLimits.of(None, None)
    fields: dict[str, Any] = {"value": 1.02, "threshold": 0.221, "baseline": 0.021, "bad": 3, "of": 4}
    return AlertFacts(
        check="docs", kind=RuleKind.SLOWER, slower=limits, retriever="search at search.test", **fields | more
    )


def test_a_summary_says_how_slow_and_the_advice_names_one_step() -> None:
    assert alert_summary(facts()) == (
        "docs: median latency 1.02 s, above 3 x the baseline's 21 ms and 200 ms above it, in 3 of 4 runs: "
        "search at search.test"
    )
    assert alert_summary(facts(value=0.022)) == (
        "docs: median latency 22 ms, not above 221 ms (baseline 21 ms): search at search.test"
    )
    assert alert_advice(facts()) == "Check the load of search at search.test: CPU, cold caches, a larger index."


# Over runs


def define(world: World, *rules: Mapping[str, Any], **more: Any) -> None:
    world.apply(page([canary(key) for key in KEYS], rules=[{"kind": "regression"}, *rules], **more))


def run(world: World, seconds: float, count: int = 1) -> list[EndedRun]:
    """Carry out runs in which every answer takes so long."""
    world.probe.otherwise = lambda ask: answered(hits(f"doc-{ask.query}"), seconds=seconds)
    return [world.run() for _ in range(count)]


def _learn(world: World) -> None:
    define(world)
    run(world, 0.02, LEARNED + 1)


@pytest.fixture
def usual(databases: Databases, stores: Callable[..., Store]) -> World:
    """Give a world whose baseline was learned of runs of 20 ms, and one more such run."""
    url, clock = made_once(databases, _learn)
    return World(store=stores(url), clock=clock)


@pytest.fixture(params=DIALECTS)
def anywhere(request: pytest.FixtureRequest, databases: Databases, stores: Callable[..., Store]) -> World:
    """Give it on each kind of store."""
    url, clock = made_once(databases, _learn, request.param)
    return World(store=stores(url), clock=clock)


def slower_alerts(world: World) -> list[dict[str, Any]]:
    return [one for one in world.alerts() if one["kind"] == "slower"]


def explained(world: World) -> dict[str, Any]:
    shown = explanations.explain_rules(world.store, CHECK, now=world.clock())
    [rule] = [one for one in shown["rules"] if one["kind"] == "slower"]
    return {**rule}


def test_the_third_slow_run_opens_a_warning_of_latency_and_two_fast_ones_end_it(usual: World) -> None:
    world = usual
    states = []
    for _ in range(3):
        [ended] = run(world, 1.0)
        shown = world.shown(ended)
        assert shown["verdict"] == "degraded"
        assert shown["reasons"] == [
            "median latency 1 s is above 3 x the baseline's 20 ms and 200 ms above it (warning)"
        ]
        states.append([one["state"] for one in slower_alerts(world)])
    assert states == [["pending"], ["pending"], ["firing"]]
    [alert] = slower_alerts(world)
    assert (alert["severity"], alert["dedupe_key"], alert["since_run"]) == (
        "warning",
        f"coalmine/{CHECK}/latency",
        str(LEARNED + 2),
    )
    assert alert["transitions"][0]["reason"] == (
        "median latency 1 s is above 3 x the baseline's 20 ms and 200 ms above it (warning); bad in 3 of the last 4 "
        "measured runs, which opens a warning alert."
    )
    world.deliver_all()
    run(world, 0.02)
    assert [one["state"] for one in slower_alerts(world)] == ["recovering"]
    run(world, 0.02)
    assert [one["state"] for one in slower_alerts(world)] == ["resolved"]
    world.deliver_all()
    opened, resolved = (json.loads(message.body) for _, message in world.send.sent)
    assert (opened["type"], resolved["type"]) == ("alert.opened", "alert.resolved")
    assert opened["data"]["summary"] == (
        "watch: median latency 1 s, above 3 x the baseline's 20 ms and 200 ms above it, in 3 of 4 runs since "
        f"{opened['data']['summary'].partition(' since ')[2].partition(' (')[0]} (run 22): search at search.test"
    )
    told = {name: opened["data"][name] for name in ("class", "measure", "value", "threshold", "baseline")}
    assert told == {
        "class": "latency",
        "measure": "median latency",
        "value": 1.0,
        "threshold": pytest.approx(0.22, abs=1e-3),
        "baseline": pytest.approx(0.02, abs=1e-4),
    }
    assert re.fullmatch(r"watch: recovered after 2 min \(run 26\): median latency 20 ms", resolved["data"]["summary"])


def test_less_than_200_ms_more_is_healthy(usual: World) -> None:
    ended = run(usual, 0.215, 4)
    assert {usual.shown(one)["verdict"] for one in ended} == {"healthy"}
    assert slower_alerts(usual) == []


def test_a_disabled_rule_says_nothing(usual: World) -> None:
    define(usual, {"kind": "slower", "enabled": False})
    ended = run(usual, 1.0, 4)
    assert {usual.shown(one)["verdict"] for one in ended} == {"healthy"}
    assert slower_alerts(usual) == []


def test_before_there_is_a_baseline_nothing_is_judged_and_the_page_says_how_far_it_is(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    define(world)
    run(world, 0.02, 4)
    ended = run(world, 1.0, 2)
    assert {world.shown(one)["verdict"] for one in ended} == {"healthy"}
    shown = explained(world)
    assert shown["state"] == "unknown"
    assert shown["reason"].startswith("no baseline yet: 6 of 20 identical runs, or 6 of 300 runs of any kind; ")


def test_one_slow_run_in_between_opens_nothing_and_is_not_learned(usual: World) -> None:
    for _ in range(LEARNED // 2):
        run(usual, 0.02, 2)
        [slow] = run(usual, 1.0)
        assert [one["state"] for one in slower_alerts(usual)] == ["pending"]
        with usual.store.read() as connection:
            mine = sa.select(detections.c.learns).where(detections.c.run_id == slow.id)
            assert connection.execute(mine).scalar_one() is False
    with usual.store.read() as connection:
        latencies = connection.execute(sa.select(baseline_rows.c.median_latency)).scalars().all()
    assert len(latencies) > 1, "it was learned again meanwhile"
    assert latencies == pytest.approx([0.02] * len(latencies), abs=1e-4)


def test_failed_probes_and_unknown_runs_are_no_latency(usual: World) -> None:
    usual.probe.answers = {key: Answer(outcome=Outcome.TIMEOUT, latency_seconds=30.0) for key in KEYS[:9]}
    run(usual, 0.02, 4)
    assert slower_alerts(usual) == []
    usual.probe.answers = {key: failed(Outcome.TIMEOUT) for key in KEYS}
    run(usual, 0.02, 4)
    assert slower_alerts(usual) == []
    usual.probe.answers = {}
    run(usual, 1.0, 2)
    assert [one["state"] for one in slower_alerts(usual)] == ["pending"]
    run(usual, 1.0)
    assert [one["state"] for one in slower_alerts(usual)] == ["firing"], "unknown runs enter no window"


OUT = Answer(outcome=Outcome.UNREACHABLE, latency_seconds=0.01)


def test_a_run_of_which_too_many_probes_failed_is_an_outage_and_not_slow(usual: World) -> None:
    usual.probe.answers = dict.fromkeys(KEYS[: len(KEYS) // 2], OUT)
    ended = run(usual, 1.0, 4)
    assert {one["kind"] for one in usual.alerts()} == {"probe_errors"}
    assert [usual.shown(one)["verdict"] for one in ended] == ["degraded"] * 4
    assert "latency" not in " ".join(usual.shown(ended[-1])["reasons"])
    assert explained(usual)["reason"].startswith(
        f"{len(KEYS) // 2} of {len(KEYS)} probes failed: the latency of the others says nothing"
    )
    usual.probe.answers = {}
    run(usual, 1.0, 3)
    assert [one["state"] for one in slower_alerts(usual)] == ["firing"], "slow runs without failures still count"


def test_an_outage_in_between_neither_ends_nor_prolongs_a_slow_alert(usual: World) -> None:
    run(usual, 1.0, 3)
    usual.probe.answers = dict.fromkeys(KEYS[: len(KEYS) // 2], OUT)
    run(usual, 0.02, 3)
    assert [one["state"] for one in slower_alerts(usual)] == ["firing"]
    usual.probe.answers = {}
    run(usual, 0.02, 2)
    assert [one["state"] for one in slower_alerts(usual)] == ["resolved"]


def test_an_outage_that_was_slow_is_no_latency_of_a_baseline(usual: World) -> None:
    usual.probe.answers = dict.fromkeys(KEYS[: len(KEYS) // 2], OUT)
    run(usual, 1.0)
    usual.probe.answers = {}
    run(usual, 0.02, 2 * LEARNED + 1)
    with usual.store.read() as connection:
        learned = connection.execute(sa.select(baseline_rows.c.median_latency)).scalars().all()
    assert len(learned) > 1, "it was learned again meanwhile"
    assert learned == pytest.approx([0.02] * len(learned), abs=1e-4)


FEW = replace(RUN, total=100, measured=88, failed=12)


@pytest.mark.parametrize(
    ("errors", "judged"),
    [
        ({}, False),
        ({"failed_share": 0.2}, True),
        ({"failed_share": 0.05}, False),
        ({"enabled": False}, True),
    ],
)
def test_how_many_may_fail_is_what_the_rule_of_failed_probes_says(errors: dict[str, Any], *, judged: bool) -> None:
    rules = rules_in_force(
        check({"kind": "probe_errors", **errors}, {"kind": "latency", "warning": {"above": "800ms"}}).rules
    )
    known = RunFacts(latencies={"p50": 1.0, "p95": 1.0}, baseline_latency=0.02)
    bad = {
        one.kind
        for one in rules
        if one.kind in {"latency", "slower", "probe_errors"}
        and condition(one, FEW, unknown=False, facts=known).severity is not None
    }
    assert bad == ({"latency", "slower"} if judged else {"probe_errors"})


def test_two_failed_probes_of_a_few_are_an_outage_and_one_is_none() -> None:
    known = RunFacts(latencies={"p50": 1.0}, baseline_latency=0.02)
    for failed_probes, measured in ((1, True), (2, False)):
        some = replace(RUN, total=8, measured=8 - failed_probes, failed=failed_probes)
        assert condition(RULE, some, unknown=False, facts=known).measured is measured


def test_the_present_that_is_accepted_as_normal_ends_it(usual: World) -> None:
    run(usual, 1.0, 3)
    transitions.accept_baseline(usual.store, CHECK, by="ann", note=None, now=usual.clock())
    assert [one["state"] for one in slower_alerts(usual)] == ["resolved"]
    run(usual, 1.0, LEARNED + 1)
    assert explained(usual)["reason"].startswith("median latency 1 s is not above 3 s (baseline 1 s)")
    assert [one["state"] for one in slower_alerts(usual)] == ["resolved"]


def test_an_alert_does_not_keep_a_check_that_is_measured_otherwise_from_a_new_baseline(usual: World) -> None:
    run(usual, 1.0, 3)
    define(usual, k=3)
    run(usual, 0.02, LEARNED)
    [alert] = slower_alerts(usual)
    assert (alert["state"], explained(usual)["reason"].partition(":")[0]) == ("firing", "no baseline yet")
    run(usual, 0.02, 2)
    assert [one["state"] for one in slower_alerts(usual)] == ["resolved"]


def test_a_slow_run_that_is_re_scored_is_as_bad_as_it_was(usual: World) -> None:
    [slow] = run(usual, 1.0)
    asked = rescoring.ask(usual.store, CHECK, since=None, now=usual.clock())
    rescoring.claim(usual.store, owner="w", now=usual.clock(), only=asked)
    assert rescoring.carry_on(usual.store, asked, owner="w", clock=usual.clock, stopping=lambda: False)
    version = rescoring.show(usual.store, asked)["measures_version"]
    shown = run_views.run(usual.store, str(slow.id), version=version)
    assert shown["verdict"] == "degraded"
    assert "median latency 1 s is above 3 x the baseline's 20 ms and 200 ms above it (warning)" in shown["reasons"]
    first = run_views.run(usual.store, "1", version=version)
    assert not [one for one in first["reasons"] if "slower" in one], "there was no baseline on its day either"


@pytest.mark.both
def test_a_baseline_of_a_release_without_latencies_says_so(anywhere: World) -> None:
    with anywhere.store.write() as connection:
        connection.execute(sa.update(baseline_rows).values(median_latency=None))
    run(anywhere, 1.0, 3)
    assert slower_alerts(anywhere) == []
    assert explained(anywhere)["reason"].startswith("the latencies of the baseline are not known; they are once it is ")


# On the page


def test_the_page_of_the_alert_draws_the_latency_around_it_with_its_bound(usual: World) -> None:
    pages = Site(world=usual)
    run(pages.world, 1.0, 3)
    [alert] = slower_alerts(pages.world)
    shown = pages.page(f"/alerts/{alert['id']}")
    label = "Median latency of 24 runs: 20 ms to 1 s, in the last one 1 s; warning 220 ms, baseline 20 ms"
    assert shown.one("svg", role="img").get("aria-label") == label
    line = shown.one("polyline", class_="latency")
    heights = [float(point.partition(",")[2]) for point in line.get("points").split()]
    bound, level = (float(shown.one("line", class_=name).get("y1")) for name in ("warning", "baseline"))
    assert len(heights) == 24
    assert {height > bound for height in heights[:21]} == {True}, "lower in the picture is quicker"
    assert {height < bound for height in heights[21:]} == {True}
    assert heights[0] == level
    assert "A run is bad when its median latency is above 3 x the baseline" in shown.text
    assert "Check the load of search at search.test" in shown.text
    run(pages.world, 0.02, 2)
    assert "Runs from before the alert to its end" in pages.page(f"/alerts/{alert['id']}").text


def test_a_long_alert_shows_its_beginning_and_the_newest_runs(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanations, "_BEFORE", 2)
    monkeypatch.setattr(explanations, "_MOST", 7)
    pages = site(sqlite_store)
    define(pages.world, {"kind": "latency", "percentile": "max", "warning": {"above": "800ms"}})
    run(pages.world, 0.02, 5)
    run(pages.world, 1.0, 12)
    [alert] = [one for one in pages.world.alerts() if one["kind"] == "latency"]
    details = explanations.details(sqlite_store, int(alert["id"]), links=LINKS, now=pages.world.clock())
    assert details["latency"] is not None
    assert [(one.run_id, one.after_others) for one in details["latency"].runs] == [
        ("4", False),
        ("5", False),
        ("6", False),
        ("14", True),
        ("15", False),
        ("16", False),
        ("17", False),
    ]
    shown = pages.page(f"/alerts/{alert['id']}")
    assert len(shown.all("polyline", class_="latency")) == 2, "a gap is no line"
    assert "Runs in between are left out." in shown.text


def test_an_alert_about_something_else_has_no_such_curve(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    define(pages.world, {"kind": "canary", "canary": "q03", "open": {"bad": 1, "of": 1}})
    pages.world.run()
    pages.world.probe.answers = {"q03": answered(hits("noise"))}
    pages.world.run()
    [alert] = [one for one in pages.world.alerts() if one["kind"] == "canary"]
    assert not pages.page(f"/alerts/{alert['id']}").all("figure", class_="curve")
