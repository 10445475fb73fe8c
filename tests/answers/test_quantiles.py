"""Quantiles of the beta and of Student's distribution, held against SciPy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from app.base.statistics import beta_cdf, clopper_pearson, student_quantile


@given(st.integers(1, 100_000), st.floats(0, 1))
def test_exact_limits_are_those_of_scipy(count: int, share: float) -> None:
    successes = round(share * count)
    found, expected = clopper_pearson(successes, count), stats.binomtest(successes, count).proportion_ci(0.95, "exact")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-12)
    assert found.value == successes / count


def test_without_a_case_everything_is_possible() -> None:
    nothing = clopper_pearson(0, 0)
    assert (nothing.value, nothing.low, nothing.high) == (None, 0, 1)


@given(st.floats(0.0001, 0.9999), st.floats(1, 1e6))
def test_quantiles_of_student_are_those_of_scipy(probability: float, freedom: float) -> None:
    expected = stats.t.ppf(probability, freedom)
    assert student_quantile(probability, freedom) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.floats(0, 1), st.floats(0.1, 5_000), st.floats(0.1, 5_000))
def test_the_beta_distribution_is_that_of_scipy(x: float, a: float, b: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), abs=1e-9)


def test_impossible_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        clopper_pearson(3, 2)
    with pytest.raises(ValueError, match="no quantile"):
        student_quantile(1.0, 5)
    with pytest.raises(ValueError, match="above 0"):
        beta_cdf(0.5, 0, 1)
