"""Rules that look at more than aggregates: drops, regressions, single canaries, latencies."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from app.alerts.documents import rules_in_force
from app.alerts.domain.rules import NO_FACTS, Alarm, RunFacts, condition, silent_rules
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.base.values import Aggregates, Bound, Percentile, Reason, Rule, RuleKind, Severity, Verdict, replace
from app.catalog.documents.check_documents import CheckDocument
from app.comparison.domain.estimates import FEWEST_PAIRS, Difference
from app.scoring.verdicts import NO_BASELINE, drop_as_json, drop_from_json, drops, run_verdict, watched_column

RUN = Aggregates(total=10, measured=10, failed=0, undefined=0, degraded=0, expecting=10, health_score=1.0, coverage=1.0)
DROP = Rule(
    key="drop-NDCG@10",
    kind=RuleKind.DROP,
    measure="NDCG@10",
    warning=Bound(by=0.03),
    critical=Bound(by=0.05),
    margin=0.01,
)
REGRESSION = Rule(key="regression", kind=RuleKind.REGRESSION, open_bad=1, open_of=1, close=1, detector_close=3)
CANARY = Rule(key="canary-billing", kind=RuleKind.CANARY, canary="billing", severity=Severity.WARNING)
LATENCY = Rule(
    key="latency-p95",
    kind=RuleKind.LATENCY,
    measure="latency_p95",
    percentile=Percentile.P95,
    warning=Bound(above=0.8),
    critical=Bound(above=2.0),
    margin=0.1,
)
ALL = (DROP, REGRESSION, CANARY, LATENCY)


def fell(by: float, *, low: float | None = None, high: float | None = None) -> RunFacts:
    low, high = -by - 0.02 if low is None else low, -by + 0.02 if high is None else high
    found = Difference(pairs=40, before=0.8, now=0.8 - by, difference=-by, low=low, high=high, confidence=0.95)
    return RunFacts(drops={DROP.key: found})


def check(*rules: Mapping[str, Any], **more: Any) -> CheckDocument:
    fields = {"slug": "docs", "suite": "docs", "retriever": "r", "schedule": {"every": "5m"}, "rules": rules, **more}
    return parse_document(CheckDocument, fields)


def refused(rule: Mapping[str, Any], *others: Mapping[str, Any]) -> str:
    with pytest.raises(InvalidInputError) as caught:
        check(rule, *others)
    [problem] = caught.value.problems
    return f"{problem.path}: {problem.message}"


# What a drop is


@pytest.mark.parametrize(
    ("by", "severity", "good"),
    [
        (0.06, "critical", False),
        (0.05, "critical", False),
        (0.04, "warning", False),
        (0.03, "warning", False),
        (0.025, None, False),
        (0.02, None, True),
        (0.0, None, True),
        (-0.1, None, True),
    ],
)
def test_a_drop_is_bad_from_its_least_effect_on(by: float, severity: str | None, *, good: bool) -> None:
    found = condition(DROP, RUN, unknown=False, facts=fell(by))
    assert (found.measured, found.severity, found.good_beyond_margin) == (True, severity, good)


def test_a_drop_whose_interval_holds_zero_is_neither_bad_nor_good() -> None:
    found = condition(DROP, RUN, unknown=False, facts=fell(0.06, high=0.001))
    assert (found.measured, found.severity, found.good_beyond_margin) == (True, None, False)
    assert found.reason.endswith("the interval includes zero, so it may be chance")


def test_a_drop_that_is_certain_but_smaller_than_its_least_effect_wakes_nobody() -> None:
    found = condition(DROP, RUN, unknown=False, facts=fell(0.01, low=-0.011, high=-0.009))
    assert (found.severity, found.good_beyond_margin) == (None, True)


def test_a_rise_that_is_certain_is_no_drop() -> None:
    assert condition(DROP, RUN, unknown=False, facts=fell(-0.3)).severity is None


def test_a_drop_tells_what_it_compared() -> None:
    found = condition(DROP, RUN, unknown=False, facts=fell(0.06))
    assert found.baseline == 0.8
    assert [found.value, found.threshold] == pytest.approx([0.74, 0.75])
    assert found.reason == (
        "NDCG@10 0.740 against 0.800 in the baseline, -0.060 (95 % between -0.080 and -0.040), over 40 canaries: "
        "a drop of at least 0.05 (critical)"
    )


def test_what_rounding_leaves_of_a_difference_is_not_told() -> None:
    found = condition(DROP, RUN, unknown=False, facts=fell(-3.98e-10, low=-3.98e-10, high=3.98e-10))
    assert found.reason.startswith("NDCG@10 0.800 against 0.800 in the baseline, 0.000 (95 % between 0.000 and 0.000)")


def test_a_drop_nobody_could_measure_says_nothing_and_why() -> None:
    known = RunFacts(drops={DROP.key: NO_BASELINE})
    found = condition(DROP, RUN, unknown=False, facts=known)
    assert (found.measured, found.severity, found.reason) == (False, None, NO_BASELINE)


def column(values: Mapping[str, Any]) -> Any:
    return lambda name: np.asarray(values[name], dtype=np.float64)


EVERYBODY = np.arange(40)


def test_drops_pair_canaries_with_their_own_baseline() -> None:
    before = np.where(EVERYBODY % 2, 1.0, 0.5)
    lost = before - np.where(EVERYBODY < 20, 0.5, 0.0)
    found = drops([DROP], k=5, categories={}, before=column({"NDCG@10": before}), now=column({"NDCG@10": lost}))
    drop = found[DROP.key]
    assert isinstance(drop, Difference)
    assert (drop.pairs, drop.before, drop.difference) == (40, 0.75, -0.25)
    assert drop.high < 0
    assert condition(DROP, RUN, unknown=False, facts=RunFacts(drops=found)).severity == "critical"


def test_canaries_that_were_not_measured_or_are_new_are_no_pairs() -> None:
    before, now = np.full(40, 1.0), np.full(40, 1.0)
    before[:5], now[5:10] = np.nan, np.nan
    [found] = drops(
        [DROP], k=5, categories={}, before=column({"NDCG@10": before}), now=column({"NDCG@10": now})
    ).values()
    assert isinstance(found, Difference)
    assert found.pairs == 30


def test_a_drop_of_a_category_is_of_its_canaries() -> None:
    rule = replace(DROP, category="procedural")
    now = np.where(EVERYBODY < 12, 0.2, 1.0)
    tables = {"before": column({"NDCG@10": np.ones(40)}), "now": column({"NDCG@10": now})}
    [found] = drops([rule], k=5, categories={"procedural": EVERYBODY[:12]}, **tables).values()
    assert isinstance(found, Difference)
    assert found.pairs == 12
    assert found.difference == pytest.approx(-0.8)
    assert list(drops([rule], k=5, categories={}, **tables).values()) == ["no canary is of the category procedural"]


def test_too_few_pairs_say_nothing_with_their_number() -> None:
    few = {"NDCG@10": np.ones(FEWEST_PAIRS - 1)}
    [found] = drops([DROP], k=5, categories={}, before=column(few), now=column(few)).values()
    assert found == "only 9 canaries can be compared with the baseline; it takes 10 to tell a drop from chance"


def test_without_a_baseline_every_drop_says_so_and_other_rules_are_left_alone() -> None:
    assert drops([LATENCY, DROP], k=5, categories={}, before=None, now=column({})) == {DROP.key: NO_BASELINE}


@pytest.mark.parametrize(
    ("measure", "name"), [("coverage", "Hit@7"), ("MRR", "RR"), ("MAP", "AP"), ("NDCG@10", "NDCG@10")]
)
def test_a_drop_watches_the_column_whose_mean_its_measure_is(measure: str, name: str) -> None:
    assert watched_column(replace(DROP, measure=measure), 7) == name


@pytest.mark.parametrize("found", [NO_BASELINE, fell(0.1).drops[DROP.key]])
def test_a_drop_is_read_back_as_it_was_written(found: Difference | str) -> None:
    assert drop_from_json(drop_as_json(found)) == found


# What a detector, a canary and a stopwatch say


def test_a_regression_is_bad_while_the_alarm_stands_as_loud_as_the_alarm() -> None:
    for severity in Severity:
        alarm = Alarm(open=True, good=False, severity=severity, evidence=12_000.0, reason="3 of 40 canaries are lost")
        found = condition(REGRESSION, RUN, unknown=False, facts=RunFacts(alarm=alarm))
        assert (found.severity, found.value) == (severity, 12_000.0)
        assert found.reason == f"3 of 40 canaries are lost ({severity})"


def test_a_good_run_does_not_end_a_regression_before_the_alarm_ends() -> None:
    alarm = Alarm(open=True, good=True, reason="3 of 40 canaries are lost")
    found = condition(REGRESSION, RUN, unknown=False, facts=RunFacts(alarm=alarm))
    assert (found.measured, found.severity, found.good_beyond_margin) == (True, None, False)
    assert found.recovering
    assert found.reason == "3 of 40 canaries are lost; this run is good again, 3 in a row end it"
    over = condition(REGRESSION, RUN, unknown=False, facts=RunFacts(alarm=replace(alarm, open=False)))
    assert (over.severity, over.good_beyond_margin) == (None, True)


def test_a_detector_that_warms_up_does_not_say_that_all_is_well() -> None:
    alarm = Alarm(
        open=False, good=True, reason="0 of 40 canaries lost", undecided_reason="measured otherwise since run 7"
    )
    found = condition(REGRESSION, RUN, unknown=False, facts=RunFacts(alarm=alarm))
    assert (found.measured, found.severity, found.reason) == (False, None, "measured otherwise since run 7")


def test_a_named_canary_is_bad_when_it_is_degraded() -> None:
    facts = RunFacts(canaries={"billing": (Reason.MISSING, Reason.REGRESSED)})
    found = condition(CANARY, RUN, unknown=False, facts=facts)
    assert (found.severity, found.reason) == ("warning", "canary 'billing' is degraded: missing, regressed (warning)")
    well = condition(CANARY, RUN, unknown=False, facts=RunFacts(canaries={"billing": ()}))
    assert (well.severity, well.good_beyond_margin) == (None, True)


def test_a_named_canary_that_was_not_measured_or_not_asked_says_nothing() -> None:
    for facts, why in ((RunFacts(canaries={"billing": None}), "measured"), (NO_FACTS, "asked")):
        found = condition(CANARY, RUN, unknown=False, facts=facts)
        assert (found.measured, found.severity) == (False, None)
        assert found.reason == f"canary 'billing' was not {why}"


@pytest.mark.parametrize(
    ("seconds", "severity", "good", "reason"),
    [
        (2.5, "critical", False, "p95 latency 2.5 s is above 2 s (critical)"),
        (0.9, "warning", False, "p95 latency 900 ms is above 800 ms (warning)"),
        (0.75, None, False, "p95 latency 750 ms is not above 800 ms, but within the margin of 100 ms"),
        (0.7, None, True, "p95 latency 700 ms is not above 800 ms"),
    ],
)
def test_a_latency_is_bad_above_its_seconds(seconds: float, severity: str | None, *, good: bool, reason: str) -> None:
    facts = RunFacts(latencies={"p50": 9.0, "p95": seconds, "max": 9.0})
    found = condition(LATENCY, RUN, unknown=False, facts=facts)
    assert (found.severity, found.good_beyond_margin, found.reason) == (severity, good, reason)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: str(rule.kind))
def test_what_is_not_known_is_neither_bad_nor_good(rule: Rule) -> None:
    found = condition(rule, RUN, unknown=False)
    assert (found.measured, found.severity, found.good_beyond_margin) == (False, None, False)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: str(rule.kind))
def test_an_unknown_run_says_nothing_whatever_else_is_known(rule: Rule) -> None:
    facts = replace(
        fell(0.5), alarm=Alarm(open=True, good=False), latencies={"p95": 9.0}, canaries={"billing": (Reason.MISSING,)}
    )
    assert condition(rule, RUN, unknown=False, facts=facts).severity is not None
    found = condition(rule, RUN, unknown=True, facts=facts)
    assert (found.measured, found.severity, found.reason) == (False, None, "the run is unknown")


def test_each_of_them_degrades_a_run_by_itself() -> None:
    bad = {
        DROP: fell(0.2),
        REGRESSION: RunFacts(alarm=Alarm(open=True, good=False)),
        CANARY: RunFacts(canaries={"billing": (Reason.SLOW,)}),
        LATENCY: RunFacts(latencies={"p95": 3.0}),
    }
    for rule, facts in bad.items():
        verdict, reasons = run_verdict(RUN, ALL, facts=facts)
        assert verdict is Verdict.DEGRADED
        assert reasons == [condition(rule, RUN, unknown=False, facts=facts).reason]
    assert run_verdict(RUN, ALL) == (Verdict.HEALTHY, [])


def test_rules_that_had_nothing_to_say_are_named_with_the_reason() -> None:
    facts = RunFacts(latencies={"p95": 0.1}, canaries={"billing": ()})
    assert silent_rules(ALL, facts) == [
        "rule 'drop-NDCG@10' says nothing: the run was not compared with a baseline",
        "rule 'regression' says nothing: it compares with earlier runs, and no detector evaluated this one",
    ]
    assert silent_rules([Rule(key="no_data", kind=RuleKind.NO_DATA)], NO_FACTS) == []


# How they are written


def test_rules_of_every_kind_are_read_with_their_defaults() -> None:
    document = check(
        {"kind": "regression"},
        {"kind": "drop", "measure": "ndcg@10", "critical": {"by": 0.05}},
        {"kind": "drop", "measure": "coverage", "category": "procedural", "warning": {"by": 0.1}, "confidence": 0.99},
        {"kind": "canary", "canary": "billing", "severity": "warning"},
        {"kind": "latency", "warning": {"above": "800ms"}, "critical": {"above": 2}, "margin": "50ms"},
        {"kind": "latency", "percentile": "max", "critical": {"above": "1m"}},
    )
    assert [rule.to_domain() for rule in document.rules] == [
        Rule(key="regression", kind=RuleKind.REGRESSION, open_bad=1, open_of=1, close=1, detector_close=2),
        Rule(key="drop-NDCG@10", kind=RuleKind.DROP, measure="NDCG@10", critical=Bound(by=0.05)),
        Rule(
            key="drop-coverage-procedural",
            kind=RuleKind.DROP,
            measure="coverage",
            category="procedural",
            warning=Bound(by=0.1),
            confidence=0.99,
        ),
        Rule(key="canary-billing", kind=RuleKind.CANARY, canary="billing", severity=Severity.WARNING),
        Rule(
            key="latency-p95",
            kind=RuleKind.LATENCY,
            measure="latency_p95",
            percentile=Percentile.P95,
            warning=Bound(above=0.8),
            critical=Bound(above=2.0),
            margin=0.05,
        ),
        Rule(
            key="latency-max",
            kind=RuleKind.LATENCY,
            measure="latency_max",
            percentile=Percentile.MAX,
            critical=Bound(above=60.0),
        ),
    ]
    assert CheckDocument.model_validate(document.data()) == document


def test_the_close_of_a_regression_is_for_its_detector_and_the_alert_follows_at_once() -> None:
    rule = check({"kind": "regression", "close": 5}).rules[0].to_domain()
    assert (rule.open_bad, rule.open_of, rule.close, rule.detector_close) == (1, 1, 1, 5)


def test_a_rule_of_its_own_of_any_kind_takes_the_place_of_the_implied_one() -> None:
    for rule in ({"kind": "regression"}, {"kind": "canary", "canary": "billing"}):
        assert "threshold-coverage" not in {one.key for one in rules_in_force(check(rule).rules)}


MEASURED = {"kind": "drop", "measure": "NDCG@10"}
STOPPED = {"kind": "latency"}


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (MEASURED, "rules[0]: must have a bound: warning or critical"),
        ({"kind": "drop", "critical": {"by": 0.05}}, "rules[0].measure: is missing; a drop rule watches one"),
        ({**MEASURED, "critical": {"below": 0.05}}, "rules[0].critical: must say by how much, for example {by: 0.05}"),
        (
            {**MEASURED, "critical": {"by": 0.05, "below": 0.5}},
            "rules[0].critical: must say by how much, for example {by: 0.05}",
        ),
        ({**MEASURED, "critical": {"by": 0}}, "rules[0].critical.by: must be greater than 0"),
        (
            {**MEASURED, "warning": {"by": 0.05}, "critical": {"by": 0.03}},
            "rules[0].critical: must not be milder than warning",
        ),
        (
            {**MEASURED, "critical": {"by": 0.05}, "margin": 0.06},
            "rules[0].margin: is so large that the alert could never close",
        ),
        ({**MEASURED, "critical": {"by": 0.05}, "confidence": 0.9999}, "rules[0].confidence: must be at most 0.999"),
        (
            {"kind": "drop", "measure": "health_score", "critical": {"by": 0.05}},
            "rules[0].measure: must be coverage or a measure of single canaries, such as NDCG@10",
        ),
        (
            {**MEASURED, "critical": {"by": 0.05}, "category": "negative"},
            "rules[0].category: negative canaries expect nothing, so they have no NDCG@10",
        ),
        (
            {"kind": "drop", "measure": "NDCG@7", "critical": {"by": 0.05}},
            "rules[0].measure: NDCG@7 is not computed; add 7 to the cutoffs of the check",
        ),
        (
            {"kind": "threshold", "measure": "coverage", "critical": {"by": 0.05}},
            "rules[0].critical: must have either 'below' or 'above'",
        ),
        ({"kind": "regression", "open": {"bad": 1, "of": 1}}, "rules[0].open: does not apply to a regression rule"),
        ({"kind": "regression", "critical": {"below": 0.5}}, "rules[0].critical: does not apply to a regression rule"),
        ({"kind": "canary"}, "rules[0].canary: is missing; a canary rule is about one of them"),
        (
            {"kind": "canary", "canary": "billing", "critical": {"below": 0.5}},
            "rules[0].critical: does not apply to a canary rule",
        ),
        (
            {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.5}, "canary": "billing"},
            "rules[0].canary: does not apply to a threshold rule",
        ),
        (STOPPED, "rules[0]: must have a bound: warning or critical"),
        (
            {**STOPPED, "critical": {"below": 1}},
            "rules[0].critical: must say above how many seconds, for example {above: 800ms}",
        ),
        (
            {**STOPPED, "critical": {"below": "800ms"}},
            "rules[0].critical: must say above how many seconds, for example {above: 800ms}",
        ),
        (
            {**STOPPED, "critical": {"above": 1}, "treshold": 3},
            "rules[0].treshold: unknown key 'treshold'; a latency rule has: kind, percentile, warning, critical",
        ),
        (
            {**STOPPED, "critical": {"above": 1}, "percentil": "p50"},
            "rules[0].percentil: unknown key 'percentil'; did you mean 'percentile'?",
        ),
        ({**STOPPED, "critical": {"above": "soon"}}, "rules[0].critical.above: 'soon' is not a duration"),
        ({**STOPPED, "critical": {"above": "6m"}}, "rules[0].critical.above: must be between 1ms and 5m"),
        (
            {**STOPPED, "warning": {"above": "2s"}, "critical": {"above": "800ms"}},
            "rules[0].critical: must not be milder than warning",
        ),
        (
            {**STOPPED, "critical": {"above": "800ms"}, "margin": "1s"},
            "rules[0].margin: is so large that the alert could never close",
        ),
        ({**STOPPED, "critical": {"above": 1}, "percentile": "p42"}, "rules[0].percentile: must be"),
        (
            {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.5}, "margin": "50ms"},
            "rules[0].margin: must be a number",
        ),
        (
            {"kind": "threshold", "measure": "degraded_share", "critical": {"above": "800ms"}},
            "rules[0].critical.above: must be a number",
        ),
    ],
)
def test_a_wrong_rule_is_refused_in_words(rule: dict[str, Any], told: str) -> None:
    assert refused(rule).startswith(told)


def test_a_check_has_one_detector_so_one_regression_rule() -> None:
    told = "rules[1].kind: a check has one detector, so one regression rule"
    assert refused({"kind": "regression"}, {"kind": "regression", "key": "again", "close": 3}) == told
