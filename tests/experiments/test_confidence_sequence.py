"""The interval of experiments, the check of shares and the power: by hand, by scipy, and at many looks."""

import math

import numpy as np
import pytest
from scipy import special, stats

from app.experiments.domain.experiments import (
    ALPHA,
    RHO_SQUARED,
    ArmCounts,
    detectable_difference,
    estimate_difference,
    is_mismatch,
    log_mismatch_evidence,
    power_by,
    radius,
    units_needed,
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


def share_shown(units: int, difference: float, *, rate: float, share: float) -> float:
    """Share of simulated experiments in which a look at so many units or fewer shows a difference, by the rule."""
    experiments, looks, random = 4_000, 250, np.random.default_rng(5)
    steps = np.diff(np.linspace(0, units, looks + 1).astype(int))
    second = random.binomial(steps, share, (experiments, looks))
    arms = [
        (number.cumsum(axis=1), random.binomial(number, of_arm).cumsum(axis=1))
        for number, of_arm in ((steps - second, rate), (second, rate + difference))
    ]
    enough = np.minimum.reduce([np.minimum(good, number - good) for number, good in arms]) >= 30
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = [good / number for number, good in arms]
        n = arms[0][0] + arms[1][0]
        parts = [one * (1 - one) / (number - 1) for one, (number, _) in zip(rates, arms, strict=True)]
        scaled = n * RHO_SQUARED
        side = np.sqrt(sum(parts) * 2 * (scaled + 1) / scaled * np.log(np.sqrt(scaled + 1) / ALPHA))
        found = (rates[1] - rates[0] > side) & enough
    a, b = [ArmCounts(units=int(number[0, -1]), successes=int(good[0, -1])) for number, good in arms]
    last = estimate_difference(a, b)
    assert last is not None
    assert last.high - last.value == pytest.approx(side[0, -1])
    return float(found.any(axis=1).mean())


@pytest.mark.parametrize(
    ("rate", "share", "difference"),
    [(0.5, 0.5, 0.05), (0.5, 0.05, 0.05), (0.5, 0.5, 0.02), (0.6, 0.2, 0.1), (0.1, 0.5, 0.02)],
)
def test_a_difference_shows_by_the_units_that_are_told_with_the_power_that_is_told(
    rate: float, share: float, difference: float
) -> None:
    units = units_needed(difference, rate=rate + difference / 2, share=share)
    assert share_shown(units, difference, rate=rate, share=share) == pytest.approx(0.8, abs=0.02)
    assert power_by(units, difference, rate=rate + difference / 2, share=share) == pytest.approx(0.8, abs=1e-3)


def test_the_detectable_difference_has_the_power_it_is_asked_for() -> None:
    least = detectable_difference(rate=0.5, share=0.05, units=20_000)
    assert least == pytest.approx(0.0596, abs=5e-4)
    assert share_shown(20_000, least, rate=0.5, share=0.05) == pytest.approx(0.8, abs=0.02)
    assert units_needed(least, rate=0.5, share=0.05) == pytest.approx(20_000, abs=1)


@pytest.mark.parametrize("units", [100, 10_000, 1_000_000, 100_000_000])
def test_the_power_grows_with_the_difference_however_many_units(units: int) -> None:
    found = [power_by(units, step / 1_000, rate=0.5, share=0.5) for step in range(1, 1_000)]
    assert all(0 <= one <= 1 for one in found)
    assert np.diff(found).min() >= -1e-12, "but for rounding"
