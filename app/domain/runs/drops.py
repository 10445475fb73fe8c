"""Drops: how the measures that rules watch differ from the baseline on one run, canary by canary.

Whether that is bad is for facts to say; what the baseline is, for detection.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.domain.comparison.significance import FEWEST_PAIRS, Difference, paired_difference
from app.domain.counts import counted
from app.domain.model import Rule, RuleKind
from app.domain.runs.measures import parse_measure

Floats = NDArray[np.float64]
Column = Callable[[str], Floats]
"""Gives one measure of every canary of the panel, named as vectors name it; NaN = undefined or not measured."""

NO_BASELINE: Final = "there is no baseline to compare with yet"


def drops(
    rules: Sequence[Rule],
    *,
    k: int,
    categories: Mapping[str, NDArray[np.intp]],
    before: Column | None,
    now: Column,
    why_none: str = NO_BASELINE,
) -> dict[str, Difference | str]:
    """Compare a run with the baseline for each `drop` rule, by rule key; a sentence says why nobody can.

    `categories` maps names to positions of the panel. `before` is the mean of each canary over the runs of the
    baseline; None = there is none, because of `why_none`. A canary counts that has the measure in both.
    """
    drop_rules = [rule for rule in rules if rule.kind is RuleKind.DROP]
    if before is None:
        return {rule.key: why_none for rule in drop_rules}
    return {rule.key: _drop(rule, k, categories, before, now) for rule in drop_rules}


def watched_column(rule: Rule, k: int) -> str:
    """Name what a `drop` rule watches as vectors do: coverage is the mean of hits within the k of the check."""
    if rule.measure is None or rule.measure == "coverage":
        return f"Hit@{k}"
    return str(parse_measure(rule.measure))


def drop_as_json(drop: Difference | str) -> dict[str, Any]:
    """Write down a drop as it is stored."""
    if isinstance(drop, str):
        return {"unknown": drop}
    return {name: getattr(drop, name) for name in Difference.__dataclass_fields__}


def drop_from_json(stored: Mapping[str, Any]) -> Difference | str:
    """Read a drop as it was stored."""
    return str(stored["unknown"]) if "unknown" in stored else Difference(**stored)


def _drop(
    rule: Rule, k: int, categories: Mapping[str, NDArray[np.intp]], before: Column, now: Column
) -> Difference | str:
    name = watched_column(rule, k)
    old, new = before(name), now(name)
    if rule.category is not None:
        members = categories.get(rule.category)
        if members is None:
            return f"no canary is of the category {rule.category}"
        old, new = old[members], new[members]
    # Of its own for every rule, yet the same in every run and on every replica.
    difference = paired_difference(old, new, confidence=rule.confidence, seed=zlib.crc32(rule.key.encode()))
    if difference is not None:
        return difference
    pairs = int(np.count_nonzero(~(np.isnan(old) | np.isnan(new))))
    return (
        f"only {counted(pairs, 'canary')} can be compared with the baseline; "
        f"it takes {FEWEST_PAIRS} to tell a drop from chance"
    )
