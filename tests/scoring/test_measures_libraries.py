"""Measures: equal with pytrec_eval, ranx and ir_measures on random graded judgments, and where they differ by intent.

docs/measures.md names those differences.
"""

from pathlib import Path

import numpy as np
import pytest

from app.base.values import Judgment
from app.scoring.measures import Floats, Measure, measures_for, parse_measure
from tests.support.measure_libraries import (
    GDEVAL,
    IR_MEASURES,
    PYTREC_EVAL,
    RANX,
    Run,
    as_qrels,
    as_run,
    by_gdeval,
    by_ir_measures,
    by_pytrec_eval,
    by_ranx,
)
from tests.support.random_rankings import Topic, graded_topics, ranking_of
from tests.support.scored_topics import scored

CUTS = (1, 3, 5, 10, 20, 50)
"""Rankings hold 10 hits at most, so that the last two lie beyond every list."""
WHOLE = ("RR", "AP")
ALONE = {
    "R_id": "needs passages, which no run file holds",
    "R_passage": "needs passages, which no run file holds",
    "duplicate_ratio": "run files hold each id once",
}
"""Measures that none of the three has."""


def names_of(spellings: object) -> list[str]:
    """Name the measures that a library has, at every cut-off."""
    assert isinstance(spellings, dict)
    return [*(f"{name}@{k}" for name in spellings for k in CUTS), *WHOLE]


def ours(topics: list[Topic], names: list[str]) -> Floats:
    """Score topics by measures given by name."""
    return scored(topics, [parse_measure(name) for name in names])


@pytest.fixture(scope="module")
def topics() -> list[Topic]:
    """Make graded topics: every canary expects something, some answers are empty, all are shorter than 20 and 50."""
    made = graded_topics(seed=7, count=400)
    assert {len(ranking) for _, ranking in made} == {0, 1, 5, 10}
    assert {judgment.grade for judgments, _ in made for judgment in judgments} == {0, 1, 2, 3}
    return made


def test_every_measure_is_held_to_a_library_or_has_none() -> None:
    compared = {*PYTREC_EVAL, *RANX, *IR_MEASURES, *GDEVAL, *WHOLE}
    assert compared | set(ALONE) == {measure.name for measure in measures_for(CUTS)}
    assert not compared & set(ALONE)


def test_equal_to_pytrec_eval(topics: list[Topic]) -> None:
    names = names_of(PYTREC_EVAL)
    theirs = by_pytrec_eval(as_qrels(topics), as_run(topics), names)
    np.testing.assert_allclose(ours(topics, names), theirs, rtol=0, atol=1e-6)


def test_equal_to_ranx(topics: list[Topic]) -> None:
    names = names_of(RANX)
    theirs = by_ranx(as_qrels(topics), as_run(topics), names)
    np.testing.assert_allclose(ours(topics, names), theirs, rtol=0, atol=1e-6)


def test_equal_to_ir_measures(topics: list[Topic]) -> None:
    names = names_of(IR_MEASURES)
    theirs = by_ir_measures(as_qrels(topics), as_run(topics), names)
    np.testing.assert_allclose(ours(topics, names), theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("k", CUTS)
@pytest.mark.parametrize("name", GDEVAL)
def test_equal_to_gdeval_on_our_scale_of_grades(name: str, k: int, topics: list[Topic], tmp_path: Path) -> None:
    theirs = by_gdeval(as_qrels(topics), as_run(topics), name, k, tmp_path)
    np.testing.assert_allclose(ours(topics, [f"{name}@{k}"])[:, 0], theirs, rtol=0, atol=1e-6)


# --- differences by intent ---------------------------------------------------------------------------------------


def test_err_of_gdeval_as_shipped_counts_on_grades_up_to_four(tmp_path: Path) -> None:
    topics: list[Topic] = [([Judgment(id="a", grade=grade)], ranking_of(["a"])) for grade in (1, 2, 3)]
    assert ours(topics, ["ERR@10"])[:, 0] == pytest.approx([1 / 8, 3 / 8, 7 / 8])
    shipped = by_gdeval(as_qrels(topics), as_run(topics), "ERR", 10, tmp_path, max_grade=4)
    assert shipped == pytest.approx([1 / 16, 3 / 16, 7 / 16])


def test_equal_to_trec_eval_on_tied_scores_once_ties_are_in_its_order() -> None:
    """Ours is the order of the answer; trec_eval has only scores to go by, and puts the greater id first."""
    topics = graded_topics(seed=3, count=200)
    names = names_of(PYTREC_EVAL)
    tied: Run = {
        topic: {chunk: float(score // 3) for chunk, score in hits.items()} for topic, hits in as_run(topics).items()
    }
    theirs = by_pytrec_eval(as_qrels(topics), tied, names)
    resorted: list[Topic] = []
    for number, (judgments, _) in enumerate(topics, start=1):
        hits = tied.get(str(number), {})
        by_id = sorted(hits, reverse=True)
        resorted.append((judgments, ranking_of(sorted(by_id, key=hits.__getitem__, reverse=True))))
    np.testing.assert_allclose(ours(resorted, names), theirs, rtol=0, atol=1e-6)
    as_answered = ours(topics, names)
    assert (np.abs(as_answered - theirs).max(axis=1) > 0.01).sum() > 50, "ties that change nothing test nothing"


def test_a_canary_with_nothing_relevant_is_undefined_here_and_zero_there() -> None:
    topics: list[Topic] = [([Judgment(id="a", grade=0)], ranking_of("ab")), ([Judgment(id="a")], ranking_of("ab"))]
    qrels, run = as_qrels(topics), as_run(topics)
    names = ["P@1", "R@1", "NDCG@1", "RR", "AP"]
    assert np.isnan(ours(topics, names)[0]).all()
    for theirs in (by_pytrec_eval, by_ranx, by_ir_measures):
        assert theirs(qrels, run, names) == pytest.approx(np.array([[0] * 5, [1] * 5]))


def test_a_topic_missing_from_the_run_is_an_empty_answer_of_ours() -> None:
    """As by `trec_eval -c`. A probe that failed is no answer, and enters no mean."""
    topics: list[Topic] = [([Judgment(id="a")], ranking_of("")), ([Judgment(id="a")], ranking_of("ab"))]
    qrels, run = as_qrels(topics), as_run(topics)
    assert list(run) == ["2"]
    names = ["P@1", "R@1", "NDCG@1", "RR", "AP"]
    for scores in (ours(topics, names), *(by(qrels, run, names) for by in (by_pytrec_eval, by_ranx, by_ir_measures))):
        assert scores == pytest.approx(np.array([[0] * 5, [1] * 5]))


def test_a_cut_beyond_what_was_asked_for_is_undefined_here_and_computed_there() -> None:
    topics: list[Topic] = [([Judgment(id="a")], ranking_of("ab"))]
    assert np.isnan(scored(topics, [Measure("P", 5)], fetch_k=2)).all()
    assert by_pytrec_eval(as_qrels(topics), as_run(topics), ["P@5"]) == pytest.approx(np.array([[1 / 5]]))
