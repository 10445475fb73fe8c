"""The interval of an experiment over time as numbers for SVG: a band with its middle, zero, and delta either way."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.base.number_text import change_text
from app.experiments.domain.views import ExperimentLook, RateDifferenceView

WIDTH: Final = 640
HEIGHT: Final = 220
_MARGIN: Final = 1.15
"""How much higher the field is than what it has to show."""
_WIDEST: Final = 3.0
"""The first intervals may be wider than the last one by so much; what is beyond is cut off."""
_FEWEST: Final = 2
"""Looks that make a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChart:
    """The drawing in its own units, with the same in words for those who do not see it."""

    band: str
    """Points of the polygon between the ends of the intervals."""
    middle: str
    """Points of the line of the difference."""
    zero: float
    delta: tuple[float, float]
    """Heights of delta above and below zero."""
    decided: float | None
    """Where the experiment ended; None = it runs."""
    top: str
    """The difference at the top and, below zero, at the bottom."""
    bottom: str
    first: str
    """Times of the first and the last look."""
    last: str
    label: str


def draw_intervals(looks: Sequence[ExperimentLook], *, delta: float, decided_at: str | None) -> IntervalChart | None:
    """Draw the looks that have an interval; None where there are fewer than two."""
    known = [(one["at"], found) for one in looks if (found := one["difference"]) is not None]
    if len(known) < _FEWEST:
        return None
    moments = [datetime.fromisoformat(at).timestamp() for at, _ in known]
    intervals = [found for _, found in known]
    reach = _reach(intervals, delta)
    begin, end = moments[0], moments[-1]

    def across(moment: float) -> float:
        return round(WIDTH * min(max((moment - begin) / (end - begin), 0.0), 1.0), 1)

    def upwards(value: float) -> float:
        return round(HEIGHT / 2 * (1 - min(max(value / reach, -1.0), 1.0)), 1)

    places = [across(moment) for moment in moments]
    upper = [f"{x},{upwards(one['high'])}" for x, one in zip(places, intervals, strict=True)]
    lower = [f"{x},{upwards(one['low'])}" for x, one in zip(places, intervals, strict=True)]
    newest = intervals[-1]
    return IntervalChart(
        band=" ".join([*upper, *reversed(lower)]),
        middle=" ".join(f"{x},{upwards(one['value'])}" for x, one in zip(places, intervals, strict=True)),
        zero=upwards(0.0),
        delta=(upwards(delta), upwards(-delta)),
        decided=None if decided_at is None else across(datetime.fromisoformat(decided_at).timestamp()),
        top=change_text(reach),
        bottom=change_text(-reach),
        first=known[0][0],
        last=known[-1][0],
        label=(
            f"Difference over {len(known)} looks; at the last one {change_text(newest['value'])}, 95 % interval "
            f"{change_text(newest['low'])} to {change_text(newest['high'])}"
        ),
    )


def _reach(intervals: Sequence[RateDifferenceView], delta: float) -> float:
    """Largest difference that the field shows: all of the last interval, and of earlier ones what is not far off."""
    furthest = max(max(abs(one["low"]), abs(one["high"])) for one in intervals)
    last = max(abs(intervals[-1]["low"]), abs(intervals[-1]["high"]), delta)
    return max(min(furthest, _WIDEST * last), last) * _MARGIN
