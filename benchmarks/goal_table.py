"""The table of `make bench`: figures beside their goals, ratios of rounds taken in turn, and the machine.

Nothing here measures anything.
"""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

HEAD: Final = ("figure", "goal", "measured: median (least to most, rounds)", "", "peer and absolute figures", "load")


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the median of a figure."""

    bound: float
    unit: str
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        """Whether a value keeps to the bound."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g} {self.unit}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table before it is measured."""

    key: str
    text: str
    goal: Goal


@dataclass(frozen=True, slots=True)
class Measured:
    """What a figure came to: a value for each round; none where it could not be measured, and `beside` says why."""

    values: Sequence[float]
    beside: str = ""
    """The peer's and our absolute figures, or why there are none."""
    load: float | None = None
    """The machine's load over the minute before."""


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ratio of ours to theirs for each round; raises ValueError unless both took part in every round."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def shown_number(value: float) -> str:
    """Three digits, as people read them: 0.0214, 1.57, 34.2, 1,390."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def shown_rate(rates: Sequence[float]) -> str:
    """Median of several rates per second."""
    return f"{median(rates):,.0f}/s"


def shown_values(values: Sequence[float], unit: str) -> str:
    """Median with its unit and, of several rounds, the least and the most."""
    middle = f"{shown_number(median(values))} {unit}"
    if len(values) == 1:
        return f"{middle} (1)"
    return f"{middle} ({shown_number(min(values))} to {shown_number(max(values))}, {len(values)})"


def table(figures: Sequence[Figure], measured: Mapping[str, Measured]) -> str:
    """All figures as a Markdown table; what was not measured has a row that says so."""
    rows = [HEAD, *(_row(figure, measured.get(figure.key)) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _row(figure: Figure, found: Measured | None) -> tuple[str, str, str, str, str, str]:
    found = found or Measured((), "no time left")
    load = "" if found.load is None else f"{found.load:.1f}"
    if not found.values:
        return figure.text, str(figure.goal), "not measured", "", found.beside, load
    verdict = "met" if figure.goal.is_met(median(found.values)) else "MISSED"
    return figure.text, str(figure.goal), shown_values(found.values, figure.goal.unit), verdict, found.beside, load


def machine() -> str:
    """Processor, cores, system and Python of this machine."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text("utf-8").splitlines() if information.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    cores = f"{os.cpu_count()} cores"
    return f"{cores} of {model or platform.machine()}, {platform.system()}, Python {platform.python_version()}"
