"""The scatter chart of a comparison as numbers for SVG: the score of each canary in A across, in B upwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

from app.base.values import ROUNDING

SIZE: Final = 320
_EDGE: Final = 12
"""Between the ends of an axis and the edge, so that no point is cut off."""
_SMALLEST: Final = 3.5
_LARGEST: Final = 13.0
_PLACES: Final = 2
"""Decimals by which canaries share a point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Canaries of about the same two scores, in the units of the drawing."""

    kind: str
    """Who is higher: `a`, `b` or `tie`."""
    x: float
    y: float
    radius: float
    """By area, the number of canaries."""
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """The chart, with the same in words for those who do not see it."""

    points: Sequence[Point]
    label: str
    low: float
    """Where axes begin, in the units of the drawing."""
    high: float


def draw_scatter(measure: str, a: Sequence[float], b: Sequence[float]) -> Scatter:
    """Draw canaries by their two scores of a measure, each in [0, 1]; a canary without either is left out."""
    pairs = [(old, new) for old, new in zip(a, b, strict=True) if old == old and new == new]  # noqa: PLR0124 - NaN
    groups: dict[tuple[str, float, float], int] = {}
    for old, new in pairs:
        place = (_kind(old, new), round(old, _PLACES), round(new, _PLACES))
        groups[place] = groups.get(place, 0) + 1
    most = max(groups.values(), default=1)
    points = [
        Point(
            kind=kind,
            x=_across(old),
            y=SIZE - _across(new),
            radius=round(_SMALLEST + (_LARGEST - _SMALLEST) * sqrt((count - 1) / max(most - 1, 1)), 1),
            title=f"{count:,} {'canary' if count == 1 else 'canaries'}: A {old:.2f}, B {new:.2f}",
        )
        for (kind, old, new), count in sorted(groups.items(), key=lambda one: -one[1])  # small ones above large ones
    ]
    counts = {kind: sum(_kind(*pair) == kind for pair in pairs) for kind in ("a", "b", "tie")}
    label = (
        f"{measure} of each canary in A and in B: {counts['a']} higher in A, {counts['b']} higher in B, "
        f"{counts['tie']} the same"
    )
    return Scatter(points=points, label=label, low=_across(0.0), high=_across(1.0))


def _kind(old: float, new: float) -> str:
    return "tie" if abs(new - old) <= ROUNDING else "b" if new > old else "a"


def _across(score: float) -> float:
    return round(_EDGE + (SIZE - 2 * _EDGE) * score, 1)
