"""Rules: what one run is to a rule, the rules every check has, and keys that never change."""

from collections.abc import Sequence

import pytest

from app.alerts.domain.conditions import (
    FirstRun,
    WarmUp,
    first_run,
)
from app.alerts.domain.rules import (
    RunFacts,
    condition,
    default_rule_key,
    measure_value,
    with_default_rules,
    with_gate_rules,
)
from app.alerts.domain.summaries import AlertFacts, alert_summary
from app.alerts.domain.views import TransitionType
from app.base.values import Aggregates, Bound, EmbedderChange, Rule, RuleKind, Severity, Slice, replace
from app.scoring.verdicts import differs_from_gate

TWO_BOUNDS = Rule(
    key="cov",
    kind=RuleKind.THRESHOLD,
    measure="coverage",
    warning=Bound(below=0.95),
    critical=Bound(below=0.9),
    margin=0.02,
)
EMBEDDING = Rule(key="embedding", kind=RuleKind.EMBEDDING, open_bad=1, open_of=1, close=1)
NEGATIVES = Slice(
    canaries=4,
    measured=4,
    health_score=None,
    coverage=None,
    measures={"answered_ratio": 0.25, "degraded_share": 0.5, "R@5": None},
)


def run(coverage: float | None = 1.0, *, total: int = 10, failed: int = 0, degraded: int = 0) -> Aggregates:
    return Aggregates(
        total=total,
        measured=total - failed,
        failed=failed,
        undefined=0,
        degraded=degraded,
        health_score=0.8,
        coverage=coverage,
        measures={"R@5": 0.7, "MRR": None},
        categories={"negative": NEGATIVES},
    )


@pytest.mark.parametrize(
    ("coverage", "severity", "good", "reason"),
    [
        (0.72, "critical", False, "coverage 0.720 is below 0.9 (critical)"),
        (0.89999, "critical", False, "coverage 0.89999 is below 0.9 (critical)"),
        (0.9, "warning", False, "coverage 0.900 is below 0.95 (warning)"),
        (0.94, "warning", False, "coverage 0.940 is below 0.95 (warning)"),
        (0.95, None, False, "coverage 0.950 is not below 0.95, but within the margin of 0.02"),
        (0.96, None, False, "coverage 0.960 is not below 0.95, but within the margin of 0.02"),
        (0.97, None, True, "coverage 0.970 is not below 0.95"),
        (1.0, None, True, "coverage 1.000 is not below 0.95"),
    ],
)
def test_a_run_is_bad_good_or_neither(coverage: float, severity: str | None, *, good: bool, reason: str) -> None:
    found = condition(TWO_BOUNDS, run(coverage), unknown=False)
    assert found.measured
    assert (found.severity, found.good_beyond_margin, found.reason) == (severity, good, reason)
    assert found.value == coverage


def test_the_threshold_is_the_bound_that_was_crossed_else_the_mildest() -> None:
    assert [condition(TWO_BOUNDS, run(value), unknown=False).threshold for value in (0.5, 0.92, 1.0)] == [
        0.9,
        0.95,
        0.95,
    ]


def test_rounding_of_sums_crosses_no_bound_and_breaks_no_margin() -> None:
    rule = Rule(key="h", kind=RuleKind.THRESHOLD, measure="coverage", critical=Bound(below=0.9), margin=0.05)
    assert condition(rule, run(sum([0.1] * 9)), unknown=False).severity is None
    assert condition(rule, run(0.95), unknown=False).good_beyond_margin  # 0.9 + 0.05 is a trifle more than 0.95


def test_a_bound_above_is_bad_above() -> None:
    rule = Rule(key="d", kind=RuleKind.THRESHOLD, measure="degraded_share", warning=Bound(above=0.1), margin=0.05)
    found = [condition(rule, run(degraded=count), unknown=False) for count in (0, 1, 2)]
    assert [one.severity for one in found] == [None, None, Severity.WARNING]
    assert [one.good_beyond_margin for one in found] == [True, False, False]
    assert found[2].reason == "degraded_share 0.200 is above 0.1 (warning)"


def test_an_unknown_run_says_nothing_about_a_threshold() -> None:
    found = condition(TWO_BOUNDS, run(0.1), unknown=True)
    assert not found.measured
    assert (found.severity, found.value, found.reason) == (None, None, "the run is unknown")


def test_a_value_that_was_not_measured_is_neither_bad_nor_good() -> None:
    found = condition(TWO_BOUNDS, run(None), unknown=False)
    assert (found.measured, found.severity, found.good_beyond_margin) == (False, None, False)
    assert found.reason == "coverage was not measured"


@pytest.mark.parametrize(
    ("measure", "category", "value"),
    [
        ("health_score", None, 0.8),
        ("coverage", None, 1.0),
        ("degraded_share", None, 0.3),
        ("R@5", None, 0.7),
        ("MRR", None, None),
        ("NDCG@10", None, None),
        ("answered_ratio", None, 0.25),
        ("answered_ratio", "negative", 0.25),
        ("degraded_share", "negative", 0.5),
        ("coverage", "negative", None),
        ("coverage", "procedural", None),
    ],
)
def test_rules_reach_every_aggregate(measure: str, category: str | None, value: float | None) -> None:
    assert measure_value(run(degraded=3), measure, category) == value


def test_the_share_of_nothing_is_not_zero() -> None:
    assert measure_value(run(total=0), "degraded_share") is None


def test_a_category_is_named_in_the_reason() -> None:
    rule = Rule(
        key="a", kind=RuleKind.THRESHOLD, measure="degraded_share", category="negative", critical=Bound(above=0.2)
    )
    assert condition(rule, run(), unknown=False).reason == "degraded_share of negative 0.500 is above 0.2 (critical)"


@pytest.mark.parametrize(
    ("share", "failed", "unknown", "severity", "good", "reason"),
    [
        (None, 1, False, None, True, "1 of 10 probes failed"),
        (None, 2, False, "warning", False, "2 of 10 probes failed, more than 10 % of them (warning)"),
        (0.05, 1, False, "warning", False, "1 of 10 probes failed, more than 5 % of them (warning)"),
        (None, 6, True, "critical", False, "6 of 10 probes failed, so the run is unknown (critical)"),
        (0.3, 3, False, None, False, "3 of 10 probes failed, within the margin of 10 %"),
        (0.3, 2, False, None, True, "2 of 10 probes failed"),
        (0.3, 4, False, "warning", False, "4 of 10 probes failed, more than 30 % of them (warning)"),
        (0.8, 6, True, "critical", False, "6 of 10 probes failed, so the run is unknown (critical)"),
        (0.8, 4, True, "critical", False, "4 of 10 probes failed, so the run is unknown (critical)"),
    ],
)
def test_probe_errors_counts_every_run(
    share: float | None, failed: int, severity: str | None, reason: str, *, unknown: bool, good: bool
) -> None:
    rule = Rule(key="p", kind=RuleKind.PROBE_ERRORS, failed_share=share, margin=0.1)
    found = condition(rule, run(failed=failed), unknown=unknown)
    assert found.measured
    assert (found.severity, found.good_beyond_margin, found.reason) == (severity, good, reason)
    assert found.value == failed / 10


@pytest.mark.parametrize("share", [None, 0.9])
def test_a_run_that_could_not_probe_at_all_is_bad(share: float | None) -> None:
    found = condition(Rule(key="p", kind=RuleKind.PROBE_ERRORS, failed_share=share), run(None, total=0), unknown=True)
    assert (found.measured, found.severity) == (True, Severity.CRITICAL)


def test_no_data_cannot_be_asked_about_a_run() -> None:
    with pytest.raises(ValueError, match="not judged by runs"):
        condition(Rule(key="n", kind=RuleKind.NO_DATA), run(), unknown=False)


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (("threshold", "coverage"), "threshold-coverage"),
        (("threshold", "R@5", "procedural"), "threshold-R@5-procedural"),
        (("canary", None, None, "data-retention"), "canary-data-retention"),
        (("no_data",), "no_data"),
    ],
)
def test_a_rule_is_named_by_what_it_watches(parts: tuple[str, ...], key: str) -> None:
    assert default_rule_key(*parts) == key


def keys(rules: Sequence[Rule], *disabled: str) -> list[str]:
    return [rule.key for rule in with_default_rules(rules, disabled=disabled)]


def test_a_check_without_rules_is_compared_with_itself_and_has_no_bound_of_our_own() -> None:
    regression, guard, errors, silence, embedding, leak, slower, index = with_default_rules([])
    assert (regression.key, regression.kind, regression.detector_close) == ("regression", RuleKind.REGRESSION, 2)
    assert (regression.open_bad, regression.open_of, regression.close) == (1, 1, 1)
    assert (guard.key, guard.kind, guard.warning, guard.critical) == ("guard", RuleKind.GUARD, None, None)
    assert (guard.open_bad, guard.open_of, guard.close) == (2, 3, 2)
    assert (errors.key, errors.kind, errors.open_bad, errors.open_of, errors.close) == (
        "probe_errors",
        RuleKind.PROBE_ERRORS,
        2,
        3,
        2,
    )
    assert (silence.key, silence.kind) == ("no_data", RuleKind.NO_DATA)
    assert (embedding.key, embedding.kind, embedding.open_bad, embedding.open_of, embedding.close) == (
        "embedding",
        RuleKind.EMBEDDING,
        1,
        1,
        1,
    )
    assert (leak.key, leak.kind, leak.open_bad, leak.open_of, leak.close) == ("leak", RuleKind.LEAK, 1, 1, 2)
    assert (slower.key, slower.kind, slower.open_bad, slower.open_of, slower.close) == (
        "slower",
        RuleKind.SLOWER,
        3,
        4,
        2,
    )
    assert (index.key, index.kind, index.open_bad, index.open_of, index.close) == ("index", RuleKind.INDEX, 2, 2, 2)
    assert index.severity is Severity.WARNING


def test_rules_of_ones_own_replace_the_defaults_they_speak_of() -> None:
    health = Rule(key="h", kind=RuleKind.THRESHOLD, measure="health_score", critical=Bound(below=0.5))
    errors = Rule(key="mine", kind=RuleKind.PROBE_ERRORS, failed_share=0.2)
    assert keys([health]) == ["h", "probe_errors", "no_data", "embedding", "leak", "slower", "index"]
    assert keys([errors]) == ["regression", "mine", "guard", "no_data", "embedding", "leak", "slower", "index"]
    assert keys([errors], "mine") == ["regression", "guard", "no_data", "embedding", "leak", "slower", "index"]
    assert keys([errors], "mine", "slower") == ["regression", "guard", "no_data", "embedding", "leak", "index"]
    named = Rule(key="slower", kind=RuleKind.LATENCY, critical=Bound(above=2))
    assert keys([named]) == ["slower", "probe_errors", "no_data", "embedding", "leak", "slower-default", "index"]


def test_a_detector_is_guarded_unless_coverage_is_bounded_or_the_guard_disabled() -> None:
    detector = Rule(key="regression", kind=RuleKind.REGRESSION)
    guard = Rule(key="guard", kind=RuleKind.GUARD)
    bounded = Rule(key="c", kind=RuleKind.THRESHOLD, measure="coverage", critical=Bound(below=0.6))
    of_category = replace(bounded, category="procedural")
    every = ["probe_errors", "no_data", "embedding", "leak", "slower", "index"]
    assert keys([detector]) == keys([]) == ["regression", "guard", *every]
    assert keys([detector, of_category]) == ["regression", "c", "guard", *every]
    assert keys([detector, bounded]) == ["regression", "c", *every]
    assert keys([detector, bounded], "c") == ["regression", "guard", *every]
    assert keys([guard], "guard") == ["regression", *every]
    assert keys([detector], "regression") == every


FIRST = FirstRun(run_id=7, coverage=0.735)


@pytest.mark.parametrize(
    ("coverage", "warm_up", "severity", "reason"),
    [
        (0.735, WarmUp(over=False, first=FIRST), None, "coverage 0.735 is at least 80 % of the first run's 0.735"),
        (0.588, WarmUp(over=False, first=FIRST), None, "coverage 0.588 is at least 80 % of the first run's 0.735"),
        (0.58, WarmUp(over=False, first=FIRST), "warning", "coverage 0.580 is below 80 % of the first run's 0.735"),
        (0.3675, WarmUp(over=False, first=FIRST), "warning", "coverage 0.367 is below 80 % of the first run's 0.735"),
        (0.36, WarmUp(over=False, first=FIRST), "critical", "coverage 0.360 is below half of the first run's 0.735"),
        (0.0, WarmUp(over=False, first=FIRST), "critical", "coverage is 0"),
        (0.0, WarmUp(over=False, first=FirstRun(run_id=7, coverage=None)), "critical", "coverage is 0"),
        (0.0, None, "critical", "coverage is 0"),
        (0.0, WarmUp(over=True), None, "the baseline stands"),
    ],
)
def test_the_guard_is_bad_at_no_coverage_and_far_below_the_first_run_until_a_baseline_stands(
    coverage: float, warm_up: WarmUp | None, severity: str | None, reason: str
) -> None:
    guard = with_default_rules([])[1]
    found = condition(guard, run(coverage), unknown=False, facts=RunFacts(warm_up=warm_up))
    assert found.measured
    assert found.severity == severity
    assert found.reason.startswith(reason)


def test_the_guard_says_nothing_of_what_was_not_measured_or_has_no_first_run() -> None:
    guard = with_default_rules([])[1]
    warm_up = RunFacts(warm_up=WarmUp(over=False, first=FIRST))
    assert not condition(guard, run(0.0), unknown=True, facts=warm_up).measured
    assert not condition(guard, run(None), unknown=False, facts=warm_up).measured
    assert not condition(guard, run(0.5), unknown=False, facts=RunFacts()).measured


def test_the_first_run_stays_the_reference_until_most_canaries_are_others_or_it_found_nothing() -> None:
    now = FirstRun(run_id=9, coverage=0.5)
    assert first_run(None, now, keys_before=(), keys_now=(1, 2)) == now
    assert first_run(FIRST, now, keys_before=(1, 2, 3, 4), keys_now=(1, 2, 3, 5)) == FIRST
    assert first_run(FIRST, now, keys_before=(1, 2), keys_now=(1, 2, 3, 4)) == FIRST
    assert first_run(FIRST, now, keys_before=(1,), keys_now=(1, 2, 3)) == now
    assert first_run(FirstRun(run_id=7, coverage=0.0), now, keys_before=(1,), keys_now=(1,)) == now


def test_without_rules_the_gate_keeps_nine_tenths_or_compares_with_a_saved_run() -> None:
    rules, why = with_gate_rules([], compared=False)
    assert [rule.key for rule in rules] == ["threshold-coverage", "probe_errors", "no_data", "embedding", "leak"]
    assert rules[0].critical == Bound(below=0.9)
    assert why is not None
    assert "coverage must be at least 0.9" in why
    assert with_gate_rules([], compared=True) == (
        with_default_rules([], has_history=False),
        "the check has no rules: it is compared with the saved report",
    )
    own = [Rule(key="h", kind=RuleKind.THRESHOLD, measure="health_score", critical=Bound(below=0.5))]
    without_history = with_default_rules(own, has_history=False)
    assert [rule.key for rule in without_history] == ["h", "probe_errors", "no_data", "embedding", "leak"]
    assert with_gate_rules(own, compared=False) == (without_history, None)
    assert with_gate_rules(own, compared=True) == (without_history, None)


@pytest.mark.parametrize("kind", [EmbedderChange.TRUNCATED, EmbedderChange.SWAPPED, EmbedderChange.COLLAPSED])
@pytest.mark.parametrize("unknown", [False, True])
def test_another_embedder_is_critical_whatever_the_probes_say(kind: EmbedderChange, *, unknown: bool) -> None:
    seen = condition(EMBEDDING, replace(run(), embedder=kind, embedder_reason="it is another"), unknown=unknown)
    assert (seen.measured, seen.severity) == (True, Severity.CRITICAL)
    assert seen.reason == "it is another (critical)"


@pytest.mark.parametrize("kind", [None, EmbedderChange.SAME, EmbedderChange.DRIFTED])
def test_the_embedder_of_before_or_none_at_all_is_good(kind: EmbedderChange | None) -> None:
    reason = None if kind is None else "it answers"
    seen = condition(EMBEDDING, replace(run(), embedder=kind, embedder_reason=reason), unknown=False)
    assert (seen.measured, seen.severity, seen.good_beyond_margin) == (True, None, True)


def test_an_unknown_run_never_vouches_for_an_embedder() -> None:
    for aggregates in (run(), replace(run(), embedder=EmbedderChange.SAME, embedder_reason="it answers")):
        seen = condition(EMBEDDING, aggregates, unknown=True)
        assert (seen.measured, seen.severity, seen.good_beyond_margin) == (False, None, False)


def test_a_health_score_nobody_measured_is_never_good() -> None:
    rule = Rule(key="h", kind=RuleKind.THRESHOLD, measure="health_score", critical=Bound(below=0.5))
    found = condition(rule, replace(run(), health_score=None), unknown=False)
    assert (found.measured, found.severity, found.good_beyond_margin) == (False, None, False)


def test_probe_errors_says_why_a_run_is_unknown_though_its_probes_measured() -> None:
    rule = Rule(key="p", kind=RuleKind.PROBE_ERRORS)
    found = condition(rule, replace(run(), unknown_reason="nobody scored it"), unknown=True)
    assert found.reason == "0 of 10 probes failed, and the run is unknown: nobody scored it (critical)"
    assert found.severity is Severity.CRITICAL


def test_an_embedder_that_did_not_answer_neither_opens_nor_closes() -> None:
    seen = condition(EMBEDDING, replace(run(), embedder_reason="answered 500"), unknown=False)
    assert (seen.measured, seen.severity, seen.good_beyond_margin) == (False, None, False)


def test_every_kind_of_rule_has_a_summary() -> None:
    for kind in RuleKind:
        for change in (TransitionType.OPENED, TransitionType.RESOLVED):
            assert alert_summary(AlertFacts(check="docs", kind=kind, change=change)).startswith("docs: "), kind


def test_a_first_run_that_the_gate_would_fail_says_why_they_differ() -> None:
    rules = with_default_rules([])
    learning, over = WarmUp(over=False, first=FIRST), WarmUp(over=True)
    why = differs_from_gate(rules, 2 / 3, learning)
    assert why is not None
    assert "coverage 0.667 is compared with the first run's only; `coalmine check`" in why
    assert differs_from_gate(rules, 0.95, learning) is None
    assert differs_from_gate(rules, 2 / 3, over) is None
    own = [Rule(key="h", kind=RuleKind.THRESHOLD, measure="health_score", critical=Bound(below=0.5))]
    assert differs_from_gate(with_default_rules(own), 2 / 3, learning) is None
