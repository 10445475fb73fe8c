"""Why a canary is degraded, in sentences with their numbers."""

from typing import Any

import pytest

from app.formats.explanations import first_expected, not_returned, why_degraded


@pytest.mark.parametrize(
    ("reason", "more", "said"),
    [
        ("low_relevance", {}, "top score 0.300 is below its minimum 0.5"),
        ("missing", {"ranking": [{"rank": 7, "grade": 2}]}, "no expected chunk in the top 5, the first is at rank 7"),
        ("below_floor", {"measures": {"R@5": 0.5, "RR": 1.0}}, "R@5 0.500 is below its floor 0.8"),
        ("forbidden", {}, "a chunk that must not be returned was returned"),
        ("answered", {}, "answered with top score 0.300 though no good answer exists (at most 0.2)"),
        ("regressed", {}, "worse than in its baseline"),
    ],
)
def test_every_reason_is_said_in_words_with_its_numbers(reason: str, more: dict[str, Any], said: str) -> None:
    limits = {"k": 5, "min_relevance_score": 0.5, "max_relevance_score": 0.2, "floors": {"R@5": 0.8, "RR": 0.5}}
    told = {"reasons": [reason], "top_score": 0.3, "ranking": [], "measures": {}, **limits, **more}
    assert why_degraded(told) == [said]


def test_what_stands_below_the_top_k_is_not_said_to_be_missing_altogether() -> None:
    late, gone = {"id": "late", "grade": 1}, {"id": "gone", "grade": 2}
    told = {"ranking": [{"rank": 7, "grade": 1, "judgment": late}], "missing": [late, gone]}
    assert not_returned(told) == [gone]
    assert first_expected(told) == 7
