"""Pooled recall: the estimate by hand, what is unknown, and an interval that holds what it promises."""

import numpy as np
import pytest

from app.annotation.domain.recall import (
    PooledRecall,
    QueryGrades,
    SampledStratum,
    estimate_recall,
    is_pooled_recall_self_judged,
    recall_frame,
)


def stratum(size: int, graded: int, relevant: int) -> SampledStratum:
    return SampledStratum(size=size, graded=graded, relevant=relevant)


def query(pool_relevant: int, found: int, *strata: tuple[int, int, int]) -> QueryGrades:
    return QueryGrades(pool_relevant=pool_relevant, found=found, strata=tuple(stratum(*one) for one in strata))


def test_the_estimate_is_found_over_pool_plus_scaled_samples() -> None:
    found = estimate_recall([query(4, 3, (20, 5, 1), (100, 10, 0)), query(2, 1, (30, 10, 2), (100, 10, 1))])
    assert found.relevant == pytest.approx(4 + 20 / 5 + 2 + 30 * 2 / 10 + 100 / 10)
    assert found.value == pytest.approx(4 / 26)
    assert (found.queries, found.found) == (2, 4)


def test_the_point_lies_within_its_interval() -> None:
    random = np.random.default_rng(0)
    for seed in range(30):
        queries = [
            query(int(pooled), int(pooled) // 2, (20, 5, int(random.binomial(5, 0.1))), (900, 5, 0))
            for pooled in random.integers(1, 9, size=30)
        ]
        found = estimate_recall(queries, seed=seed)
        assert found.low is not None
        assert found.high is not None
        assert found.value is not None
        assert found.low < found.value < found.high


def test_finding_none_relevant_in_a_sample_still_leaves_room() -> None:
    found = estimate_recall([query(2, 2, (1_000, 10, 0))] * 20)
    assert found.value == 1
    assert found.low is not None
    assert found.low < 0.9


def test_all_equal_queries_graded_whole_leave_no_room() -> None:
    found = estimate_recall([query(2, 1, (10, 10, 2))] * 20)
    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)


def test_more_grades_narrow_the_interval() -> None:
    def width(graded: int) -> float:
        found = estimate_recall([query(4, 3, (400, graded, graded // 20))] * 50)
        assert found.low is not None
        assert found.high is not None
        return found.high - found.low

    assert width(20) > 1.5 * width(80)


@pytest.mark.parametrize("queries", [[], [query(1, 1, (10, 0, 0))], [query(1, 1, (10, 3, 0)), query(1, 0, (5, 0, 0))]])
def test_a_stratum_without_a_grade_leaves_recall_unknown(queries: list[QueryGrades]) -> None:
    found = estimate_recall(queries)
    assert (found.relevant, found.value, found.low, found.high) == (None, None, None, None)


def test_an_empty_stratum_needs_no_grade() -> None:
    assert estimate_recall([query(2, 1, (0, 0, 0))]).value == 0.5


def test_where_nothing_is_relevant_recall_is_undefined() -> None:
    found = estimate_recall([query(0, 0, (10, 5, 0))])
    assert found == PooledRecall(queries=1, found=0, relevant=0, value=None)


def test_without_strata_recall_is_that_of_the_pool() -> None:
    assert estimate_recall([query(4, 1), query(4, 3)]).value == 0.5


def test_the_interval_is_the_same_each_time() -> None:
    queries = [query(3, 2, (20, 5, 1))] * 10
    assert estimate_recall(queries) == estimate_recall(queries)


@pytest.mark.parametrize("numbers", [(5, 6, 0), (5, 3, 4), (5, 3, -1)])
def test_impossible_counts_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        stratum(*numbers)


def test_queries_of_one_task_have_the_same_strata() -> None:
    with pytest.raises(ValueError, match="same strata"):
        estimate_recall([query(1, 1, (5, 3, 0)), query(1, 1)])


def test_intervals_cover_the_true_recall_of_a_population() -> None:
    """80 queries drawn from a population with 5 relevant beyond the pool in 200 texts on average."""
    random, covered, repetitions = np.random.default_rng(1), 0, 300
    relevant = random.integers(1, 7, size=5_000)
    found = random.binomial(relevant, 0.7)
    beyond = random.poisson(1.5, size=(5_000, 2)) * (1, 2)
    truth = found.sum() / (relevant.sum() + beyond.sum())
    for repetition in range(repetitions):
        rows = random.integers(0, 5_000, size=80)
        sampled = random.hypergeometric(beyond[rows], np.array([20, 200]) - beyond[rows], 10)
        queries = [
            query(int(relevant[row]), int(found[row]), (20, 10, int(first)), (200, 10, int(second)))
            for row, (first, second) in zip(rows, sampled, strict=True)
        ]
        estimate = estimate_recall(queries, seed=repetition)
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= truth <= estimate.high
    assert covered / repetitions >= 0.93


def test_the_frame_says_what_the_estimate_is_a_share_of() -> None:
    assert recall_frame(["bm25", "dense"], 100, None) == "of the relevant texts among the top 100 of bm25, dense"
    own = "of the relevant texts among the top 30 of bm25, its own first hits alone"
    assert recall_frame(["bm25"], 30, None) == own
    assert "alone" not in recall_frame(["bm25", "dense"], 5, None)
    assert recall_frame(["bm25"], 100, "handbook") == "of all relevant texts of the corpus handbook"


def test_only_random_texts_of_a_corpus_tell_what_the_one_retriever_of_a_task_misses() -> None:
    assert is_pooled_recall_self_judged(["bm25"], has_rest=False)
    assert not is_pooled_recall_self_judged(["bm25"], has_rest=True)
    assert not is_pooled_recall_self_judged(["bm25", "dense"], has_rest=False)


def test_recall_of_one_retriever_is_covered_with_random_texts_and_never_without() -> None:
    """200 queries of 6 relevant texts: 3 in the pool, 1 ranked below it, 2 among 400 that are never ranked."""
    random, covered = np.random.default_rng(7), {True: 0, False: 0}
    found = random.binomial(3, 0.8, size=200)
    truth = found.sum() / (200 * 6)
    for repetition in range(100):
        below, rest = random.hypergeometric(1, 19, 10, size=200), random.hypergeometric(2, 398, 10, size=200)
        for has_rest in (True, False):
            queries = [
                query(3, int(one), (20, 10, int(ranked)), *([(400, 10, int(other))] if has_rest else []))
                for one, ranked, other in zip(found, below, rest, strict=True)
            ]
            estimate = estimate_recall(queries, has_rest=has_rest, seed=repetition)
            assert estimate.low is not None
            assert estimate.high is not None
            covered[has_rest] += estimate.low <= truth <= estimate.high
    assert covered[True] >= 93
    assert covered[False] == 0
