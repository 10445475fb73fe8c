"""The worked examples of the articles this project began with, and their NDCG."""

import math
from collections.abc import Sequence

from app.base.values import Judgment
from tests.support.random_rankings import Topic, ranking_of


def expecting(*ids: str) -> list[Judgment]:
    """Return judgments of grade 1 on these ids."""
    return [Judgment(id=one) for one in ids]


ONE_QUERY: Topic = expecting("a", "b", "c"), ranking_of(["a", "x1", "x2", "b", "x3", "x4", "x5", "x6", "x7", "x8"])
"""Ten hits, two of three relevant chunks among them."""
Q1: Topic = expecting("d1", "d2", "d4"), ranking_of(["d1", "d3", "d5", "d2", "d7"])
Q2: Topic = expecting("d1", "d2"), ranking_of(["d6", "d8", "d1", "d9", "d2"])


def ndcg_of_retrieved(topic: Topic, k: int) -> float:
    """Return NDCG@k with the ideal taken from the retrieved top k alone, as the articles have it, 0 without gain."""
    judgments, ranking = topic
    grades = {judgment.id: judgment.grade for judgment in judgments}
    gains = [grades.get(chunk, 0) for chunk in ranking.ids[:k]]
    ideal = _dcg(sorted(gains, reverse=True))
    return _dcg(gains) / ideal if ideal else 0.0


def _dcg(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))
