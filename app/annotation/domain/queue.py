"""Queue of an annotator: in which order canaries and items come, and how long what is left will take.

The order is random per annotator, so that tiredness and the order of ranks fall on other items for each, and decided by
hashes, so that it is the same after a reload or in another process.
"""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final, TypeVar

from app.annotation.domain.consensus import hash_share

LONGEST_SECONDS: Final = 300.0
"""An annotation that took longer was interrupted; it counts as this long."""
PACE_OF: Final = 200
"""Number of newest annotations that the pace is the median of."""

KeyT = TypeVar("KeyT")


def next_of(keys: Iterable[KeyT], *, seed: int, annotator: str) -> KeyT | None:
    """First of these in the order of an annotator; None = there is none."""
    return min(keys, key=lambda key: hash_share(f"order:{seed}:{annotator}:{key}"), default=None)


def pace(seconds: Sequence[float]) -> float | None:
    """Median seconds of an annotation; None = none was timed."""
    return float(median(min(one, LONGEST_SECONDS) for one in seconds)) if seconds else None


def grade_limit(scale: str) -> int:
    """Highest grade of a scale such as `0-2`."""
    return int(scale.partition("-")[2])
