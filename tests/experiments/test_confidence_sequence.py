"""The interval of experiments, the check of shares and the power: by hand, by scipy, and at many looks."""

import math

import numpy as np
import pytest
from scipy import special, stats

from app.experiments.domain.experiments import (
    RHO_SQUARED,
    ArmCounts,
    detectable_difference,
    estimate_difference,
    is_mismatch,
    log_mismatch_evidence,
    radius,
)


def arm(units: int, successes: int) -> ArmCounts:
    return ArmCounts(units=units, successes=successes)


def test_rho_and_radius_are_those_of_the_paper() -> None:
    assert pytest.approx((5.991465 + math.log(6.991465)) / 5_000, rel=1e-6) == RHO_SQUARED
    rho = 0.001587166  # (5.991465 + 1.944690) / 5,000, by hand
    n, variance = 5_000, 0.96
    by_hand = math.sqrt(variance * 2 * (n * rho + 1) / (n**2 * rho) * math.log(math.sqrt(n * rho + 1) / 0.05))
    assert radius(variance, n) == pytest.approx(by_hand, rel=1e-5)
    assert radius(variance, n) == pytest.approx(0.04206, abs=5e-6)


def test_the_difference_of_two_rates_has_the_variance_of_both_arms() -> None:
    found = estimate_difference(arm(1_000, 600), arm(500, 325))
    assert found is not None
    variance = 1_500 * (np.var([1] * 600 + [0] * 400, ddof=1) / 1_000 + np.var([1] * 325 + [0] * 175, ddof=1) / 500)
    assert found.value == pytest.approx(0.05)
    assert found.high - found.value == pytest.approx(radius(float(variance), 1_500))
    assert found.value - found.low == pytest.approx(found.high - found.value)


@pytest.mark.parametrize(("units", "successes"), [(59, 29), (59, 30), (1_000, 29), (1_000, 971), (0, 0)])
def test_an_arm_with_fewer_than_30_of_a_kind_gives_no_interval(units: int, successes: int) -> None:
    assert estimate_difference(arm(units, successes), arm(1_000, 500)) is None
    assert estimate_difference(arm(1_000, 500), arm(units, successes)) is None
    assert estimate_difference(arm(60, 30), arm(1_000, 500)) is not None


def test_mismatch_evidence_is_the_ratio_of_beta_functions() -> None:
    first, n, share = 55, 120, 0.4
    beta = special.beta(40 + 55, 60 + 65) / special.beta(40, 60) / (0.4**55 * 0.6**65)
    assert math.exp(log_mismatch_evidence(first, n, share)) == pytest.approx(beta)
    mixture = stats.betabinom(n, 40, 60).pmf(first) / stats.binom(n, share).pmf(first)
    assert math.exp(log_mismatch_evidence(first, n, share)) == pytest.approx(mixture)


def test_52_percent_of_20_000_units_are_an_alarm_and_50_5_are_not() -> None:
    assert is_mismatch(10_400, 20_000, 0.5)
    assert not is_mismatch(10_100, 20_000, 0.5)
    assert is_mismatch(1_300, 20_000, 0.05)
    with pytest.raises(ValueError, match="cannot be"):
        log_mismatch_evidence(3, 2, 0.5)


def test_the_detectable_difference_has_the_power_it_is_asked_for() -> None:
    least = detectable_difference(rate=0.5, share=0.05, units=20_000)
    assert least == pytest.approx(0.069, abs=0.005)
    random, shown, looks = np.random.default_rng(5), 0, 4_000
    successes = zip(random.binomial(19_000, 0.5, looks), random.binomial(1_000, 0.5 + least, looks), strict=True)
    for one, other in successes:
        found = estimate_difference(arm(19_000, int(one)), arm(1_000, int(other)))
        assert found is not None
        shown += found.low > 0
    assert shown / looks == pytest.approx(0.8, abs=0.02)
