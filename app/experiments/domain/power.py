"""Power of an experiment: which differences it can show with the units and shares that it is given."""

import math
from statistics import NormalDist
from typing import Final

from app.experiments.domain.confidence_sequence import radius

_NORMAL: Final = NormalDist()
USUAL_POWER: Final = 0.8


def power_at(difference: float, *, rate: float, share: float, units: int) -> float:
    """Probability that the interval leaves out zero when all units came, for a difference between the arms.

    An experiment may end before, so this is a lower bound. `rate` is that of the arm with 1 - `share`; both rates have
    to lie strictly between 0 and 1.
    """
    side, error = _widths(rate, min(max(rate + difference, _EDGE), 1 - _EDGE), share, units)
    return _NORMAL.cdf((abs(difference) - side) / error)


def detectable_difference(*, rate: float, share: float, units: int, power: float = USUAL_POWER) -> float:
    """Smallest difference that an experiment of so many units shows with this probability, about a rate."""
    side, error = _widths(rate, rate, share, units)
    return side + error * _NORMAL.inv_cdf(power)


def _widths(one: float, other: float, share: float, units: int) -> tuple[float, float]:
    """Half the width of the interval, and the standard error of the difference."""
    variance = one * (1 - one) / (1 - share) + other * (1 - other) / share
    return radius(variance, units), math.sqrt(variance / units)


_EDGE: Final = 1e-6
