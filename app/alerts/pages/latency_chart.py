"""The latency of runs around an alert as numbers for SVG: a curve, the bounds of its rule, and its first bad run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.alerts.service.latency_curve import LatencyCurve, RunLatency
from app.base.number_text import LATENCY_NAMES, seconds_text

WIDTH: Final = 640
HEIGHT: Final = 220
_MARGIN: Final = 1.1
"""How much higher the field is than what it has to show."""
_FEWEST: Final = 2
"""Measured runs that make a curve."""
_DOT: Final = 0.1
"""Width of a run between two that were not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A line across the field."""

    name: str
    """Word of it: `warning`, `critical`, `baseline`."""
    seconds: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyChart:
    """The drawing in its own units, with the same in words for those who do not see it."""

    lines: Sequence[str]
    """Points of the parts of the curve: it is broken where a run was not measured or runs are left out."""
    levels: Sequence[Level]
    began: float | None
    """Where the first bad run is."""
    top: str
    """Latency at the top of the field."""
    first: str
    """Times of the first and the last run."""
    last: str
    label: str


def draw_latency(curve: LatencyCurve) -> LatencyChart | None:
    """Draw the runs of a curve; None where fewer than two were measured."""
    measured = [one.seconds for one in curve.runs if one.seconds is not None]
    moments = [datetime.fromisoformat(one.at).timestamp() for one in curve.runs]
    if len(measured) < _FEWEST or moments[-1] <= moments[0]:
        return None
    known = [(str(severity), seconds) for severity, seconds in curve.bounds]
    known += [("baseline", curve.baseline)] if curve.baseline is not None else []
    reach = _MARGIN * max(*measured, *(seconds for _, seconds in known)) or 1.0
    places = [round(WIDTH * (moment - moments[0]) / (moments[-1] - moments[0]), 1) for moment in moments]

    def upwards(seconds: float) -> float:
        return round(HEIGHT * (1 - seconds / reach), 1)

    points = [
        None if one.seconds is None else (place, upwards(one.seconds))
        for place, one in zip(places, curve.runs, strict=True)
    ]
    began = [place for place, one in zip(places, curve.runs, strict=True) if one.run_id == curve.first_run]
    name = LATENCY_NAMES[curve.percentile]
    told = ", ".join(f"{word} {seconds_text(seconds)}" for word, seconds in known)
    label = (
        f"{name.capitalize()} of {len(measured)} runs: {seconds_text(min(measured))} to {seconds_text(max(measured))}, "
        f"in the last one {seconds_text(measured[-1])}{f'; {told}' if told else ''}"
    )
    return LatencyChart(
        lines=_parts(points, curve.runs),
        levels=[Level(name=word, seconds=seconds, height=upwards(seconds)) for word, seconds in known],
        began=began[0] if began else None,
        top=seconds_text(reach),
        first=curve.runs[0].at,
        last=curve.runs[-1].at,
        label=label,
    )


def _parts(points: Sequence[tuple[float, float] | None], runs: Sequence[RunLatency]) -> list[str]:
    parts: list[list[tuple[float, float]]] = [[]]
    for point, run in zip(points, runs, strict=True):
        if point is None or run.after_others:
            parts.append([])
        if point is not None:
            parts[-1].append(point)
    # One point is no line: it is drawn as a short one.
    dots = [part if len(part) > 1 else [*part, (part[0][0] + _DOT, part[0][1])] for part in parts if part]
    return [" ".join(f"{x:g},{y:g}" for x, y in part) for part in dots]
