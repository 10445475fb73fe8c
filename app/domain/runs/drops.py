"""Drops: paired differences between a run and its baseline, for the measures that `drop` rules watch.

Detection supplies the baseline; `alerts.conditions` compares a difference with the rule's bounds.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from app.domain.comparison.significance import FEWEST_PAIRS, Difference, paired_difference
from app.domain.counts import counted
from app.domain.detection.views import StoredDrop
from app.domain.model import Rule, RuleKind
from app.domain.runs.measures import parse_measure

Floats = NDArray[np.float64]
Column = Callable[[str], Floats]
"""Returns a measure of every canary of the panel by the measure's name; NaN = undefined or not measured."""

NO_BASELINE: Final = "there is no baseline to compare with yet"


def drops(
    rules: Sequence[Rule],
    *,
    k: int,
    categories: Mapping[str, NDArray[np.intp]],
    before: Column | None,
    now: Column,
    no_baseline_reason: str = NO_BASELINE,
) -> dict[str, Difference | str]:
    """Return the difference to the baseline for each `drop` rule, by rule key, or a sentence why there is none.

    `categories` maps names to positions of the panel. `before` is the mean of each canary over the runs of the
    baseline; None = there is none, because of `no_baseline_reason`. A canary counts if both sides have the measure.
    """
    drop_rules = [rule for rule in rules if rule.kind is RuleKind.DROP]
    if before is None:
        return {rule.key: no_baseline_reason for rule in drop_rules}
    return {rule.key: _compute_drop(rule, k, categories, before, now) for rule in drop_rules}


def watched_column(rule: Rule, k: int) -> str:
    """Return the vector name of the measure a `drop` rule watches: coverage is the mean of `Hit` at the check's k."""
    if rule.measure is None or rule.measure == "coverage":
        return f"Hit@{k}"
    return str(parse_measure(rule.measure))


def drop_as_json(drop: Difference | str) -> StoredDrop:
    """Return a drop as stored JSON."""
    return {"unknown": drop} if isinstance(drop, str) else cast("StoredDrop", asdict(drop))


def drop_from_json(stored: StoredDrop) -> Difference | str:
    """Return a drop from its stored JSON."""
    if "unknown" in stored:
        return stored["unknown"]
    return Difference(
        pairs=stored["pairs"],
        before=stored["before"],
        now=stored["now"],
        difference=stored["difference"],
        low=stored["low"],
        high=stored["high"],
        confidence=stored["confidence"],
    )


def _compute_drop(
    rule: Rule, k: int, categories: Mapping[str, NDArray[np.intp]], before: Column, now: Column
) -> Difference | str:
    name = watched_column(rule, k)
    old, new = before(name), now(name)
    if rule.category is not None:
        members = categories.get(rule.category)
        if members is None:
            return f"no canary is of the category {rule.category}"
        old, new = old[members], new[members]
    # The seed differs between rules, and is the same in every run and on every replica.
    difference = paired_difference(old, new, confidence=rule.confidence, seed=zlib.crc32(rule.key.encode()))
    if difference is not None:
        return difference
    pairs = int(np.count_nonzero(~(np.isnan(old) | np.isnan(new))))
    return (
        f"only {counted(pairs, 'canary')} can be compared with the baseline; "
        f"it takes {FEWEST_PAIRS} to tell a drop from chance"
    )
