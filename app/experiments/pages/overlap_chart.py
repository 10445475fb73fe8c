"""The overlap of a shadow over time as numbers for SVG: a line of hourly means between 0 and 1."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.experiments.domain.views import ShadowHour
from app.experiments.pages.interval_chart import HEIGHT, WIDTH

_FEWEST = 2
"""Hours that make a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapChart:
    """The drawing in its own units, with the same in words for those who do not see it."""

    line: str
    """Points of the line."""
    first: str
    """Times of the first and the last hour."""
    last: str
    label: str


def draw_overlap(hours: Sequence[ShadowHour]) -> OverlapChart | None:
    """Draw the hours in which the candidate answered; None where there are fewer than two."""
    known = [(one["at"], overlap) for one in hours if (overlap := one["rbo"]) is not None]
    if len(known) < _FEWEST:
        return None
    moments = [datetime.fromisoformat(at).timestamp() for at, _ in known]
    begin, span = moments[0], moments[-1] - moments[0]
    points = [
        f"{WIDTH * (moment - begin) / span:.1f},{HEIGHT * (1 - overlap):.1f}"
        for moment, (_, overlap) in zip(moments, known, strict=True)
    ]
    overlaps = [overlap for _, overlap in known]
    label = (
        f"Rank-biased overlap over {len(known)} hours: {min(overlaps):.3f} to {max(overlaps):.3f}, "
        f"in the last one {overlaps[-1]:.3f}"
    )
    return OverlapChart(line=" ".join(points), first=known[0][0], last=known[-1][0], label=label)
