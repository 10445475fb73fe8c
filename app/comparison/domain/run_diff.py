"""Diff of two runs: the change of each canary.

The rows are read by `services.comparison`; what is said of them together is decided in `outcomes`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.values import ROUNDING, Verdict

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
    REJUDGED = "rejudged"
    """Its judgments changed: its verdicts and scores are of different things."""
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
    scores: Floats
    """Of the measure pairs are ordered by; NaN = not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One canary in both runs: its positions, None where a run did not have it, and its change."""

    key: str
    before: int | None
    now: int | None
    change: Change
    difference: float | None
    """Of the measure pairs are ordered by, now less before."""


def pair_up(before: Side, now: Side, *, rejudged: Collection[str] = ()) -> list[Pair]:
    """Pair the canaries of two runs by key, the worst first; `rejudged` has the keys that expect something else."""
    then = {key: place for place, key in enumerate(before.keys)}
    changed = frozenset(rejudged)
    pairs: list[Pair] = []
    for place, key in enumerate(now.keys):
        old = then.pop(key, None)
        change, difference = (Change.ADDED, None) if old is None else _change(before, old, now, place)
        if key in changed:
            change, difference = Change.REJUDGED, None
        pairs.append(Pair(key=key, before=old, now=place, change=change, difference=difference))
    pairs += [
        Pair(key=key, before=place, now=None, change=Change.REMOVED, difference=None) for key, place in then.items()
    ]
    return sorted(pairs, key=lambda pair: (_ORDER[pair.change], 0.0 if pair.difference is None else pair.difference))


def _change(before: Side, old: int, now: Side, new: int) -> tuple[Change, float | None]:
    if before.queries[old] != now.queries[new]:
        return Change.REWRITTEN, None
    was, is_ = before.verdicts[old], now.verdicts[new]
    if Verdict.UNKNOWN in {was, is_}:
        return Change.UNKNOWN, None
    difference = _difference(before, old, now, new)
    if was is not is_:
        return (Change.DEGRADED if is_ is Verdict.DEGRADED else Change.HEALED), difference
    if difference is not None and abs(difference) > ROUNDING:
        return (Change.WORSE if difference < 0 else Change.BETTER), difference
    return (Change.SAME if before.rankings[old] == now.rankings[new] else Change.RERANKED), difference


def _difference(before: Side, old: int, now: Side, new: int) -> float | None:
    difference = float(now.scores[new] - before.scores[old])
    return None if np.isnan(difference) else difference
