"""Measures: the figures of the articles' examples, and NDCG with the articles' ideal beside ours."""

import numpy as np
import pytest

from app.scoring.measures import parse_measure
from tests.support.published_examples import ONE_QUERY, Q1, Q2, expecting, ndcg_of_retrieved
from tests.support.random_rankings import Topic, ranking_of
from tests.support.scored_topics import scored


def score(name: str, *topics: Topic) -> list[float]:
    """Score topics by one measure."""
    return list(scored(topics, [parse_measure(name)])[:, 0])


@pytest.mark.parametrize(("name", "value"), [("Hit@10", 1), ("P@10", 0.200), ("R@10", 0.667), ("F1@10", 0.308)])
def test_one_query_with_two_of_three_relevant_in_its_top_ten(name: str, value: float) -> None:
    assert score(name, ONE_QUERY) == pytest.approx([value], abs=5e-4)


@pytest.mark.parametrize(
    ("name", "q1", "q2"),
    [
        ("P@1", 1, 0),
        ("P@3", 1 / 3, 1 / 3),
        ("P@5", 2 / 5, 2 / 5),
        ("R@1", 1 / 3, 0),
        ("R@3", 1 / 3, 1 / 2),
        ("R@5", 2 / 3, 1),
        ("F1@1", 1 / 2, 0),
        ("F1@3", 1 / 3, 2 / 5),
        ("F1@5", 1 / 2, 4 / 7),
        ("Hit@1", 1, 0),
        ("Hit@3", 1, 1),
        ("Hit@5", 1, 1),
        ("MAP", 1 / 2, 11 / 30),
        ("MRR", 1, 1 / 3),
    ],
)
def test_two_queries_one_by_one(name: str, q1: float, q2: float) -> None:
    assert score(name, Q1, Q2) == pytest.approx([q1, q2])


@pytest.mark.parametrize(
    ("name", "mean"),
    [
        ("P@1", 0.500),
        ("P@3", 0.333),
        ("P@5", 0.400),
        ("R@1", 0.167),
        ("R@3", 0.417),
        ("R@5", 0.833),
        ("MAP", 0.433),
        ("MRR", 0.667),
        ("NDCG@1", 0.500),
        ("NDCG@3", 0.388),
        ("NDCG@5", 0.608),
    ],
)
def test_the_means_over_two_queries(name: str, mean: float) -> None:
    assert np.mean(score(name, Q1, Q2)) == pytest.approx(mean, abs=5e-4)


@pytest.mark.parametrize(("k", "mean"), [(1, 0.500), (3, 0.750), (5, 0.7105)])
def test_the_articles_means_of_ndcg_take_the_ideal_from_what_was_retrieved(k: int, mean: float) -> None:
    theirs = [ndcg_of_retrieved(topic, k) for topic in (Q1, Q2)]
    assert np.mean(theirs) == pytest.approx(mean, abs=5e-5)


def test_ndcg_of_one_query_beside_the_articles() -> None:
    assert score("NDCG@5", Q1) == pytest.approx([0.671], abs=5e-4)
    assert ndcg_of_retrieved(Q1, 5) == pytest.approx(0.877, abs=5e-4)


def test_an_ideal_of_the_retrieved_alone_calls_an_answer_perfect_that_misses_two_of_three() -> None:
    poor = expecting("d1", "d2", "d4"), ranking_of(["d1", "x1", "x2", "x3", "x4"])
    assert ndcg_of_retrieved(poor, 5) == 1
    assert score("NDCG@5", poor) == pytest.approx([0.469], abs=5e-4)
