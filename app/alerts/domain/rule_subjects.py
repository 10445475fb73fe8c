"""Canaries that rules are about, and whether a suite has any of them left: an alert about nobody can never recover."""

from collections.abc import Iterable
from typing import Final

from app.alerts.domain.answer_rules import ANSWER_MEASURES
from app.alerts.domain.rules import ANSWERED_RATIO, DEGRADED_SHARE
from app.base.values import Canary, Category, Rule, RuleKind

ABOUT_CANARIES: Final = frozenset(
    {RuleKind.THRESHOLD, RuleKind.DROP, RuleKind.GUARD, RuleKind.REGRESSION, RuleKind.CANARY}
)
"""Kinds that watch how canaries do; the others watch requests, and go on whatever is asked."""


def has_subject(rule: Rule, canaries: Iterable[Canary]) -> bool:
    """Whether any of these canaries is one that a rule is about: of its key, its category, or expecting a chunk.

    True for the kinds that are not about canaries.
    """
    if rule.kind not in ABOUT_CANARIES:
        return True
    if rule.canary is not None:
        return any(one.key == rule.canary for one in canaries)
    category = Category.NEGATIVE if rule.measure == ANSWERED_RATIO else rule.category
    expecting = _needs_expected_chunks(rule)
    return any((category is None or one.category == category) and (one.expects or not expecting) for one in canaries)


def _needs_expected_chunks(rule: Rule) -> bool:
    """Whether what a rule watches is undefined of canaries without an expected chunk."""
    return rule.kind in {RuleKind.REGRESSION, RuleKind.GUARD} or rule.measure not in _OF_ANY_CANARY


_OF_ANY_CANARY: Final = frozenset({None, "health_score", DEGRADED_SHARE, ANSWERED_RATIO, *ANSWER_MEASURES})
"""Measures that canaries without an expected chunk may have."""
