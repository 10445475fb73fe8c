"""Measures: equal to 1e-9 with the plain implementation and, for those they know, with pytrec_eval and ranx."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from app.domain.model import Judgment, Ranking
from app.domain.runs.matching import match, prepare
from app.domain.runs.measure_arrays import Batch, Floats, compute
from app.domain.runs.measures import CUTOFFS, Measure, measures_for, parse_measure
from tests.support.plain_measures import plain_measure
from tests.support.random_rankings import graded_topics, judgment_lists, rankings

Topic = tuple[list[Judgment], Ranking]


def fast(topics: Sequence[Topic], measures: Sequence[Measure]) -> Floats:
    """Score all topics at once."""
    prepared = [prepare(judgments) for judgments, _ in topics]
    matches = [match(one, ranking) for one, (_, ranking) in zip(prepared, topics, strict=True)]
    return compute(Batch.of(matches, prepared, [ranking.returned for _, ranking in topics]), measures, fetch_k=100)


def plain(topics: Sequence[Topic], measures: Sequence[Measure]) -> Floats:
    """Score them one by one."""
    rows = [[plain_measure(m.name, m.k, judgments, ranking) for m in measures] for judgments, ranking in topics]
    return np.array(rows)


def as_qrels(topics: Sequence[Topic]) -> dict[str, dict[str, int]]:
    """Write the judgments as TREC tools take them; names sort in the order of the topics."""
    return {
        f"q{number:04}": {str(judgment.id): judgment.grade for judgment in judgments}
        for number, (judgments, _) in enumerate(topics)
    }


def as_run(topics: Sequence[Topic]) -> dict[str, dict[str, float]]:
    """Write the rankings as TREC tools take them: they sort by score, so scores fall strictly."""
    return {
        f"q{number:04}": {chunk: float(len(ranking) - place) for place, chunk in enumerate(ranking.ids)}
        for number, (_, ranking) in enumerate(topics)
    }


def answered(seed: int, count: int) -> list[Topic]:
    """Make graded topics without empty rankings, which other tools leave out or refuse."""
    return [topic for topic in graded_topics(seed, count) if len(topic[1])]


@given(st.lists(st.tuples(judgment_lists(), rankings()), min_size=1, max_size=4))
def test_equal_to_the_plain_implementation_with_duplicates_and_chunks_that_meet_several(topics: list[Topic]) -> None:
    measures = measures_for(CUTOFFS)
    np.testing.assert_allclose(fast(topics, measures), plain(topics, measures), rtol=0, atol=1e-9)


@pytest.mark.parametrize("depth", [10, 40])
def test_equal_to_the_plain_implementation_on_graded_topics(depth: int) -> None:
    topics = graded_topics(seed=depth, count=300, depth=depth)
    measures = measures_for([1, 2, 3, 5, 10, 20, 100])
    np.testing.assert_allclose(fast(topics, measures), plain(topics, measures), rtol=0, atol=1e-9)


def test_equal_to_pytrec_eval() -> None:
    topics = answered(seed=7, count=400)
    evaluator = pytrec_eval.RelevanceEvaluator(
        as_qrels(topics),
        {"map", "recip_rank", "P.1,3,5,10,20", "recall.1,3,5,10,20", "success.1,3,5,10", "ndcg_cut.1,3,5,10,20"},
    )
    theirs = evaluator.evaluate(as_run(topics))
    names = sorted(theirs["q0000"])
    expected = np.array([[theirs[f"q{number:04}"][name] for name in names] for number in range(len(topics))])
    assert expected.shape == (len(topics), 21)
    np.testing.assert_allclose(fast(topics, [parse_measure(name) for name in names]), expected, rtol=0, atol=1e-9)


_RANX = """
import json, sys, ranx
qrels, run, names = json.load(sys.stdin)
scores = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), names, return_mean=False)
json.dump([scores[name].tolist() for name in names], sys.stdout)
"""


def test_equal_to_ranx() -> None:
    topics = answered(seed=11, count=400)
    names = ["ndcg@5", "ndcg_burges@5", "f1@5"]
    # Its formulas as they are written: compiled by numba they give the same, after a minute and a half of compiling.
    # Numba asks once, when it is imported, whether to compile: hence a process of its own.
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", _RANX],
        input=json.dumps([as_qrels(topics), as_run(topics), names]),
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    expected = np.array(json.loads(done.stdout)).T
    assert expected.shape == (len(topics), len(names))
    np.testing.assert_allclose(fast(topics, [parse_measure(name) for name in names]), expected, rtol=0, atol=1e-9)
