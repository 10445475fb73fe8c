"""Relevance: scores of every scale land in [0, 1], in order, and never leave their scale unnoticed."""

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base.values import Ranking, replace
from app.retrievers.domain.retrievers import Scale, Scorer, ScorerKind, in_scale, measures_relevance, score_relevance
from app.scoring.evaluation import top_score

JUDGED = Scorer(kind=ScorerKind.JUDGED)
HUGE = sys.float_info.max
ACCEPTED = {
    Scale.SIMILARITY: st.floats(0, 1),
    Scale.COSINE: st.floats(-1, 1),
    Scale.DISTANCE: st.floats(0, HUGE),
    Scale.LOGIT: st.floats(-HUGE, HUGE),
    Scale.UNBOUNDED: st.floats(0, HUGE),
}


def scorer(scale: Scale, anchor: float | None = None) -> Scorer:
    return Scorer(kind=ScorerKind.SCORE, scale=scale, anchor=10.0 if anchor is None else anchor)


def ranking(*scores: float | None) -> Ranking:
    count = len(scores)
    return Ranking(
        ids=tuple(f"c{i}" for i in range(count)),
        documents=(None,) * count,
        texts=(None,) * count,
        scores=scores,
        returned=count,
    )


def test_each_scale_maps_as_documented() -> None:
    for scale, score, expected in [
        (Scale.SIMILARITY, 0.83, 0.83),
        (Scale.COSINE, -0.4, 0.0),
        (Scale.COSINE, 0.4, 0.4),
        (Scale.DISTANCE, 0.0, 1.0),
        (Scale.DISTANCE, 3.0, 0.25),
        (Scale.LOGIT, 0.0, 0.5),
        (Scale.LOGIT, math.log(3), 0.75),
        (Scale.LOGIT, -math.log(3), 0.25),
        (Scale.UNBOUNDED, 0.0, 0.0),
        (Scale.UNBOUNDED, 10.0, 0.5),
        (Scale.UNBOUNDED, 30.0, 0.75),
    ]:
        assert score_relevance(scorer(scale), score) == pytest.approx(expected, abs=1e-15), scale


@pytest.mark.parametrize("score", [-HUGE, -800.0, 800.0, HUGE])
def test_extreme_logits_saturate_without_overflow(score: float) -> None:
    assert score_relevance(scorer(Scale.LOGIT), score) == (1.0 if score > 0 else 0.0)


def test_extreme_scores_and_anchors_do_not_overflow() -> None:
    assert score_relevance(scorer(Scale.UNBOUNDED, HUGE), HUGE) == 0.5
    assert score_relevance(scorer(Scale.UNBOUNDED, HUGE), sys.float_info.min) == 0.0
    assert score_relevance(scorer(Scale.DISTANCE), HUGE) == pytest.approx(0.0)


@settings(deadline=None)
@given(scale=st.sampled_from(Scale), data=st.data())
def test_relevance_stays_in_the_unit_interval_and_keeps_the_order(scale: Scale, data: st.DataObject) -> None:
    lower, higher = sorted([data.draw(ACCEPTED[scale]), data.draw(ACCEPTED[scale])])
    first, second = score_relevance(scorer(scale), lower), score_relevance(scorer(scale), higher)
    assert first is not None
    assert second is not None
    assert 0.0 <= first <= 1.0
    assert 0.0 <= second <= 1.0
    assert first >= second if scale is Scale.DISTANCE else first <= second


@pytest.mark.parametrize("scale", Scale)
@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_on_no_scale(scale: Scale, score: float) -> None:
    assert not in_scale(scale, score)


def test_rounding_over_the_edge_is_trimmed_and_anything_further_is_refused() -> None:
    assert score_relevance(scorer(Scale.SIMILARITY), 1.0 + 5e-7) == 1.0
    assert score_relevance(scorer(Scale.DISTANCE), -5e-7) == 1.0
    with pytest.raises(ValueError, match="outside the scale similarity"):
        score_relevance(scorer(Scale.SIMILARITY), 1.2)


def test_an_incomplete_scorer_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a scale"):
        score_relevance(Scorer(kind=ScorerKind.SCORE), 0.5)
    with pytest.raises(ValueError, match="positive anchor"):
        score_relevance(Scorer(kind=ScorerKind.SCORE, scale=Scale.UNBOUNDED), 0.5)


def test_top_score_is_the_relevance_of_the_first_hit_not_of_the_best() -> None:
    assert top_score(scorer(Scale.SIMILARITY), ranking(0.2, 0.9), [0, 1], 1) == 0.2


@pytest.mark.parametrize("kind", [JUDGED, scorer(Scale.DISTANCE)])
def test_an_empty_ranking_scores_zero(kind: Scorer) -> None:
    assert top_score(kind, ranking(), [], 0) == 0.0


@pytest.mark.parametrize(("grades", "best", "expected"), [([3, 0], 3, 1.0), ([1, 3], 3, 1 / 3), ([0, 2], 2, 0.0)])
def test_judged_top_score_is_the_first_grade_over_the_best(grades: list[int], best: int, expected: float) -> None:
    assert top_score(JUDGED, ranking(0.9, 0.8), grades, best) == pytest.approx(expected)


def test_what_cannot_be_said_is_none() -> None:
    assert top_score(JUDGED, ranking(0.9), [0], 0) is None
    assert top_score(scorer(Scale.SIMILARITY), ranking(None, 0.4), [1, 0], 1) is None
    assert score_relevance(JUDGED, 0.9) is None


@pytest.mark.parametrize("kind", [ScorerKind.EMBEDDING, ScorerKind.RERANK])
def test_a_scorer_outside_the_retriever_looks_at_what_was_measured_and_not_at_scores(kind: ScorerKind) -> None:
    outside = Scorer(kind=kind)
    assert top_score(outside, replace(ranking(0.9, 0.8), relevance=0.25), [1, 0], 1) == 0.25
    assert top_score(outside, ranking(0.9, 0.8), [1, 0], 1) is None
    assert top_score(outside, ranking(), [], 1) == 0.0
    assert score_relevance(outside, 0.9) is None


def test_everything_but_judgments_measures_relevance() -> None:
    assert [kind for kind in ScorerKind if measures_relevance(Scorer(kind=kind))] == [
        ScorerKind.SCORE,
        ScorerKind.EMBEDDING,
        ScorerKind.RERANK,
    ]
