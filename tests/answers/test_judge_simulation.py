"""The simulations of `python -m benchmarks.judge`, at small numbers."""

import pytest

from benchmarks.judge import (
    GOOD,
    MIDDLING,
    POOR,
    UNFIT,
    Judge,
    designs,
    measure_checks,
    measure_intervals,
    measure_length_love,
    share_calibrated,
)


def test_the_interval_covers_with_100_labels_of_2100_at_a_true_rate_of_80_percent() -> None:
    found = measure_intervals(MIDDLING, labels=100, rate=0.8, repetitions=500)
    assert found.covers >= 0.93
    assert 0.3 < found.people_alone < 0.6  # 20 of the rarer kind is what one expects there


def test_a_good_judge_narrows_the_interval_and_a_poor_one_does_not_widen_it() -> None:
    good = measure_intervals(GOOD, labels=200, rate=0.7, repetitions=300)
    poor = measure_intervals(POOR, labels=200, rate=0.7, repetitions=300)
    assert 0.5 < good.formula_width < 0.7
    assert 0.9 < poor.formula_width <= 1
    assert min(good.covers, poor.covers) >= 0.92


def test_at_a_true_rate_of_99_percent_the_formula_alone_would_fail_and_the_rule_does_not() -> None:
    found = measure_intervals(GOOD, labels=100, rate=0.99, repetitions=300)
    assert found.formula_covers < 0.75
    assert found.covers >= 0.95
    assert found.people_alone == 1


def test_the_table_holds_the_judges_labels_and_rates_that_are_promised() -> None:
    table = set(designs())
    assert {
        (judge, labels, rate) for judge in (GOOD, POOR) for labels in (100, 200) for rate in (0.7, 0.8, 0.9)
    } <= table
    assert (GOOD, 100, 0.99) in table


@pytest.mark.parametrize(("rate", "judge"), UNFIT)
def test_a_judge_at_the_bound_is_seldom_called_calibrated(rate: float, judge: Judge) -> None:
    assert judge.kappa(rate) == pytest.approx(0.4, abs=0.01)
    assert share_calibrated(judge, labels=100, rate=rate, repetitions=200) <= 0.06


def test_a_good_judge_is_called_calibrated_with_200_labels() -> None:
    assert share_calibrated(GOOD, labels=200, rate=0.8, repetitions=100) >= 0.95


def test_love_of_length_is_reported_and_its_absence_is_not() -> None:
    loving = Judge(sensitivity=0.9, specificity=0.8, length_love=0.5)
    assert measure_length_love(loving, pairs=100, repetitions=200)[0] >= 0.95
    shown, covers = measure_length_love(MIDDLING, pairs=50, repetitions=500)
    assert shown <= 0.06
    assert covers >= 0.93


def test_corrected_rates_of_checks_and_of_runs_cover_where_the_judges_own_rate_is_wrong() -> None:
    found = measure_checks(MIDDLING, labels=200, repetitions=150)
    fallen = found["run of 500 answers of check 1, fallen"]
    assert fallen.raw > fallen.truth + 0.02, "the judge alone hides a part of the fall"
    assert fallen.covers >= 0.9
    assert min(one.covers for one in found.values()) >= 0.88
    assert len(found) == 11
