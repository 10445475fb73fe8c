"""Statistics that several subjects draw intervals by: their confidence, exact limits of a share, quantiles behind both.

The hash by which several subjects draw items, order them and share units out stands at the end. Intervals of resampled
scores are in `comparison.domain.estimates`, those of agreement in `annotation.domain`.
"""

import hashlib
import math
from functools import lru_cache
from typing import Final

from app.base.values import Value

CONFIDENCE: Final = 0.95
"""Of every interval that is shown."""
_HALVINGS: Final = 200
_TINY: Final = 1e-300
_PRECISION: Final = 1e-15


class Proportion(Value):
    """Share of `count` cases that are a success, with its 95 % interval; `value` is None where there is no case."""

    successes: int
    count: int
    value: float | None
    low: float
    high: float


@lru_cache(maxsize=1_024)
def clopper_pearson(successes: int, count: int) -> Proportion:
    """Proportion with the exact interval of Clopper and Pearson (Biometrika 1934): it covers in at least 95 %.

    Without a case it is [0, 1]. Raises ValueError unless 0 <= successes <= count.
    """
    if not 0 <= successes <= count:
        raise ValueError(f"{successes} successes of {count} cannot be")
    low, high = exact_limits(successes, count)
    value = successes / count if count else None
    return Proportion(successes=successes, count=count, value=value, low=low, high=high)


def exact_limits(successes: float, count: float) -> tuple[float, float]:
    """Limits of Clopper and Pearson of a proportion, also of an effective number of cases that is not whole.

    For samples drawn by stratum such numbers stand in for the counts: Korn and Graubard, "Confidence intervals for
    proportions with small expected number of positive counts estimated from survey data" (Survey Methodology 1998).
    """
    tail, failures = (1 - CONFIDENCE) / 2, count - successes
    low = beta_quantile(tail, successes, failures + 1) if successes > 0 else 0.0
    high = beta_quantile(1 - tail, successes + 1, failures) if failures > 0 else 1.0
    return low, high


def interval_of_difference(a: tuple[float, float, float], b: tuple[float, float, float]) -> tuple[float, float, float]:
    """Difference b - a of two independent estimates, each (value, low, high), with its interval from theirs.

    The method of variance estimates recovery: Zou and Donner, "Construction of confidence limits about effect measures:
    A general approach" (Statistics in Medicine 2008), equation 3.
    """
    difference = b[0] - a[0]
    down = math.hypot(b[0] - b[1], a[2] - a[0])
    up = math.hypot(b[2] - b[0], a[0] - a[1])
    return difference, difference - down, difference + up


@lru_cache(maxsize=1_024)
def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t with that many degrees of freedom, at a probability in (0, 1).

    Raises ValueError for other probabilities and for degrees of freedom that are not above 0.
    """
    if not 0 < probability < 1 or freedom <= 0:
        raise ValueError(f"Student's t has no quantile {probability} at {freedom} degrees of freedom")
    inner = abs(2 * probability - 1)  # of |t|, whose square over itself plus freedom is a beta variable
    share = beta_quantile(inner, 0.5, freedom / 2)
    return math.copysign(math.sqrt(freedom * share / (1 - share)), probability - 0.5)


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Quantile of the beta distribution with parameters a and b above 0, at a probability in [0, 1], by bisection."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if beta_cdf(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function: the probability that a beta variable is at most x, for x in [0, 1].

    Raises ValueError for parameters that are not above 0.
    """
    if a <= 0 or b <= 0:
        raise ValueError(f"a beta distribution has parameters above 0, not {a} and {b}")
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):  # where the fraction converges quickly; beyond it by symmetry
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Continued fraction of the incomplete beta function, by Lentz's method as Thompson and Barnett changed it."""
    c, d = 1.0, 1 / _apart_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 100 + 10 * math.isqrt(int(a + b))):  # it needs about the root of the larger parameter
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _apart_from_zero(1 + step * d)
            c = _apart_from_zero(1 + step / c)
            change = c * d
            value *= change
        if abs(change - 1) < _PRECISION:
            break
    return value


def _apart_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def hash_share(text: str) -> float:
    """Return a number in [0, 1), always the same for one text and spread evenly over texts."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:_HEX_DIGITS], 16) / _RANGE


_HEX_DIGITS: Final = 13
"""52 bits: as many as a float holds exactly."""
_RANGE: Final = float(16**_HEX_DIGITS)
