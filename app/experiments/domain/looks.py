"""Looks at an epoch: its running totals by the time of exposure, added up to what is final at each moment.

A unit is counted once the window since its exposure has passed, whatever came before: successes come earlier than the
zeros of those who do nothing, and counting them at once would make every rate too high while units come in.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from app.experiments.domain.confidence_sequence import ArmCounts
from app.experiments.domain.decision import Look

_SECOND: Final = 1_000_000
_SPANS: Final = ((6 * 3_600, 3_600), (1_800, 300), (0, 60))
"""(window from which on, span of time that is counted together), in seconds."""

Total = tuple[int, int, int, int]
"""(begin of the span, arm, units, successes)."""


def bucket_us(window: int) -> int:
    """Length of the spans of time that units are counted in, in microseconds, for a window in microseconds."""
    return next(span * _SECOND for least, span in _SPANS if window >= least * _SECOND)


def bucket_of(at: int, length: int) -> int:
    """Begin of the span that a moment lies in."""
    return at - at % length


def make_looks(totals: Iterable[Total], *, window: int, now: int) -> list[Look]:
    """Return a look for every span whose units are final by now, in the order of time, each with all before it."""
    length = bucket_us(window)
    units, successes = [0, 0], [0, 0]
    looks: list[Look] = []
    for bucket, arm, number, good in sorted(totals):
        end = bucket + length
        if end + window > now:
            break
        units[arm] += number
        successes[arm] += good
        if looks and looks[-1].at == end:
            looks.pop()
        counts = [ArmCounts(units=units[place], successes=successes[place]) for place in (0, 1)]
        looks.append(Look(at=end, counts=(counts[0], counts[1])))
    return looks


def count_exposed(totals: Iterable[Total]) -> tuple[int, int]:
    """Units that were exposed to each arm, whether their outcome is final or not."""
    exposed = [0, 0]
    for _, arm, number, _ in totals:
        exposed[arm] += number
    return exposed[0], exposed[1]


def count_pending(totals: Iterable[Total], *, window: int, now: int) -> tuple[int, int | None]:
    """Units that no look has yet, and when the last of them is final, in microseconds; None = there are none.

    A span of time is final as a whole, once the window since its end has passed.
    """
    final_at = [(bucket + bucket_us(window) + window, number) for bucket, _, number, _ in totals]
    pending = [(at, number) for at, number in final_at if at > now and number]
    return sum(number for _, number in pending), max((at for at, _ in pending), default=None)


def thin_looks(looks: Sequence[Look], most: int) -> list[Look]:
    """Return at most so many looks, evenly spread, the last one always."""
    step = -(-len(looks) // most) if looks else 1
    return list(looks[::-1][::step][::-1])
