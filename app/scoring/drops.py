"""Drops: paired differences between a run and its baseline, for the measures that `drop` rules watch.

Detection supplies the baseline; `alerts` compares a difference with the rule's bounds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.rules import Alarm
from app.base.texts import bound_text, change_text, counted, ratio_text
from app.base.values import Rule, RuleKind, Severity
from app.comparison.domain import FEWEST_PAIRS, Decision, Difference, Estimate, decide_family, estimate
from app.detection.domain.views import StoredDrop
from app.scoring.measures import CUTOFFS, parse_measure

Floats = NDArray[np.float64]
Column = Callable[[str], Floats]
"""Returns a measure of every canary of the panel by the measure's name; NaN = undefined or not measured."""

_DIGITS: Final = 6
_DEEPEST: Final = 10
_NAMED: Final = 10
"""Canaries that a reason names."""
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


def regression_rules(fetch_k: int) -> tuple[Rule, ...]:
    """Rules whose drops decide a regression since a saved report: coverage, then the order of the top hits."""
    deepest = max(cut for cut in CUTOFFS if cut <= min(fetch_k, _DEEPEST))
    return tuple(
        Rule(key=f"regression-{measure}", kind=RuleKind.DROP, measure=measure)
        for measure in ("coverage", f"NDCG@{deepest}")
    )


def alarm_since_report(
    differences: Sequence[Difference | str], measures: Sequence[str], *, lost: Sequence[str], confirmed: Sequence[str]
) -> Alarm:
    """Alarm of a run beside a saved report, which is all the history that a single run can have.

    `differences`: those of `measures`, coverage first, then the order. `lost`: keys of the canaries that found
    something in the report and nothing now; `confirmed`: those of them that found nothing when asked again either, so
    that their loss is no chance. Critical where coverage fell by more than chance or a loss is confirmed; a warning
    where the order became worse by more than chance.
    """
    coverage, order = (_fall(one, name) for one, name in zip(differences, measures, strict=True))
    if coverage is not None:
        return Alarm(open=True, good=False, reason=f"{_named(lost, 'lost since the baseline')}; {coverage}")
    if confirmed:
        again = "lost since the baseline, and when asked again"
        return Alarm(open=True, good=False, reason=_named(confirmed, again))
    if order is not None:
        return Alarm(open=True, good=False, severity=Severity.WARNING, reason=f"worse than the baseline: {order}")
    return Alarm(open=False, good=True, reason="no canary is lost since the baseline by more than chance")


def _fall(difference: Difference | str, measure: str) -> str | None:
    """Clause on a mean that fell by more than chance; None = it did not, or too few canaries tell."""
    if isinstance(difference, str) or not difference.claimed or difference.difference >= 0:
        return None
    return (
        f"{measure} {ratio_text(difference.now, difference.before)} against "
        f"{ratio_text(difference.before, difference.now)}, {bound_text(100 * difference.confidence)} % between "
        f"{change_text(difference.low)} and {change_text(difference.high)}"
    )


def _named(keys: Sequence[str], what: str) -> str:
    shown = ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")
    return f"{counted(len(keys), 'canary')} {what}: {shown}"


def drop_as_json(drop: Difference | str) -> StoredDrop:
    """Return a drop as stored JSON, without its p value: an earlier release, which may still run, reads no other field.

    The p values are kept beside the drops, see `p_values`.
    """
    if isinstance(drop, str):
        return {"unknown": drop}
    return cast("StoredDrop", {name: value for name, value in asdict(drop).items() if name != "p"})


def p_values(found: Mapping[str, Difference | str]) -> dict[str, float]:
    """Return the corrected p values of drops by rule key, those that have one."""
    return {key: drop.p for key, drop in found.items() if not isinstance(drop, str) and drop.p is not None}


def drop_from_json(stored: StoredDrop, p: float | None = None) -> Difference | str:
    """Return a drop from its stored JSON and its corrected p value; None = an earlier release stored none."""
    if "unknown" in stored:
        return stored["unknown"]
    return Difference(**cast("dict[str, Any]", stored), p=p)


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
