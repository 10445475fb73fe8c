"""Slow drift: whether a check declines too slowly for moving baselines to notice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.diagnosis.quality.domain.evidence import Mark, Section, unknown

NAME: Final = "slow_drift"
DAYS: Final = 30
FEWEST_DAYS: Final = 5
DECLINE: Final = 0.02
"""Least significant decline over the evaluated days, by the slope, that is reported."""
_NINETY_PERCENT = 1.645
_AGO = (7, 30)
_NEAR = 1.5
"""Days: largest distance of a value from its nominal day."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The slope of daily means, with its 90 % interval."""

    slope: float
    """By day."""
    low: float
    high: float


def slow_drift(series: Mapping[str, Sequence[tuple[float, float]]], *, changed: str | None = None) -> Section:
    """Section on daily means of measures by name, as (day, mean) in order of days; the last day is now.

    Reported is a measure whose slope amounts to a decline of 0.02 and more over the days there are and is below
    zero within 90 %. Fewer than five days of a measure are no trend. `changed`: a clause on what makes the days
    incomparable: then a decline may be none of the retriever's.
    """
    numbers: dict[str, float | int | None] = {}
    declines: list[str] = []
    changes: list[str] = []
    for name, points in series.items():
        days, means = (
            (np.array(column, dtype=np.float64) for column in zip(*points, strict=True)) if points else (_NONE, _NONE)
        )
        numbers |= _numbers(name, days, means)
        if len(days) < FEWEST_DAYS:
            continue
        slope = theil_sen(days, means)
        span = float(days[-1] - days[0])
        numbers |= {
            f"{name} slope per day": slope.slope,
            f"{name} slope low": slope.low,
            f"{name} slope high": slope.high,
        }
        changes.append(f"{name} moved by {slope.slope * span:+.3f} in {span:.0f} days")
        if slope.slope * span <= -DECLINE and slope.high < 0:
            declines.append(name)
    if not changes:
        return unknown(NAME, f"there are fewer than {FEWEST_DAYS} days to see a trend in", **numbers)
    suffix = f"; but {changed}" if changed else ""
    return Section(
        name=NAME,
        mark=Mark.REVIEW if declines else Mark.GOOD,
        reason=f"{', '.join(changes)}, by the slope of daily means{suffix}",
        numbers=numbers,
        advice=f"Compare with a pinned baseline: a moving one learns a decline of {' and '.join(declines)} as normal."
        if declines
        else None,
    )


def theil_sen(days: Floats, means: Floats) -> Trend:
    """Fit the median of all pairwise slopes (Theil 1950, Sen 1968), with Sen's interval of 90 % about it.

    `days` are distinct and at least two. One wild day in four moves it little.
    """
    one, other = np.triu_indices(len(days), 1)
    slopes = np.sort((means[other] - means[one]) / (days[other] - days[one]))
    n, pairs = len(days), len(slopes)
    reach = _NINETY_PERCENT * float(np.sqrt(n * (n - 1) * (2 * n + 5) / 18))
    low = max(0, int(np.floor((pairs - reach) / 2)) - 1)
    high = min(pairs - 1, int(np.ceil((pairs + reach) / 2)))
    return Trend(slope=float(np.median(slopes)), low=float(slopes[low]), high=float(slopes[high]))


def _numbers(name: str, days: Floats, means: Floats) -> dict[str, float | int | None]:
    numbers: dict[str, float | int | None] = {
        f"{name} days": len(days),
        f"{name} now": float(means[-1]) if len(days) else None,
    }
    for ago in _AGO:
        value = None
        if len(days):
            near = int(np.abs(days - (days[-1] - ago)).argmin())
            value = float(means[near]) if abs(days[near] - (days[-1] - ago)) <= _NEAR else None
        numbers[f"{name} {ago} days ago"] = value
    return numbers


_NONE: Final = np.zeros(0)
