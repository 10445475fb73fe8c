"""Builds the view of what a comparison decides, which pages, API, CLI and diffs show alike."""

from collections.abc import Sequence
from typing import Final

from app.base.values import Category
from app.comparison.documents.comparison_sentences import SideNames, caution_sentence, exclusion_sentence, headline
from app.comparison.domain.depths import Depth
from app.comparison.domain.estimates import Estimate
from app.comparison.domain.outcomes import CategoryOutcome, ComparisonOutcome, Decided, Decision
from app.comparison.domain.pairs import Pairing
from app.comparison.domain.views import ComparedCategory, ComparedMeasure, ComparisonDecision, RecallLoss
from app.records.documents import number, rounded

_KEYS: Final = 20
"""Number of canaries that are named for each reason why they are not compared."""


def decision_shape(outcome: ComparisonOutcome, pairing: Pairing, depth: Depth, names: SideNames) -> ComparisonDecision:
    """Return the view of a comparison's decision."""
    return {
        "verdict": outcome.verdict,
        "sentence": headline(outcome, names),
        "cautions": _cautions(outcome, depth, names),
        "canaries": outcome.pairs,
        "excluded": [
            {
                "reason": reason,
                "canaries": len(keys),
                "keys": list(keys[:_KEYS]),
                "sentence": exclusion_sentence(reason, keys, names),
            }
            for reason, keys in pairing.excluded.items()
        ],
        "k": depth.k,
        "depth": depth.m,
        "primary": _decided(outcome.decisions),
        "exploratory": [_measure(one) for one in outcome.exploratory],
        "by_category": [_category(one, depth, names) for one in outcome.categories],
    }


def _cautions(outcome: Decided, depth: Depth, names: SideNames) -> list[RecallLoss]:
    return [
        {
            "measure": one.measure,
            "winner": one.winner,
            "recall": one.recall,
            "loss": rounded(one.loss),
            "sentence": caution_sentence(one, names),
        }
        for one in outcome.cautions(depth)
    ]


def _category(one: CategoryOutcome, depth: Depth, names: SideNames) -> ComparedCategory:
    return {
        "category": Category(one.category),
        "canaries": one.pairs,
        "verdict": one.verdict,
        "winner": one.winner,
        "measures": _decided(one.decisions),
        "cautions": _cautions(one, depth, names),
    }


def _decided(decisions: Sequence[Decision]) -> list[ComparedMeasure]:
    return [_measure(one.estimate, one) for one in decisions]


def _measure(estimate: Estimate, decision: Decision | None = None) -> ComparedMeasure:
    return {
        "measure": estimate.measure,
        "canaries": estimate.pairs,
        "a": number(estimate.a),
        "b": number(estimate.b),
        "difference": number(estimate.difference),
        "low": number(estimate.low),
        "high": number(estimate.high),
        "p": number(estimate.p),
        "corrected_p": None if decision is None else number(decision.corrected_p),
        "claim": None if decision is None else decision.claim,
        "winner": None if decision is None else decision.winner,
    }
