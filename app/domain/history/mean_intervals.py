"""Intervals of the means of a run: how far each mean may be off, had other canaries of the kind been asked."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.comparison.significance import mean_interval
from app.domain.history.report_views import MeanIntervalView
from app.domain.history.run_views import ResultView
from app.domain.model import Outcome
from app.domain.runs.measures import mean_name, parse_measure

Floats = NDArray[np.float64]

_DIGITS: Final = 6


def mean_intervals(results: Sequence[ResultView]) -> dict[str, MeanIntervalView]:
    """Return the 95 % intervals of means over canaries by the names of means, coverage and health score included.

    Bootstrap over the canaries that have the measure. Measures without an interval have no entry: those of fewer than
    ten canaries, and those in which all score the same.
    """
    found: dict[str, MeanIntervalView] = {}
    cache: dict[bytes, tuple[float, float] | None] = {}  # where each canary expects one chunk, many measures are equal
    for name, column in _columns(results).items():
        scores = column[~np.isnan(column)]
        pattern = scores.tobytes()
        if pattern not in cache:
            cache[pattern] = mean_interval(scores)
        interval = cache[pattern]
        if interval is not None:
            low, high = (round(end, _DIGITS) for end in interval)
            found[name] = {"canaries": len(scores), "low": low, "high": high}
    return found


def _columns(results: Sequence[ResultView]) -> dict[str, Floats]:
    """Return the scores of measured canaries that expect something, by the names of means."""
    measured = [one for one in results if one["outcome"] == Outcome.OK and any(_defined(one))]
    names = dict.fromkeys(name for one in measured for name in one["measures"])
    columns = {
        mean_name(parse_measure(name)): np.array([one["measures"].get(name) for one in measured], dtype=np.float64)
        for name in names
    }
    columns["coverage"] = np.array([one["any_match"] for one in measured], dtype=np.float64)
    columns["health_score"] = np.array([one["top_score"] for one in measured], dtype=np.float64)
    return columns


def _defined(result: ResultView) -> list[bool]:
    return [value is not None for value in result["measures"].values()]
