"""Diff of two runs: the change of each canary, and the differences of measures over all of them.

The rows are read by `services.comparison`; whether a difference is significant is computed in `significance`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.comparison.significance import Difference, paired_difference, randomisation_test
from app.domain.model import ROUNDING, Verdict

Floats = NDArray[np.float64]


class Change(StrEnum):
    """Change of a canary between two runs."""

    DEGRADED = "degraded"
    WORSE = "worse"
    BETTER = "better"
    RERANKED = "reranked"
    """Its measures are the same, its ranking is not."""
    SAME = "same"
    HEALED = "healed"
    UNKNOWN = "unknown"
    """Either run did not measure it."""
    REWRITTEN = "rewritten"
    """Its query changed: there is nothing to compare."""
    ADDED = "added"
    REMOVED = "removed"


_ORDER: Final = {change: place for place, change in enumerate(Change)} | dict.fromkeys(
    (Change.WORSE, Change.BETTER, Change.RERANKED, Change.SAME), 1
)
"""Order of changes, the worst first; ties by the difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Results of one run, by position of its canary list."""

    keys: Sequence[str]
    queries: Sequence[str]
    verdicts: Sequence[Verdict]
    rankings: Sequence[int | None]
    """Identity of a ranking; None = not measured."""
    columns: Mapping[str, Floats]
    """Scores by name; NaN = undefined or not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One canary in both runs: its positions, None where a run did not have it, and its change."""

    key: str
    before: int | None
    now: int | None
    change: Change
    difference: float | None
    """Of the measure pairs are ordered by, now less before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Difference of a measure over the canaries that have it in both runs."""

    pairs: int
    before: float | None
    now: float | None
    interval: Difference | None
    """None with too few pairs."""
    p: float | None
    """Of the paired randomisation test; None without a pair."""


def pair_up(before: Side, now: Side, measure: str) -> list[Pair]:
    """Pair the canaries of two runs by key, the worst by this measure first."""
    then = {key: place for place, key in enumerate(before.keys)}
    pairs: list[Pair] = []
    for place, key in enumerate(now.keys):
        old = then.pop(key, None)
        change, difference = (Change.ADDED, None) if old is None else _change(before, old, now, place, measure)
        pairs.append(Pair(key=key, before=old, now=place, change=change, difference=difference))
    pairs += [
        Pair(key=key, before=place, now=None, change=Change.REMOVED, difference=None) for key, place in then.items()
    ]
    return sorted(pairs, key=lambda pair: (_ORDER[pair.change], 0.0 if pair.difference is None else pair.difference))


def moved(before: Side, now: Side, pairs: Sequence[Pair]) -> dict[str, Moved]:
    """Compare every measure of both runs over the canaries with the same query in both."""
    both = [(one.before, one.now) for one in pairs if one.before is not None and one.now is not None]
    same_query = [(old, new) for old, new in both if before.queries[old] == now.queries[new]]
    old_places, new_places = np.array(same_query, dtype=np.intp).reshape(-1, 2).T
    movements: dict[str, Moved] = {}
    cache: dict[tuple[bytes, bytes], Moved] = {}  # where each canary expects one chunk, many measures are the same
    for name in now.columns:
        if name in before.columns:
            old, new = before.columns[name][old_places], now.columns[name][new_places]
            scores = old.tobytes(), new.tobytes()
            movements[name] = cache[scores] = cache.get(scores) or _moved(old, new)
    return movements


def _change(before: Side, old: int, now: Side, new: int, measure: str) -> tuple[Change, float | None]:
    if before.queries[old] != now.queries[new]:
        return Change.REWRITTEN, None
    was, is_ = before.verdicts[old], now.verdicts[new]
    if Verdict.UNKNOWN in {was, is_}:
        return Change.UNKNOWN, None
    difference = _difference(before, old, now, new, measure)
    if was is not is_:
        return (Change.DEGRADED if is_ is Verdict.DEGRADED else Change.HEALED), difference
    if difference is not None and abs(difference) > ROUNDING:
        return (Change.WORSE if difference < 0 else Change.BETTER), difference
    return (Change.SAME if before.rankings[old] == now.rankings[new] else Change.RERANKED), difference


def _difference(before: Side, old: int, now: Side, new: int, measure: str) -> float | None:
    if measure not in before.columns or measure not in now.columns:
        return None
    difference = float(now.columns[measure][new] - before.columns[measure][old])
    return None if np.isnan(difference) else difference


def _moved(old: Floats, new: Floats) -> Moved:
    there = ~(np.isnan(old) | np.isnan(new))
    pairs = int(np.count_nonzero(there))
    return Moved(
        pairs=pairs,
        before=float(old[there].mean()) if pairs else None,
        now=float(new[there].mean()) if pairs else None,
        interval=paired_difference(old, new),
        p=randomisation_test(old, new),
    )
