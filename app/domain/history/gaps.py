"""Where a measure over time is not known, so that no line may be drawn there. Times are microseconds since 1970."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from statistics import median
from typing import Final

from app.domain.catalog.schedules import EPOCH, TICK, Schedule, next_due

_TIMES_USUAL: Final = 2.5
_NEIGHBOURS: Final = 5
"""Points to either side by which it is told how far apart they usually are there: schedules change."""


class Why(StrEnum):
    """Why nothing is known."""

    NOT_MEASURED = "not_measured"
    """Runs ended, but none measured it, or so little that their verdict is unknown."""
    NO_RUNS = "no_runs"
    """No run ended, though some were due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A point of a series: what it covers in time, a single run nothing but the moment it ended."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A stretch without a measurement, between two points or the ends of the period."""

    start: int
    end: int
    why: Why
    runs: tuple[int, ...] = ()
    """Those that ended in it."""


def gaps(
    points: Sequence[Span], silent: Sequence[tuple[int, int]], schedule: Schedule, *, start: int, end: int
) -> list[Gap]:
    """Find the gaps between points in order of time, and around them; `silent` runs, (time, id) in order, made none.

    Without a silent run there is a gap where nothing came by the second instant that was due, as for the rule
    `no_data`, and points are usually closer to each other thereabouts. Before the first point only silent runs count.
    """
    moments = [at for at, _ in silent]
    edges = [
        (before.end, after.start)
        for before, after in zip(
            [Span(start=start, end=start), *points], [*points, Span(start=end, end=end)], strict=True
        )
    ]
    result: list[Gap] = []
    for place, (left, right) in enumerate(edges):
        inside = silent[bisect_left(moments, left) : bisect_right(moments, right)]
        if inside:
            runs = tuple(run for _, run in inside)
            result.append(Gap(start=left, end=right, why=Why.NOT_MEASURED, runs=runs))
        elif place > 0 and right - left > _TIMES_USUAL * _usual(edges, place) and _overdue(schedule, left, right):
            result.append(Gap(start=left, end=right, why=Why.NO_RUNS))
    return result


def _usual(edges: Sequence[tuple[int, int]], place: int) -> float:
    """Give how far apart the points around an edge usually are, the ends of the period left out."""
    near = [
        *edges[max(1, place - _NEIGHBOURS) : place],
        *edges[place + 1 : min(place + 1 + _NEIGHBOURS, len(edges) - 1)],
    ]
    return median(right - left for left, right in near) if near else 0.0


def _overdue(schedule: Schedule, left: int, right: int) -> bool:
    after = EPOCH + timedelta(microseconds=left)
    return (next_due(schedule, next_due(schedule, after)) - EPOCH) // TICK < right
