"""Drops: paired differences between a run and its baseline, for the measures that `drop` rules watch.

Detection supplies the baseline; `alerts.conditions` compares a difference with the rule's bounds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.comparison.estimates import Estimate, estimate
from app.domain.comparison.outcomes import Decision, decide_family
from app.domain.comparison.significance import FEWEST_PAIRS, Difference
from app.domain.counts import counted
from app.domain.detection.views import StoredDrop
from app.domain.model import Rule, RuleKind
from app.domain.runs.measures import parse_measure

Floats = NDArray[np.float64]
Column = Callable[[str], Floats]
"""Returns a measure of every canary of the panel by the measure's name; NaN = undefined or not measured."""

_DIGITS: Final = 6
_EQUAL: Final = 1.5e-6
"""Scores that rounding took apart are at most 0.000001 apart."""
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
    The engine of all comparisons decides them: its interval, and its p value corrected over these rules, which are the
    questions asked here, where a comparison of two runs asks for its primary measures.
    """
    drop_rules = [rule for rule in rules if rule.kind is RuleKind.DROP]
    if before is None:
        return {rule.key: no_baseline_reason for rule in drop_rules}
    estimates = {rule: _estimate(rule, k, categories, before, now) for rule in drop_rules}
    decided = _decide({rule: one for rule, one in estimates.items() if isinstance(one, Estimate)})
    return {rule.key: one if isinstance(one, str) else decided[rule.key] for rule, one in estimates.items()}


def watched_column(rule: Rule, k: int) -> str:
    """Return the vector name of the measure a `drop` rule watches: coverage is the mean of `Hit` at the check's k."""
    if rule.measure is None or rule.measure == "coverage":
        return f"Hit@{k}"
    return str(parse_measure(rule.measure))


def watches_whole_ranking(rule: Rule) -> bool:
    """Whether a `drop` rule watches a measure that depends on how many hits were asked for, as uncut MRR does."""
    if rule.kind is not RuleKind.DROP or rule.measure in {None, "coverage"}:
        return False
    return parse_measure(str(rule.measure)).k is None


def drop_as_json(drop: Difference | str) -> StoredDrop:
    """Return a drop as stored JSON, without its p value: an earlier release, which may still run, reads no other field.

    The p values are kept beside the drops, see `p_values`.
    """
    if isinstance(drop, str):
        return {"unknown": drop}
    return {
        "pairs": drop.pairs,
        "before": drop.before,
        "now": drop.now,
        "difference": drop.difference,
        "low": drop.low,
        "high": drop.high,
        "confidence": drop.confidence,
    }


def p_values(found: Mapping[str, Difference | str]) -> dict[str, float]:
    """Return the corrected p values of drops by rule key, those that have one."""
    return {key: drop.p for key, drop in found.items() if not isinstance(drop, str) and drop.p is not None}


def drop_from_json(stored: StoredDrop, p: float | None = None) -> Difference | str:
    """Return a drop from its stored JSON and its corrected p value; None = an earlier release stored none."""
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
        p=p,
    )


def _estimate(
    rule: Rule, k: int, categories: Mapping[str, NDArray[np.intp]], before: Column, now: Column
) -> Estimate | str:
    name = watched_column(rule, k)
    old, new = before(name), now(name)
    if rule.category is not None:
        members = categories.get(rule.category)
        if members is None:
            return f"no canary is of the category {rule.category}"
        old, new = old[members], new[members]
    # Baselines are kept in four bytes and reports to six digits: what is lost of a score there is no difference.
    old, new = np.round(old, _DIGITS), np.round(new, _DIGITS)
    new = np.where(np.abs(new - old) < _EQUAL, old, new)
    found = estimate(name, old, new, confidence=rule.confidence)
    if found.p is not None:
        return found
    return (
        f"only {counted(found.pairs, 'canary')} can be compared with the baseline; "
        f"it takes {FEWEST_PAIRS} to tell a drop from chance"
    )


def _decide(estimates: Mapping[Rule, Estimate]) -> dict[str, Difference]:
    """Decide the drops of rules together: those of all canaries as one family, those of categories as another."""
    found: dict[str, Difference] = {}
    for of_all in (True, False):
        groups: dict[str | None, list[Rule]] = {}
        for rule in estimates:
            if (rule.category is None) is of_all:
                groups.setdefault(rule.category, []).append(rule)
        decided = decide_family([[estimates[rule] for rule in group] for group in groups.values()])
        for group, decisions in zip(groups.values(), decided, strict=True):
            found |= {rule.key: _difference(one) for rule, one in zip(group, decisions, strict=True)}
    return found


def _difference(decision: Decision) -> Difference:
    """Return a decided estimate as a difference between baseline and run."""
    one = decision.estimate
    if one.a is None or one.b is None or one.difference is None or one.lower is None or one.upper is None:
        raise ValueError(f"{one.measure} has too few pairs to be decided")
    return Difference(
        pairs=one.pairs,
        before=one.a,
        now=one.b,
        difference=one.difference,
        low=one.lower,
        high=one.upper,
        confidence=one.confidence,
        p=decision.corrected_p,
    )
