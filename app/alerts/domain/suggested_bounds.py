"""Suggested bounds: how low a measure may fall, by what a check had while all was well."""

import math
from typing import Final

ROOM: Final = 0.02
"""Between the lowest usual value and the bound: what is usual is never bad."""
_DECIMALS: Final = 3


def suggested_bound(usual_low: float) -> float | None:
    """Bound below which a value is bad, to three decimals, rounded down; None where no value could be below it.

    `usual_low`: the 1 % quantile of the baseline's runs, 0 to 1.
    """
    scale = 10**_DECIMALS
    bound = math.floor(round((usual_low - ROOM) * scale, 6)) / scale
    return bound if bound > 0 else None
