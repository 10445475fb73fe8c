"""Sample-ratio mismatch: whether the arms get the shares of units that they should.

Where they do not, units of one arm are lost on their way (a crash, a redirect, a bot filter), those that remain differ
from those of the other arm, and no difference between the arms can be believed.
"""

import math
from typing import Final

CONCENTRATION: Final = 100.0
"""How close to the agreed share the alternative expects the true one: the weight of its Beta prior, in units."""
ALARM: Final = 1_000.0
"""Evidence that raises an alarm. By Ville's inequality it is ever reached under true shares with probability .001."""


def log_mismatch_evidence(first: int, n: int, share: float) -> float:
    """Logarithm of the evidence that the first arm does not get its share: with `first` of n units, `share` agreed.

    E = B(cw + k, c(1 - w) + n - k) / B(cw, c(1 - w)) / (w^k (1 - w)^(n - k)): a Beta mixture against the share w, valid
    at every look. Lindon and Malek, "Anytime-valid inference for multinomial count data" (NeurIPS 2022). Raises
    ValueError unless 0 < share < 1 and 0 <= first <= n.
    """
    if not (0 < share < 1 and 0 <= first <= n):
        raise ValueError(f"{first} of {n} units at a share of {share} cannot be")
    a, b = CONCENTRATION * share, CONCENTRATION * (1 - share)
    likelihood = first * math.log(share) + (n - first) * math.log1p(-share)
    return _log_beta(a + first, b + n - first) - _log_beta(a, b) - likelihood


def is_mismatch(first: int, n: int, share: float) -> bool:
    """Whether the evidence raises an alarm."""
    return log_mismatch_evidence(first, n, share) >= math.log(ALARM)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
