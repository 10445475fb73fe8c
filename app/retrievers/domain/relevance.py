"""Relevance from 0 to 1 of a hit, from a score on its scale or from a grade; with it `top_score`."""

import math
from collections.abc import Sequence
from typing import Final

from app.base.values import Ranking
from app.retrievers.domain.retrievers import Scale, Scorer, ScorerKind

TOLERANCE: Final = 1e-6


def top_score(scorer: Scorer, ranking: Ranking, grades: Sequence[int], best_grade: int) -> float | None:
    """Relevance of the first hit in [0, 1]; an answered, empty ranking scores 0.

    `grades` holds the grade per position, `best_grade` the highest among the canary's judgments.
    None = unknown: the first hit has no score, the external scorer could not measure it or, judged, nothing is
    expected. Raises ValueError for a score outside its scale, which should have made the probe malformed.
    """
    if not ranking:
        return 0.0
    match scorer.kind:
        case ScorerKind.JUDGED:
            return judged_relevance(grades, best_grade)
        case ScorerKind.SCORE:
            return score_relevance(scorer, ranking.scores[0])
        case ScorerKind.EMBEDDING | ScorerKind.RERANK:
            return ranking.relevance


def judged_relevance(grades: Sequence[int], best_grade: int) -> float | None:
    """Relevance of the first hit by its grade alone; 0 without hits, None where nothing is expected."""
    if not grades:
        return 0.0
    return grades[0] / best_grade if best_grade > 0 else None


def score_relevance(scorer: Scorer, score: float | None) -> float | None:
    """Relevance of a score of the retriever; None without one. Raises ValueError for one outside its scale."""
    if score is None or scorer.kind is not ScorerKind.SCORE:
        return None
    if scorer.scale is None:
        raise ValueError("A scorer of kind score needs a scale.")
    return scale_relevance(scorer.scale, score, scorer.anchor)


def scale_relevance(scale: Scale, score: float, anchor: float | None = None) -> float:
    """Relevance in [0, 1] of a score on this scale. Raises ValueError for a score outside the scale."""
    if not in_scale(scale, score):
        raise ValueError(f"The score {score} is outside the scale {scale}.")
    match scale:
        case Scale.SIMILARITY | Scale.COSINE:
            return min(1.0, max(0.0, score))
        case Scale.DISTANCE:
            return 1.0 / (1.0 + max(0.0, score))
        case Scale.LOGIT:
            return _logistic(score)
        case Scale.UNBOUNDED:
            return _saturating(max(0.0, score), anchor)


def measures_relevance(scorer: Scorer) -> bool:
    """Whether this scorer measures relevance: `judged` only repeats the judgments."""
    return scorer.kind is not ScorerKind.JUDGED


def is_external(scorer: Scorer) -> bool:
    """Whether a service beside the retriever measures relevance, and so of the first hit only."""
    return scorer.kind in {ScorerKind.EMBEDDING, ScorerKind.RERANK}


SCALE_RANGES: Final = {
    Scale.SIMILARITY: "0 to 1 (cosine: -1 to 1)",
    Scale.COSINE: "-1 to 1",
    Scale.DISTANCE: "0 and more",
    Scale.UNBOUNDED: "0 and more",
    Scale.LOGIT: "any number",
}
"""Which scores a scale has, in words."""


def in_scale(scale: Scale, score: float) -> bool:
    """Whether a score may occur on this scale, give or take rounding; NaN and infinity occur on none."""
    if not math.isfinite(score):
        return False
    match scale:
        case Scale.SIMILARITY:
            return -TOLERANCE <= score <= 1.0 + TOLERANCE
        case Scale.COSINE:
            return -1.0 - TOLERANCE <= score <= 1.0 + TOLERANCE
        case Scale.DISTANCE | Scale.UNBOUNDED:
            return score >= -TOLERANCE
        case Scale.LOGIT:
            return True


def _logistic(score: float) -> float:
    """1 / (1 + e^-s), from the side on which the exponential cannot overflow."""
    if score >= 0.0:
        return 1.0 / (1.0 + math.exp(-score))
    grown = math.exp(score)
    return grown / (1.0 + grown)


def _saturating(score: float, anchor: float | None) -> float:
    """Return s / (s + anchor), one half at the anchor, without overflow of the sum."""
    if anchor is None or not (math.isfinite(anchor) and anchor > 0.0):
        raise ValueError("The scale unbounded needs a positive anchor: the score that means one half.")
    return 1.0 / (1.0 + anchor / score) if score > 0.0 else 0.0
