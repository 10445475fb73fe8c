"""Measures: equal to 1e-9 with the plain implementation, on hits that meet several judgments too."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.scoring.measures import CUTOFFS, Floats, Measure, measures_for
from tests.support.plain_measures import plain_measure
from tests.support.random_rankings import Topic, judgment_lists, rankings
from tests.support.scored_topics import scored


def plain(topics: Sequence[Topic], measures: Sequence[Measure]) -> Floats:
    """Score them one by one."""
    rows = [[plain_measure(m.name, m.k, judgments, ranking) for m in measures] for judgments, ranking in topics]
    return np.array(rows)


@given(st.lists(st.tuples(judgment_lists(), rankings()), min_size=1, max_size=4))
def test_equal_to_the_plain_implementation_with_duplicates_and_chunks_that_meet_several(topics: list[Topic]) -> None:
    measures = measures_for(CUTOFFS)
    np.testing.assert_allclose(scored(topics, measures), plain(topics, measures), rtol=0, atol=1e-9)
