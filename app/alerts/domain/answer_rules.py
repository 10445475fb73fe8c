"""Rules on measures of generated answers, which come some time after their run."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from app.base.values import Rule, RuleKind

GROUNDING: Final = ("utilisation", "chunks_used")
"""Measured without a judge."""
JUDGED: Final = ("faithful", "faithfulness", "answer_relevance", "correctness")
"""What a judge says."""
ANSWER_MEASURES: Final = (*GROUNDING, *JUDGED)


def marked_name(measure: str, confirmed: Collection[str]) -> str:
    """Return the name of a measure, marked where a judge says it that people have not confirmed."""
    return f"{measure} (uncalibrated)" if measure in JUDGED and measure not in confirmed else measure


def as_hint(rule: Rule) -> Rule:
    """Return a rule on what a judge says as a warning at most, unless people confirmed it."""
    if not is_uncalibrated(rule) or rule.critical is None:
        return rule
    return replace(rule, warning=rule.warning or rule.critical, critical=None)


def is_uncalibrated(rule: Rule) -> bool:
    """Whether a rule watches what a judge says that people have not confirmed."""
    return rule.measure in JUDGED and not rule.confirmed


def watches_answers(rule: Rule) -> bool:
    """Whether a rule is about generated answers, not about what was retrieved."""
    return rule.kind is RuleKind.THRESHOLD and rule.measure in ANSWER_MEASURES
