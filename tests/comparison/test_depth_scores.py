"""Scores cut at a depth: those that the run itself would have had, had it asked for so few hits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.base.values import Judgment, Ranking
from app.scoring.measures import Batch, compute, measures_for, scores_at_depth
from app.scoring.rankings import Match, match, prepare
from tests.support.fakes import hits

CHUNKS = [f"c{number}" for number in range(12)]


def _first(ranking: Ranking, depth: int) -> Ranking:
    return hits(*ranking.ids[:depth])


@given(
    grades=st.lists(st.dictionaries(st.sampled_from(CHUNKS), st.integers(0, 3), min_size=1), min_size=1, max_size=6),
    order=st.permutations(CHUNKS),
    length=st.integers(0, 12),
    depth=st.integers(1, 12),
)
def test_cut_scores_are_those_of_a_shorter_ranking(
    grades: list[dict[str, int]], order: list[str], length: int, depth: int
) -> None:
    prepared = [prepare([Judgment(id=key, grade=grade) for key, grade in one.items()]) for one in grades]
    ranking = hits(*order[:length])
    stored = [Match.from_bytes(match(one, ranking).to_bytes()) for one in prepared]
    short = _first(ranking, depth)
    measures = measures_for([k for k in (1, 3, 5, depth) if k <= depth])
    batch = Batch.of([match(one, short) for one in prepared], prepared, [len(short)] * len(prepared))
    expected = dict(zip(map(str, measures), compute(batch, measures, depth).T, strict=True))
    expected[f"RR@{depth}"], expected[f"AP@{depth}"] = expected.pop("RR"), expected.pop("AP")
    del expected["duplicate_ratio"]
    found = scores_at_depth(stored, prepared, cutoffs=[1, 3, 5, 20], depth=depth)
    assert set(found) == set(expected)
    for name, column in expected.items():
        np.testing.assert_allclose(found[name], column, rtol=0, atol=1e-12, err_msg=name)
