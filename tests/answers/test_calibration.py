"""People and judge together: the estimate, its basis, and when a judge is calibrated."""

import numpy as np
import pytest
from scipy import stats

from app.annotation.domain.agreement import Coefficient, kappa_interval, measure_agreement
from app.answers.domain.trust import (
    Basis,
    decide_calibration,
    estimate_rate,
    measure_judge,
    prediction_powered,
)
from app.base.statistics import clopper_pearson


def labels(yes: int, no: int) -> list[bool]:
    return [True] * yes + [False] * no


def test_the_estimate_worked_by_hand() -> None:
    people, judged = np.array([1.0, 1, 1, 0]), np.array([1.0, 1, 0, 0])
    others = np.array([1.0, 1, 1, 1, 0, 0, 0, 0])
    # var f over all twelve = 3/11, cov = 1/6, so lambda = (1/6) / (1.5 * 3/11) = 11/27.
    weight = 11 / 27
    mean, error, found = prediction_powered(people, judged, others)
    assert found == pytest.approx(weight)
    assert mean == pytest.approx(0.5 * weight + 0.75 - 0.5 * weight)
    rest = [1 - weight, 1 - weight, 1, 0]
    assert error**2 == pytest.approx(weight**2 * (2 / 7) / 8 + np.var(rest, ddof=1) / 4)


def test_the_interval_is_that_of_student_with_one_degree_less_than_labels() -> None:
    people, judged = labels(70, 30), labels(65, 35)
    others = labels(1_300, 700)
    found = estimate_rate(people, judged, others)
    mean, error, _ = prediction_powered(*(np.array(each, dtype=float) for each in (people, judged, others)))
    side = stats.t.ppf(0.975, 99) * error
    assert (found.value, found.low, found.high) == pytest.approx((mean, mean - side, mean + side))
    assert found.basis is Basis.PEOPLE_AND_JUDGE
    assert "100 labels correct the judge's verdicts on 2000 more answers" in found.reason


def test_a_judge_that_always_says_the_same_weighs_nothing() -> None:
    found = estimate_rate(labels(60, 40), [1.0] * 100, [1.0] * 500)
    assert found.weight == 0
    assert found.value == pytest.approx(0.6)
    side = stats.t.ppf(0.975, 99) * np.std(labels(60, 40), ddof=1) / 10
    assert found.high - found.low == pytest.approx(2 * side)


def test_a_judge_that_says_the_opposite_weighs_nothing() -> None:
    assert estimate_rate(labels(60, 40), labels(0, 60) + labels(40, 0), labels(250, 250)).weight == 0


def test_people_correct_a_judge_that_says_yes_too_often() -> None:
    people = labels(60, 40)
    judged = labels(80, 20)  # yes of 20 that people say no of
    found = estimate_rate(people, judged, labels(800, 200))
    assert found.value == pytest.approx(0.6)
    assert found.judge_rate == pytest.approx(0.8)


def test_the_rate_of_the_judge_alone_counts_every_verdict_and_yes_is_a_full_share() -> None:
    assert estimate_rate([True], [1.0], [0.0, 0.0, 0.5]).judge_rate == pytest.approx(0.25)
    assert estimate_rate([], [], []).judge_rate is None


@pytest.mark.parametrize(
    ("yes", "no", "reason"),
    [
        (70, 29, "99 labels, and the judge is taken in from 100 on"),
        (81, 19, "19 labels are no, and the judge is taken in from 20 on"),
        (19, 81, "19 labels are yes, and the judge is taken in from 20 on"),
        (0, 0, "0 labels"),
    ],
)
def test_with_few_labels_people_alone_give_exact_limits_and_it_says_so(yes: int, no: int, reason: str) -> None:
    people = labels(yes, no)
    found, exact = estimate_rate(people, people, labels(1_000, 1_000)), clopper_pearson(yes, yes + no)
    assert (found.value, found.low, found.high) == (exact.value, exact.low, exact.high)
    assert found.basis is Basis.PEOPLE
    assert reason in found.reason


def test_100_labels_with_20_of_the_rarer_kind_take_the_judge_in() -> None:
    people = labels(80, 20)
    assert estimate_rate(people, people, labels(800, 200)).basis is Basis.PEOPLE_AND_JUDGE


def test_where_every_answer_is_labelled_people_stand_alone() -> None:
    found = estimate_rate(labels(80, 40), labels(80, 40), [])
    assert found.basis is Basis.PEOPLE
    assert found.reason == "people alone: every answer is labelled"


def test_verdicts_that_are_no_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        estimate_rate([True], [2.0], [])
    with pytest.raises(ValueError, match="from 0 to 1"):
        estimate_rate([True], [float("nan")], [])
    with pytest.raises(ValueError, match="as many verdicts"):
        measure_judge([True], [])


def test_agreement_with_people_is_counted() -> None:
    people = labels(40, 20)
    judged = [1.0] * 36 + [0.0] * 4 + [1.0] * 5 + [0.0] * 15
    found = measure_judge(people, judged)
    assert (found.sensitivity.successes, found.sensitivity.count) == (36, 40)
    assert (found.specificity.successes, found.specificity.count) == (15, 20)
    assert found.sensitivity == clopper_pearson(36, 40)
    assert found.kappa.value == pytest.approx(kappa_interval(people, judged).value)
    assert found.labels == 60


def test_a_share_of_claims_is_a_yes_only_when_all_are_supported() -> None:
    found = measure_judge([True, True, False], [1.0, 0.9, 0.9])
    assert (found.sensitivity.successes, found.specificity.successes) == (1, 1)


def test_a_judge_that_agrees_well_is_calibrated() -> None:
    found = measure_judge(labels(60, 40), [1.0] * 57 + [0.0] * 41 + [1.0] * 2)
    assert found.calibrated
    assert found.reason.startswith("kappa 0.9")
    assert found.reason.endswith("; 0.4 is needed")


@pytest.mark.parametrize(
    ("kappa", "count", "reason"),
    [
        (Coefficient(value=None), 0, "no answer is labelled yet"),
        (Coefficient(value=None), 30, "agreement beyond chance is undefined"),
        (Coefficient(value=0.9), 9, "9 labels are too few, or too alike"),
        (Coefficient(value=0.5, low=0.39, high=0.6), 60, "below 0.4: more labels may show more"),
        (Coefficient(value=0.35, low=0.2, high=0.5), 60, "below 0.4: more labels may show more"),
        (Coefficient(value=0.35, low=0.2, high=0.5), 200, "below 0.4: people and judge agree too little"),
        (Coefficient(value=0.45, low=0.31, high=0.58), 200, "below 0.4: more labels may show more"),
        (Coefficient(value=0.2, low=0.1, high=0.3), 60, "below 0.4: people and judge agree too little"),
    ],
)
def test_a_judge_is_uncalibrated_until_shown_otherwise(kappa: Coefficient, count: int, reason: str) -> None:
    calibrated, said = decide_calibration(kappa, count)
    assert not calibrated
    assert reason in said


def test_the_bound_itself_is_enough() -> None:
    assert decide_calibration(Coefficient(value=0.5, low=0.4, high=0.6), 60)[0]


def test_kappa_of_two_columns_is_that_of_two_annotators() -> None:
    random = np.random.default_rng(4)
    grades = random.integers(0, 2, (50, 2)).astype(float)
    (pair,) = measure_agreement(["people", "judge"], grades, seed=9).pairs
    assert kappa_interval(grades[:, 0], grades[:, 1], seed=9) == pair.kappa
