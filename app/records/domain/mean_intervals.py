"""Intervals of the means of a run: how far each mean may be off, had other canaries of the kind been asked."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.values import Outcome
from app.comparison.domain.significance import mean_interval
from app.records.domain.run_views import ResultView
from app.reports.domain import MeanIntervalView
from app.scoring.measures import mean_name, parse_measure

Floats = NDArray[np.float64]

_DIGITS: Final = 6
_OWN: Final = 2
"""Columns before those of measures: coverage and health score."""


class ScoreColumns:
    """The scores of measured canaries that expect something, added block by block, as columns by the names of means."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.categories: dict[str, None] = {}
        """The categories of all canaries, in the order they came."""
        self._names: dict[str, None] = {}
        """The measures, in the order they came."""
        self._blocks: list[tuple[list[str], Floats]] = []
        """Categories and rows of each block: coverage, health score, and the measures that had come by then."""

    def add(self, results: Sequence[ResultView]) -> None:
        """Add the results of some canaries."""
        measured = [one for one in results if one["outcome"] == Outcome.OK and any(_defined(one))]
        self.categories.update(dict.fromkeys(one["category"] for one in results))
        for one in measured:
            self._names.update(dict.fromkeys(one["measures"]))
        rows = [[one["any_match"], one["top_score"], *map(one["measures"].get, self._names)] for one in measured]
        if rows:
            self._blocks.append(([one["category"] for one in measured], np.array(rows, dtype=np.float64)))

    def intervals(self, category: str | None = None) -> dict[str, MeanIntervalView]:
        """Return the 95 % intervals of means over canaries by the names of means, coverage and health score included.

        Bootstrap over the canaries that have the measure, of one category or all. Measures without an interval have no
        entry: those of fewer than ten canaries, and those in which all score the same.
        """
        found: dict[str, MeanIntervalView] = {}
        cache: dict[bytes, tuple[float, float] | None] = {}  # where each expects one chunk, many measures are equal
        for name, column in self._columns(category):
            scores = column[~np.isnan(column)]
            pattern = blake2b(scores.tobytes()).digest()
            if pattern not in cache:
                cache[pattern] = mean_interval(scores)
            interval = cache[pattern]
            if interval is not None:
                low, high = (round(end, _DIGITS) for end in interval)
                found[name] = {"canaries": len(scores), "low": low, "high": high}
        return found

    def _columns(self, category: str | None) -> Iterator[tuple[str, Floats]]:
        rows = [
            block if category is None else block[[one == category for one in categories]]
            for categories, block in self._blocks
        ]
        for place, name in enumerate(self._names, _OWN):
            yield mean_name(parse_measure(name)), _column(rows, place)
        yield "coverage", _column(rows, 0)
        yield "health_score", _column(rows, 1)


def _column(rows: Sequence[Floats], place: int) -> Floats:
    """Return a column of blocks of rows, of which the first may be narrower."""
    parts = [block[:, place] if place < block.shape[1] else np.full(len(block), np.nan) for block in rows]
    return np.concatenate(parts) if parts else np.empty(0)


def _defined(result: ResultView) -> list[bool]:
    return [value is not None for value in result["measures"].values()]
