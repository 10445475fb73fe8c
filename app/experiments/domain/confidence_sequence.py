"""Confidence sequence of the difference of two rates: an interval that holds at every look, however often one looks.

A test for one look finds false winners in about two of five experiments when it is repeated as units come in. The
radius here is that of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and
asymptotic confidence sequences" (Annals of Statistics 2024), theorem 2.2 and, for rho, appendix B.2.
"""

import math
from dataclasses import dataclass
from typing import Final

ALPHA: Final = 0.05
OPTIMISED_FOR: Final = 5_000
"""Number of units at which the interval is narrowest."""
FEWEST_OF_A_KIND: Final = 30
"""Successes and failures that each arm needs before the interval is looked at: it holds asymptotically only. Without
this, at a rate of .05 and a share of .05, experiments without a difference found a winner in .15."""
RHO_SQUARED: Final = (-2 * math.log(ALPHA) + math.log(1 - 2 * math.log(ALPHA))) / OPTIMISED_FOR


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCounts:
    """Units of an arm whose outcome is final, and how many of them are a success."""

    units: int
    successes: int

    @property
    def rate(self) -> float:
        """Share of successes. Raises ZeroDivisionError without units."""
        return self.successes / self.units

    @property
    def variance(self) -> float:
        """Sample variance of the outcomes; needs two units."""
        return self.rate * (1 - self.rate) * self.units / (self.units - 1)

    @property
    def enough(self) -> bool:
        """Whether there are enough successes and enough failures for the interval to hold."""
        return min(self.successes, self.units - self.successes) >= FEWEST_OF_A_KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class RateDifference:
    """Rate of B less that of A, with the interval of the confidence sequence at this number of units."""

    value: float
    low: float
    high: float


def radius(variance: float, n: int) -> float:
    """Half the width of the interval of a mean over n units, given the variance of one of them.

    sqrt(V * 2(n rho^2 + 1) / (n^2 rho^2) * ln(sqrt(n rho^2 + 1) / alpha)).
    """
    scaled = n * RHO_SQUARED
    return math.sqrt(variance * 2 * (scaled + 1) / (n * scaled) * math.log(math.sqrt(scaled + 1) / ALPHA))


def estimate_difference(a: ArmCounts, b: ArmCounts) -> RateDifference | None:
    """Difference of the rates with its interval; None until each arm has enough successes and failures.

    With n = n_A + n_B units the variance is n (s_A^2 / n_A + s_B^2 / n_B).
    """
    if not (a.enough and b.enough):
        return None
    n = a.units + b.units
    side = radius(n * (a.variance / a.units + b.variance / b.units), n)
    value = b.rate - a.rate
    return RateDifference(value=value, low=value - side, high=value + side)
