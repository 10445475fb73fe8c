"""Charts of the quality page as numbers for SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.diagnosis.domain.views import QualitySection

WIDTH: Final = 600
HEIGHT: Final = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of a histogram, in the units of the drawing."""

    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Distribution of the scores of two kinds of hits, each as shares of its kind."""

    bars: Sequence[Bar]
    least: float
    most: float
    label: str
    """The same in words, for screen readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depths:
    """Share of canaries that found what they expect by depth, for all and for each category."""

    depths: Sequence[str]
    rows: Sequence[tuple[str, int, Sequence[float]]]
    """Name, number of canaries, and the shares."""


def histogram(section: QualitySection) -> Histogram | None:
    """Histogram of the scores of relevant hits and of all others; None where there are none."""
    found = section.get("histogram")
    if found is None:
        return None
    edges, kinds = found["edges"], list(found["counts"])
    step = WIDTH / (len(edges) - 1)
    shares = {kind: [count / (sum(counts) or 1) for count in counts] for kind, counts in found["counts"].items()}
    most = max(max(values) for values in shares.values()) or 1.0
    bars = [
        Bar(
            kind=kind,
            x=round(place * step + which * step * 0.42 + step * 0.08, 2),
            y=round(HEIGHT * (1 - share / most), 2),
            width=round(step * 0.42, 2),
            height=round(HEIGHT * share / most, 2),
        )
        for which, kind in enumerate(kinds)
        for place, share in enumerate(shares[kind])
        if share
    ]
    numbers = section["numbers"]
    label = (
        f"Scores from {edges[0]:.3g} to {edges[-1]:.3g}: relevant hits have a median of "
        f"{numbers['relevant_median']:.3g}, all others of {numbers['other_median']:.3g}"
    )
    return Histogram(bars=bars, least=edges[0] or 0.0, most=edges[-1] or 0.0, label=label)


def depths(section: QualitySection) -> Depths | None:
    """Shares of canaries that found what they expect, by depth; None where nothing was expected."""
    names = [name for name in section["numbers"] if name.startswith("found@")]
    if not names:
        return None
    rows = [("all canaries", section["numbers"])]
    rows += [(name, numbers) for name, numbers in section["groups"].items()] if len(section["groups"]) > 1 else []
    return Depths(
        depths=[name.partition("@")[2] for name in names],
        rows=[
            (name, int(numbers["canaries"] or 0), [numbers[depth] or 0.0 for depth in names]) for name, numbers in rows
        ],
    )
